"""The reader of a buildcfg folder, with file and line of every mistake and contradiction."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from ftbuild.config import document
from ftbuild.config.consistency import contradictions
from ftbuild.config.document import Document
from ftbuild.config.families import ModelsConfig
from ftbuild.config.schema import (
    FILES,
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

# What a person can read; a file that is wrong throughout has one cause.
MOST_COMPLAINTS = 10
MOST_CHARACTERS = 300
_HINT = "docs/configuration.md lists every key"


def load(folder: Path) -> Config:
    """Read and cross-check a buildcfg folder; ConfigError names file, line and key of what is wrong.

    A missing lock counts as an empty one: whatever needs a pin reports it.
    """
    if not folder.is_dir():
        raise ConfigError("the configuration folder does not exist", where=str(folder), hint="check --config")
    names = [name for name in FILES if name != LOCK_FILE or (folder / name).exists()]
    documents = {name: document.read(folder / name) for name in names}
    config = Config(
        folder=folder.resolve(),
        matrix=_validated(documents["matrix.yaml"], MatrixConfig),
        sources=_validated(documents["sources.yaml"], SourcesConfig),
        lock=_validated(documents[LOCK_FILE], Lock) if LOCK_FILE in documents else Lock(),
        patches=_validated(documents["patches.yaml"], PatchesConfig),
        bases=_validated(documents["bases.yaml"], BasesConfig),
        models=_validated(documents["models.yaml"], ModelsConfig),
        documents=documents,
    )
    found = [
        f"{documents[wrong.file].place(*wrong.keys)}: {wrong.message}" for wrong in contradictions(config)
    ]
    if found:
        raise ConfigError(_shortened(found), hint=_HINT)
    return config


def _validated(read: Document, model: type[M]) -> M:
    """Return the data of a file as its model; ConfigError names every wrong key with its line."""
    if read.data is None:
        raise ConfigError("the file is empty", where=str(read.file), hint=_HINT)
    try:
        return model.model_validate(read.data)
    except ValidationError as invalid:
        raise ConfigError(_shortened(_explained(invalid, read)), hint=_HINT) from None


def _explained(invalid: ValidationError, read: Document) -> list[str]:
    found = []
    for error in invalid.errors(include_url=False)[: MOST_COMPLAINTS + 1]:
        keys = [part for part in error["loc"] if part != "[key]"]
        message = _FRIENDLY.get(error["type"], _plain_message)(dict(error))
        found.append(f"{read.place(*keys)}: {'.'.join(map(str, keys)) or 'the file'}: {message}")
    return found


def _shortened(complaints: list[str]) -> str:
    lines = [
        line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]}..."
        for line in complaints[:MOST_COMPLAINTS]
    ]
    return "\n".join([*lines, *(["and more"] if len(complaints) > MOST_COMPLAINTS else [])])


def _plain_message(error: dict[str, Any]) -> str:
    return str(error["msg"]).removeprefix("Value error, ")


def _not_text(error: dict[str, Any]) -> str:
    given = error["input"]
    if isinstance(given, bool):
        return f"must be text in quotes, not {str(given).lower()} (YAML reads yes, no, on and off so, too)"
    if isinstance(given, int | float):
        return f"must be text in quotes, not the number {given} (YAML reads 22.10 as 22.1)"
    return f"must be text, not {_Brief().repr(given)}"


class _Brief(reprlib.Repr):
    """Texts of values for messages: an alias of aliases is printed as often as it repeats."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxdict, self.maxlist = 2, 2, 2


_FRIENDLY: Mapping[str, Callable[[dict[str, Any]], str]] = {
    "extra_forbidden": lambda error: "unknown key",
    "missing": lambda error: "required, but missing",
    "string_type": _not_text,
    "string_too_short": lambda error: "must not be empty",
    "too_short": lambda error: "must not be empty",
    "model_type": lambda error: f"must be a mapping of keys, not {_Brief().repr(error['input'])}",
    "mapping_type": lambda error: f"must be a mapping, not {_Brief().repr(error['input'])}",
    "tuple_type": lambda error: f"must be a list, not {_Brief().repr(error['input'])}",
}
