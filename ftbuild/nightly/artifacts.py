"""Artifacts of a cell's commands, read for the report: images, tags, compiles, figures, logs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftbuild.engine import daemon
from ftbuild.errors import SmokeError
from ftbuild.gates import records
from ftbuild.gates.report import SMOKE
from ftbuild.nightly import ninja
from ftbuild.nightly.record import Image, Patch, Reason, Unit
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing.publish import RECORD
from ftbuild.text import bounded_json
from ftbuild.text.results import State as CheckState

if TYPE_CHECKING:
    import docker

TAIL_LINES = 60
_ERROR = re.compile(r"^(?:\[[^\]]+\] failed|error): ")
_ERROR_LINES = 8


def images(client: docker.DockerClient, plan: Plan, folder: Path) -> dict[str, Image]:
    """Return the images of a cell by product, with the tags under which they were published."""
    published: Mapping[str, Mapping[str, str]] = _read(folder / RECORD)
    images_by_product = {}
    for product in PRODUCTS:
        image = daemon.image(client, plan.tag(product))
        tags = published.get(product) or {}
        if image is not None or tags:
            images_by_product[product] = Image(
                str(image.id) if image else "",
                int(image.attrs["Size"]) if image else 0,
                tags.get("reference", ""),
                tags.get("digest", ""),
            )
    return images_by_product


def patches(plan: Plan) -> tuple[Patch, ...]:
    """Return the patches of a plan."""
    return tuple(Patch(f"{p.component}/{p.file}", p.origin) for p in plan.patches)


def compiles(plan: Plan, folder: Path) -> dict[str, tuple[Unit, ...]]:
    """Return the compiled units of each build tree; a tree that was not compiled is left out."""
    units_by_tree = {tree.name: _units(folder / "info" / tree.name) for tree in plan.trees}
    return {name: units for name, units in units_by_tree.items() if units}


def figures(folder: Path) -> Mapping[str, Mapping[str, float]]:
    """Return the figures that the smoke test measured, by variant."""
    record = _smoke_record(folder)
    return record.figures if record else {}


def tail(log: Path) -> tuple[str, ...]:
    """Return the last `TAIL_LINES` lines of a log."""
    return tuple(_lines(log)[-TAIL_LINES:])


def failure(log: Path, folder: Path, reason: Reason) -> str:
    """Return why a cell failed: ftbuild's last message in the log, else failed checks, else the last line.

    The checks are those of the smoke test's record in `folder`: the command prints them as a table only.
    """
    lines = _lines(log)
    checks = _failed_checks(folder) if reason is Reason.SMOKE else ""
    return _last_message(lines) or checks or _last_line(lines)


def message(log: Path) -> str:
    """Return ftbuild's last message in a log, else its last line."""
    lines = _lines(log)
    return _last_message(lines) or _last_line(lines)


def _last_line(lines: Sequence[str]) -> str:
    return next((line for line in reversed(lines) if line.strip()), "")


def _last_message(lines: Sequence[str]) -> str:
    starts = [n for n, line in enumerate(lines) if _ERROR.match(line)]
    if not starts:
        return ""
    first, *more = lines[starts[-1] :][:_ERROR_LINES]
    return "\n".join([_ERROR.sub("", first), *(line for line in more if line.startswith("  "))])


def _failed_checks(folder: Path) -> str:
    """Return the names of the failed checks in the smoke test's record, with the hint of the first."""
    record = _smoke_record(folder)
    failed = [f for f in record.findings if f.state is CheckState.FAIL] if record else []
    hints = {f"{f.check} ({f.image})": f.hint for f in failed}
    advice = [f"  next:  {hint}" for hint in hints.values() if hint][:1]
    return "\n".join([f"failed: {', '.join(hints)}", *advice]) if hints else ""


def _smoke_record(folder: Path) -> records.Record | None:
    """Return the smoke test's record, None when there is none or it is damaged."""
    try:
        return records.read(SMOKE, folder)
    except SmokeError:
        return None


def _units(info: Path) -> tuple[Unit, ...]:
    """Return ninja's edges, without the time that they waited for a slot (dockerfiles/steps/slot.py)."""
    units = ninja.units("\n".join(_lines(info / "ninja_log")))
    try:
        ran = _slots(_lines(info / "slots.tsv"), int((info / "started").read_text()))
    except (OSError, ValueError):
        return units
    return tuple(
        replace(u, start=ran[u.output][0], end=ran[u.output][1]) if u.output in ran else u for u in units
    )


def _slots(lines: Sequence[str], zero: int) -> dict[str, tuple[float, float]]:
    """Return start and end of each output's compiler, in seconds since ninja began."""
    rows = (line.split("\t") for line in lines)
    return {row[3]: ((int(row[0]) - zero) / 1000, (int(row[1]) - zero) / 1000) for row in rows}


def _lines(log: Path) -> list[str]:
    try:
        return log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _read(file: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = bounded_json.loads(file.read_bytes())
        return record
    except (OSError, ValueError):
        return {}
