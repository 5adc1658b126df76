"""The reader of a buildcfg folder, with file and line of every mistake and contradiction."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from ftbuild.config import debian, document, holes
from ftbuild.config.bases import BasesConfig
from ftbuild.config.consistency import contradictions
from ftbuild.config.debian import DebianLock
from ftbuild.config.document import Document
from ftbuild.config.families import ModelsConfig
from ftbuild.config.holes import HolesConfig
from ftbuild.config.schema import (
    FILES,
    LOCK_FILE,
    OPTIONAL,
    Config,
    Lock,
    MatrixConfig,
    PatchesConfig,
    SourcesConfig,
)
from ftbuild.config.types import Model
from ftbuild.errors import ConfigError

M = TypeVar("M", bound=Model)

OWN = Path(__file__).resolve().parents[2] / "buildcfg"

# What a person can read; a file that is wrong throughout has one cause.
MAX_COMPLAINTS = 10
MAX_CHARACTERS = 300
_ABSENT = object()
_HINT = "docs/configuration.md lists every key"


def load(folder: Path) -> Config:
    """Read and cross-check a buildcfg folder; ConfigError names file, line and key of what is wrong.

    A missing lock counts as an empty one: whatever needs a pin reports it.
    """
    if not folder.is_dir():
        raise ConfigError("the configuration folder does not exist", where=str(folder), hint="check --config")
    names = [name for name in FILES if name not in OPTIONAL or (folder / name).exists()]
    documents = {name: document.read(folder / name) for name in names}
    config = Config(
        folder=folder.resolve(),
        matrix=_validated(documents["matrix.yaml"], MatrixConfig),
        sources=_validated(documents["sources.yaml"], SourcesConfig),
        lock=_validated(documents[LOCK_FILE], Lock) if LOCK_FILE in documents else Lock(),
        debian_lock=_validated(documents[debian.LOCK_FILE], DebianLock)
        if debian.LOCK_FILE in documents
        else DebianLock(),
        patches=_validated(documents["patches.yaml"], PatchesConfig),
        bases=_validated(documents["bases.yaml"], BasesConfig),
        models=_validated(documents["models.yaml"], ModelsConfig),
        holes=_validated(documents[holes.FILE], HolesConfig) if holes.FILE in documents else HolesConfig(),
        documents=documents,
    )
    found = [
        f"{documents[wrong.file].place(*wrong.keys)}: {wrong.message}"
        for wrong in islice(contradictions(config), MAX_COMPLAINTS + 1)
    ]
    if found:
        raise ConfigError(_shortened(found), hint=_HINT)
    return config


@cache
def own_models() -> ModelsConfig:
    """Return the families of this checkout's buildcfg/models.yaml, for callers without a configuration."""
    return _validated(document.read(OWN / "models.yaml"), ModelsConfig)


def _validated(read: Document, model: type[M]) -> M:
    """Return the data of a file as its model; ConfigError names every wrong key with its line."""
    if read.data is None:
        raise ConfigError("the file is empty", where=str(read.file), hint=_HINT)
    try:
        return model.model_validate(read.data)
    except ValidationError as invalid:
        raise ConfigError(_shortened(_explained(invalid, read)), hint=_HINT) from None


def _explained(invalid: ValidationError, read: Document) -> list[str]:
    """Return a line for each wrong key; what may have several types has a complaint for each of them."""
    found: dict[tuple[str, ...], list[str]] = {}
    for error in invalid.errors(include_url=False):
        keys = tuple(_keys(error["loc"], read.data, missing=error["type"] == "missing"))
        message = _FRIENDLY.get(error["type"], _plain_message)(dict(error))
        found.setdefault(keys, []).append(message)
        if len(found) > MAX_COMPLAINTS:
            break
    return [
        f"{read.place(*keys)}: {'.'.join(keys) or 'the file'}: {' or '.join(dict.fromkeys(messages))}"
        for keys, messages in found.items()
    ]


def _keys(location: Sequence[str | int], data: Any, *, missing: bool) -> Iterator[str]:
    """Yield the keys of a location: it also names types that a value could have had."""
    for number, part in enumerate(location, start=1):
        inner = list(enumerate(data)) if isinstance(data, list) else []
        inner = list(data.items()) if isinstance(data, Mapping) else inner
        value = next((value for key, value in inner if str(key) == str(part)), _ABSENT)
        if value is not _ABSENT:
            data = value
        elif not (missing and number == len(location)):
            continue
        yield str(part)


def _shortened(complaints: list[str]) -> str:
    lines = [
        line if len(line) <= MAX_CHARACTERS else f"{line[:MAX_CHARACTERS]}..."
        for line in complaints[:MAX_COMPLAINTS]
    ]
    return "\n".join([*lines, *(["and more"] if len(complaints) > MAX_COMPLAINTS else [])])


def _plain_message(error: dict[str, Any]) -> str:
    message = str(error["msg"]).removeprefix("Value error, ")
    return message.replace("Input should be", "must be")


def _not_text(error: dict[str, Any]) -> str:
    given = error["input"]
    if isinstance(given, bool):
        return f"must be text in quotes, not {_truth(given)}"
    if isinstance(given, int | float):
        return f"must be text in quotes, not the number {given} (YAML reads 22.10 as 22.1)"
    return f"must be text, not {_Brief().repr(given)}"


def _truth(given: bool) -> str:
    return f"{str(given).lower()} (YAML reads yes, no, on and off so, too)"


def _not_literal(wanted: str) -> Callable[[dict[str, Any]], str]:
    def message(error: dict[str, Any]) -> str:
        given = error["input"]
        if isinstance(given, bool):
            return f"must be {wanted}, not {_truth(given)}"
        return f"must be {wanted}{' without quotes' * isinstance(given, str)}, not {_Brief().repr(given)}"

    return message


class _Brief(reprlib.Repr):
    """Texts of values for messages: an alias of aliases is printed as often as it repeats."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxdict, self.maxlist = 2, 2, 2


_FRIENDLY: Mapping[str, Callable[[dict[str, Any]], str]] = {
    "extra_forbidden": lambda error: "unknown key",
    "missing": lambda error: "required, but missing",
    "string_type": _not_text,
    "int_type": _not_literal("a whole number"),
    "float_type": _not_literal("a number"),
    "bool_type": _not_literal("true or false"),
    "string_too_short": lambda error: "must not be empty",
    "too_short": lambda error: "must not be empty",
    "model_type": lambda error: f"must be a mapping of keys, not {_Brief().repr(error['input'])}",
    "mapping_type": lambda error: f"must be a mapping, not {_Brief().repr(error['input'])}",
    "tuple_type": lambda error: f"must be a list, not {_Brief().repr(error['input'])}",
}
