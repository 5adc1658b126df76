"""The reports of a small run, whole: what Markdown, JUnit, charts and trends say and where they put it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from ftbuild.nightly.record import BuilderRecord, Image, NightlyRun, PastRun, Reason, State, Unit
from ftbuild.nightly.report import gantt, grid, junit, markdown, page, trend, wording
from ftbuild.nightly.report.gantt import Bar, Heavy, Tick
from ftbuild.nightly.report.sanitize import clip, first_line
from ftbuild.nightly.report.wording import Look
from ftbuild.text import units
from ftbuild.text.results import CheckResult
from ftbuild.text.results import State as Verdict
from testing.recorded_runs import ALL, GB, REGISTRY, cell, excluded, past, run

DASH = "\N{EN DASH}"
PULLED = Image("sha256:1", 1_610_000_000, f"{REGISTRY}/triton_with_ft:22.12-sm80-459080f92dcc", "sha256:77")


def about(value: float) -> Any:
    return pytest.approx(value)


@pytest.fixture
def small() -> NightlyRun:
    """A cell that passed, one that did not compile, one that cannot exist, and two results of the audit."""
    passed = cell("22.12", [80], 0, ALL, images={"runtime": PULLED})
    failed = cell("22.12", [89], 30, {"build": 7}, detail="it broke\n  next:  mend it", tail=("one", "two"))
    audit = [CheckResult("licences", Verdict.OK, ""), CheckResult("pins", Verdict.FAIL, "one moved\nto x")]
    return run([excluded("22.03", 90), passed, failed], 7, audit, past=())


def test_markdown_tells_the_outcome_what_went_wrong_every_cell_and_the_audit(small: NightlyRun) -> None:
    assert markdown.render(small) == (
        r"""# ✗ 1 of 2 cells went wrong

1 passed, 1 failed, 1 excluded

2026-11-21T02:00:00+00:00 · 45 min 36 s · exit code 7 · """
        r"""registry <code>registry.example.org/inference</code> · revision <code>15ddf0e1c6a7</code>

## What went wrong

### ✗ 22.12-sm89: it does not compile

<pre>
it broke
</pre>

**Next:** mend it.

<code>invoke build --triton 22.12 --sm 89 --jobs 4</code>

<details><summary>The last lines of logs/22.12-sm89/build.log</summary>

<pre>
one
two
</pre>

</details>

## Cells

| Cell | State | Time | Pull | Detail |
|---|---|---:|---|---|
"""
        r"| 22.03-sm90 | "
        f"{DASH} excluded "
        r"|  |  | CUDA of Triton 22.03 has no sm\_90; "
        r"it needs 11.8 \(CUDA 11.8 release notes\) |"
        "\n"
        r"| 22.12-sm80 | ✓ passed | 44 min 56 s | "
        r"<code>docker pull registry.example.org/inference/triton\_with\_ft\@sha256:77</code> |  |"
        r"""
| 22.12-sm89 | ✗ failed (build) | 15 min 48 s |  | it broke |

## Audit

