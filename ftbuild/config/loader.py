"""The reader of a buildcfg folder, with file and line of every mistake.

YAML 1.1 has traps: a duplicate key silently wins, `075` is 61. Both are errors here, and so are unknown keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from ftbuild.config.consistency import contradictions
from ftbuild.config.families import ModelsConfig
from ftbuild.config.schema import (
    LOCK_FILE,
    BasesConfig,
    Config,
    Lock,
    MatrixConfig,
    PatchesConfig,
    SourcesConfig,
)
from ftbuild.config.types import Model
from ftbuild.errors import ConfigError

M = TypeVar("M", bound=Model)


def load(folder: Path) -> Config:
    """Read and cross-check a buildcfg folder; ConfigError names file, line and key of what is wrong.

    A missing lock counts as an empty one: whatever needs a pin reports it.
    """
    if not folder.is_dir():
        raise ConfigError("the configuration folder does not exist", where=str(folder), hint="check --config")
    lock = read(folder / LOCK_FILE, Lock) if (folder / LOCK_FILE).exists() else Lock()
    config = Config(
        folder=folder.resolve(),
        matrix=read(folder / "matrix.yaml", MatrixConfig),
        sources=read(folder / "sources.yaml", SourcesConfig),
        lock=lock,
        patches=read(folder / "patches.yaml", PatchesConfig),
        bases=read(folder / "bases.yaml", BasesConfig),
        models=read(folder / "models.yaml", ModelsConfig),
    )
    for file, message in contradictions(config):
        raise ConfigError(message, where=str(folder / file))
    return config


def read(file: Path, model: type[M]) -> M:
    """Read and validate one file; ConfigError names every wrong key with its line."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as missing:
        raise ConfigError("a configuration file is missing", where=str(file)) from missing
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
        data = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as broken:
        mark = broken.problem_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"not valid YAML: {broken.problem}", where=f"{file}{line}") from broken
    try:
        return model.model_validate(data)
    except ValidationError as invalid:
        raise ConfigError(
            _explain(invalid, file, node), hint="see docs/architecture.md, section Configuration"
        ) from None


def _explain(invalid: ValidationError, file: Path, root: yaml.Node | None) -> str:
    lines = []
    for error in invalid.errors():
        path = [str(part) for part in error["loc"] if part != "[key]"]
        message = _FRIENDLY.get(error["type"], _plain_message)(dict(error))
        lines.append(f"{file}:{_line(root, path)}: {'.'.join(path) or 'the file'}: {message}")
    return "\n".join(lines)


def _plain_message(error: dict[str, Any]) -> str:
    return str(error["msg"]).removeprefix("Value error, ")


_FRIENDLY: Mapping[str, Callable[[dict[str, Any]], str]] = {
    "extra_forbidden": lambda e: "unknown key",
    "missing": lambda e: "required, but missing",
    "string_type": lambda e: (
        f"must be text in quotes, not the number {e['input']} (YAML reads 22.10 as 22.1)"
        if isinstance(e["input"], int | float)
        else f"must be text, not {e['input']!r}"
    ),
}


def _line(node: yaml.Node | None, path: list[str]) -> int:
    """Return the line (from 1) of the deepest node on `path` that exists."""
    line = 1
    while node is not None:
        if isinstance(node, yaml.MappingNode) and path:
            found = next(((k, v) for k, v in node.value if k.value == path[0]), None)
            if found is None:
                return line
            line, node, path = found[0].start_mark.line + 1, found[1], path[1:]
        elif (
            isinstance(node, yaml.SequenceNode)
            and path
            and path[0].isdigit()
            and int(path[0]) < len(node.value)
        ):
            node, path = node.value[int(path[0])], path[1:]
            line = node.start_mark.line + 1
        else:
            return line
    return line


# libyaml's parser, which PyYAML's wheels bring, is several times faster than the one in Python.
_Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc,valid-type]
    """SafeLoader that refuses repeated keys and octal numbers."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[Any, int] = {}
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"duplicate key {key!r} (first on line {seen[key]})", key_node.start_mark
                )
            seen[key] = key_node.start_mark.line + 1
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made

    def construct_decimal(self, node: yaml.ScalarNode) -> int:
        if len(node.value.lstrip("+-")) > 1 and node.value.lstrip("+-").startswith("0"):
            raise yaml.constructor.ConstructorError(
                None,
                None,
                f"{node.value} has a leading zero: YAML would read an octal number",
                node.start_mark,
            )
        return int(self.construct_yaml_int(node))


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_decimal)
