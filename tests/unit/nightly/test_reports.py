from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from ftbuild.nightly import ninja, record
from ftbuild.nightly.record import NightlyRun, Reason, State, Unit, read
from ftbuild.nightly.report import gantt, grid, junit, markdown, page, trend, wording
from ftbuild.nightly.report.sanitize import clean
from ftbuild.nightly.report.write import write_reports
from ftbuild.text import units
from testing import recorded_runs

LOG = """# ninja log v5
51\t82\t1795288495220917821\tCMakeFiles/a.dir/a.cc.o\tb796517a4a144ae8
51\t2082\t1795288495220917821\tlib/liba.so\te44a2d0d22c3268d
51\t2082\t1795288495220917821\tlib/liba.so.1\te44a2d0d22c3268d
82\t3000\t1795288495220917821\tb.cu.o\tef3b051ea4475d0b
"""


def test_a_ninja_log_gives_each_edge_once_from_the_first_on() -> None:
    assert ninja.units(LOG) == (
        Unit(0.0, 0.031, "CMakeFiles/a.dir/a.cc.o"),
        Unit(0.0, 2.031, "lib/liba.so"),
        Unit(0.031, 2.949, "b.cu.o"),
    )


@pytest.mark.parametrize("version", [5, 6, 7])
def test_every_version_of_the_ninja_log_in_use_is_read(version: int) -> None:
    assert len(ninja.units(LOG.replace("v5", f"v{version}"))) == 3


@pytest.mark.parametrize(
    "later",
    ["3\t900\t1\tc.cc.o\taa\n5\t950\t1\td.cc.o\tbb\n", "3\t900\t1\tc.cc.o\taa\n9\t9000\t1\tb.cu.o\tbb\n"],
)
def test_only_the_last_run_of_an_appended_ninja_log_counts(later: str) -> None:
    assert [unit.output for unit in ninja.units(LOG + later)] == [
        line.split("\t")[3] for line in later.splitlines()
    ]


def test_an_output_that_is_made_again_begins_a_run_even_when_the_clock_does_not_go_back() -> None:
    again = "3\t9000\t1\tb.cu.o\tbb\n"
    assert [unit.output for unit in ninja.units(LOG + again)] == ["b.cu.o"]


@pytest.mark.parametrize("text", ["", "\n", "not a log\n1\t2\t3\tx\ty\n", "# ninja log v5\n", "\x00\xff"])
def test_text_that_is_not_a_ninja_log_has_no_units(text: str) -> None:
    assert ninja.units(text) == ()


def test_a_line_cut_off_by_killing_ninja_is_left_out() -> None:
    assert len(ninja.units(LOG + "3000\t4000\t17952884")) == 3


def test_units_take_the_first_free_slot_and_never_share_it() -> None:
    found = [Unit(0, 5, "a"), Unit(0, 2, "b"), Unit(2, 3, "c"), Unit(3, 9, "d"), Unit(4, 5, "e")]
    lanes = ninja.slots(found)
    assert lanes == [1, 0, 0, 0, 2]
    assert ninja.slots([]) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[1;31merror:\x1b[0m x", "error: x"),
        ("\x1b]0;title\x07y\x1b(B", "y"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("nul\x00 bell\x07 c1\x85 \ufffe\ud800\u202e.", "nul bell c1 ."),
        ("größe 大きさ 🔥\t|", "größe 大きさ 🔥\t|"),
    ],
)
def test_cleaning_leaves_nothing_but_text(text: str, expected: str) -> None:
    assert clean(text) == expected


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min 00 s"),
        (187, "3 min 07 s"),
        (7500, "2 h 05 min"),
    ],
)
def test_durations_are_readable(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (999_600, "1 MB"), (1.57e9, "1.57 GB"), (2e15, "2e+03 TB")],
)
def test_sizes_have_decimal_units(count: float, text: str) -> None:
    assert units.size(count) == text


def test_the_headline_is_the_outcome_of_the_run() -> None:
    bad = recorded_runs.bad()
    assert wording.headline(recorded_runs.good()) == "Nothing failed"
    assert wording.headline(bad) == "8 of 14 cells went wrong"
    assert wording.headline(replace(bad, exit_code=130)) == "Interrupted: 1 of 14 cells were not run"
    assert (
        wording.headline(replace(recorded_runs.good(), exit_code=1, audit=bad.audit))
        == "1 fault found by the audit"
    )
    assert wording.headline(replace(recorded_runs.good(), exit_code=1)) == "Ended with exit code 1"


