"""The report of a comparison for people: on a terminal, as Markdown, and as a page. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Literal

from ftbuild.client import latency
from ftbuild.client.comparing.answers import Answer, Outcome, Side
from ftbuild.client.comparing.report import Compared, ComparisonReport
from ftbuild.text import markdown, tables, terminal

if TYPE_CHECKING:
    from jinja2 import Template

Kind = Literal["human", "md", "html"]
# Tokens of an answer that are shown from the place on where it parts, and rows of a table.
_SHOWN_TOKENS = 8
_SHOWN_ROWS = {"human": 20, "md": 200, "html": 10_000}
_LONGEST_CELL = 32
MEANINGS = {
    Outcome.EQUAL: "every token is the same",
    Outcome.TIE: "they diverge where rounding decides",
    Outcome.PARTED: "they diverge elsewhere",
    Outcome.FAILED: "a server gave no answer",
}
Text = Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class Section:
    """A part of the report: sentences, and a table."""

    title: str
    sentences: Sequence[str] = ()
    titles: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


def render(report: ComparisonReport, kind: Kind, text: Text | None) -> str:
    """Return the report; `text` decodes token ids, which are shown as numbers without it."""
    sections = _sections(report, _SHOWN_ROWS[kind], text)
    if kind == "html":
        return _template().render(headline=headline(report), sections=sections) + "\n"
    if kind == "md":
        return "\n\n".join([f"# {markdown.escaped(headline(report))}", *map(_markdown, sections)]) + "\n"
    return "\n\n".join([headline(report), *map(_plain, sections)])


def headline(report: ComparisonReport) -> str:
    """Return the outcome in a sentence."""
    counts = report.counts
    agreeing = counts[Outcome.EQUAL] + counts[Outcome.TIE]
    return f"{agreeing} of {report.prompts} answers agree, {counts[Outcome.EQUAL]} in every token"


def _sections(report: ComparisonReport, max_rows: int, text: Text | None) -> list[Section]:
    counts = report.counts
    meanings = {**MEANINGS, Outcome.TIE: f"{MEANINGS[Outcome.TIE]}: both tokens within {report.tie:g}"}
    sections = [
        Section("Servers", (), ("", "Server"), list(report.titles.items())),
        Section(
            "Answers",
            [f"{report.prompts} prompts, up to {report.length} tokens each, the best token at each place."],
            ("Outcome", "Prompts", "Share", "Meaning"),
            [
                (outcome.value, str(count), f"{100 * count / report.prompts:.4g} %", meanings[outcome])
                for outcome, count in counts.items()
            ],
        ),
    ]
    others = [each for each in report.compared if each.outcome(report.tie) is not Outcome.EQUAL]
    if others:
        order = (Outcome.FAILED, Outcome.PARTED, Outcome.TIE)
        others.sort(key=lambda each: order.index(each.outcome(report.tie)))
        left = len(others) - max_rows
        sections.append(
            Section(
                "Where they diverge",
                [
                    "How each server rates them: log-probability of its own token / of the other one's.",
                    *([f"{left} more are in the JSON form."] if left > 0 else []),
                ],
                ("Prompt", "Outcome", "Equal tokens", "Old goes on", "New goes on", "Old rates", "New rates"),
                [_row(each, report.tie, text) for each in others[:max_rows]],
            )
        )
    if report.latencies:
        sections.append(_speed(report))
    if notes := report.notes:
        sections.append(Section("Notes", notes))
    return sections


def _row(each: Compared, tie: float, text: Text | None) -> tuple[str, ...]:
    first = (str(each.number), each.outcome(tie).value)
    if each.parting is None:
        errors = [terminal.printable(each.wrong.get(name, ""))[:200] for name in ("old", "new")]
        return (*first, "", *errors, "", "")
    assert each.old is not None
    assert each.new is not None
    step = each.parting.step
    goes_on = (_going_on(answer, step, text) for answer in (each.old, each.new))
    return (*first, str(step), *goes_on, _rates(each.parting.old), _rates(each.parting.new))


def _going_on(answer: Answer, step: int, text: Text | None) -> str:
    rest = answer.tokens[step : step + _SHOWN_TOKENS]
    if not rest:
        return "(ends)" if answer.ended else "(cut off)"
    shown = " ".join(map(str, rest)) if text is None else terminal.quoted(text(rest))
    return shown if len(shown) <= _LONGEST_CELL else f"{shown[: _LONGEST_CELL - 3]}..."


def _rates(side: Side) -> str:
    if side.own is None and side.other is None:
        return "unknown"
    own = "?" if side.own is None else f"{side.own:.3f}"
    other = "?" if side.other is None else f"{'< ' if side.bound else ''}{side.other:.3f}"
    return f"{own} / {other}"


def _speed(report: ComparisonReport) -> Section:
    columns = ("mean", *(f"p{percent}" for percent in latency.PERCENTILES))
    rows = [
        (
            name,
            str(figures["requests"]),
            *(f"{figures[column]:.1f}" for column in columns),
            f"{report.speeds[name]:.1f}",
        )
        for name, figures in report.latencies.items()
    ]
    if len(rows) == 2:
        old, new = (report.latencies[name] for name in ("old", "new"))
        quotients = [f"{new[column] / old[column]:.2f}" if old[column] else "" for column in columns]
        speeds = report.speeds
        rows.append(
            ("new / old", "", *quotients, f"{speeds['new'] / speeds['old']:.2f}" if speeds["old"] else "")
        )
    return Section(
        "Latency",
        ["Of whole answers, one request at a time, measured here; both servers were asked in turn."],
        ("", "Requests", *(f"{column} ms" for column in columns), "tokens/s"),
        rows,
    )


def _plain(section: Section) -> str:
    table = [tables.render(section.titles, section.rows)] if section.rows else []
    return "\n".join([section.title, *section.sentences, *table])


def _markdown(section: Section) -> str:
    sentences = [markdown.escaped(each) for each in section.sentences]
    if not section.rows:
        sentences = [f"- {each}" for each in sentences]
    rows = [[markdown.escaped(cell) for cell in row] for row in section.rows]
    parts = [
        f"## {section.title}",
        "\n".join(sentences),
        markdown.table(section.titles, rows) if rows else "",
    ]
    return "\n\n".join(filter(None, parts))


@cache
def _template() -> Template:
    from jinja2 import Environment

    source = resources.files(__package__).joinpath("page.html.j2").read_text(encoding="utf-8")
    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(source)
