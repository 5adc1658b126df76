"""Markdown of a nightly run, for a job's summary on GitHub and GitLab (GitHub Flavored Markdown)."""

from __future__ import annotations

import html
from collections.abc import Iterator

from ftbuild.nightly.record import CellRecord, NightlyRun
from ftbuild.nightly.report import wording
from ftbuild.nightly.report.sanitize import cleaned, clip, first_line
from ftbuild.text import units
from ftbuild.text.markdown import code, escaped, row
from ftbuild.text.results import worst_first

# GitHub's limit for one step's summary (docs.github.com, "Step isolation and limits").
LIMIT_BYTES = 1024 * 1024
# Lines of a log, and characters of a line: the first pair that keeps the text below the limit is used.
_TAILS = ((60, 1000), (30, 500), (12, 300), (5, 200), (0, 0))
_DETAIL = 4000


def render(run: NightlyRun) -> str:
    """Return the text of `report.md`, at most `LIMIT_BYTES` long in UTF-8: tails are cut, not the table."""
    run = cleaned(run)
    texts = (_render(run, lines, width) for lines, width in _TAILS)
    return next((text for text in texts if len(text.encode()) <= LIMIT_BYTES), "") or _cut(run)


def _render(run: NightlyRun, lines: int, width: int) -> str:
    parts = [_head(run)]
    if trouble := wording.troubled(run):
        parts += ["## What went wrong", *(_trouble(cell, lines, width) for cell in trouble)]
    parts += ["## Cells", _table(run)]
    if run.builders:
        parts += ["## Builders", _builders(run)]
    if run.audit:
        parts += ["## Audit", _audit(run)]
    return "\n\n".join(parts) + "\n"


def _cut(run: NightlyRun) -> str:
    """Return the head and as many whole rows as fit, for a matrix that exceeds the limit."""
    kept, room = [], LIMIT_BYTES - 1000
    for line in f"{_head(run)}\n\n{_table(run)}".split("\n"):
        room -= len(line.encode()) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join([*kept, "", "The rest is in report.html.", ""])


def _head(run: NightlyRun) -> str:
    counts = ", ".join(text for _, text in wording.tally(run))
    facts = [
        escaped(run.started),
        units.duration(run.seconds),
        f"exit code {run.exit_code}",
        f"registry {code(run.registry)}" if run.registry else "not published",
        f"revision {code(run.revision[:12])}",
    ]
    symbol = "✓" if run.is_good else "✗"
    return f"# {symbol} {escaped(wording.headline(run))}\n\n{counts}\n\n{' · '.join(facts)}"


def _trouble(cell: CellRecord, lines: int, width: int) -> str:
    shown = wording.look(cell.state, cell.reason)
    parts = [f"### {shown.symbol} {escaped(cell.cell)}: {wording.meaning(cell)}"]
    if message := wording.message(cell):
        parts.append(_pre(clip(message, _DETAIL)))
    if step := wording.advice(cell):
        parts.append(f"**Next:** {escaped(step)}.")
    if cell.steps:
        parts.append(f"{code(cell.steps[-1].command)}")
    if tail := [clip(line, width) for line in cell.tail[-lines:]] if lines else []:
        log = f" of {html.escape(cell.steps[-1].log)}" if cell.steps else ""
        parts.append(f"<details><summary>The last lines{log}</summary>")
        parts += [_pre("\n".join(tail)), "</details>"]
    return "\n\n".join(parts)


def _table(run: NightlyRun) -> str:
    place = ("| Builder", "|---") if run.builders else ("", "")
    rows = [f"| Cell | State {place[0]}| Time | Pull | Detail |", f"|---|---{place[1]}|---:|---|---|"]
    rows += [row(_row(cell, with_builder=bool(run.builders))) for cell in run.cells]
    return "\n".join(rows)


def _row(cell: CellRecord, *, with_builder: bool) -> Iterator[str]:
    shown = wording.look(cell.state, cell.reason)
    yield escaped(cell.cell)
    wrong = shown.tone in ("bad", "error")
    yield f"{shown.symbol} {shown.word}{f' ({cell.reason.value})' if wrong else ''}"
    if with_builder:
        yield escaped(cell.builder)
    yield units.duration(cell.seconds) if cell.steps else ""
    yield "<br>".join(code(image.pull) for image in cell.images.values() if image.pull)
    yield escaped(first_line(cell.detail))


def _builders(run: NightlyRun) -> str:
    rows = ["| Builder | Driver | Jobs | Built | Lost |", "|---|---|---:|---|---|"]
    for builder in run.builders:
        built = ", ".join(wording.built_on(run, builder))
        cells = (builder.name, builder.driver, str(builder.jobs), built, first_line(wording.fate(builder)))
        rows.append(row(map(escaped, cells)))
    return "\n".join(rows)


def _audit(run: NightlyRun) -> str:
    rows = ["| Check | State | Detail |", "|---|---|---|"]
    for finding in worst_first(run.audit):
        cells = (escaped(finding.check), escaped(finding.state), escaped(first_line(finding.detail)))
        rows.append(row(cells))
    return "\n".join(rows)


def _pre(text: str) -> str:
    # An HTML block of this kind ends only at its closing tag, whatever its lines (CommonMark 4.6).
    return f"<pre>\n{html.escape(text, quote=False)}\n</pre>"