| Check | State | Detail |
|---|---|---|
| pins | fail | one moved |
| licences | ok |  |
"""
    )


def test_markdown_of_a_run_without_registry_and_findings_is_short(small: NightlyRun) -> None:
    text = markdown.render(replace(small, registry="", audit=(), cells=small.cells[:2], exit_code=0))
    assert "· not published ·" in text
    assert text.startswith("# ✓ Nothing failed\n\n1 passed, 1 excluded\n\n")
    assert "went wrong" not in text
    assert "## Audit" not in text


def test_markdown_of_several_builders_tells_who_built_what_and_which_were_lost(small: NightlyRun) -> None:
    """A cell that a lost builder did not finish is none that it built."""
    sdk = replace(
        PULLED, reference=f"{REGISTRY}/triton_with_ft:22.12-sm80-459080f92dcc-sdk", digest="sha256:78"
    )
    images = {"runtime": PULLED, "sdk": sdk, "other": replace(PULLED, digest="")}
    built = replace(small.cells[1], builder="near", images=images)
    moved = cell("22.12", [86], 0, {"build": 4}, builder="far", state=State.ERROR, reason=Reason.MACHINE)
    unpublished = cell("22.12", [75], 0, {"build": 0, "publish": 10}, builder="near", detail='no "x" & <y>')
    builders = (
        BuilderRecord("near", "docker", 4, 8 * GB, 2, 1),
        BuilderRecord("far", "remote", None, None, 7, 2, lost="no route\nto it", lost_at=61.0),
        BuilderRecord("idle", "kubernetes", None, None, 1, 1, lost="gone"),
    )
    cells = (small.cells[0], unpublished, built, moved)
    text = markdown.render(replace(small, cells=cells, builders=builders, audit=()))
    _, cells_and_more = text.split("\n## Cells\n\n")
    assert cells_and_more == (
        rf"""| Cell | State | Builder| Time | Pull | Detail |
|---|---|---|---:|---|---|
| 22.03-sm90 | {DASH} excluded |  |  |  | CUDA of Triton 22.03 has no sm\_90; """
        rf"""it needs 11.8 \(CUDA 11.8 release notes\) |
| 22.12-sm75 | ! error (publish) | near | {units.duration(unpublished.seconds)} |  | no "x" &amp; &lt;y&gt; |
| 22.12-sm80 | ✓ passed | near | 44 min 56 s | """
        r"<code>docker pull registry.example.org/inference/triton\_with\_ft\@sha256:77</code><br>"
        r"<code>docker pull registry.example.org/inference/triton\_with\_ft\@sha256:78</code> |  |"
        rf"""
| 22.12-sm86 | ! error (machine) | far | {units.duration(moved.seconds)} |  |  |

## Builders

| Builder | Driver | Jobs | Built | Lost |
|---|---|---:|---|---|
| near | docker | 2 | 22.12-sm75, 22.12-sm80 |  |
| far | remote | 7 |  | lost after 1 min 01 s: no route |
| idle | kubernetes | 1 |  | lost after 0.0 s: gone |
"""
    )
    assert '<pre>\nno "x" &amp; &lt;y&gt;\n</pre>' in text


def test_a_table_that_exceeds_the_limit_is_cut_after_a_whole_row(
    small: NightlyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row is left out of the middle because a later one is shorter."""
    details = ["x" * length for length in (100, 150, 5)] * 20
    cells = tuple(replace(small.cells[2], cell=f"22.12-sm{n}", detail=text) for n, text in enumerate(details))
    run = replace(small, cells=cells, audit=())
    for limit in range(4000, 4400, 7):
        monkeypatch.setattr(markdown, "LIMIT_BYTES", limit)
        text = markdown.render(run)
        body, end = text.split("\n\nThe rest is in report.html.\n")
        rows = [line for line in body.splitlines() if line.startswith("| 22.12")]
        assert (end, [row.split()[1] for row in rows]) == ("", [cell.cell for cell in cells[: len(rows)]])
        assert len(text.encode()) <= limit
        assert limit - 1400 < len(body.encode())


PROPERTIES = f"""\
    <properties>
      <property name="id" value="20261121T020000Z" />
      <property name="revision" value="15ddf0e1c6a7e2f94d1c5a0b6e2b7a3d9c8f4e21" />
      <property name="registry" value="{REGISTRY}" />
      <property name="command" value="invoke nightly --registry {REGISTRY} --budget 6h" />
    </properties>
"""
NO_SM = "CUDA of Triton 22.03 has no sm_90; it needs 11.8 (CUDA 11.8 release notes)"
AT = 'timestamp="2026-11-21T02:00:00"'


def step(name: str, seconds: str) -> str:
    jobs = " --jobs 4" if name == "build" else ""
    return f"""\
    <testcase classname="22.12" name="22.12-sm80: {name}" time="{seconds}">
      <system-out>$ invoke {name} --triton 22.12 --sm 80{jobs}
log: logs/22.12-sm80/{name}.log</system-out>
    </testcase>
"""


