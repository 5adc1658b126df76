from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.harness import catalogue, run, table
from benchmarks.harness.chart import Bars, Lines
from benchmarks.harness.figure import Figure, Machine, Result, Topic
from benchmarks.harness.run import BenchOptions
from benchmarks.harness.stage import Stage, timed
from benchmarks.tools import layers, replay, transfer, unit_times
from benchmarks.tools.replay import Task
from benchmarks.topics import schedule, startup
from ftbuild.errors import ConfigError
from ftbuild.nightly.record import Unit
from testing.sample import SAMPLE

Bench = Callable[..., tuple[int, str, list[str]]]
MACHINE = Machine("a processor", 2, 23 * 2**30, "Linux", 0.5)


def figure(value: float, goal: float | None = 0.25, *, at_most: bool = True) -> Figure:
    return Figure(Topic.STARTUP, "`invoke --list`", value, "s", goal, "measured", at_most)


def result(*figures: Figure, stack: str = "sample") -> Result:
    charts = (
        Bars("startup", "Start-up", "seconds", ("--list", "matrix"), {"wall": (0.2, 0.5), "CPU": (0.1, 0.4)}),
        Lines("walls", "Walls", "jobs", "seconds", {"limit": ((1.0, 9.0), (2.0, 4.5))}, up_by_powers=True),
    )
    return Result(
        "startup", stack, figures, MACHINE, "2026-11-22T00:00:00+00:00", {"seconds": [1, 2]}, charts
    )


@pytest.mark.parametrize(
    ("found", "met"),
    [
        (figure(0.25), True),
        (figure(0.26), False),
        (figure(0.95, 0.95, at_most=False), True),
        (figure(0.94, 0.95, at_most=False), False),
        (figure(1.0, None), None),
    ],
)
def test_a_figure_says_whether_it_keeps_its_goal(found: Figure, met: bool | None) -> None:
    assert found.met is met


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = result(figure(0.2), figure(0.3, None))
    assert Result.read(written.write(tmp_path)) == written


def test_the_table_names_figure_goal_and_whether_it_is_met() -> None:
    rows = table.markdown([result(figure(0.2), figure(0.3))], "results").splitlines()
    assert "| 7 start-up | sample | `invoke --list` | 0.2 s | ≤ 0.25 s | yes | measured |" in rows
    assert "| 7 start-up | sample | `invoke --list` | 0.3 s | ≤ 0.25 s | **no** | measured |" in rows


def test_the_table_goes_by_topic_whatever_the_order_of_the_records() -> None:
    cold = replace(figure(0.1), topic=Topic.COLD)
    rows = table.markdown([result(figure(0.2)), result(cold, stack="real")], "results").splitlines()
    assert [row.split(" | ")[0] for row in rows[2:4]] == ["| 1 cold build", "| 7 start-up"]


