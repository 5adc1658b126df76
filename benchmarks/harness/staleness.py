"""Whether a record is of what the checkout is today.

The rule: a record of cells is current while each of them has the input key that was measured, a record of the
program's own start-up while no file of the program has changed. For a record that lacks these it is unknown.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import origin
from benchmarks.harness.figure import Result
from ftbuild.errors import FtbuildError
from testing import ROOT

if TYPE_CHECKING:
    from ftbuild.config.schema import Config

BEFORE = "taken before commits and keys were recorded"
CONFIGURATIONS = {"real": ROOT / "buildcfg", "sample": ROOT / "buildcfg" / "sample"}
_CELL = re.compile(r"(?P<triton>[\d.]+)-sm(?P<sms>[\d_]+)(?:-(?P<base>.+))?")


@dataclass(frozen=True)
class Verdict:
    """Whether a record is current (None: unknown), and why not."""

    current: bool | None
    why: str = ""


# Returns the key that a cell of a stack has, empty if there is no such cell.
Keys = Callable[[str, str], str]


def judge(result: Result, definition: int, keys: Keys, program: str) -> Verdict:
    """Compare a record with today's definition of its benchmark, keys and program."""
    if result.definition != definition:
        return Verdict(False, f"by definition {result.definition} of the figures, which is {definition} now")
    if result.origin is None:
        return Verdict(None, BEFORE)
    if not result.origin.cells:
        changed = result.origin.program != program
        return Verdict(not changed, "ftbuild/, ftserve/ or tasks.py has changed since" if changed else "")
    if lacking := [measured.cell for measured in result.origin.cells if not measured.key]:
        return Verdict(None, f"the key of {', '.join(lacking)} was not recorded")
    changes = [
        f"{measured.cell} had the key {measured.key} and has {now or 'none'}"
        for measured in result.origin.cells
        if (now := keys(result.stack, measured.cell)) != measured.key
    ]
    return Verdict(not changes, "; ".join(changes))


@functools.cache
def key_now(stack: str, cell: str) -> str:
    """Return the input key that the configuration gives a cell, empty if it has no such cell."""
    from ftbuild.cli import selection

    match = _CELL.fullmatch(cell)
    if not match:
        return ""
    folder, base = CONFIGURATIONS[stack], match["base"]
    sms = match["sms"].replace("_", ",")
    chosen = selection.Selection(folder, [match["triton"]], [sms], (), [base] if base else [])
    try:
        (plan,) = selection.plans(_configuration(folder), chosen)
    except FtbuildError:
        return ""
    return plan.key


@functools.cache
def program_now() -> str:
    """Return the digest of the program's files."""
    return origin.program(ROOT)


@functools.cache
def _configuration(folder: Path) -> Config:
    from ftbuild.config import loader

    return loader.load(folder)


def today(result: Result, definition: int) -> Verdict:
    """Judge a record by this checkout."""
    return judge(result, definition, key_now, program_now())