def test_junit_has_a_suite_per_release_a_case_per_step_and_one_for_the_audit(small: NightlyRun) -> None:
    assert junit.render(small) == (
        f"""\
<?xml version="1.0" encoding="utf-8"?>
<testsuites name="ftbuild nightly" time="2736.000" tests="7" failures="2" errors="0">
  <testsuite name="Triton 22.03" tests="1" failures="0" errors="0" skipped="1" time="0.000" {AT}>
{PROPERTIES}\
    <testcase classname="22.03" name="22.03-sm90: build" time="0.000">
      <skipped type="excluded" message="{NO_SM}">{NO_SM}</skipped>
    </testcase>
  </testsuite>
  <testsuite name="Triton 22.12" tests="4" failures="1" errors="0" skipped="0" time="3643.600" {AT}>
{PROPERTIES}\
{step("build", "2360.000")}{step("smoke", "240.000")}{step("publish", "96.000")}\
    <testcase classname="22.12" name="22.12-sm89: build" time="947.600">
      <failure type="build" message="it broke">it broke
mend it</failure>
      <system-out>$ invoke build --triton 22.12 --sm 89 --jobs 4
log: logs/22.12-sm89/build.log
one
two</system-out>
    </testcase>
  </testsuite>
  <testsuite name="audit" tests="2" failures="1" errors="0" skipped="0" time="0.000" {AT}>
{PROPERTIES}\
    <testcase classname="audit" name="licences" time="0.000">
      <system-out>ok</system-out>
    </testcase>
    <testcase classname="audit" name="pins" time="0.000">
      <failure type="audit" message="one moved">one moved
to x</failure>
      <system-out>fail: one moved
to x</system-out>
    </testcase>
  </testsuite>
</testsuites>
"""
    )


def test_a_cell_that_a_registry_has_or_no_gpu_tested_is_told_at_that_step(small: NightlyRun) -> None:
    """Whatever ran before it is a case of its own, that passed."""
    built = replace(small.cells[1], steps=small.cells[1].steps[:1], state=State.SKIPPED, reason=Reason.NO_GPU)
    kept = replace(small.cells[1], steps=(), state=State.SKIPPED, reason=Reason.PUBLISHED, detail="there")
    text = junit.render(replace(small, cells=(built, replace(kept, cell="22.12-sm86")), audit=()))
    cases = [(c.get("name"), [e.tag for e in c]) for c in ElementTree.fromstring(text).iter("testcase")]
    assert cases == [
        ("22.12-sm80: build", ["system-out"]),
        ("22.12-sm80: smoke", ["skipped"]),
        ("22.12-sm86: publish", ["skipped"]),
    ]


def test_the_steps_of_a_run_are_bars_on_one_axis(small: NightlyRun) -> None:
    chart = gantt.of_run(small)
    build, smoke, publish = chart.lanes[0].bars
    assert build == Bar(86.0, 848.8, "build", "22.12-sm80: build, 39 min 20 s", "build 39 min 20 s")
    assert smoke == Bar(934.8, 86.3, "smoke", "22.12-sm80: smoke, 4 min 00 s", "smoke")
    assert publish == Bar(1021.1, 34.5, "publish", "22.12-sm80: publish, 1 min 36 s")
    assert [lane.label for lane in chart.lanes] == ["22.12-sm80", "22.12-sm89"]
    title = "22.12-sm89: build, 15 min 48 s, exit code 7"
    assert chart.lanes[1].bars == (Bar(96.8, 340.8, "build", title, "build 15 min 48 s", failed=True),)
    assert chart.ticks == (
        Tick(86.0, "0"),
        Tick(301.8, "10 min"),
        Tick(517.6, "20 min"),
        Tick(733.4, "30 min"),
        Tick(949.2, "40 min"),
    )
    assert (chart.left, chart.lane_height, chart.bar_height, chart.height) == (86.0, 26, 18, 76)
    assert chart.kinds == ("build", "smoke", "publish", "failed")
    assert gantt.of_run(replace(small, cells=small.cells[:2])).kinds == ("build", "smoke", "publish")


