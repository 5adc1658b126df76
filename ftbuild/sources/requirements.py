"""Requirements files of pip in which each requirement is one wheel: its version, its sha256, its file name.

One wheel, not all of a version: so the files alone decide which bytes are installed. The file name is the
comment above a requirement.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from ftbuild.architecture import MACHINES
from ftbuild.config.bases import BaseConfig
from ftbuild.errors import ConfigError, PinError
from ftbuild.host import reading
from ftbuild.sources.lock import RELOCK

_NAMED = re.compile(r"([A-Za-z0-9][\w.-]*)==([^\s;#\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


# The names of manylinux before PEP 600, by the glibc that each stands for.
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


@dataclass(frozen=True)
class Requirement:
    """A distribution in one version; `wheel` and `sha256` are empty until it is locked."""

    name: str
    version: str
    wheel: str = ""
    sha256: str = ""
    notes: tuple[str, ...] = ()

    def render(self) -> str:
        """Return its lines in a requirements file."""
        comments = "".join(f"{note}\n" for note in self.notes)
        if not self.sha256:
            return f"{comments}{self.name}=={self.version}\n"
        return f"{comments}# {self.wheel}\n{self.name}=={self.version} \\\n    --hash=sha256:{self.sha256}\n"


@dataclass(frozen=True)
class Requirements:
    """A requirements file: the comment at its top, and its requirements in their order."""

    file: Path
    header: tuple[str, ...]
    requirements: tuple[Requirement, ...]

    def render(self, requirements: Iterable[Requirement]) -> str:
        """Return the file with other requirements."""
        return "".join(f"{line}\n" for line in self.header) + "".join(r.render() for r in requirements)

    def locked(self) -> tuple[Requirement, ...]:
        """Return the requirements; PinError unless each one names its wheel and the hash."""
        for requirement in self.requirements:
            if not requirement.sha256:
                raise PinError(
                    f"{requirement.name}=={requirement.version} is not locked to a wheel",
                    where=str(self.file),
                    hint=RELOCK,
                )
        return self.requirements


def read(file: Path) -> Requirements:
    """Read a requirements file; ConfigError with the line of what is not `name==version` with one hash."""
    return parsed(file, reading.read_text(file))


def parsed(file: Path, text: str) -> Requirements:
    """Return the requirements in the text of a file; errors as those of `read`."""
    lines = text.splitlines()
    top = next(
        (at for at, line in enumerate(lines) if not line.startswith("#") or _is_wheel(line)), len(lines)
    )
    found = tuple(_requirements(file, lines[top:], top))
    names = Counter(canonicalize_name(requirement.name) for requirement in found)
    if twice := next((name for name, times in names.items() if times > 1), None):
        raise ConfigError(f"{twice} is required twice", where=str(file))
    return Requirements(file, tuple(lines[:top]), found)


def pip_options(base: BaseConfig) -> tuple[str, ...]:
    """Return pip's options for the Python and the platform of a base."""
    machine = MACHINES[base.architecture]
    newest = int(base.manylinux.partition(".")[2])
    names = [f"manylinux_2_{minor}" for minor in range(newest, 4, -1)]
    names += [name for minor, name in _LEGACY.items() if minor <= newest]
    platforms = [word for name in (*names, "linux") for word in ("--platform", f"{name}_{machine}")]
    return ("--only-binary", ":all:", "--implementation", "cp", "--python-version", base.python, *platforms)


def _requirements(file: Path, lines: list[str], offset: int) -> Iterator[Requirement]:
    notes: list[str] = []
    wheel = statement = ""
    for number, line in enumerate(lines, offset + 1):
        text = line.strip()
        if not statement and text.startswith("#"):
            wheel = text.lstrip("# ") if _is_wheel(text) else wheel
            notes += [] if _is_wheel(text) else [text]
            continue
        statement = f"{statement} {text}".strip()
        if statement.endswith("\\"):
            statement = statement.removesuffix("\\").strip()
            continue
        if statement:
            yield _requirement(statement, wheel, tuple(notes), f"{file}:{number}")
        statement, wheel, notes = "", "", []


def _requirement(statement: str, wheel: str, notes: tuple[str, ...], where: str) -> Requirement:
    named = _NAMED.match(statement)
    rest = statement[named.end() :].split() if named else []
    hashes = [_HASH.fullmatch(word) for word in rest]
    if named is None or not all(hashes) or len(hashes) > 1:
        raise ConfigError(
            f"{statement[:80]!r} is not a requirement of one wheel",
            where=where,
            hint=f"write NAME==VERSION; {RELOCK} adds the hash of its wheel",
        )
    name, version = named.groups()
    sha256 = hashes[0][1] if hashes and hashes[0] else ""
    # Whoever changes a version by hand leaves the wheel of the old one behind.
    if sha256 and not _is_of(wheel, name, version):
        raise PinError(
            f"the hash of {name}=={version} belongs to {wheel or 'a wheel without a name'}",
            where=where,
            hint=f"remove the hash, then {RELOCK}",
        )
    return Requirement(name, version, wheel if sha256 else "", sha256, notes)


def _is_wheel(comment: str) -> bool:
    return comment.endswith(".whl") and " " not in comment.lstrip("# ")


def _is_of(wheel: str, name: str, version: str) -> bool:
    try:
        distribution, released, *_ = parse_wheel_filename(wheel)
        return distribution == canonicalize_name(name) and released == Version(version)
    except (InvalidWheelFilename, InvalidVersion):
        return False
