"""Self-contained HTML page of a nightly run: no script, no request, readable from a file.

Jinja2 escapes everything, after `sanitize` has removed what is not text; the page's own content security
policy forbids scripts and requests as well.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import quote

from ftbuild.nightly.record import CellRecord, NightlyRun, Reason
from ftbuild.nightly.report import gantt, grid, trend, wording
from ftbuild.nightly.report.sanitize import cleaned, clip, first_line
from ftbuild.text import units
from ftbuild.text.results import worst_first

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

TAIL_LINES = 200
TAIL_WIDTH = 1000
_URL = re.compile(r"https?://[^\s<>\"'`|\\^{}]+[^\s<>\"'`|\\^{}.,;:!?)\]]")


def render(run: NightlyRun) -> str:
    """Return the text of `report.html`."""
    run = cleaned(run)
    trouble = wording.troubled(run)
    detailed = [cell for cell in run.cells if _has_section(cell)]
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            run=run,
            status=wording.status(run),
            headline=wording.headline(run),
            tally=wording.tally(run),
            trouble=trouble,
            grids=grid.grids(run),
            chart=gantt.of_run(run),
            cells=[*trouble, *(cell for cell in detailed if cell not in trouble)],
            others=[cell for cell in run.cells if not _has_section(cell)],
            trends=trend.trends(run),
            audit=worst_first(run.audit),
        )
    )


def _has_section(cell: CellRecord) -> bool:
    """Return whether a cell gets a section of its own: it has steps or images, or went wrong."""
    return bool(cell.steps or cell.images) or cell.reason not in (
        Reason.EXCLUDED,
        Reason.NOT_RUN,
        Reason.PUBLISHED,
    )


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("ftbuild.nightly.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        advice=wording.advice,
        anchor=grid.anchor,
        built_on=wording.built_on,
        change=_change,
        columns=_columns,
        message=wording.message,
        compile=gantt.of_compile,
        date=_date,
        duration=units.duration,
        fate=wording.fate,
        figure=_figure,
        first_line=first_line,
        linked=linked,
        look=_look,
        meaning=wording.meaning,
        path=relative_url,
        percent=_percent,
        size=units.size,
        sms=grid.sms,
        tail=_tail,
    )
    environment.globals.update(wide=gantt.WIDTH, spark_width=trend.WIDTH, spark_height=trend.HEIGHT)
    return environment


def _look(cell: CellRecord) -> wording.Look:
    return wording.look(cell.state, cell.reason)


def _date(started: str) -> str:
    """Return an RFC 3339 time as a readable date in UTC."""
    return datetime.fromisoformat(started).astimezone(UTC).strftime("%A, %-d %B %Y, %H:%M UTC")


def relative_url(relative: str) -> str:
    """Return a file's path as a relative URL; a colon in it must not look like a scheme."""
    return quote(relative, safe="/")


def linked(text: str) -> Markup:
    """Return `text` with its http(s) URLs as links."""
    from markupsafe import Markup

    parts, at = [], 0
    for match in _URL.finditer(text):
        link = Markup('<a href="{0}" rel="noreferrer noopener">{0}</a>').format(match[0])
        parts += [Markup.escape(text[at : match.start()]), link]
        at = match.end()
    return Markup().join([*parts, text[at:]])


def _tail(cell: CellRecord) -> str:
    return "\n".join(clip(line, TAIL_WIDTH) for line in cell.tail[-TAIL_LINES:])


def _columns(cell: CellRecord) -> list[str]:
    """Return the names of all figures, each once."""
    return list(dict.fromkeys(name for values in cell.figures.values() for name in values))


def _figure(value: float, name: str) -> str:
    """Return a measured value with the unit that its name ends with."""
    if name.endswith("_bytes"):
        return units.size(value)
    return units.duration(value) if name.endswith("_seconds") else f"{value:,.6g}"


def _change(part: float) -> str:
    return f"{round(part * 100):+d} %"


def _percent(part: float) -> str:
    return f"{part:.0%}" if part >= 0.1 else f"{part:.1%}"
