"""Wall time: its limit, replays of compiles, and their check against the measured compile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.harness import wall
from benchmarks.harness.figure import Machine, Result
from benchmarks.harness.run import README
from benchmarks.harness.wall import Compilers
from benchmarks.tools import replay, unit_times
from benchmarks.tools.replay import Task
from benchmarks.tools.unit_times import Timed, Times
from benchmarks.topics import schedule
from benchmarks.topics import wall as topic
from ftbuild.nightly.record import Unit

# Two jobs: each compiler waits a tenth for its slot, and the link comes after both.
MEASURED = Times(
    "measured somewhere",
    {
        "backend": [
            Timed(0.1, 4.1, "a.dir/a.cu.o", 3.9),
            Timed(0.1, 2.1, "a.dir/b.cc.o", 1.9),
            Timed(4.2, 5.0, "liba.so"),
        ]
    },
    jobs=2,
    cell="a-cell",
    key="0123456789ab",
)


def test_the_limit_is_the_compilers_alone_or_the_longest_of_them() -> None:
    compilers = Compilers.of([6.0, 2.0, 1.0])
    assert (compilers.limit(1), compilers.limit(2)) == (9.0, 6.0)
    assert compilers.deciding(1) == "CPU seconds of all compilers / 1"
    assert compilers.deciding(2) == "CPU seconds of the longest compiler"


def test_the_definition_of_the_limit_stands_in_the_readme() -> None:
    assert wall.DEFINITION in " ".join(README.read_text().split())


def test_links_count_against_a_compile_and_not_for_its_limit() -> None:
    data = {"wall": 10.0, "cpu": 18.0, "compilers": 16.0, "longest compiler": 4.0, "compiled": 9, "jobs": 2}
    (figure,) = topic.figures(data, "real")
    assert (figure.value, figure.met) == (1.25, False)
    assert "limit (8 s, CPU seconds of all compilers / 2)" in figure.what


def test_no_limit_follows_from_a_record_without_the_compilers_seconds() -> None:
    old = Result(
        "wall", "real", (), Machine("", 2, 1, "", 0.0), "", {"wall": 10.0, "cpu": 18.0, "compiled": 9}
    )
    new = topic.recomputed(old)
    (figure,) = new.figures
    assert (figure.value, figure.unit, figure.goal) == (10.0, "s", None)
    assert "lacks the CPU seconds" in figure.how
    assert new.definition == topic.DEFINITION


def test_measured_and_simulated_rows_have_the_same_limit() -> None:
    found = schedule.replayed(MEASURED)
    rows = {f.what.partition(":")[0]: f for f in schedule.figures(found) if " / limit (" in f.what}
    assert set(rows) == {
        "2 jobs",
        *(f"{n} jobs, {o}" for n in (16, 64) for o in (schedule.PLAIN, schedule.BUILT)),
    }
    assert rows["2 jobs"].value == pytest.approx(5.0 / 3.9)
    assert all("limit (4 s, CPU seconds of the longest compiler)" in row.what for row in rows.values())
    assert rows["2 jobs"].how.startswith("measured")
    assert rows["16 jobs, ninja's order"].how.startswith("simulated")


def test_a_replay_is_checked_against_the_measured_compile_and_corrected_by_it() -> None:
    found = schedule.replayed(MEASURED)
    assert found.same == pytest.approx(4.8)  # the slots cost nothing in a replay
    assert found.checked == pytest.approx(4.8 / 5.0)
    assert found.corrected(schedule.BUILT, 2) == pytest.approx(5.0)
    (check,) = (f for f in schedule.figures(found) if "/ measured" in f.what)
    assert check.value == pytest.approx(0.96)
    (row,) = (f for f in schedule.figures(found) if f.what.startswith("16 jobs, the build's order"))
    assert row.value == pytest.approx(4.8 / 0.96 / 3.9)
    assert "/ 0.960" in row.how
    curves = {line.name: line.series for line in schedule.charts([found])}
    assert curves["schedule-a-cell-2-jobs"][schedule.MEASURED] == ((2.0, 5.0),)


def test_replays_are_of_more_jobs_than_were_measured() -> None:
    rows = list(schedule.figures(schedule.replayed(replace(MEASURED, jobs=16))))
    assert [row.how.partition(":")[0] for row in rows] == ["measured", *["simulated"] * 3]
    assert {row.what.split()[0] for row in rows if "replay" not in row.what} == {"16", "64"}


def test_figures_name_the_cell_of_each_compile() -> None:
    both = [schedule.replayed(times) for times in (MEASURED, replace(MEASURED, jobs=16))]
    assert {figure.of for figure in schedule.every(both)} == {"a-cell"}
    assert list(schedule.data(both)) == ["a-cell-2-jobs", "a-cell-16-jobs"]


def test_the_goal_of_a_replay_is_for_the_builds_order() -> None:
    found = [f for f in schedule.figures(schedule.replayed(MEASURED)) if "," in f.what.partition(":")[0]]
    assert found
    assert all((figure.goal is not None) == (schedule.BUILT in figure.what) for figure in found)


def test_unit_times_round_trip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_times, "FOLDER", tmp_path)
    both = [MEASURED, replace(MEASURED, jobs=16, about="measured elsewhere")]
    for times in reversed(both):
        unit_times.write(times)
    assert unit_times.stored() == both
    assert {file.name for file in tmp_path.iterdir()} == {"a-cell-2-jobs.tsv", "a-cell-16-jobs.tsv"}


def test_unit_times_know_the_wall_time_and_the_compilers() -> None:
    assert MEASURED.wall == 5.0
    assert MEASURED.compilers == [3.9, 1.9]


def compiles(*seconds: float) -> list[Task]:
    return [Task(f"{number}.cu.o", length) for number, length in enumerate(seconds)]


def test_starting_the_longest_unit_first_shortens_a_replay() -> None:
    trees = [compiles(1, 1, 2)]
    assert replay.wall(trees, 2) == 3
    assert replay.wall(trees, 2, replay.heaviest_first) == 2 == Compilers.of([1, 1, 2]).limit(2)


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
    assert replay.wall([tree, compiles(2, 2)], 1) == Compilers.of([2, 2, 2]).limit(1) == 6


def test_the_named_sources_come_first_in_the_order_of_their_names() -> None:
    tree = [
        Task("a/x.cc.o", 1),
        Task("b/beam.cu.o", 1),
        Task("b/beam.so", 1, compiles=False),
        Task("a/atom.cu.o", 1),
    ]
    assert replay.first(("atom", "beam"))(tree) == [3, 1, 0, 2]


def test_in_a_log_archives_wait_for_their_objects_and_libraries_for_all_before() -> None:
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


def test_a_device_link_is_not_a_compile() -> None:
    units = [Unit(0, 4, "one.dir/one.cu.o"), Unit(4, 5, "CMakeFiles/one.dir/cmake_device_link.o")]
    assert replay.tasks(units)[1] == Task("CMakeFiles/one.dir/cmake_device_link.o", 1, (0,), compiles=False)


def test_waiting_for_a_slot_does_not_count_as_compiling() -> None:
    units = [Unit(1.0, 9.0, "a.o"), Unit(9.0, 10.0, "a.a")]
    found = unit_times.without_waiting(units, "5000\t8500\t1\ta.o\t3.40\t1048576\n")
    assert found == [Timed(5.5, 9.0, "a.o", 3.4), Timed(9.0, 10.0, "a.a")]


def test_a_measured_compile_keeps_the_statements_before_they_are_reordered() -> None:
    script = unit_times.COMPILE.read_text()
    lines = unit_times.keeping_statements(script).splitlines()
    (reorders,) = (number for number, line in enumerate(lines) if line.startswith("/steps/heaviest.py "))
    kept = lines.pop(reorders - 1)
    assert kept.split()[:2] == ["cp", '"$build/build.ninja"']
    assert lines == script.splitlines()


def test_units_follow_the_statements_and_new_ones_their_target() -> None:
    statements = (
        "build b.dir/b.o: CC b.c\n  X = 1\nbuild a.dir/a.o | x: CC a.c\nbuild lib.so: LINK a.dir/a.o\n"
    )
    units = [Timed(n, 9, name) for n, name in enumerate(("lib.so", "a.dir/a.o", "b.dir/new.o", "b.dir/b.o"))]
    found = unit_times.in_order(units, statements)
    assert [unit.output for unit in found] == ["b.dir/new.o", "b.dir/b.o", "a.dir/a.o", "lib.so"]
