"""References made of the commands and of the JSON Schemas of the configuration, in Markdown."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ftbuild.cli.arguments import Option

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ("matrix", "bases", "sources", "sources.lock", "patches", "models", "holes")


def commands() -> Iterator[str]:
    """The commands with their options, in the groups of `invoke --list`."""
    sys.path.insert(0, str(ROOT))
    import tasks

    for heading, members in tasks.namespace.groups.items():
        yield f"## {heading}\n"
        for member in members:
            yield f"### invoke {member.typed}\n\n{' '.join((member.__doc__ or '').split())}\n"
            if member.signature.options:
                yield "| option | meaning | default |\n|---|---|---|"
            for option in member.signature.options:
                # A `|` in code ends a table's cell on GitHub and not on the site: choices stand in words.
                choices = f"{', '.join(f'`{each}`' for each in option.choices)}: " if option.choices else ""
                columns = (f"`{_flag(option)}`", f"{choices}{_cell(option.help)}", _default(option))
                yield f"| {' | '.join(columns)} |"
            yield ""


def keys() -> Iterator[str]:
    """The keys of every configuration file, from its JSON Schema."""
    for name in SCHEMAS:
        schema = json.loads((ROOT / "buildcfg" / "schema" / f"{name}.schema.json").read_text())
        yield f"### {name}.yaml\n"
        yield from _object(schema)
        for model, definition in schema.get("$defs", {}).items():
            yield f"**{model}**: {_sentence(definition)}\n"
            yield from _object(definition)


def _flag(option: Option) -> str:
    if option.kind is bool and not option.repeatable:
        return f"--[no-]{option.flag[2:]}" if option.default else option.flag
    nouns = {int: "NUMBER", float: "NUMBER", Path: "PATH"}
    return f"{option.flag} {nouns.get(option.kind, 'TEXT')}"


def _default(option: Option) -> str:
    if option.required:
        return "required"
    if option.default in (None, False, True, "", ()):
        return ""
    return f"`{str(option.default).replace(f'{ROOT}/', '').replace(str(ROOT), '.')}`"


def _object(schema: dict[str, Any]) -> Iterator[str]:
    required = schema.get("required", ())
    yield "| key | meaning | type | default |\n|---|---|---|---|"
    for name, value in schema.get("properties", {}).items():
        default = json.dumps(value["default"]) if name not in required and "default" in value else ""
        columns = (f"`{name}`", value.get("description", ""), _type(value), default and f"`{default}`")
        yield f"| {' | '.join(map(_cell, columns))} |"
    yield ""


def _type(value: dict[str, Any]) -> str:
    if "$ref" in value:
        return str(value["$ref"].rsplit("/", 1)[-1])
    if "anyOf" in value:
        return " or ".join(_type(each) for each in value["anyOf"])
    if "enum" in value or "const" in value:
        return ", ".join(f"`{each}`" for each in value.get("enum", (value.get("const"),)))
    kind = value.get("type", "any")
    if kind == "array":
        return f"list of {_type(value.get('items', {}))}"
    if kind == "object":
        return f"map to {_type(_values(value))}"
    return str(kind)


def _values(value: dict[str, Any]) -> dict[str, Any]:
    patterns = value.get("patternProperties")
    inner = next(iter(patterns.values())) if patterns else value.get("additionalProperties")
    return inner if isinstance(inner, dict) else {}


def _sentence(definition: dict[str, Any]) -> str:
    return " ".join(definition.get("description", "").split("\n\n")[0].split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