def test_a_chart_of_no_step_and_of_no_time_has_an_axis_only(small: NightlyRun) -> None:
    chart = gantt.of_run(replace(small, cells=(), seconds=0.0))
    assert (chart.lanes, chart.ticks, chart.left) == ((), (Tick(20.0, "0"),), 20.0)
    long = replace(small.cells[1], cell="x" * 100)
    assert gantt.of_run(replace(small, cells=(long,))).left == 280.0


def test_a_short_step_is_still_seen(small: NightlyRun) -> None:
    steps = (replace(small.cells[1].steps[0], seconds=0.1, name="other"),)
    chart = gantt.of_run(replace(small, cells=(replace(small.cells[1], steps=steps),)))
    (bar,) = chart.lanes[0].bars
    assert (bar.width, bar.kind, bar.text) == (2.0, "other", "")


UNITS = (
    Unit(0, 5, "CMakeFiles/a.dir/x/a.cu.o"),
    Unit(0, 60, "b.cc.o"),
    Unit(5, 5.01, "c.cpp.o"),
    Unit(5.01, 5.03, "d.o"),
    Unit(30, 120, "lib/x.so"),
)


def test_a_compile_is_drawn_by_slots_and_its_heaviest_units_are_named() -> None:
    done = gantt.of_compile(UNITS, 2)
    first, second = done.chart.lanes
    assert (first.label, second.label) == ("1", "2")
    assert first.bars == (
        Bar(24.0, 43.6, "cuda", "5.0 s  x/a.cu (a)"),
        Bar(67.6, 1.5, "short", "2 short units, 0.0 s together"),
        Bar(285.5, 784.5, "link", "1 min 30 s  x.so"),
    )
    assert second.bars == (Bar(24.0, 523.0, "cxx", "1 min 00 s  b.cc.o"),)
    labels = ["0", "15 s", "30 s", "45 s", "1 min", "1:15 min", "1:30 min", "1:45 min", "2 min"]
    assert [tick.label for tick in done.chart.ticks] == labels
    assert [tick.x for tick in done.chart.ticks][-1] == 1070.0
    assert (done.chart.lane_height, done.chart.bar_height, done.chart.left) == (16, 14, 24)
    work = 5 + 60 + 0.01 + 0.02 + 90
    assert done.heaviest == (
        Heavy(90, about(90 / work), 1, "x.so"),
        Heavy(60, about(60 / work), 2, "b.cc.o"),
    )
    assert (done.units, done.slots, done.seconds) == (5, 2, 120)
    assert done.busy == pytest.approx(work / 240)


def test_a_step_is_named_in_its_bar_where_the_letters_have_room(small: NightlyRun) -> None:
    """At 7.5 units for a letter, and 4 at each side."""
    made = replace(small, seconds=984.0)  # a second is one unit wide
    texts = {45.5: "", 45.6: "smoke", 128.0: "smoke", 128.1: "smoke 2 min 08 s"}
    for seconds, text in texts.items():
        step = replace(small.cells[1].steps[1], start=0.0, seconds=seconds)
        (lane,) = gantt.of_run(replace(made, cells=(replace(small.cells[1], steps=(step,)),))).lanes
        assert lane.bars[0].text == text


def test_the_axis_reaches_to_the_last_step_of_an_unfinished_run(small: NightlyRun) -> None:
    chart = gantt.of_run(replace(small, seconds=1.0))
    ends = [bar.x + bar.width for lane in chart.lanes for bar in lane.bars]
    assert max(ends) == about(gantt.WIDTH - 30)
    verified = replace(small.cells[1].steps[0], name="verify")
    (lane,) = gantt.of_run(replace(small, cells=(replace(small.cells[1], steps=(verified,)),))).lanes
    assert lane.bars[0].kind == "verify"


