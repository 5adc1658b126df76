"""Plans as files: what a nightly run has planned is what its commands build, test and publish.

A file holds a whole plan, its addresses of repositories included, so only its owner may read it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ftbuild.errors import ConfigError, FtbuildError
from ftbuild.host import reading
from ftbuild.host.files import write_private
from ftbuild.input_key import input_key
from ftbuild.plan import Plan
from ftbuild.text import bounded_json

NAME = "closed-plan.json"
# Ten times the largest of today's.
MAX_BYTES = 10_000_000
_HINT = "a nightly run writes it again: invoke nightly --resume"


def place(plan: Plan, work: Path) -> Path:
    """Return where the file of a plan is in a work folder."""
    return plan.folder(work) / NAME


def write(plan: Plan, file: Path) -> None:
    """Write a plan; HostError where that is impossible."""
    write_private(file, _plans().dump_json(plan))


def read(file: Path) -> Plan:
    """Return the plan of a file; ConfigError for one that is none, or that was changed."""
    try:
        plan = _plans().validate_json(reading.read_bytes(file, max_bytes=MAX_BYTES))
    except FtbuildError as unusable:
        raise ConfigError(f"the plan file cannot be read: {unusable.what}", where=str(file)) from unusable
    except ValidationError as invalid:
        what = f"the file holds no plan: {bounded_json.explained(invalid)}"
        raise ConfigError(what, where=str(file), hint=_HINT) from None
    if input_key(plan) != plan.key:
        raise ConfigError(f"the plan of {plan.cell.id} was changed", where=str(file), hint=_HINT)
    return plan


@cache  # Making it takes more time than reading a plan with it, and most commands read none.
def _plans() -> TypeAdapter[Plan]:
    return TypeAdapter(Plan)
