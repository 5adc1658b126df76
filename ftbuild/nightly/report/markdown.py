"""The night as Markdown, for a job's summary on GitHub and GitLab (GitHub Flavored Markdown)."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from ftbuild.nightly.record import CellRecord, NightlyRun
from ftbuild.nightly.report import wording
from ftbuild.nightly.report.sanitize import cleaned, clip, first_line
from ftbuild.text import units
from ftbuild.text.results import worst_first

# What GitHub takes for one step's summary (docs.github.com, "Step isolation and limits").
LIMIT_BYTES = 1024 * 1024
# Lines of a log, and characters of a line: the first choice that keeps the text below the limit is taken.
_TAILS = ((60, 1000), (30, 500), (12, 300), (5, 200), (0, 0))
_DETAIL = 4000
_PUNCTUATION = re.compile(r"([\\`*_{}\[\]()#!|~@])")


def render(night: NightlyRun) -> str:
    """The text of `report.md`, at most `LIMIT_BYTES` long in UTF-8: tails are cut, never the table."""
    night = cleaned(night)
    texts = (_render(night, lines, width) for lines, width in _TAILS)
    return next((text for text in texts if len(text.encode()) <= LIMIT_BYTES), "") or _cut(night)


def _render(night: NightlyRun, lines: int, width: int) -> str:
    parts = [_head(night)]
    if trouble := wording.troubled(night):
        parts += ["## What went wrong", *(_trouble(cell, lines, width) for cell in trouble)]
    parts += ["## Cells", _table(night)]
    if night.audit:
        parts += ["## Audit", _audit(night)]
    return "\n\n".join(parts) + "\n"


def _cut(night: NightlyRun) -> str:
    """Of a matrix that is too big for the limit: the head, and as many whole rows as fit."""
    kept, room = [], LIMIT_BYTES - 1000
    for line in f"{_head(night)}\n\n{_table(night)}".split("\n"):
        room -= len(line.encode()) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join([*kept, "", "The rest is in report.html.", ""])


def _head(night: NightlyRun) -> str:
    counts = ", ".join(said for _, said in wording.tally(night))
    facts = [
        _text(night.started),
        units.duration(night.seconds),
        f"exit code {night.exit_code}",
        f"registry {_code(night.registry)}" if night.registry else "not published",
        f"revision {_code(night.revision[:12])}",
    ]
    symbol = "✓" if night.is_good else "✗"
    return f"# {symbol} {_text(wording.headline(night))}\n\n{counts}\n\n{' · '.join(facts)}"


def _trouble(cell: CellRecord, lines: int, width: int) -> str:
    shown = wording.look(cell.state, cell.reason)
    parts = [f"### {shown.symbol} {_text(cell.cell)}: {wording.means(cell)}"]
    if said := wording.complaint(cell):
        parts.append(_pre(clip(said, _DETAIL)))
    if step := wording.advice(cell):
        parts.append(f"**Next:** {_text(step)}.")
    if cell.steps:
        parts.append(f"{_code(cell.steps[-1].command)}")
    if tail := [clip(line, width) for line in cell.tail[-lines:]] if lines else []:
        log = f" of {html.escape(cell.steps[-1].log)}" if cell.steps else ""
        parts.append(f"<details><summary>The last lines{log}</summary>")
        parts += [_pre("\n".join(tail)), "</details>"]
    return "\n\n".join(parts)


def _table(night: NightlyRun) -> str:
    rows = ["| Cell | State | Time | Pull | Detail |", "|---|---|---:|---|---|"]
    return "\n".join([*rows, *(f"| {' | '.join(_row(cell))} |" for cell in night.cells)])


def _row(cell: CellRecord) -> Iterator[str]:
    shown = wording.look(cell.state, cell.reason)
    yield _text(cell.cell)
    wrong = shown.tone in ("bad", "error")
    yield f"{shown.symbol} {shown.word}{f' ({cell.reason.value})' if wrong else ''}"
    yield units.duration(cell.seconds) if cell.steps else ""
    yield "<br>".join(_code(image.pull) for image in cell.images.values() if image.pull)
    yield _text(first_line(cell.detail))


def _audit(night: NightlyRun) -> str:
    rows = ["| Looked at | State | Detail |", "|---|---|---|"]
    for finding in worst_first(night.audit):
        cells = (_text(finding.check), _text(finding.state), _text(first_line(finding.detail)))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _text(text: str) -> str:
    """`text` on one line that means only itself, also within a table."""
    return _PUNCTUATION.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def _code(text: str) -> str:
    # A code span of backticks cannot hold a pipe in a table, nor backticks.
    return f"<code>{_text(text)}</code>"


def _pre(text: str) -> str:
    # An HTML block of this kind ends at its closing tag only, whatever lines it holds (CommonMark 4.6).
    return f"<pre>\n{html.escape(text, quote=False)}\n</pre>"
