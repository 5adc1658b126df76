"""Nights over several builders whose commands only pretend: shares, losses, reports."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ftbuild.cli import nightly as command
from ftbuild.errors import ConfigError, HostError
from ftbuild.host import shell
from ftbuild.nightly import notify, watch
from ftbuild.nightly import run as nightly_run
from ftbuild.nightly.builders import BuilderRequest
from ftbuild.nightly.record import CellRecord, NightlyRun, Reason, State, read
from ftbuild.nightly.report import markdown, page
from ftbuild.nightly.request import NightlyOptions, Request
from ftbuild.nightly.waiting import Turn, Waiting
from ftbuild.plan import Plan
from testing.waiting import until
from tests.unit.nightly.conftest import CELLS, HERE, REVISION, Night

PASSED = (State.PASSED, Reason.NONE)
TWO = (BuilderRequest("near"), BuilderRequest("far"))


def outcomes(run: NightlyRun) -> dict[str, tuple[State, Reason]]:
    return {record.cell: (record.state, record.reason) for record in run.cells}


def builds(record: CellRecord) -> list[tuple[str, int]]:
    return [(step.builder, step.code) for step in record.steps if step.name == "build"]


def lost(run: NightlyRun) -> dict[str, str]:
    return {builder.name: builder.lost for builder in run.builders}


# Shares


def test_each_builder_has_the_jobs_of_its_own_machine(night: Night) -> None:
    done = night.run(builders=[BuilderRequest("near"), BuilderRequest("far", 7)], jobs=None, parallel=None)
    near, far = done.builders
    # 12 GiB of memory, 3 for each job.
    assert (near.jobs, near.cores, near.memory_bytes, near.cells) == (4, 8, 12 << 30, 2)
    assert far.jobs == 7
    assert done.jobs == 11
    assert {step.jobs for record in done.cells for step in record.steps if step.builder == "far"} <= {7}


def test_a_night_over_builders_publishes_every_cell_once(night: Night) -> None:
    done = night.run(builders=TWO)
    assert outcomes(done) == dict.fromkeys(CELLS, PASSED)
    assert {record.builder for record in done.cells} <= {"near", "far"}
    assert sorted(cell for cell, name in night.commands.ran if name == "publish") == sorted(CELLS)
    (options,) = night.commands.bases
    assert options[-2:] == ["--push", HERE]


def test_a_builder_that_is_this_engine_pushes_nothing(night: Night) -> None:
    night.run(builders=[BuilderRequest("default")])
    build = night.commands.lines[0]
    assert build[-2:] == ["--builder", "default"]
    (options,) = night.commands.bases
    assert "--push" not in options


def test_without_a_registry_no_base_goes_to_a_builder_in_a_container(night: Night) -> None:
    """Its images are loaded into the engine, and there is nowhere to push to."""
    done = night.run(registry=None, builders=[BuilderRequest("pod", 2)])
    (options,) = night.commands.bases
    assert "--push" not in options
    assert outcomes(done) == dict.fromkeys(CELLS, PASSED)


def test_two_names_of_one_engine_are_refused(night: Night) -> None:
    with pytest.raises(ConfigError, match="the builders same1 and same2 are the same engine"):
        night.run(builders=[BuilderRequest("same1"), BuilderRequest("same2")])


def test_the_images_of_another_engine_need_a_registry(night: Night) -> None:
    with pytest.raises(ConfigError, match="builder far is another engine"):
        night.run(builders=[BuilderRequest("far")], registry=None)


def test_a_machine_of_unknown_size_needs_a_number_of_jobs(night: Night) -> None:
    with pytest.raises(ConfigError, match="kubernetes does not tell") as refused:
        night.run(builders=[BuilderRequest("pod")], jobs=None)
    assert refused.value.hint == "--builder pod=JOBS"
    (pod,) = night.run(builders=[BuilderRequest("pod", 5)], jobs=None).builders
    assert (pod.jobs, pod.cores) == (5, None)


def test_a_builder_that_does_not_answer_at_the_start_ends_the_run(night: Night) -> None:
    night.commands.silent = {"far"}
    with pytest.raises(HostError, match="builder far does not answer") as refused:
        night.run(builders=TWO)
    assert refused.value.exit_code == 4
    assert night.commands.ran == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a", "b", "a"), "--builder names 'a' twice"),
        (("a", "a=4"), "--builder names 'a' twice"),
        (("a=",), "--builder must be NAME or NAME=JOBS"),
        (("a=0",), "--builder must be"),
        (("a=1001",), "--builder must be"),
        (("a=-1",), "--builder must be"),
        (("a=²",), "--builder must be"),
        (("=4",), "--builder must be"),
        (("--bootstrap",), "--builder must be"),
    ],
)
def test_odd_builders_are_refused(words: Sequence[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        command._wanted(words)


def test_builders_are_wanted_with_and_without_jobs() -> None:
    assert command._wanted(["a", "b=12"]) == [BuilderRequest("a"), BuilderRequest("b", 12)]


# Losses


def test_a_lost_builder_gives_its_cell_to_another_one_and_is_used_no_more(
    night: Night, capsys: pytest.CaptureFixture[str]
) -> None:
    night.commands.vanish = {"far": 1}
    done = night.run(builders=TWO)
    assert outcomes(done) == dict.fromkeys(CELLS, PASSED)
    assert done.exit_code == 0
    assert lost(done) == {"near": "", "far": "no route to host"}
    near, far = done.builders
    assert near.lost_at is None
    assert far.lost_at is not None
    assert 0 < far.lost_at <= done.seconds
    assert "builder far is not used any more in this run: no route to host\n" in capsys.readouterr().err
    (moved,) = [record for record in done.cells if len(builds(record)) > 1]
    assert builds(moved) == [("far", 4), ("near", 0)]
    assert moved.builder == "near"
    assert moved.notes == ("builder far was lost: no route to host",)
    assert [Path(step.log).name for step in moved.steps[:2]] == ["build.log", "build-2.log"]
    assert sum(line[0] == "build" and "far" in line for line in night.commands.lines) == 1
    assert sorted(cell for cell, name in night.commands.ran if name == "publish") == sorted(CELLS)


def test_a_failed_build_on_a_builder_that_answers_has_failed(night: Night) -> None:
    night.commands.codes["22.12-sm80", "build"] = [7]
    done = night.run(builders=TWO)
    assert outcomes(done)["22.12-sm80"] == (State.FAILED, Reason.BUILD)
    assert lost(done) == {"near": "", "far": ""}


def test_a_builder_that_was_started_again_meanwhile_is_known_by_what_the_build_said(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = night.commands.stream

    def stream(argv: Sequence[str], *, log: Path, **more: object) -> int:
        if "build" in argv and "far" in argv:
            log.write_text("[22.12-sm80] failed: builder far was lost during the build: EOF\n  where: x\n")
            return 4
        return real(argv, log=log, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(shell, "stream", stream)
    done = night.run(builders=TWO)
    assert outcomes(done) == dict.fromkeys(CELLS, PASSED)
    assert lost(done)["far"] == "EOF"


def test_without_any_builder_left_the_rest_is_an_error_that_a_resumed_run_makes_good(night: Night) -> None:
    night.commands.vanish = {"near": 1, "far": 1}
    done = night.run(builders=TWO)
    assert outcomes(done) == dict.fromkeys(CELLS, (State.ERROR, Reason.MACHINE))
    assert done.exit_code == 4
    assert [record.exit_code for record in done.cells] == [4, 4, 4]
    first, *_, last = (record.detail.splitlines()[0] for record in done.cells)
    assert re.fullmatch(r"no builder is left; the builders (near|far) were lost while they built it", first)
    assert last == "no builder is left"
    night.commands.silent, night.commands.vanish = set(), {}
    again = night.run(builders=TWO, resume=True)
    assert outcomes(again) == dict.fromkeys(CELLS, PASSED)
    assert lost(again) == {"near": "", "far": ""}


def test_a_cell_that_no_builder_survives_does_not_take_all_of_them(night: Night) -> None:
    night.selected = ("22.12-sm80",)
    names = ["a", "b", "c", "d"]
    night.commands.vanish = dict.fromkeys(names, 1)
    done = night.run(builders=[BuilderRequest(name) for name in names])
    (record,) = done.cells
    assert (record.state, record.reason, record.exit_code) == (State.ERROR, Reason.MACHINE, 4)
    assert re.match(r"the builders \w, \w, \w were lost while they built it\n  next:", record.detail)
    assert sum(bool(why) for why in lost(done).values()) == 3


def test_fail_fast_counts_no_loss_as_a_failure(night: Night) -> None:
    night.commands.vanish = {"far": 1}
    assert outcomes(night.run(builders=TWO, fail_fast=True)) == dict.fromkeys(CELLS, PASSED)


# Waiting


@pytest.fixture
def plan(planned: Mapping[str, Plan]) -> Plan:
    return planned["22.12-sm80"]


def test_a_free_builder_waits_while_another_one_may_give_a_cell_back(plan: Plan) -> None:
    waiting = Waiting([plan])
    turn = waiting.take("far")
    assert turn is not None
    got: list[Turn | None] = []
    free = threading.Thread(target=lambda: got.append(waiting.take("near")))
    free.start()
    time.sleep(0.05)
    assert not got
    assert waiting.lose("far")
    waiting.end(Turn(plan, lost=("far",)))
    free.join(100)
    assert got == [Turn(plan, lost=("far",))]
    assert waiting.take("far") is None
    waiting.end()
    assert waiting.take("near") is None
    assert waiting.left() == ()


def test_nobody_gets_a_turn_after_the_end(plan: Plan) -> None:
    waiting = Waiting([plan])
    assert waiting.close()
    assert not waiting.close()
    assert waiting.take("near") is None
    assert waiting.left() == ()


# A builder that neither answers nor closes its connection


def test_a_builder_that_is_silent_for_long_is_given_up() -> None:
    with watch.over("far", lambda name: "no answer within 20 s", every=0.001) as seen:
        assert seen.given_up.wait(100)
    assert seen.why == "no answer within 20 s"


def test_a_builder_that_answers_now_and_then_is_not() -> None:
    asked: list[str] = []

    def silence(name: str) -> str:
        asked.append(name)
        return "busy" if len(asked) % watch.PATIENCE else ""

    with watch.over("far", silence, every=0.001) as seen:
        assert until(lambda: len(asked) >= 5 * watch.PATIENCE)
        assert not seen.given_up.is_set()


def test_the_engines_own_builder_is_not_asked() -> None:
    with watch.over("", lambda name: pytest.fail("asked"), every=0.001) as seen:
        time.sleep(0.01)
    assert not seen.given_up.is_set()


# Reports


def test_every_report_says_what_became_of_the_builders(night: Night) -> None:
    night.commands.vanish = {"far": 1}
    done = night.run(builders=TWO)
    (folder,) = (night.work / "nights").glob("2*")
    assert read(folder).builders == done.builders
    text, html, told = markdown.render(done), page.render(done), notify.payload(done)
    for report in (text, html):
        assert "Nothing failed, but 1 builder lost" in report
        assert "no route to host" in report
    assert "| near | docker | 4 | 22.12-sm70, 22.12-sm80, 22.12-sm86 |  |" in text
    assert told["lost"] == [{"builder": "far", "why": "no route to host"}]
    assert "• builder far: lost after" in told["text"]


def test_a_run_without_named_builders_has_no_word_of_them(night: Night) -> None:
    done = night.run()
    assert done.builders == ()
    assert "Builder" not in markdown.render(done)
    assert 'id="builders"' not in page.render(done)


# The dry run


def test_the_dry_run_lists_builders_and_cells_and_runs_nothing(
    night: Night, capsys: pytest.CaptureFixture[str]
) -> None:
    from ftbuild import matrix

    night.commands.published = {(HERE, "22.12-sm80")}
    table = matrix.select_with_excluded(night.config, cells=CELLS)
    request = Request(night.config, table, [], REVISION, night.work, night.cache)
    nightly_run.show(request, NightlyOptions(registry=HERE, builders=TWO))
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["Builder", "Driver", "Machine", "Jobs", "Cells", "at", "a", "time"] in rows
    assert ["Cell", "To", "do"] in rows
    assert ["far", "docker", "8", "cores,", "12", "GiB", "4", "2"] in rows
    assert ["22.12-sm70", "build"] in rows
    assert ["22.12-sm80", "already", "published"] in rows
    assert night.commands.ran == []
    assert not (night.work / "nights").exists()


def test_the_dry_run_of_a_resumed_run_publishes_what_is_tested(
    night: Night, capsys: pytest.CaptureFixture[str]
) -> None:
    night.run(registry=None)
    request = Request(night.config, None, [], REVISION, night.work, night.cache)
    capsys.readouterr()
    nightly_run.show(request, NightlyOptions(registry=HERE, resume=True, jobs=3))
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["the", "engine's", "own", "docker", "4", "cores,", "64", "GiB", "3", "2"] in rows
    assert [[cell, "publish"] in rows for cell in CELLS] == [True] * 3


def test_the_command_of_the_record_names_the_builders(night: Night) -> None:
    done = night.run(builders=[BuilderRequest("near"), BuilderRequest("far", 7)])
    assert "--builder near --builder far=7" in done.command