def test_units_share_a_bar_where_they_are_too_narrow_and_next_to_each_other() -> None:
    """At 1.5 units of the drawing, which is 1.5 s here."""

    def bars(*units: Unit) -> list[tuple[str, float]]:
        long = Unit(1000, 1046, "x.so")
        return [(bar.kind, bar.width) for bar in gantt.of_compile((*units, long)).chart.lanes[0].bars[:-1]]

    wide = (Unit(0, 1.5, "a.cc.o"), Unit(1.5, 3, "b.cc.o"))
    assert bars(*wide) == [("cxx", 1.5), ("cxx", 1.5)]
    narrow = tuple(Unit(n, n + 1, f"{n}.cc.o") for n in range(3))
    assert bars(*narrow) == [("short", 3.0)]
    assert bars(Unit(0, 1, "a.cc.o"), Unit(2.4, 3, "b.cc.o")) == [("short", 3.0)]
    assert bars(Unit(0, 1, "a.cc.o"), Unit(2.5, 3, "b.cc.o")) == [("cxx", 1.5), ("cxx", 1.5)]


def test_a_compile_on_many_slots_has_low_lanes() -> None:
    def height(slots: int) -> tuple[float, float]:
        chart = gantt.of_compile([Unit(0, 1, f"{n}.o") for n in range(slots)]).chart
        return chart.lane_height, chart.bar_height

    assert (height(16), height(17)) == ((16, 14), (9, 7))
    assert len(gantt.of_compile([Unit(0, 1, f"{n}.o") for n in range(17)]).heaviest) == 10


def test_one_short_unit_keeps_its_name_and_a_gap_parts_two() -> None:
    long, short, later = Unit(0, 1000, "a.cc.o"), Unit(1000, 1000.1, "b.c.o"), Unit(1100, 1100.1, "c.cxx.o")
    bars = gantt.of_compile((long, short, later)).chart.lanes[0].bars
    assert [(bar.kind, bar.title, bar.width) for bar in bars[1:]] == [
        ("cxx", "0.1 s  b.c.o", 1.5),
        ("cxx", "0.1 s  c.cxx.o", 1.5),
    ]


def test_units_without_a_duration_break_nothing() -> None:
    done = gantt.of_compile([Unit(0, 0, "a")])
    assert (done.busy, done.heaviest[0].part) == (0, 0)


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        ("libx.a", "link"),
        ("libx.so.1", "link"),
        ("x.cu.o", "cuda"),
        ("x.cpp.o", "cxx"),
        ("x.cc.o", "cxx"),
        ("x.cxx.o", "cxx"),
        ("x.c.o", "cxx"),
        ("x.stamp", "other"),
    ],
)
def test_a_unit_has_the_kind_of_its_command(output: str, kind: str) -> None:
    assert gantt.kind(output) == kind
    assert gantt.name(f"a/b/{output}") == output


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (0.7, ["0", "0.1 s", "0.2 s"]),
        (1.5, ["0", "0.2 s", "0.4 s"]),
        (4, ["0", "0.5 s", "1 s"]),
        (30, ["0", "5 s", "10 s"]),
        (80, ["0", "10 s", "20 s"]),
        (240, ["0", "30 s", "1 min"]),
        (480, ["0", "1 min", "2 min"]),
        (960, ["0", "2 min", "4 min"]),
        (3600, ["0", "10 min", "20 min"]),
        (4 * 3600, ["0", "30 min", "1:00 h"]),
        (8 * 3600, ["0", "1:00 h", "2:00 h"]),
        (60 * 3600, ["0", "8:00 h", "16:00 h"]),
        (100 * 3600, ["0", "24:00 h", "48:00 h"]),
        (10_000 * 3600, ["0", "1250:00 h", "2500:00 h"]),
    ],
)
def test_the_axis_has_round_steps(seconds: float, labels: list[str]) -> None:
    ticks = gantt.of_compile([Unit(0, seconds, "a.o")]).chart.ticks
    assert [tick.label for tick in ticks][:3] == labels
    assert len(ticks) <= 9