def test_renewing_the_readme_changes_the_block_alone(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n\n{table.BEGIN}\nold\n{table.END}\n\nafter\n")
    table.renew(readme, [result(figure(0.2))], tmp_path / "results")
    once = readme.read_text()
    table.renew(readme, [result(figure(0.2))], tmp_path / "results")
    assert once == readme.read_text()
    assert once.startswith("before\n")
    assert once.endswith("after\n")
    assert "old" not in once
    assert "0.2 s" in once
    assert "![Start-up](results/startup-sample.svg)" in once


def test_a_readme_without_the_block_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("nothing")
    with pytest.raises(ConfigError, match="no block"):
        table.renew(tmp_path / "README.md", [], tmp_path)


@pytest.mark.parametrize(
    ("value", "unit", "text"), [(1.57e9, "B", "1.57 GB"), (0.0471, "", "0.047"), (12345.6, "s", "12,346 s")]
)
def test_amounts_are_short(value: float, unit: str, text: str) -> None:
    assert table.amount(value, unit) == text


def test_the_plots_of_the_same_record_are_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the plots need the extra bench")
    from benchmarks.harness import plots

    drawn = [plots.draw([result(figure(0.2))], tmp_path / name) for name in ("one", "two")]
    assert [file.name for file in drawn[0]] == ["startup-sample.svg", "walls-sample.svg"]
    assert [file.read_bytes() for file in drawn[0]] == [file.read_bytes() for file in drawn[1]]
    assert "seconds" in drawn[0][0].read_text()


def compiles(*seconds: float) -> list[Task]:
    return [Task(f"{number}.cu.o", length) for number, length in enumerate(seconds)]


def test_the_longest_unit_last_costs_a_replay_what_the_heaviest_first_saves() -> None:
    trees = [compiles(1, 1, 2)]
    assert replay.wall(trees, 2) == 3
    assert replay.wall(trees, 2, replay.heaviest_first) == 2 == replay.limit(trees, 2)


def test_one_job_takes_all_seconds_in_any_order() -> None:
    trees = [compiles(3, 1, 2), compiles(5)]
    assert replay.wall(trees, 1) == replay.wall(trees, 1, replay.heaviest_first) == 11


def test_more_jobs_than_units_take_as_long_as_the_longest() -> None:
    assert replay.wall([compiles(3, 1, 2), compiles(5)], 64) == 5


def test_two_trees_share_the_slots() -> None:
    assert replay.wall([compiles(1, 1), compiles(1, 1)], 2) == 2


def test_a_link_waits_for_its_objects_and_takes_no_slot() -> None:
    tree = [*compiles(2), Task("lib.so", 3, after=(0,), compiles=False)]
    assert replay.wall([tree], 1) == 5
    assert replay.wall([tree, compiles(2, 2)], 1) == replay.limit([tree, compiles(2, 2)], 1) == 6


def test_the_named_sources_come_first_in_the_order_of_their_names() -> None:
    tree = [
        Task("a/x.cc.o", 1),
        Task("b/beam.cu.o", 1),
        Task("b/beam.so", 1, compiles=False),
        Task("a/atom.cu.o", 1),
    ]
    assert replay.first(("atom", "beam"))(tree) == [3, 1, 0, 2]


def test_a_log_gives_archives_their_own_objects_and_libraries_all_before() -> None:
    units = [
        Unit(0, 4, "src/CMakeFiles/one.dir/one.cc.o"),
        Unit(0, 5, "src/CMakeFiles/two.dir/two.cc.o"),
        Unit(5, 6, "lib/libone.a"),
        Unit(6, 7, "lib/libboth.so"),
        Unit(6, 9, "src/CMakeFiles/three.dir/three.cc.o"),
    ]
    found = replay.tasks(units)
    assert [task.after for task in found] == [(), (), (0,), (0, 1, 2), ()]
    assert [task.compiles for task in found] == [True, True, False, False, True]


def test_linking_device_code_is_no_compile() -> None:
    units = [Unit(0, 4, "one.dir/one.cu.o"), Unit(4, 5, "CMakeFiles/one.dir/cmake_device_link.o")]
    assert replay.tasks(units)[1] == Task("CMakeFiles/one.dir/cmake_device_link.o", 1, (0,), compiles=False)


def test_the_time_that_a_compile_waits_for_its_slot_is_not_its_own() -> None:
    units = [Unit(1.0, 9.0, "a.o"), Unit(9.0, 10.0, "a.a")]
    found = unit_times.without_waiting(units, "5000\t8500\t1\ta.o\t3.40\t1048576\n")
    assert found == [Unit(5.5, 9.0, "a.o"), Unit(9.0, 10.0, "a.a")]


def test_units_stand_as_the_statements_do_and_new_ones_with_their_target() -> None:
    statements = (
        "build b.dir/b.o: CC b.c\n  X = 1\nbuild a.dir/a.o | x: CC a.c\nbuild lib.so: LINK a.dir/a.o\n"
    )
    units = [Unit(n, 9, name) for n, name in enumerate(("lib.so", "a.dir/a.o", "b.dir/new.o", "b.dir/b.o"))]
    found = unit_times.in_order(units, statements)
    assert [unit.output for unit in found] == ["b.dir/new.o", "b.dir/b.o", "a.dir/a.o", "lib.so"]


def test_unit_times_are_read_as_they_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_times, "FOLDER", tmp_path)
    trees = {"backend": [Unit(0.0, 1.5, "a.o")], "pyt": [Unit(0.0, 2.25, "b.o"), Unit(2.25, 3.0, "b.so")]}
    unit_times.write("a-cell", "measured somewhere", trees)
    assert unit_times.names() == ["a-cell"]
    assert unit_times.read("a-cell") == trees
    assert unit_times.about("a-cell") == "measured somewhere"


def test_the_goal_of_a_replay_is_for_what_the_build_does() -> None:
    found = schedule.figures("a cell", schedule.replayed([compiles(1, 1, 2)]), "measured somewhere")
    assert len(found) == 2 * len(schedule.WITH_GOAL)
    assert all((figure.goal is not None) == (schedule.BUILT in figure.what) for figure in found)


