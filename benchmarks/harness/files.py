"""Files on command lines."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from ftbuild.errors import FtbuildError


def holding(what: str, read: Callable[[Path], object]) -> Callable[[str], Path]:
    """Return a type for argparse: the path of a file that `read` can read, or why that is not `what`."""

    def path(text: str) -> Path:
        try:
            read(Path(text))
        except OSError as problem:
            raise argparse.ArgumentTypeError(f"{text}: {problem.strerror}") from problem
        except FtbuildError as problem:
            raise argparse.ArgumentTypeError(f"{text}: {problem.what}") from problem
        except (ValueError, LookupError, TypeError) as problem:
            raise argparse.ArgumentTypeError(f"{text} is not {what}: {problem!r}") from problem
        return Path(text)

    return path
