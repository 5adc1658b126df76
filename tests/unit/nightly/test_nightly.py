"""Decisions of a nightly run before it starts, messages in its logs, and its history."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ftbuild import matrix
from ftbuild.build import build_log
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError, NothingSelected
from ftbuild.gates.report import SMOKE, GateReport
from ftbuild.nightly import artifacts, budget, history, ninja
from ftbuild.nightly.budget import Budget
from ftbuild.nightly.record import NightlyRun, PastRun, Reason, Unit
from ftbuild.plan import Plan
from ftbuild.text.results import CheckResult
from ftbuild.text.results import State as CheckState
from testing import recorded_runs
from tests.unit.nightly.conftest import Night
from tests.unit.test_plan import plan_of

GIB = 2**30
CONFIG = "buildcfg"


@pytest.mark.parametrize(
    ("cores", "memory", "jobs", "cells"),
    [
        (2, 23 * GIB, 2, 2),
        (64, 512 * GIB, 64, 8),
        (64, 30 * GIB, 10, 2),
        (1, 1 * GIB, 1, 2),
    ],
    ids=["small", "large", "short of memory", "tiny"],
)
def test_the_default_budget_follows_the_machine(cores: int, memory: int, jobs: int, cells: int) -> None:
    assert budget.for_machine(cores, memory) == Budget(jobs, cells)


def test_options_override_the_machine() -> None:
    assert budget.for_machine(2, 4 * GIB, jobs=32) == Budget(32, 4)
    assert budget.for_machine(64, 512 * GIB, cells=1) == Budget(64, 1)
    assert budget.for_machine(2, 4 * GIB, jobs=3, cells=5) == Budget(3, 5)


def test_bases_of_a_release_start_apart(config: Config) -> None:
    """They have no compiled unit in common."""
    plans = [plan_of(config, sm=sm) for sm in ("80", "86")]
    other = replace(plans[0], cell=replace(plans[0].cell, base="ngc", is_default_base=False))
    known = remembering({"22.12-sm80": 3.0, "22.12-sm86": 2.0, "22.12-sm80-ngc": 1.0})
    assert ids(budget.order_of_start([*plans, other], [known])) == [
        "22.12-sm80",
        "22.12-sm80-ngc",
        "22.12-sm86",
    ]


def test_a_cell_of_two_sms_is_estimated_twice_as_long_as_the_longest(config: Config) -> None:
    plans = [plan_of(config, sm=sm) for sm in ("80", "80,86", "86")]
    known = remembering({"22.12-sm80": 0.5, "22.12-sm86": 1.5})
    assert ids(budget.order_of_start(plans, [known])) == ["22.12-sm80_86", "22.12-sm86", "22.12-sm80"]


def test_jobs_are_halved_until_one_is_left() -> None:
    assert [budget.fewer(jobs) for jobs in (64, 7, 3, 2, 1)] == [32, 3, 1, 1, None]


def remembering(seconds: Mapping[str, float]) -> PastRun:
    return PastRun("2026-11-20T01-17-00Z", 0.0, 0, {}, seconds, {})


def test_the_longest_cell_starts_first(config: Config) -> None:
    plans = [plan_of(config, sm=sm) for sm in ("70", "80", "86")]
    old = remembering({"22.12-sm70": 900.0, "22.12-sm80": 1.0})
    new = remembering({"22.12-sm70": 10.0, "22.12-sm80": 30.0, "22.12-sm86": 20.0})
    assert ids(budget.order_of_start(plans, [old, new])) == ["22.12-sm80", "22.12-sm86", "22.12-sm70"]


def test_a_cell_without_history_is_estimated_by_its_sms(config: Config) -> None:
    plans = [plan_of(config, sm=sm) for sm in ("70", "80", "80,86", "86")]
    known = remembering({"22.12-sm70": 40.0, "22.12-sm80": 50.0})
    assert ids(budget.order_of_start(plans, [known]))[0] == "22.12-sm80_86"
    assert ids(budget.order_of_start(plans, [known]))[-1] == "22.12-sm70"


def test_without_history_cells_with_more_sms_start_first(config: Config) -> None:
    plans = [plan_of(config, sm=sm) for sm in ("70", "86", "80,86", "80")]
    assert ids(budget.order_of_start(plans, [])) == [
        "22.12-sm80_86",
        "22.12-sm70",
        "22.12-sm86",
        "22.12-sm80",
    ]


def test_of_cells_without_history_those_of_the_newest_release_start_first(config: Config) -> None:
    plans = [plan_of(config, triton, "80") for triton in ("22.03", "22.12", "22.07")]
    assert ids(budget.order_of_start(plans, [])) == ["22.12-sm80", "22.07-sm80", "22.03-sm80"]
    known = remembering({"22.03-sm80": 40.0})
    assert ids(budget.order_of_start(plans, [known])) == ["22.12-sm80", "22.07-sm80", "22.03-sm80"]


def test_one_cell_of_each_release_starts_before_all_others(config: Config) -> None:
    cells = (("22.12", "80"), ("22.12", "86"), ("22.07", "80"), ("22.07", "86"), ("22.03", "80"))
    plans = [plan_of(config, triton, sm) for triton, sm in cells]
    expected = ["22.12-sm80", "22.07-sm80", "22.03-sm80", "22.12-sm86", "22.07-sm86"]
    assert ids(budget.order_of_start(plans, [])) == expected
    known = remembering(
        {"22.12-sm80": 70.0, "22.12-sm86": 60.0, "22.07-sm80": 40.0, "22.07-sm86": 50.0, "22.03-sm80": 1.0}
    )
    expected = ["22.12-sm80", "22.07-sm86", "22.03-sm80", "22.12-sm86", "22.07-sm80"]
    assert ids(budget.order_of_start(plans, [known])) == expected


def ids(plans: Sequence[Plan]) -> list[str]:
    return [plan.cell.id for plan in plans]


def test_without_options_a_run_covers_every_pair_once(config: Config) -> None:
    table = matrix.select_with_excluded(config)
    everything = {(c.triton, c.sms) for c in (*table.cells, *(e.cell for e in table.excluded))}
    assert everything == {(r, (sm,)) for r in config.matrix.releases for sm in config.matrix.sms}
    assert table == matrix.make_matrix(config)


def test_impossible_cells_are_listed_within_the_options(config: Config) -> None:
    table = matrix.select_with_excluded(config, cells=["22.03-*"], sms=["80", "89"])
    assert [cell.id for cell in table.cells] == ["22.03-sm80"]
    (excluded,) = table.excluded
    assert excluded.cell.id == "22.03-sm89"
    assert excluded.reasons


def test_several_sms_in_one_image_are_covered_too(config: Config) -> None:
    table = matrix.select_with_excluded(config, triton=["22.12"], sms=["86,80"])
    assert [cell.id for cell in table.cells] == ["22.12-sm80_86"]


def test_a_run_over_no_cell_is_an_error(config: Config) -> None:
    with pytest.raises(NothingSelected):
        matrix.select_with_excluded(config, cells=["22.03-sm89"])
    with pytest.raises(ConfigError, match="not in the matrix"):
        matrix.select_with_excluded(config, triton=["22.11"])


BAKE_LOG = """\
[22.12-sm80] building with 2 compile jobs, log: .ftbuild/22.12-sm80/0123456789ab/build.log
[22.12-sm80] #40 5.1 /src/ft/a.cc:1:2: error: #error broken
[22.12-sm80] #40 5.2 ninja: build stopped: subcommand failed.
[22.12-sm80] failed: the build failed (docker buildx bake ended with code 1)
    /src/ft/a.cc:1:2: error: #error broken
  where: .ftbuild/22.12-sm80/0123456789ab/build.log
  next:  build.sh repeats this build
