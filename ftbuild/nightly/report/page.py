"""The night as one HTML page that needs nothing else: no script, no request, readable from a file.

Everything in it is escaped by Jinja2, after `plain` has taken out what is not text; the page's own content
security policy forbids scripts and requests all the same.
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


def render(night: NightlyRun) -> str:
    """The text of `report.html`."""
    night = cleaned(night)
    trouble = wording.troubled(night)
    told = [cell for cell in night.cells if _has_section(cell)]
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            night=night,
            status=wording.status(night),
            headline=wording.headline(night),
            tally=wording.tally(night),
            trouble=trouble,
            grids=grid.grids(night),
            chart=gantt.of_night(night),
            cells=[*trouble, *(cell for cell in told if cell not in trouble)],
            others=[cell for cell in night.cells if not _has_section(cell)],
            trends=trend.trends(night),
            audit=worst_first(night.audit),
        )
    )


def _has_section(cell: CellRecord) -> bool:
    """Whether there is more to say than a line: something was run, or went wrong."""
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
        change=_change,
        columns=_columns,
        complaint=wording.complaint,
        compile=gantt.of_compile,
        date=_date,
        duration=units.duration,
        figure=_figure,
        first_line=first_line,
        linked=linked,
        look=_look,
        means=wording.means,
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
    """RFC 3339 as a date that people read, in UTC."""
    return datetime.fromisoformat(started).astimezone(UTC).strftime("%A, %-d %B %Y, %H:%M UTC")


def relative_url(relative: str) -> str:
    """A file's path as a relative URL; a colon in it must not look like a scheme."""
    return quote(relative, safe="/")


def linked(text: str) -> Markup:
    """`text` with its http addresses as links."""
    from markupsafe import Markup

    parts, at = [], 0
    for found in _URL.finditer(text):
        link = Markup('<a href="{0}" rel="noreferrer noopener">{0}</a>').format(found[0])
        parts += [Markup.escape(text[at : found.start()]), link]
        at = found.end()
    return Markup().join([*parts, text[at:]])


def _tail(cell: CellRecord) -> str:
    return "\n".join(clip(line, TAIL_WIDTH) for line in cell.tail[-TAIL_LINES:])


def _columns(cell: CellRecord) -> list[str]:
    """The names of all figures, each once."""
    return list(dict.fromkeys(name for values in cell.figures.values() for name in values))


def _figure(value: float, name: str) -> str:
    """A measured value; its name says its unit."""
    if name.endswith("_bytes"):
        return units.size(value)
    return units.duration(value) if name.endswith("_seconds") else f"{value:,.6g}"


def _change(part: float) -> str:
    return f"{round(part * 100):+d} %"


def _percent(part: float) -> str:
    return f"{part:.0%}" if part >= 0.1 else f"{part:.1%}"