def test_a_trend_is_a_line_from_the_oldest_value_to_the_last() -> None:
    assert trend.spark([100.0, None, 120.0, 90.0]) == trend.Spark(
        "4,17.3 78.7,4 116,24", 116.0, 24.0, 90.0, about(90 / 110 - 1)
    )
    assert trend.spark([5.0]) == trend.Spark("4,14", 4.0, 14.0, 5.0, None)
    assert trend.spark([0.0, 0.0]) == trend.Spark("4,14 116,14", 116.0, 14.0, 0.0, None)


def test_noise_stays_flat_in_a_trend() -> None:
    line = trend.spark([100.0, 101.0])
    assert line is not None
    assert line.points == "4,15 116,13"


def test_a_trend_has_the_states_of_the_last_runs_in_their_order(small: NightlyRun) -> None:
    earlier = past(small.cells, 9)
    whole, passed, failed = trend.trends(replace(small, past=earlier[::-1]))
    good, bad = Look("✓", "passed", "good"), Look("✗", "failed", "bad")
    assert [square.run for square in whole.squares] == [p.id for p in earlier] + [small.id]
    assert [square.look for square in whole.squares] == [good] * 4 + [bad] + [good] * 4 + [bad]
    assert whole.bytes is None
    assert (passed.cell, failed.cell) == ("22.12-sm80", "22.12-sm89")
    assert [square.look for square in failed.squares] == [good] * 4 + [bad] + [good] * 4 + [bad]
    assert passed.bytes is not None
    assert passed.bytes.last == 1_610_000_000
    many = tuple(replace(earlier[0], id=f"2025{n:04}") for n in range(40))
    assert len(trend.trends(replace(small, past=many))[0].squares) == 21


def test_a_cell_that_never_had_steps_has_no_trend(small: NightlyRun) -> None:
    before = PastRun("2025", 1.0, 0, {"22.03-sm90": "skipped"}, {}, {})
    assert [t.cell for t in trend.trends(replace(small, past=(before,)))] == ["", "22.12-sm80", "22.12-sm89"]


def test_the_time_of_a_run_is_compared_with_those_that_built_the_same_cells(small: NightlyRun) -> None:
    last = small.summary()
    same = replace(last, id="2025-01", seconds=2 * small.seconds)
    idle = replace(last, id="2025-02", seconds=3.0, cell_seconds={})
    whole = trend.trends(replace(small, past=(same, idle)))[0]
    assert len(whole.squares) == 3
    assert whole.seconds is not None
    assert whole.seconds.change == pytest.approx(-0.5)


LOOKS = {
    (State.PASSED, Reason.NONE): Look("✓", "passed", "good"),
    (State.FAILED, Reason.BUILD): Look("✗", "failed", "bad"),
    (State.ERROR, Reason.FETCH): Look("!", "error", "error"),
    (State.SKIPPED, Reason.NONE): Look(DASH, "skipped", "quiet"),
    (State.SKIPPED, Reason.PUBLISHED): Look("=", "already published", "quiet"),
    (State.SKIPPED, Reason.NO_GPU): Look("○", "untested", "waiting"),
    (State.SKIPPED, Reason.NOT_RUN): Look("…", "not run", "waiting"),
    (State.SKIPPED, Reason.EXCLUDED): Look(DASH, "excluded", "quiet"),
}  # fmt: skip


@pytest.mark.parametrize(("state", "reason"), LOOKS)
def test_a_state_looks_the_same_in_every_report(state: State, reason: Reason) -> None:
    assert wording.look(state, reason) == LOOKS[state, reason]
    assert wording.look(State.PASSED) == LOOKS[State.PASSED, Reason.NONE]


