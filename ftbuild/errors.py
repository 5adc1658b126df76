"""One exception per kind of failure, each with its exit code (docs/exit-codes.md).

A message answers three questions: what failed, where, and what to do next. `cli/command.py` prints it without
a traceback and ends with `exit_code`; so does the OpenAI front, which has a link to this file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

ErrorT = TypeVar("ErrorT", bound="FtbuildError")


class FtbuildError(Exception):
    """Base of every failure that a user can do something about."""

    exit_code = 1

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def converted(self, kind: type[ErrorT]) -> ErrorT:
        """Return the same message as another kind of failure, for its exit code."""
        return kind(self.what, where=self.where, hint=self.hint)

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.hint:
            lines.append(f"  next:  {self.hint}")
        return "\n".join(lines)


class ConfigError(FtbuildError):
    """buildcfg/ or a command line option is wrong."""

    exit_code = 2


class NothingSelected(FtbuildError):
    """The options are valid, but no cell of the matrix matches them."""

    exit_code = 3


class HostError(FtbuildError):
    """The machine lacks something: engine, buildx, disk, GPU, a reachable registry."""

    exit_code = 4


class PinError(FtbuildError):
    """A source does not match its pin, is not pinned, or cannot be fetched."""

    exit_code = 5


class PatchError(FtbuildError):
    """A patch does not apply, or its series or header is malformed."""

    exit_code = 6


class BuildError(FtbuildError):
    """BuildKit, CMake or a compiler failed."""

    exit_code = 7


class ConversionError(FtbuildError):
    """A converter failed, or the weights it wrote are incomplete."""

    exit_code = 7


class VerifyError(FtbuildError):
    """A built image fails a check that needs no GPU."""

    exit_code = 8


class SmokeError(FtbuildError):
    """A served answer is wrong, or the server does not start."""

    exit_code = 9


class PublishError(FtbuildError):
    """A registry refused, or the image may not be published."""

    exit_code = 10


class Interrupted(FtbuildError):
    """Ctrl-C. Running commands are stopped; running the same command again resumes."""

    exit_code = 130


def worst(codes: Iterable[int]) -> int:
    """Return the exit code of a run over several cells: interruption first, else the highest, 0 for none."""
    return max(codes, default=0)
