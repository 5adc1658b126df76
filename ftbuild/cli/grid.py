"""The matrix for people: one grid over all bases, a letter for what is known of each image."""

from __future__ import annotations

from ftbuild.config.schema import Config
from ftbuild.features import LeftOut
from ftbuild.matrix import Cell, Matrix
from ftbuild.proven import NEVER, NEVER_BUILT, evidence, support_end
from ftbuild.sm import sm_set_id
from ftbuild.text.tables import render

_RAN, _BUILT, _NEVER, _IMPOSSIBLE = "R", "b", "n", "."
_LEGEND = {
    _RAN: "ran on a GPU",
    _BUILT: "built, never run",
    _NEVER: "never built",
    _IMPOSSIBLE: "cannot be built",
}


def _row(cell: Cell) -> tuple[str, str, LeftOut]:
    return cell.triton, cell.base, cell.left_out


def _lacking(cell: Cell) -> list[str]:
    return [f", {what}" for what in cell.left_out.short()]


def matrix(config: Config, table: Matrix) -> str:
    """Releases and bases by SMs, the letters, the GPUs on which images ran, and how long there are fixes."""
    letters = {cell: _letter(config, cell) for cell in table.cells}
    letters |= {entry.cell: _IMPOSSIBLE for entry in table.excluded}
    places = {(*_row(cell), cell.sms): letter for cell, letter in letters.items()}
    columns = sorted({cell.sms for cell in letters}, key=lambda sms: (len(sms), sms))
    order = list(config.matrix.releases)
    pairs = {_row(cell): cell for cell in letters}.values()
    rows = [
        (
            cell.triton,
            "".join([cell.base, " (default)" if cell.is_default_base else "", *_lacking(cell)]),
            *(places.get((*_row(cell), sms), "") for sms in columns),
        )
        for cell in sorted(pairs, key=lambda cell: (order.index(cell.triton), not cell.is_default_base))
    ]
    shown = [f"{letter}: {meaning}" for letter, meaning in _LEGEND.items() if letter in letters.values()]
    titles = ("Triton", "Base", *map(sm_set_id, columns))
    # Titles of tabulate are wider than a letter: with the first row as any other a terminal has room.
    grid = render((), [titles, *rows], header=False)
    return "\n".join([grid, "", "; ".join(shown), *_ran(config, table), *_supported(config, table)])


def reasons(table: Matrix) -> str:
    """Every cell that cannot be built, with the reasons."""
    if not table.excluded:
        return "every cell of these can be built"
    rows = [(entry.cell.id, "\n".join(entry.reasons)) for entry in table.excluded]
    return "\n" + render(("Excluded", "Why"), rows)


def hint(table: Matrix) -> str:
    """The way from the grid to the reasons, else to a build."""
    return (
        "--why lists what cannot be built, with the reasons"
        if table.excluded
        else "invoke build --sm SM --triton TRITON builds one"
    )


def _letter(config: Config, cell: Cell) -> str:
    """Return what is known of an image of all its SMs together, which is what is known of the least known."""
    known = set(evidence(config, cell).values())
    if NEVER_BUILT in known:
        return _NEVER
    return _BUILT if NEVER in known else _RAN


def _ran(config: Config, table: Matrix) -> list[str]:
    """Return a line for each release, base and GPU."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for cell in table.cells:
        for sm, what in evidence(config, cell).items():
            if what not in (NEVER, NEVER_BUILT):
                codes = found.setdefault((cell.triton, cell.base, what), [])
                codes.extend([sm.code] if sm.code not in codes else [])
    return [
        f"{release} on {base}: {', '.join(codes)} ran on {gpu}"
        for (release, base, gpu), codes in found.items()
    ]


def _supported(config: Config, table: Matrix) -> list[str]:
    """Return until when there are fixes, releases of one day together, and the bases without a promise."""
    ends: dict[str, list[str]] = {}
    for cell in table.cells:
        end = support_end(config, cell)
        names = ends.setdefault(end, [])
        name = cell.triton if end else f"{cell.triton} on {cell.base}"
        names.extend([name] if name not in names else [])
    return [
        f"fixes until {end}: {', '.join(names)}" if end else f"no fixes are promised: {', '.join(names)}"
        for end, names in sorted(ends.items(), key=lambda item: (not item[0], item[0]))
    ]