def test_whatever_went_wrong_or_is_left_to_do_has_advice(small: NightlyRun) -> None:
    silent = {Reason.NONE, Reason.EXCLUDED, Reason.PUBLISHED}
    for reason in Reason:
        record = replace(small.cells[0], reason=reason, detail="")
        assert bool(wording.advice(record)) is (reason not in silent), reason
    left = wording.advice(replace(small.cells[0], reason=Reason.NOT_RUN, detail=""))
    assert left == "invoke nightly --resume continues with the remaining cells"
    assert wording.meaning(replace(small.cells[1], reason=Reason.NONE)) == "all steps passed"
    assert wording.meaning(replace(small.cells[0], reason=Reason.NONE)) == ""


def test_the_tally_counts_in_words_failures_before_skips(small: NightlyRun) -> None:
    error = replace(small.cells[1], state=State.ERROR, reason=Reason.FETCH)
    many = replace(small, cells=(small.cells[0], small.cells[0], error, error, small.cells[2]))
    assert [text for _, text in wording.tally(many)] == ["1 failed", "2 errors", "2 excluded"]
    assert [record.state for record in wording.troubled(many)] == [State.FAILED, State.ERROR, State.ERROR]
    two = replace(small, cells=(), audit=(small.audit[1],) * 2)
    assert wording.headline(two) == "2 faults found by the audit"
    assert [wording.status(replace(small, exit_code=code)) for code in (0, 7, 130)] == [
        "success",
        "failure",
        "interrupted",
    ]


def test_long_text_is_cut_with_the_number_of_characters_left_out() -> None:
    assert clip("abc", 3) == "abc"
    assert clip("abcd", 3) == "abc… (1 characters more)"
    assert first_line("\n  \n  two  \nthree") == "two"
    assert first_line("x" * 201) == "x" * 200 + "… (1 characters more)"
    assert first_line("") == ""


def test_anchors_and_sets_of_sms_are_those_of_the_page(small: NightlyRun) -> None:
    assert grid.anchor("22.12-sm80_86 x") == "cell-22.12-sm80_86-x"
    assert grid.sms(replace(small.cells[0], sms=(80, 86))) == "80+86"
    (found,) = grid.grids(small)
    assert found.columns == ("80", "89", "90")
    assert [[c.cell if c else None for c in row.cells] for row in found.rows] == [
        [None, None, "22.03-sm90"],
        ["22.12-sm80", "22.12-sm89", None],
    ]


def test_the_page_writes_dates_figures_and_parts_for_people(small: NightlyRun) -> None:
    figures = {"gpt-fp16": {"ready_seconds": 6.41, "tokens_per_second": 1843.2, "memory_bytes": 2.4 * GB}}
    shown = replace(small.cells[1], figures=figures, compiles={"backend": UNITS})
    text = page.render(replace(small, cells=(shown, *small.cells[2:]), past=past(small.cells, 2)))
    assert "Saturday, 21 November 2026, 02:00 UTC" in text
    for figure in ("6.4 s", "1,843.2", "2.4 GB"):
        assert figure in text
    assert "58%" in text, "the part of the longest unit"
    assert "3.2%" in text, "the part of a short one"
    assert (page._percent(0.1), page._percent(0.0999)) == ("10%", "10.0%")
    assert "+7 %" in text, "the change of a cell's time"
    assert "<title>" in text


def test_only_cells_with_something_to_tell_have_a_section(small: NightlyRun) -> None:
    states = {reason: replace(small.cells[0], reason=reason, cell=reason.value) for reason in Reason}
    text = page.render(replace(small, cells=tuple(states.values())))
    shown = replace(states[Reason.PUBLISHED], images={"runtime": PULLED})
    assert '<article id="cell-already-published"' in page.render(replace(small, cells=(shown,)))
    without = {reason for reason in Reason if f'<article id="cell-{reason.value}"' not in text}
    assert without == {Reason.EXCLUDED, Reason.NOT_RUN, Reason.PUBLISHED}
    for reason in without:
        assert f'<tr id="cell-{reason.value}"' in text