def test_every_reason_has_words() -> None:
    for cell in recorded_runs.bad().cells:
        assert wording.meaning(cell)
        shown = wording.look(cell.state, cell.reason)
        assert shown.symbol
        assert shown.word
    reasons = {cell.reason for cell in recorded_runs.bad().cells}
    assert reasons >= set(Reason), "the bad run has every reason"


# JUnit


def suites(run: NightlyRun) -> dict[str, ElementTree.Element]:
    root = ElementTree.fromstring(junit.render(run))
    return {suite.attrib["name"]: suite for suite in root.iter("testsuite")}


def case(run: NightlyRun, name: str) -> ElementTree.Element:
    return next(
        c for suite in suites(run).values() for c in suite.iter("testcase") if c.attrib["name"] == name
    )


def result(element: ElementTree.Element) -> tuple[str, str]:
    found = [(r.tag, r.attrib["type"]) for r in element if r.tag in ("failure", "error", "skipped")]
    assert len(found) <= 1
    return found[0] if found else ("passed", "")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("22.12-sm75: build", ("passed", "")),
        ("22.12-sm75: publish", ("passed", "")),
        ("22.03-sm80: build", ("failure", "patch")),
        ("22.12-sm89: build", ("failure", "build")),
        ("22.12-sm80: build", ("failure", "verify")),
        ("22.12-sm86: smoke", ("failure", "smoke")),
        ("22.07-sm75: smoke", ("passed", "")),
        ("22.07-sm75: publish", ("error", "publish")),
        ("22.03-sm75: build", ("error", "fetch")),
        ("22.07-sm80: build", ("error", "machine")),
        ("22.07-sm86: build", ("error", "unexpected")),
        ("22.03-sm89: build", ("skipped", "excluded")),
        ("22.12-sm60: publish", ("skipped", "already-published")),
        ("22.12-sm90: build", ("passed", "")),
        ("22.12-sm90: smoke", ("skipped", "no-gpu")),
        ("22.12-sm80_86: build", ("skipped", "not-run")),
        ("digests of base images", ("failure", "audit")),
    ],
)  # fmt: skip
def test_junit_separates_failures_errors_and_skips(name: str, expected: tuple[str, str]) -> None:
    assert result(case(recorded_runs.bad(), name)) == expected


def test_junit_has_what_gitlab_and_jenkins_read() -> None:
    run = recorded_runs.bad()
    found = suites(run)
    assert list(found) == ["Triton 22.03", "Triton 22.07", "Triton 22.12", "audit"]
    for suite in found.values():
        cases = suite.findall("testcase")
        kinds = [result(c)[0] for c in cases]
        assert int(suite.attrib["tests"]) == len(cases)
        assert int(suite.attrib["failures"]) == kinds.count("failure")
        assert int(suite.attrib["errors"]) == kinds.count("error")
        assert int(suite.attrib["skipped"]) == kinds.count("skipped")
        assert float(suite.attrib["time"]) == pytest.approx(
            sum(float(c.attrib["time"]) for c in cases), abs=0.1
        )
        assert suite.attrib["timestamp"] == "2026-11-21T02:00:00"
        assert len({c.attrib["name"] for c in cases}) == len(cases), "names are unique"
        for c in cases:
            assert set(c.attrib) == {"classname", "name", "time"}
            assert {child.tag for child in c} <= {"failure", "error", "skipped", "system-out"}
    named = {c.attrib["name"].split(":")[0] for c in found["Triton 22.12"].iter("testcase")}
    assert named == {c.cell for c in run.cells if c.triton == "22.12"}


def test_a_failed_case_has_message_advice_command_log_and_its_last_lines() -> None:
    failed = case(recorded_runs.bad(), "22.12-sm89: build")
    failure, out = failed.find("failure"), failed.findtext("system-out") or ""
    assert failure is not None
    assert failure.attrib["message"] == recorded_runs.CDATA
    assert "read the log" in (failure.text or "")
    assert "$ invoke build --triton 22.12 --sm 89" in out
    assert "log: logs/22.12-sm89/build.log" in out
    assert recorded_runs.MARKUP in out
    assert "sm_89" in out
    assert "\x1b" not in out


