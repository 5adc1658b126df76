"""A JSON file of our own in a folder, read as a value of a known type."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import TypeAdapter

from ftbuild.errors import ConfigError, FtbuildError
from ftbuild.host import files, reading
from ftbuild.text import bounded_json

T = TypeVar("T")


@dataclass(frozen=True)
class JsonFile(Generic[T]):
    """The file `name` of a folder; a damaged one raises `error`, with the message `damaged` and a hint."""

    name: str
    kind: TypeAdapter[T]
    error: type[FtbuildError]
    damaged: str
    hint: str

    def read(self, folder: Path) -> T | None:
        """Return what the file holds, None if there is none.

        Raises `error` for a damaged one, HostError for one that cannot be read.
        """
        file = folder / self.name
        if not file.exists():
            return None
        try:
            return bounded_json.adapted(self.kind, reading.read_bytes(file))
        except (ConfigError, bounded_json.Unfit) as wrong:
            why = wrong.what if isinstance(wrong, ConfigError) else str(wrong)
            raise self.error(f"{self.damaged}: {why}", where=str(file), hint=self.hint) from wrong

    def write(self, folder: Path, value: T) -> None:
        """Write the file, whole or not at all."""
        text = self.kind.dump_json(value, indent=1).decode()
        files.write_atomic(folder / self.name, f"{text}\n")

    def discard(self, folder: Path) -> None:
        """Remove the file, if there is one."""
        (folder / self.name).unlink(missing_ok=True)