22.12-sm80               failed       12.3 s  triton_with_ft:22.12-sm80-0123456789ab
"""
SMOKE_LOG = """\
[22.12-sm80] failed: not this one, which a later message replaces
[22.12-sm80] suite/test_answers.py::test_greedy FAILED
error: nothing was tested: no GPU here runs 22.12-sm80
  next:  test these cells on a machine with such a GPU, or select others
"""


@pytest.mark.parametrize(
    ("log", "first", "lines"),
    [
        (BAKE_LOG, "the build failed (docker buildx bake ended with code 1)", 4),
        (SMOKE_LOG, "nothing was tested: no GPU here runs 22.12-sm80", 2),
        ("Traceback (most recent call last):\nKeyError: 'x'\n\n", "KeyError: 'x'", 1),
        ("", "", 0),
    ],
    ids=["build", "smoke", "traceback", "empty"],
)
def test_the_last_message_of_a_log_is_the_reason_of_the_failure(
    tmp_path: Path, log: str, first: str, lines: int
) -> None:
    (tmp_path / "step.log").write_text(log)
    message = artifacts.failure(tmp_path / "step.log", tmp_path, Reason.SMOKE).splitlines()
    assert len(message) == lines
    assert [*message, ""][0] == first


def test_without_a_message_the_failed_checks_are_the_reason(config: Config, tmp_path: Path) -> None:
    plan, log = plan_of(config), tmp_path / "step.log"
    log.write_text("State  Check\nfailed: 3, warnings: 0\n")
    hint = "a kernel, the converter or a patch is wrong"
    checks = (
        CheckResult("greedy tokens", CheckState.FAIL, "token 1 is 7", hint, "runtime"),
        CheckResult("greedy tokens", CheckState.FAIL, "token 3 is 9", hint, "runtime"),
        CheckResult("ready", CheckState.OK, "0.3 s", subject="runtime"),
        CheckResult("two beams", CheckState.FAIL, "other tokens", "another hint", "sdk"),
    )
    GateReport(SMOKE, plan, {}, checks).write(tmp_path)
    assert artifacts.failure(log, tmp_path, Reason.SMOKE) == (
        f"failed: greedy tokens (runtime), two beams (sdk)\n  next:  {hint}"
    )
    assert artifacts.failure(log, tmp_path, Reason.PUBLISH) == "failed: 3, warnings: 0"


def test_a_missing_log_has_no_message_and_no_tail(tmp_path: Path) -> None:
    assert artifacts.failure(tmp_path / "missing.log", tmp_path, Reason.SMOKE) == ""
    assert artifacts.tail(tmp_path / "missing.log") == ()


@pytest.mark.parametrize(
    "line",
    [
        "#9 1.0 c++: fatal error: Killed signal terminated program cc1plus",
        "#41 12.3 Killed",
        "#41 12.3 nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
        "#41 12.3 cc1plus: out of memory allocating 65536 bytes: Cannot allocate memory",
        "#41 12.3 virtual memory exhausted: Cannot allocate memory",
        "#41 12.3 terminate called after throwing an instance of 'std::bad_alloc'",
        "#41 12.3 FAILED: [code=137] a.cc.o",
        '#41 ERROR: process "/bin/sh -c compile" did not complete successfully: exit code: 137',
    ],
)
def test_running_out_of_memory_is_recognized_in_the_log(line: str) -> None:
    assert build_log.ran_out_of_memory(f"#41 1.0 [1/2] Building CXX object a.cc.o\n{line}\n")


@pytest.mark.parametrize(
    "line",
    [
        "#12 [backend 2/3] RUN compile || echo Killed",
        "  40 | >>>     compile || echo Killed",
        "  41 |         echo exit code: 137",
        " > [backend 2/3] RUN compile || echo Killed:",
        "#41 12.3 FAILED: [code=1] a.cc.o",
        "#41 12.3 a.cc:9:1: error: 'signal' was not declared",
        '#41 ERROR: process "/bin/sh -c compile" did not complete successfully: exit code: 1',
        "#41 12.3 [9/13] Building CXX object skilled.cc.o",
    ],
)
def test_other_failures_and_quotes_of_the_dockerfile_are_not_out_of_memory(line: str) -> None:
    assert not build_log.ran_out_of_memory(line)


def wrote(work: Path, *made: NightlyRun) -> None:
    for run in made:
        run.write(work / history.FOLDER / run.id)


def numbered(day: int) -> NightlyRun:
    return replace(recorded_runs.good(), id=f"2026-10-{day:02}T01-17-00Z")


def test_history_has_the_last_runs_oldest_first(tmp_path: Path) -> None:
    wrote(tmp_path, *(numbered(day) for day in range(1, 21)))
    remembered = history.remembered(tmp_path, CONFIG)
    assert [run.id[8:10] for run in remembered] == [f"{day:02}" for day in range(7, 21)]
    assert remembered[0].cell_seconds == numbered(7).summary().cell_seconds


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": "x"}', "null"])
def test_an_unreadable_report_is_left_out(tmp_path: Path, text: str) -> None:
    wrote(tmp_path, numbered(1), numbered(2))
    (tmp_path / history.FOLDER / numbered(2).id / "report.json").write_text(text)
    assert [run.id for run in history.remembered(tmp_path, CONFIG)] == [numbered(1).id]
    assert history.last(tmp_path) is None


def test_runs_of_another_configuration_are_not_compared(tmp_path: Path) -> None:
    sample = [replace(numbered(day), config="buildcfg/sample") for day in range(10, 30)]
    wrote(tmp_path, *(replace(numbered(day), config=CONFIG) for day in (1, 2)), *sample)
    assert [run.id for run in history.remembered(tmp_path, CONFIG)] == [numbered(1).id, numbered(2).id]
    assert len(history.remembered(tmp_path, "buildcfg/sample")) == history.REMEMBERED


def test_the_last_run_is_the_one_to_resume(tmp_path: Path) -> None:
    assert history.last(tmp_path) is None
    wrote(tmp_path, numbered(2), numbered(1))
    found = history.last(tmp_path)
    assert found == (tmp_path / history.FOLDER / numbered(2).id, numbered(2))


def test_old_runs_are_deleted_with_their_logs(tmp_path: Path) -> None:
    made = [replace(recorded_runs.good(), id=f"2026-{n:04}") for n in range(history.KEPT + 3)]
    wrote(tmp_path, *made)
    log = tmp_path / history.FOLDER / made[0].id / "cells" / "22.12-sm80" / "build.log"
    log.parent.mkdir(parents=True)
    log.write_text("long ago\n")
    foreign = tmp_path / "foreign"
    replace(made[0], id="foreign").write(foreign)
    (tmp_path / history.FOLDER / "2025-linked").symlink_to(foreign)
    history.forget(tmp_path)
    (tmp_path / history.FOLDER / "2025-linked").unlink()
    assert (foreign / "report.json").exists()
    assert [folder.name for folder in history.folders(tmp_path)] == [run.id for run in made[3:]]
    assert not log.exists()


def test_a_run_that_begins_after_the_clock_went_back_is_still_the_last_and_kept(
    night: Night, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs of a month ahead, as many as are kept: the clock was wrong, and has been set right since."""
    ahead = datetime.now(UTC) + timedelta(days=30)
    times = [ahead + timedelta(hours=n) for n in range(history.KEPT)]
    wrote(night.work, *(replace(recorded_runs.good(), id=f"{t:%Y-%m-%dT%H-%M-%SZ}") for t in times))
    done = night.run(registry=None)
    assert "the clock is behind the last nightly run" in capsys.readouterr().err
    assert history.last(night.work) == (night.work / history.FOLDER / done.id, done)
    assert datetime.fromisoformat(done.started) < ahead
    assert night.run(registry=None, resume=True).id == done.id