def test_a_repeated_step_is_one_case_with_the_time_of_all() -> None:
    record = recorded_runs.cell("22.12", [80], 0, {"build": 7})
    twice = replace(
        record, steps=(*record.steps, replace(record.steps[0], start=2000, code=0)), state=State.PASSED
    )
    built = case(recorded_runs.run([twice], 0, []), "22.12-sm80: build")
    assert result(built) == ("passed", "")
    assert float(built.attrib["time"]) == pytest.approx(2 * record.steps[0].seconds)


# Markdown


def rows(text: str) -> list[str]:
    """Return the lines of the first table, as GitHub delimits it."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("| Cell"))
    return lines[start : start + lines[start:].index("")]


def columns(row: str) -> int:
    return len(re.findall(r"(?<!\\)\|", row)) - 1


def test_markdown_begins_with_the_outcome_and_lists_failures_before_the_table() -> None:
    text = markdown.render(recorded_runs.bad())
    assert text.startswith("# ✗ 8 of 14 cells went wrong\n")
    assert text.index("## What went wrong") < text.index("## Cells") < text.index("## Audit")
    assert markdown.render(recorded_runs.good()).startswith("# ✓ Nothing failed\n")
    assert "went wrong" not in markdown.render(recorded_runs.good())
    assert "docker pull registry.example.org/inference/triton\\_with\\_ft\\@sha256:" in text


def test_hostile_text_breaks_no_table_and_is_not_markup() -> None:
    run = recorded_runs.bad()
    nasty = replace(run, cells=tuple(replace(c, detail=" ".join(recorded_runs.HOSTILE)) for c in run.cells))
    for text in (markdown.render(run), markdown.render(nasty)):
        found = rows(text)
        assert len(found) == len(run.cells) + 2
        assert {columns(row) for row in found} == {5}
        assert "<script" not in text
        assert "<img" not in text
        assert "\x1b" not in text
        assert text.count("<details>") == text.count("</details>")
        assert text.count("<pre>") == text.count("</pre>")


def test_markdown_stays_below_githubs_limit_and_its_table_whole() -> None:
    run = recorded_runs.bad()
    tail = tuple("größe " * 300 for _ in range(100))
    failed = next(c for c in run.cells if c.reason is Reason.BUILD)
    big = replace(
        run, cells=tuple(replace(failed, cell=f"22.12-sm{n}", tail=tail, compiles={}) for n in range(60))
    )
    text = markdown.render(big)
    assert len(text.encode()) <= markdown.LIMIT_BYTES
    assert len(rows(text)) == 62
    assert "<details>" in text, "some lines are left"


def test_markdown_of_an_absurd_matrix_ends_between_two_rows() -> None:
    failed = next(c for c in recorded_runs.bad().cells if c.reason is Reason.BUILD)
    bare = replace(failed, detail="it broke " * 25, tail=(), notes=(), patches=(), compiles={})
    cells = tuple(replace(bare, cell=f"22.12-sm{n}") for n in range(5000))
    text = markdown.render(replace(recorded_runs.bad(), cells=cells, past=()))
    assert len(text.encode()) <= markdown.LIMIT_BYTES
    assert {columns(row) for row in rows(text)} == {5}
    assert text.endswith("The rest is in report.html.\n")


# The page


class Elements(HTMLParser):
    """Ids, links and tags of a page, and that every element is closed."""

    VOID = ("meta", "link", "br", "img", "line", "rect", "circle", "polyline")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.headings: list[int] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.add(tag)
        self.attributes |= set(found)
        if identity := found.get("id"):
            self.ids.append(identity)
        if tag == "a":
            self.links.append(found.get("href") or "")
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in self.VOID or tag == "rect":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag == "rect":
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("make", [recorded_runs.good, recorded_runs.bad])
def test_the_page_is_self_contained_and_its_links_have_targets(make: Any) -> None:
    run = make()
    text = page.render(run)
    found = Elements(text)
    assert found.open == []
    assert len(set(found.ids)) == len(found.ids)
    assert not found.tags & {"script", "img", "iframe", "object", "form", "base"}
    assert not {name for name in found.attributes if name.startswith("on")}
    assert {f"cell-{c.cell}" for c in run.cells} <= set(found.ids)
    logs = {step.log for c in run.cells for step in c.steps}
    for link in found.links:
        assert (
            link.removeprefix("#") in found.ids
            or link in logs
            or link.startswith("https://github.com/")
            or (link in ("report.json", "junit.xml", "report.md"))
        ), link
    assert not re.search(r"url\(|@import", text)
    assert all(b - a <= 1 for a, b in zip(found.headings, found.headings[1:], strict=False))
    assert found.headings[0] == 1


def test_the_page_shows_hostile_text_as_text() -> None:
    text = page.render(recorded_runs.bad())
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;" in text
    assert "evil.invalid/x onerror" in text
    assert "\x1b" not in text
    assert "größe 大きさ ошибка 🔥 tfel" in text
    assert "characters more)" in text
    assert "x" * 2000 not in text


def test_an_address_is_a_link_and_nothing_else_is() -> None:
    linked = page.linked
    assert linked("see https://github.com/a/b.") == (
        'see <a href="https://github.com/a/b" rel="noreferrer noopener">https://github.com/a/b</a>.'
    )
    for harmless in ("javascript:alert(1)", "file:///etc/passwd", "by ftbuild", "//evil.invalid"):
        assert "<a" not in linked(harmless)
    assert "<b>" not in linked("https://x.invalid/<b>'\"")


def test_a_log_path_with_odd_characters_stays_a_relative_link() -> None:
    assert page.relative_url("logs/a b#1?.log") == "logs/a%20b%231%3F.log"
    assert page.relative_url("javascript:alert(1)") == "javascript%3Aalert%281%29"


def test_the_grid_has_a_place_for_every_cell_single_sms_first() -> None:
    own, other = grid.grids(recorded_runs.bad())
    assert (own.base, other.base) == ("open", "ngc")
    assert own.columns == ("60", "70", "75", "80", "86", "89", "90", "80+86")
    assert [row.release for row in own.rows] == ["22.03", "22.07", "22.12"]
    placed = [c.cell for g in (own, other) for row in g.rows for c in row.cells if c]
    assert sorted(placed) == sorted(c.cell for c in recorded_runs.bad().cells)


def test_cells_that_leave_something_out_have_a_grid_of_their_own() -> None:
    run = recorded_runs.bad()
    whole = next(cell for cell in run.cells if cell.cell == "22.12-sm80")
    lean = replace(whole, cell="22.12-sm80-without-beams")
    made = grid.grids(replace(run, cells=(*run.cells, lean)))
    assert [each.base for each in made] == ["open", "ngc", "open-without-beams"]
    assert [cell for row in made[-1].rows for cell in row.cells] == [lean]
    assert whole in [cell for row in made[0].rows for cell in row.cells]


def test_units_shorter_than_a_pixel_share_a_bar_and_no_time_is_lost() -> None:
    short = (Unit(n / 10, (n + 1) / 10, f"f{n}.cc.o") for n in range(1000))
    units = (*short, Unit(100, 900, "g.cu.o"))
    done = gantt.of_compile(units)
    (lane,) = done.chart.lanes
    assert [bar.kind for bar in lane.bars] == ["short", "cuda"]
    assert lane.bars[0].title == "1000 short units, 1 min 40 s together"
    assert lane.bars[1].x == pytest.approx(lane.bars[0].x + lane.bars[0].width, abs=0.3)
    assert (done.units, done.slots) == (1001, 1)
    assert done.busy == pytest.approx(1.0)
    assert done.heaviest[0].name == "g.cu.o"
    assert done.heaviest[0].part == pytest.approx(800 / 900)


def test_a_unit_is_named_by_source_and_target() -> None:
    path = "_deps/repo-ft-build/src/CMakeFiles/GptJ.dir/layers/GptJ.cc.o"
    assert (gantt.name(path), gantt.kind(path)) == ("layers/GptJ.cc (GptJ)", "cxx")
    assert gantt.kind("CMakeFiles/x.dir/cmake_device_link.o") == "link"
    assert gantt.kind("lib/libtransformer-shared.so") == "link"


def test_a_whole_matrix_stays_a_small_page() -> None:
    units = tuple(
        Unit(n // 4 * 60, n // 4 * 60 + 60, f"CMakeFiles/some_target.dir/k/kernel_number_{n}.cu.o")
        for n in range(800)
    )
    cells = [
        replace(recorded_runs.passed("22.12", sm, sm * 100, 1.6), compiles={"backend": units})
        for sm in range(24)
    ]
    assert len(page.render(recorded_runs.run(cells, 0, [])).encode()) < 5_000_000


def test_trends_show_every_run_with_gaps_and_the_change() -> None:
    whole, *cells = trend.trends(recorded_runs.good())
    assert whole.cell == ""
    assert [s.look.symbol for s in whole.squares if s.look] == ["✓"] * 4 + ["✗"] + ["✓"] * 5
    assert all(len(t.squares) == 10 for t in cells)
    line = trend.spark([100.0, None, 100.0, 150.0])
    assert line is not None
    assert line.points.count(",") == 3
    assert line.last == 150.0
    assert line.change == pytest.approx(0.5)
    assert trend.spark([None, None]) is None
    assert trend.trends(replace(recorded_runs.good(), past=())) == ()


def test_an_aborted_build_does_not_count_as_a_fast_one() -> None:
    failed = next(t for t in trend.trends(recorded_runs.bad()) if t.cell == "22.12-sm89")
    assert failed.seconds is not None
    assert failed.seconds.last > 2400


def test_a_state_of_another_version_is_a_gap_in_the_trend() -> None:
    run = recorded_runs.good()
    strange = replace(run, past=(replace(run.past[0], states={"22.12-sm80": "melted"}),))
    assert next(t for t in trend.trends(strange) if t.cell == "22.12-sm80").squares[0].look is None


def test_a_run_without_cells_has_reports() -> None:
    empty = recorded_runs.run([], 3, [], past=())
    assert "Ended with exit code 3" in page.render(empty)
    assert markdown.render(empty)
    assert ElementTree.fromstring(junit.render(empty)).attrib["tests"] == "0"


def test_all_reports_are_written_whole(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_reports(recorded_runs.good(), folder)
    write_reports(recorded_runs.good(), folder)
    assert sorted(f.name for f in folder.iterdir()) == [
        "junit.xml",
        "report.html",
        "report.json",
        "report.md",
    ]
    assert read(folder) == recorded_runs.good()
    assert json.loads((folder / "report.json").read_text())["cells"]


def test_a_report_that_cannot_be_made_leaves_the_last_one(tmp_path: Path) -> None:
    write_reports(recorded_runs.good(), tmp_path)
    before = (tmp_path / "report.html").read_text()
    with pytest.raises(ValueError, match="isoformat"):
        write_reports(replace(recorded_runs.bad(), started="yesterday"), tmp_path)
    assert (tmp_path / "report.html").read_text() == before


def test_the_hint_of_a_message_precedes_the_general_advice() -> None:
    failed = next(c for c in recorded_runs.bad().cells if c.reason is Reason.FETCH)
    own = replace(failed, detail="it broke\n  where: here\n  next:  press the red button")
    assert (wording.advice(own), wording.message(own)) == (
        "press the red button",
        "it broke\n  where: here",
    )
    assert "invoke lock --check" in wording.advice(replace(failed, detail="it broke"))


def test_an_image_that_is_not_on_the_machine_has_no_size() -> None:
    run = recorded_runs.good()
    gone = replace(run.cells[0], images={"runtime": replace(run.cells[0].images["runtime"], id="", bytes=0)})
    made = replace(run, cells=(gone, *run.cells[1:]))
    assert "0 B" not in page.render(made)
    shown = next(t for t in trend.trends(made) if t.cell == gone.cell)
    assert shown.bytes is not None
    assert shown.bytes.last > 1e9


@pytest.mark.parametrize(("spare", "is_read"), [(0, True), (1, True), (-1, False)])
def test_a_record_is_read_up_to_the_limit_of_bytes(
    spare: int, is_read: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records come from other machines, too."""
    run = recorded_runs.good()
    run.write(tmp_path)
    limit = (tmp_path / record.FILE).stat().st_size + spare
    monkeypatch.setattr(record, "MAX_BYTES", limit)
    if is_read:
        assert read(tmp_path) == run
    else:
        with pytest.raises(ValueError, match=f"more than {limit} bytes"):
            read(tmp_path)
