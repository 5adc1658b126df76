"""Files on command lines."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ftbuild.errors import FtbuildError

T = TypeVar("T")


def holding(what: str, read: Callable[[Path], T]) -> Callable[[str], T]:
    """Return a type for argparse: what `read` makes of the file with a path, or why that is not `what`."""

    def content(text: str) -> T:
        try:
            return read(Path(text))
        except OSError as problem:
            raise argparse.ArgumentTypeError(f"{text}: {problem.strerror}") from problem
        except FtbuildError as problem:
            raise argparse.ArgumentTypeError(f"{text}: {problem.what}") from problem
        except (ValueError, LookupError, TypeError) as problem:
            raise argparse.ArgumentTypeError(f"{text} is not {what}: {problem!r}") from problem

    return content