def test_two_runs_of_one_second_have_a_record_each(tmp_path: Path) -> None:
    now = datetime(2026, 10, 1, 1, 17, 0, 900_000, tzinfo=UTC)
    said: list[str] = []
    first = history.new_id(tmp_path, now, said.append)
    wrote(tmp_path, replace(recorded_runs.good(), id=first))
    assert (first, history.new_id(tmp_path, now, said.append)) == (
        "2026-10-01T01-17-00Z",
        "2026-10-01T01-17-01Z",
    )
    assert not said


def test_a_folder_that_cannot_be_deleted_does_not_end_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs of containers may belong to another user."""
    made = [replace(recorded_runs.good(), id=f"2026-{n:04}") for n in range(history.KEPT + 2)]
    wrote(tmp_path, *made)
    unlink = os.unlink

    def refuse(path: Any, **more: Any) -> None:
        if made[0].id in str(path) or more.get("dir_fd") is not None:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        unlink(path, **more)

    monkeypatch.setattr(os, "unlink", refuse)
    history.forget(tmp_path)
    assert len(history.folders(tmp_path)) == history.KEPT + 2
    monkeypatch.undo()
    history.forget(tmp_path)
    assert len(history.folders(tmp_path)) == history.KEPT


def test_a_run_forgets_old_ones(night: Night) -> None:
    made = [replace(recorded_runs.good(), id=f"2020-{n:04}") for n in range(history.KEPT)]
    wrote(night.work, *made)
    done = night.run(registry=None)
    assert [folder.name for folder in history.folders(night.work)] == [*(run.id for run in made[1:]), done.id]


def test_units_of_several_outputs_are_one_and_equal_times_are_two() -> None:
    """Edges that began and ended together differ by their command."""
    log = "# ninja log v5\n100\t900\t1\ta.o\tone\n100\t900\t1\ta.d\tone\n100\t900\t1\tb.o\ttwo\n"
    log += "100\t950\t1\tc.o\tone\n120\t950\t1\td.o\tone\n0900\t1\te.o\n"
    assert ninja.units(log) == (
        Unit(0.0, 0.8, "a.o"),
        Unit(0.0, 0.8, "b.o"),
        Unit(0.0, 0.85, "c.o"),
        Unit(0.02, 0.85, "d.o"),
    )


def test_units_are_sorted_by_their_start_and_take_the_lowest_free_slot() -> None:
    log = "# ninja log v5\n500\t600\t1\tb.o\tb\n0\t700\t1\ta.o\ta\n0\t800\t1\tc.o\tc\n600\t900\t1\td.o\td\n"
    log += "700\t1000\t1\te.o\te\n"
    units = ninja.units(log)
    assert [unit.output for unit in units] == ["a.o", "c.o", "b.o", "d.o", "e.o"]
    assert ninja.slots(units) == [0, 1, 2, 2, 0]
    assert ninja.slots(units[::-1]) == [0, 2, 2, 1, 0]
