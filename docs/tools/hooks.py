"""MkDocs hooks: pages from outside docs/, and references made from the commands and the schemas.

Every page is written for the repository, where its links lead to files of the checkout. Here these links are
rewritten to the places of the same files on the site.
"""

from __future__ import annotations

import json
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from ftbuild.cli.arguments import Option

ROOT = Path(__file__).resolve().parents[2]
# Pages and files that stand elsewhere in the checkout, by their path there.
PAGES = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/README.md",
    "benchmarks/log.md",
    "ftserve/README.md",
    "sample/README.md",
)
FILES = ("LICENSE", "benchmarks/results/*.svg")
SCHEMAS = ("matrix", "bases", "sources", "sources.lock", "patches", "models", "holes")
_LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
_CODE = re.compile(r"(^```.*?^```|^ {4}.*?$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and files from outside docs/."""
    for path in sorted(_outside()):
        files.append(File.generated(config, _place(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in the references and rewrite links between files of the checkout."""
    if "<!-- commands -->" in markdown:
        markdown = markdown.replace("<!-- commands -->", "\n".join(commands()))
    if "<!-- keys -->" in markdown:
        markdown = markdown.replace("<!-- keys -->", "\n".join(keys()))
    source = page.file.src_uri
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]  # it would hold the page itself alone
    repository = source if source in _outside() else f"docs/{source}"
    # Code is left alone: split() gives text and code in turn.
    parts = _CODE.split(markdown)
    parts[::2] = [_LINK.sub(lambda link: _rewritten(link, repository, source), part) for part in parts[::2]]
    return "".join(parts)


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
                columns = (f"`{_flag(option)}`", _cell(option.help), _default(option))
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


def _outside() -> set[str]:
    found = {path for path in PAGES if (ROOT / path).exists()}
    return found | {str(file.relative_to(ROOT)) for pattern in FILES for file in ROOT.glob(pattern)}


def _place(repository: str) -> str:
    """Where the site has a file of the checkout."""
    return "LICENSE.txt" if repository == "LICENSE" else repository.removeprefix("docs/")


def _rewritten(link: re.Match[str], repository: str, source: str) -> str:
    target = posixpath.normpath(posixpath.join(posixpath.dirname(repository), link[2]))
    if target.startswith(".."):
        return link[0]
    place = posixpath.relpath(_place(target), posixpath.dirname(source) or ".")
    return f"{link[1]}{place}{link[3]}"


def _flag(option: Option) -> str:
    if option.kind is bool and not option.repeatable:
        return f"--[no-]{option.flag[2:]}" if option.default else option.flag
    nouns = {int: "NUMBER", float: "NUMBER", Path: "PATH"}
    return f"{option.flag} {'|'.join(option.choices) or nouns.get(option.kind, 'TEXT')}"


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
