"""What is known of the images of cells: whether they were built, where they ran, how long they get fixes."""

from __future__ import annotations

import json
from collections.abc import Iterable

from ftbuild.config.schema import Config
from ftbuild.matrix import Cell, Matrix
from ftbuild.sm import Sm

NEVER = "built, never run"
NEVER_BUILT = "never built"


def as_json(config: Config, table: Matrix) -> str:
    """Return the matrix for programs: `cells` with what is known of them, and `excluded` with reasons."""
    excluded = [{**e.cell.record(), "reasons": list(e.reasons)} for e in table.excluded]
    cells = [
        {**cell.record(), "evidence": evidence(config, cell), "support_end": support_end(config, cell)}
        for cell in table.cells
    ]
    return json.dumps({"cells": cells, "excluded": excluded}, indent=2)


def tried(config: Config, cell: Cell) -> str:
    """Return on which GPUs images like the cell's have run, for people: `sm_90: NVIDIA H200`."""
    if cell.left_out:
        return NEVER
    known = config.bases.bases[cell.base].tried.get(cell.triton, {})
    gpus = {sm.code: known.get(sm) for sm in cell.sms}
    if not any(gpus.values()):
        return NEVER
    return "; ".join(f"{code}: {gpu or NEVER}" for code, gpu in gpus.items())


def evidence(config: Config, cell: Cell) -> dict[Sm, str]:
    """Return by SM what is known of such images: never built, never run, or on which GPU they ran.

    What is known is of images that have everything.
    """
    if cell.left_out:
        return dict.fromkeys(cell.sms, NEVER_BUILT)
    base = config.bases.bases[cell.base]
    built, ran = base.built.get(cell.triton, ()), base.tried.get(cell.triton, {})
    return {sm: ran.get(sm) or (NEVER if sm in built else NEVER_BUILT) for sm in cell.sms}


def support_end(config: Config, cell: Cell) -> str:
    """Return the last day on which the cell's images get fixes; "" where none is promised.

    None is for a base of another publisher, whose packages are not ours to renew.
    """
    local = config.bases.bases[cell.base].local is not None
    return (config.matrix.releases[cell.triton].support_end or "") if local else ""


def unproven(config: Config, cells: Iterable[Cell]) -> list[str]:
    """Return a warning for each base that was never built for a release whose own base was."""
    warnings: dict[tuple[str, str], str] = {}
    for cell in cells:
        base, own = config.bases.bases[cell.base], config.matrix.releases[cell.triton].base
        if base.built.get(cell.triton) or not config.bases.bases[own].built.get(cell.triton):
            continue
        what = f", which is {base.image.format(release=cell.triton)}," if base.image else ""
        warnings[cell.triton, cell.base] = (
            f"nothing on base {cell.base}{what} was ever built or tested by the authors of ftbuild; "
            f"without --base, {cell.triton} stands on {own}, which was"
        )
    return list(warnings.values())