@pytest.mark.parametrize(
    ("created_by", "step"),
    [
        ("COPY /out/ / # buildkit", "COPY /out/ /"),
        ("RUN |2 A=b c C=d /bin/sh -c ldconfig && rm -f /x # buildkit", "RUN ldconfig && rm -f /x"),
        (
            "RUN /bin/sh -c set -eu\nfor package in $RUNTIME_PURGE; do x; done",
            "RUN set -eu for package in $RUNTIME_PUR…",
        ),
    ],
)
def test_a_layer_is_named_by_its_step(created_by: str, step: str) -> None:
    assert layers.step(created_by) == step


def test_the_transfer_is_what_buildkit_says_last_of_the_context() -> None:
    said = (
        "#3 transferring sources: 2B done\n#6 transferring sources: 34.13MB 4.9s\n"
        "#6 transferring sources: 232.58MB 17.2s done\n"
    )
    assert transfer.parsed(said) == transfer.Transfer(232.58e6, 17.2)
    assert transfer.parsed("#6 transferring sources: 2B done\n") == transfer.Transfer(2.0, 0.0)
    assert transfer.parsed("nothing") is None


def test_a_command_is_timed_with_the_processes_that_it_starts(tmp_path: Path) -> None:
    spin = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    found = timed(["sh", "-c", f"python3 -c '{spin}'"], cwd=tmp_path)
    assert found.cpu >= 0.2
    assert found.wall >= 0.2


def test_start_up_is_measured_against_a_bare_import(tmp_path: Path) -> None:
    seconds = {
        startup.BARE: {"wall": [0.1], "cpu": [0.1]},
        "--list": {"wall": [0.2], "cpu": [0.2]},
        "matrix": {"wall": [0.5], "cpu": [0.3]},
        "build --dry-run": {"wall": [0.6], "cpu": [0.5]},
    }
    values = [round(figure.value, 6) for figure in startup.figures(seconds)]
    assert values == [0.2, 0.2, 0.4]


class Fake:
    """A benchmark that answers what a test wants."""

    __doc__ = "A benchmark."

    def __init__(self, name: str, body: Callable[[Stage], Result], missing: str | None = None) -> None:
        self.NAME = name
        self.run = body
        self.missing = missing

    def needs(self, stage: Stage) -> str | None:
        return self.missing


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    """Run benchmarks: the exit code, what was said, and the records that are there."""

    def bench(*fakes: Fake) -> tuple[int, str, list[str]]:
        monkeypatch.setattr(catalogue, "chosen", lambda names: iter(fakes))
        code = run.bench(BenchOptions(config=SAMPLE, real=True, out=tmp_path / "out"))
        said = capsys.readouterr()
        return code, said.out + said.err, sorted(file.name for file in (tmp_path / "out").glob("*.json"))

    return bench


def measured(stage: Stage) -> Result:
    return stage.result("works", [figure(0.2)], {})


def test_one_that_fails_stops_no_other_and_decides_the_exit_code(
    ran: Bench,
) -> None:
    def broken(stage: Stage) -> Result:
        raise ConfigError("no such thing")

    code, said, records = ran(Fake("broken", broken), Fake("works", measured))
    assert code == ConfigError.exit_code
    assert "broken: failed: no such thing" in said
    assert records == ["works-real.json"]


def test_one_that_cannot_run_here_is_skipped_with_its_reason(
    ran: Bench,
) -> None:
    code, said, records = ran(Fake("elsewhere", measured, "no GPU"), Fake("works", measured))
    assert code == 0
    assert "elsewhere: skipped, no GPU" in said
    assert records == ["works-real.json"]


def test_an_interrupt_keeps_what_was_measured(ran: Bench) -> None:
    def interrupted(stage: Stage) -> Result:
        raise KeyboardInterrupt

    code, said, records = ran(Fake("works", measured), Fake("long", interrupted), Fake("never", measured))
    assert code == 130
    assert "0.2 s" in said
    assert records == ["works-real.json"]


def test_an_unknown_benchmark_is_an_error() -> None:
    with pytest.raises(ConfigError, match="fast is unknown"):
        list(catalogue.chosen(["fast"]))


def test_every_benchmark_can_be_loaded() -> None:
    found = list(catalogue.chosen([]))
    assert [benchmark.NAME for benchmark in found] == list(catalogue.NAMES)
    assert all(catalogue.about(benchmark) for benchmark in found)


def test_committed_records_can_be_read() -> None:
    for file in (run.README.parent / "results").glob("*.json"):
        assert Result.read(file).benchmark == json.loads(file.read_text())["benchmark"]
