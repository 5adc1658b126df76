"""Whole nightly runs whose commands only pretend: order of steps, outcomes, exit codes, resuming."""

from __future__ import annotations

import errno
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import count, cycle
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from ftbuild import matrix
from ftbuild.audit import job
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError, HostError, NothingSelected
from ftbuild.gates.smoke import gate
from ftbuild.host import shell
from ftbuild.nightly import history, notify, record, resuming, scheduler
from ftbuild.nightly import run as nightly_run
from ftbuild.nightly.builders import BuilderRequest
from ftbuild.nightly.commands import ROOT
from ftbuild.nightly.record import CellRecord, NightlyRun, Reason, State
from ftbuild.nightly.report import wording
from ftbuild.nightly.request import NightlyOptions, Request
from ftbuild.nightly.waiting import Waiting
from ftbuild.plan import Plan
from ftbuild.planning import make_plans
from ftbuild.publishing import signing, substituted
from ftbuild.publishing.substituted import Substituted
from ftbuild.sm import Sm
from ftbuild.text.results import CheckResult
from ftbuild.text.results import State as CheckState
from testing import recorded_runs
from testing.waiting import until
from tests.unit.nightly.conftest import CELLS, DIGEST, HERE, REVISION, THERE, Night


def outcomes(run: NightlyRun) -> dict[str, tuple[State, Reason]]:
    return {record.cell: (record.state, record.reason) for record in run.cells}


def of(run: NightlyRun, cell: str) -> CellRecord:
    return next(record for record in run.cells if record.cell == cell)


PASSED = (State.PASSED, Reason.NONE)
RUN = shell.run  # before it is replaced


def test_a_cell_is_built_tested_and_published(night: Night) -> None:
    done = night.run()
    assert outcomes(done) == dict.fromkeys(CELLS, PASSED)
    assert done.exit_code == 0
    assert night.commands.of("22.12-sm80") == ["build", "smoke", "publish"]
    record = of(done, "22.12-sm80")
    assert [step.name for step in record.steps] == ["build", "smoke", "publish"]
    assert record.registry == HERE
    assert record.steps[0].jobs == 4
    assert (record.triton, record.sms, record.base) == ("22.12", (80,), "open")
    assert len(record.key) == 12
    assert {patch.name.partition("/")[0] for patch in record.patches} >= {"ft", "backend"}
    assert record.seconds >= sum(step.seconds for step in record.steps) >= 0
    assert history.last(night.work) is not None


def test_a_command_gets_the_options_of_its_cell(night: Night) -> None:
    far = [BuilderRequest("far")]
    night.run(
        stage="waiting", sign_log=False, force=True, allow_unsmoked=True, ca=Path("/ca.pem"), builders=far
    )
    build, smoke, publish = night.commands.lines[:3]
    (plan,) = (night.work / "22.12-sm70").glob("*/closed-plan.json")
    cell = ["--plan", str(plan), "--config", str(night.config.folder)]
    more = ["--jobs", "4", "--progress", "plain", "--ca", "/ca.pem", "--builder", "far"]
    assert build == ["build", *cell, *more, "--push", HERE, "--stage", "waiting"]
    assert smoke == ["smoke", *cell]
    options = ["--stage", "waiting", "--no-sign-log", "--force", "--allow-unsmoked"]
    assert publish == ["publish", *cell, "--registry", HERE, *options]


@pytest.mark.parametrize(
    ("step", "code", "outcome"),
    [
        ("build", 5, (State.ERROR, Reason.FETCH)),
        ("build", 6, (State.FAILED, Reason.PATCH)),
        ("build", 7, (State.FAILED, Reason.BUILD)),
        ("build", 8, (State.FAILED, Reason.VERIFY)),
        ("smoke", 9, (State.FAILED, Reason.SMOKE)),
        ("smoke", 4, (State.ERROR, Reason.MACHINE)),
        ("publish", 10, (State.ERROR, Reason.PUBLISH)),
        ("publish", 1, (State.ERROR, Reason.UNEXPECTED)),
    ],
)
def test_a_failed_step_ends_its_cell_and_no_other(
    night: Night, step: str, code: int, outcome: tuple[State, Reason]
) -> None:
    night.commands.codes["22.12-sm80", step] = [code]
    done = night.run()
    assert outcomes(done) == {**dict.fromkeys(CELLS, PASSED), "22.12-sm80": outcome}
    record = of(done, "22.12-sm80")
    assert (record.exit_code, done.exit_code) == (code, code)
    assert record.detail == f"{step} of 22.12-sm80\n  next:  nothing"
    assert record.tail[-1] == "  next:  nothing"
    assert record.registry == ""
    steps = ["build", "smoke", "publish"]
    assert night.commands.of("22.12-sm80") == steps[: steps.index(step) + 1]


def test_the_worst_code_is_the_runs(night: Night) -> None:
    night.commands.codes["22.12-sm70", "smoke"] = [9]
    night.commands.codes["22.12-sm80", "build"] = [7]
    assert night.run().exit_code == 9


def test_a_command_that_a_signal_ended_was_not_run(night: Night) -> None:
    night.commands.codes["22.12-sm80", "build"] = [-15]
    done = night.run()
    assert outcomes(done)["22.12-sm80"] == (State.SKIPPED, Reason.NOT_RUN)
    assert done.exit_code == 130


def test_ctrl_c_while_builders_are_given_cells_ends_the_commands_and_is_recorded(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, calls, ended = ThreadPoolExecutor.submit, count(1), []

    def interrupted(pool: ThreadPoolExecutor, *call: Any) -> Future[Any]:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return submit(pool, *call)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupted)
    monkeypatch.setattr(shell, "interrupt", lambda: ended.append("all"))
    done = night.run(parallel=2)
    assert (done.exit_code, ended) == (130, ["all"])
    last = history.last(night.work)
    assert last is not None
    assert last[1] == done


def test_ctrl_c_while_cells_run_starts_no_other_one_and_says_so(
    night: Night, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun, ended, real = Event(), Event(), night.commands.stream

    def stream(argv: Sequence[str], **more: Any) -> int:
        if "build" in argv:
            begun.set()
            assert ended.wait(20)
            return real(argv, **more) or 7
        return real(argv, **more)

    def interrupted(working: Any) -> Any:
        assert begun.wait(20)
        raise KeyboardInterrupt

    monkeypatch.setattr(shell, "stream", stream)
    monkeypatch.setattr(scheduler, "as_completed", interrupted)
    monkeypatch.setattr(shell, "interrupt", ended.set)
    done = night.run(fail_fast=True)
    assert outcomes(done) == dict.fromkeys(CELLS, (State.SKIPPED, Reason.NOT_RUN))
    assert [record.exit_code for record in done.cells] == [130, 0, 0]
    assert done.exit_code == 130
    assert night.commands.of("22.12-sm70") == ["build"]
    assert night.commands.ran == []
    said = capsys.readouterr().err
    assert "interrupted: stopping the running commands" in said
    assert "--fail-fast" not in said


def test_a_fault_of_the_scheduler_itself_ends_the_run(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be a run that did nothing, and seems to have ended well."""

    def broken(*args: Any) -> None:
        raise RuntimeError("no turn")

    monkeypatch.setattr(Waiting, "take", broken)
    with pytest.raises(RuntimeError, match="no turn"):
        night.run()


@pytest.mark.parametrize("shares", [True, False])
def test_smoke_tests_run_one_at_a_time_on_the_same_gpus(
    night: Night, shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, most, real, lock = 0, 0, night.commands.stream, threading.Lock()
    together = Event()

    def stream(argv: Sequence[str], **more: Any) -> int:
        nonlocal running, most
        if "smoke" not in argv:
            return real(argv, **more)
        with lock:
            running += 1
            most = max(most, running)
            if running == 2:
                together.set()
        together.wait(0.3 if shares else 20)
        with lock:
            running -= 1
        return real(argv, **more)

    monkeypatch.setattr(shell, "stream", stream)
    monkeypatch.setattr(gate, "needs_gpu", lambda config: shares)
    monkeypatch.setattr(gate, "find_gpus", lambda client, plan: ())
    monkeypatch.setattr(gate, "unfit", lambda plan, gpus: None)
    assert night.run(parallel=2).exit_code == 0
    assert (most == 1) is shares


def test_ctrl_c_ends_an_audit_that_waits_for_a_server(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its threads were waited for before the process ended."""
    submit, calls = ThreadPoolExecutor.submit, count(1)

    def interrupted(pool: ThreadPoolExecutor, *call: Any) -> Future[Any]:
        if next(calls) == 2:
            assert until(lambda: shell._running)
            raise KeyboardInterrupt
        return submit(pool, *call)

    monkeypatch.setattr(shell, "run", lambda argv, **more: RUN(["sleep", "300"], **more))
    monkeypatch.setattr(shell, "_stopped", Event())
    monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupted)
    begun = time.monotonic()
    assert night.run(audit=True).exit_code == 130
    assert time.monotonic() - begun < 60
    assert not shell._running
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPool")]


@pytest.mark.parametrize(
    ("failure", "outcome", "text"),
    [
        (OSError(errno.ENOSPC, "No space left", "/x/y"), (State.ERROR, Reason.MACHINE), "the disk is full"),
        (
            HostError("the Docker Engine does not answer"),
            (State.ERROR, Reason.MACHINE),
            ("the Docker Engine does not answer"),
        ),
        (KeyError("x"), (State.ERROR, Reason.UNEXPECTED), "KeyError: 'x'"),
    ],
)
def test_what_goes_wrong_around_a_command_ends_its_cell_and_no_other(
    night: Night, failure: Exception, outcome: tuple[State, Reason], text: str
) -> None:
    night.commands.failures["22.12-sm80", "smoke"] = failure
    done = night.run()
    assert outcomes(done) == {**dict.fromkeys(CELLS, PASSED), "22.12-sm80": outcome}
    record = of(done, "22.12-sm80")
    assert text in record.detail
    assert record.exit_code == done.exit_code == {Reason.MACHINE: 4, Reason.UNEXPECTED: 1}[outcome[1]]


def test_a_report_that_cannot_be_written_stops_no_cell(
    night: Night, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, full = NightlyRun.write, HostError("the disk is full")
    left = [None, None, full, full]  # the first two are those before any cell

    def write(run: NightlyRun, folder: Path) -> None:
        if left and (failure := left.pop(0)):
            raise failure
        real(run, folder)

    monkeypatch.setattr(NightlyRun, "write", write)
    done = night.run()
    assert outcomes(done) == dict.fromkeys(CELLS, PASSED)
    assert "the report is not written: the disk is full" in capsys.readouterr().err


def test_after_running_out_of_memory_a_cell_is_built_with_fewer_jobs(
    night: Night, capsys: pytest.CaptureFixture[str]
) -> None:
    night.commands.log = "#41 12.3 Killed\n"
    night.commands.codes["22.12-sm80", "build"] = [7, 7, 0]
    record = of(night.run(), "22.12-sm80")
    assert [(step.name, step.jobs) for step in record.steps[:3]] == [("build", 4), ("build", 2), ("build", 1)]
    assert [Path(step.log).name for step in record.steps[:3]] == ["build.log", "build-2.log", "build-3.log"]
    assert record.state is State.PASSED
    assert record.notes[0] == "ran out of memory with 4 compile jobs, retried with 2"
    assert f"[22.12-sm80] {record.notes[0]}\n" in capsys.readouterr().err


def test_a_cell_that_runs_out_of_memory_with_one_job_has_failed(night: Night) -> None:
    night.commands.log = "#41 12.3 Killed\n"
    night.commands.codes["22.12-sm80", "build"] = [7, 7, 7, 7]
    done = night.run()
    assert outcomes(done)["22.12-sm80"] == (State.FAILED, Reason.BUILD)
    assert night.commands.of("22.12-sm80") == ["build"] * 3


def test_another_failure_is_not_tried_again(night: Night) -> None:
    night.commands.codes["22.12-sm80", "build"] = [7]
    night.run()
    assert night.commands.of("22.12-sm80") == ["build"]


# Beside another run


def test_two_checkouts_do_not_run_on_one_engine_at_once(
    night: Night, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(night, work=tmp_path / "other", cache=night.cache)
    real, codes = scheduler.run, []

    def meanwhile(*args: Any) -> NightlyRun:
        with pytest.raises(HostError, match="another nightly run is active on this machine") as refused:
            other.run()
        codes.append(refused.value.exit_code)
        night.commands.engine["ID"] = "ANOTHER:ENGINE"
        monkeypatch.setattr(scheduler, "run", real)
        codes.append(other.run().exit_code)
        return real(*args)

    monkeypatch.setattr(scheduler, "run", meanwhile)
    assert night.run().exit_code == 0
    assert codes == [4, 0]


# Without a GPU, or without a registry


def test_without_a_registry_nothing_is_published(night: Night) -> None:
    done = night.run(registry=None)
    assert outcomes(done) == dict.fromkeys(CELLS, PASSED)
    assert night.commands.of("22.12-sm80") == ["build", "smoke"]
    assert of(done, "22.12-sm80").registry == ""


@pytest.mark.parametrize(
    ("options", "steps", "code", "detail"),
    [
        ({"smoke": False}, ["build"], 0, "built and verified (built, never run); the smoke test is off"),
        (
            {"smoke": False, "allow_unsmoked": True},
            ["build", "publish"],
            0,
            "built, verified and published as untested (built, never run); the smoke test is off",
        ),
        ({}, ["build"], 4, "built and verified (built, never run); no GPU fits"),
        (
            {"allow_unsmoked": True},
            ["build", "publish"],
            0,
            "published as untested (built, never run); no GPU fits",
        ),
    ],
)
def test_an_untested_cell_has_not_passed(
    night: Night,
    options: Mapping[str, bool],
    steps: list[str],
    code: int,
    detail: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run that could test nothing ends with 4, unless that was asked for."""
    monkeypatch.setattr(gate, "needs_gpu", lambda config: True)

    def find(client: Any, plan: Plan) -> None:
        raise HostError("no GPU fits")

    monkeypatch.setattr(gate, "find_gpus", find)
    chosen: dict[str, Any] = dict(options)
    done = night.run(**chosen)
    assert outcomes(done) == dict.fromkeys(CELLS, (State.SKIPPED, Reason.NO_GPU))
    assert done.exit_code == code
    assert night.commands.of("22.12-sm80") == steps
    assert detail in of(done, "22.12-sm80").detail


def test_one_tested_cell_is_enough_for_a_good_run(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "needs_gpu", lambda config: True)
    monkeypatch.setattr(gate, "find_gpus", lambda client, plan: ())
    monkeypatch.setattr(gate, "unfit", lambda plan, gpus: None if "80" in plan.cell.id else "too old")
    done = night.run()
    assert done.exit_code == 0
    assert {cell: reason for cell, (_, reason) in outcomes(done).items()} == {
        "22.12-sm70": Reason.NO_GPU,
        "22.12-sm80": Reason.NONE,
        "22.12-sm86": Reason.NO_GPU,
    }


# The whole run


def test_fail_fast_begins_no_further_cell(night: Night, capsys: pytest.CaptureFixture[str]) -> None:
    night.commands.codes["22.12-sm70", "build"] = [7]
    done = night.run(fail_fast=True)
    assert outcomes(done) == {
        "22.12-sm70": (State.FAILED, Reason.BUILD),
        "22.12-sm80": (State.SKIPPED, Reason.NOT_RUN),
        "22.12-sm86": (State.SKIPPED, Reason.NOT_RUN),
    }
    assert done.exit_code == 7
    assert "a cell failed: no further cell is started (--fail-fast)\n" in capsys.readouterr().err


@pytest.mark.parametrize(("state", "code"), [(CheckState.FAIL, 5), (CheckState.WARN, 0)])
def test_a_finding_of_the_audit_counts_like_a_failed_cell(night: Night, state: CheckState, code: int) -> None:
    found = [CheckResult("pins", state, "gone")]
    night.commands.audit = [job.render(found, "json"), "asking\n"]
    done = night.run(audit=True)
    assert done.audit == tuple(found)
    assert done.exit_code == code
    config = str(night.config.folder)
    assert ["audit", "--config", config, "--format", "json"] in night.commands.lines


def test_of_a_cell_that_only_has_to_be_published_no_base_is_made(night: Night) -> None:
    night.run(registry=None)
    night.commands.bases.clear()
    assert outcomes(night.run(resume=True)) == dict.fromkeys(CELLS, PASSED)
    assert night.commands.bases == []


def test_a_failed_base_ends_the_cells_on_it(night: Night) -> None:
    night.commands.base_code = 4
    done = night.run()
    assert done.exit_code == 4
    assert night.commands.ran == []
    assert of(done, "22.12-sm80").detail.startswith("base open: no network")


def test_the_webhook_is_told(
    night: Night, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[tuple[str, int]] = []

    def post(url: str, run: NightlyRun) -> str:
        told.append((url, run.exit_code))
        return "the notification failed"

    monkeypatch.setattr(notify, "post", post)
    night.run(notify="https://hook.invalid/x")
    assert told == [("https://hook.invalid/x", 0)]
    assert "the notification failed" in capsys.readouterr().err
    assert "hook.invalid" not in (history.folders(night.work)[-1] / "report.json").read_text()


def test_lines_about_a_cell_are_passed_on_but_not_those_of_its_tools(
    night: Night, capsys: pytest.CaptureFixture[str]
) -> None:
    night.run()
    said = capsys.readouterr().err
    assert "[22.12-sm80] a line about it" in said
    assert "[22.12-sm80] compile backend  0:09" in said
    assert "a line of BuildKit" not in said
    assert all(line.partition("]")[2].strip() for line in said.splitlines() if line.startswith("["))


# What is there already


def test_what_the_registry_has_is_left_alone(night: Night) -> None:
    night.commands.published = {(HERE, "22.12-sm80"), (THERE, "22.12-sm86")}
    done = night.run()
    record = of(done, "22.12-sm80")
    assert (record.state, record.reason) == (State.SKIPPED, Reason.PUBLISHED)
    assert record.registry == HERE
    runtime = record.images["runtime"]
    assert (runtime.id, runtime.bytes, runtime.digest) == ("", 0, DIGEST)
    assert runtime.pull == f"docker pull {HERE}/triton_with_ft@{DIGEST}"
    assert record.images["sdk"].reference.startswith(f"{HERE}/triton_with_ft:22.12-sm80-{record.key}")
    assert night.commands.of("22.12-sm80") == []
    assert outcomes(done)["22.12-sm86"] == PASSED


@pytest.mark.parametrize("signed", [True, False])
def test_signatures_are_looked_for_at_the_digests_of_the_repository(
    night: Night, signed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: set[str] = set()

    def has_signed(signer: object, name: str, report: object) -> bool:
        names.add(name)
        return signed

    monkeypatch.setattr(shell, "which", lambda program: program)
    monkeypatch.setattr(signing.KeySigner, "public_key", "a key")
    monkeypatch.setattr(signing.Signer, "has_signed", has_signed)
    night.commands.published = {(HERE, "22.12-sm80")}
    night.run(sign_key="env://KEY")
    assert names == {f"{HERE}/triton_with_ft@{DIGEST}"}


@pytest.mark.parametrize("signed", [True, False])
def test_with_a_key_only_what_is_signed_is_left_alone(
    night: Night, signed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "which", lambda program: program)
    monkeypatch.setattr(signing.KeySigner, "public_key", "a key")
    night.commands.published = {(HERE, cell) for cell in CELLS}
    night.commands.signed = {(HERE, "x")} if signed else set()
    done = night.run(sign_key="env://KEY")
    expected = (State.SKIPPED, Reason.PUBLISHED) if signed else PASSED
    assert outcomes(done) == dict.fromkeys(CELLS, expected)
    assert all("--sign-key" in line for line in night.commands.lines if line[0] == "publish")


def test_what_is_taken_from_registries_reaches_the_commands_of_each_cell(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking = ("--from", HERE, "--objects", "--trust", "ours.pub", "--trust", "theirs.pub")
    trust = ("ours.pub", "theirs.pub")
    done = night.run(from_=HERE, objects=True, trust=trust, publish_objects=True, attest=True)
    (base,) = night.commands.bases
    assert "--objects" not in base, "a base has none"
    assert "--without-compiler" not in base, "what is published with objects has it"
    assert outcomes(done) == dict.fromkeys(CELLS, PASSED)
    assert done.command.endswith(f"{shlex.join(taking)} --registry {HERE}")
    for name, *options in night.commands.lines:
        if name == "build":
            assert options[-len(taking) :] == list(taking)
        if name == "publish":
            assert {"--objects", "--attest"} <= set(options)
            assert options[-4:] == ["--trust", "ours.pub", "--trust", "theirs.pub"]
    night.commands.lines.clear()
    night.commands.published.clear()
    night.run(from_=HERE, trust=("ours.pub",))
    assert night.commands.bases[1][2:] == ["--jobs", "4", *taking[:2], *taking[3:5], "--without-compiler"]
    for name, *options in night.commands.lines:
        assert ("--trust" in options) is (name == "build")
        assert "--objects" not in options


def test_a_cell_that_was_taken_says_so_in_its_record(night: Night, planned: Mapping[str, Plan]) -> None:
    name = f"{HERE}/triton_with_ft@{DIGEST}"
    plan = planned[CELLS[0]]
    substituted.RECORD.write(
        plan.folder(night.work), {"runtime": Substituted(name, DIGEST, DIGEST, "the key ours.pub")}
    )
    done = night.run(from_=HERE)
    notes = {record.cell: record.notes for record in done.cells}
    assert notes[CELLS[0]] == (f"the runtime image is {name}, signed with the key ours.pub",)
    assert notes[CELLS[1]] == ()


def test_a_pair_of_which_one_image_is_signed_is_not_left_alone(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "which", lambda program: program)
    monkeypatch.setattr(signing.KeySigner, "public_key", "a key")
    night.commands.published = {(HERE, cell) for cell in CELLS}
    answers = cycle([True, False])
    monkeypatch.setattr(signing.KeySigner, "has_signed", lambda *_: next(answers))
    assert outcomes(night.run(sign_key="env://KEY")) == dict.fromkeys(CELLS, PASSED)


def test_what_passed_for_the_same_registry_stays_as_it_is(night: Night) -> None:
    """It is neither published again nor taken for what the registry had before."""
    first = night.run()
    night.commands.ran.clear()
    second = night.run(resume=True)
    assert outcomes(first) == outcomes(second) == dict.fromkeys(CELLS, PASSED)
    assert night.commands.ran == []


def test_resuming_without_a_run_is_a_mistake(night: Night) -> None:
    with pytest.raises(ConfigError, match="there is no nightly run to resume"):
        night.run(resume=True)


def test_a_resumed_run_does_what_is_left(night: Night) -> None:
    night.commands.codes["22.12-sm80", "smoke"] = [9]
    first = night.run(registry=None)
    night.commands.ran.clear()
    second = night.run(registry=None, resume=True)
    assert (first.exit_code, second.exit_code, first.id) == (9, 0, second.id)
    assert outcomes(second) == dict.fromkeys(CELLS, PASSED)
    assert night.commands.ran == [("22.12-sm80", "build"), ("22.12-sm80", "smoke")]
    assert second.seconds >= first.seconds


def interrupt(night: Night, cell: str, step: str = "build", **options: Any) -> NightlyRun:
    """Run until a command of the cell is interrupted, and return the record."""
    night.commands.codes[cell, step] = [130]
    done = night.run(registry=None, **options)
    assert done.exit_code == 130
    night.commands.ran.clear()
    return done


def test_a_resumed_run_has_the_cells_of_its_record_whatever_the_matrix_is(night: Night) -> None:
    interrupt(night, "22.12-sm80", selected=["22.12-sm80", "22.12-sm86"])
    done = night.run(registry=None, resume=True)
    assert outcomes(done) == dict.fromkeys(["22.12-sm80", "22.12-sm86"], PASSED)
    assert night.commands.of("22.12-sm80") == ["build", "smoke"]
    assert night.commands.ran == []


def test_cells_of_several_sms_are_resumed_too(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is among those that the matrix has by default."""
    table = matrix.select_with_excluded(night.config, triton=["22.12"], sms=["70,80", "80,86"])
    monkeypatch.setattr(nightly_run, "make_plans", make_plans)
    for plan in make_plans(night.config, table.cells, REVISION):
        plan.folder(night.work).mkdir(parents=True)
    night.commands.codes["22.12-sm70_80", "build"] = [130]
    request = Request(night.config, table, [], REVISION, night.work, night.cache)
    options = NightlyOptions(audit=False, jobs=4, parallel=1)
    assert nightly_run.execute(request, options).exit_code == 130
    night.commands.codes["22.12-sm70_80", "smoke"] = [9]
    done = night.run(registry=None, resume=True)
    assert set(outcomes(done)) == {"22.12-sm70_80", "22.12-sm80_86"}
    assert done.exit_code == 9


def test_a_resumed_run_is_red_when_one_of_its_cells_fails(night: Night) -> None:
    interrupt(night, "22.12-sm80")
    night.commands.codes["22.12-sm80", "smoke"] = [9]
    assert night.run(registry=None, resume=True).exit_code == 9


def test_cells_that_are_not_resumed_stay_in_the_record_and_count(night: Night) -> None:
    night.commands.codes["22.12-sm70", "build"] = [7]
    interrupt(night, "22.12-sm80")
    done = night.run(registry=None, resume=True, selected=["22.12-sm80"])
    assert outcomes(done)["22.12-sm70"] == (State.FAILED, Reason.BUILD)
    assert set(outcomes(done)) == set(CELLS)
    assert done.exit_code == 7
    assert {cell for cell, _ in night.commands.ran} == {"22.12-sm80"}


def test_a_run_that_is_resumed_takes_the_configuration_of_its_record(night: Night, tmp_path: Path) -> None:
    before = interrupt(night, "22.12-sm80")
    real, sample = ROOT / "buildcfg", ROOT / "buildcfg" / "sample"
    assert resuming.configuration(night.work, ROOT, None) == real
    assert resuming.configuration(night.work, ROOT, real) == real
    with pytest.raises(ConfigError, match="the run to resume has the configuration"):
        resuming.configuration(night.work, ROOT, sample)
    assert nightly_run._recorded(sample) == "buildcfg/sample"
    assert nightly_run._recorded(tmp_path) == str(tmp_path.resolve())
    replace(before, config="").write(night.work / history.FOLDER / before.id)
    assert resuming.configuration(night.work, ROOT, sample) == sample


def test_a_run_with_cells_that_had_no_turn_is_never_green(night: Night) -> None:
    night.commands.codes["22.12-sm86", "build"] = [130]
    interrupt(night, "22.12-sm80")
    done = night.run(registry=None, resume=True, selected=["22.12-sm80"])
    assert outcomes(done)["22.12-sm80"] == PASSED
    assert outcomes(done)["22.12-sm86"] == (State.SKIPPED, Reason.NOT_RUN)
    assert done.exit_code == 130
    assert wording.headline(done) == "Interrupted: 1 of 3 cells were not run"


def test_resuming_no_cell_of_the_record_is_an_error(night: Night) -> None:
    before = interrupt(night, "22.12-sm80", selected=["22.12-sm80"])
    gone = replace(before.cells[0], cell="22.03-sm89", triton="22.03", sms=(89,), reason=Reason.EXCLUDED)
    before = replace(before, cells=(*before.cells, gone))
    before.write(night.work / history.FOLDER / before.id)
    with pytest.raises(NothingSelected, match="no cell of the run to resume is selected") as refused:
        night.run(registry=None, resume=True, selected=["22.12-sm90"])
    assert refused.value.hint == "its cells: 22.12-sm80; without a selection all of them"
    assert record.read(night.work / history.FOLDER / before.id) == before


def test_a_cell_that_leaves_something_out_is_resumed_as_what_it_is(config: Config) -> None:
    run = recorded_runs.good()
    whole = replace(run.cells[0], cell="22.12-sm80", triton="22.12", sms=(Sm(80),), base="open")
    cells = (whole, replace(whole, cell="22.12-sm80-without-beams-heads-64_128"))
    found = resuming.left(config, replace(run, cells=cells), None, print)
    assert [cell.id for cell in found.table.cells] == [cell.cell for cell in cells]
    assert not found.kept


LONG_AGO = "a reason of long ago"


@pytest.mark.parametrize(
    ("selected", "is_new"),
    [
        ((), True),
        (("22.12-sm80", "22.03-sm89"), True),
        (("22.12-sm80",), False),
        (("22.12-sm80", "22.03-sm90"), False),
    ],
)
def test_an_excluded_cell_that_is_resumed_has_the_reasons_of_today(
    night: Night, selected: tuple[str, ...], is_new: bool
) -> None:
    before = interrupt(night, "22.12-sm80", selected=[*CELLS, "22.03-sm89"])
    old = replace(of(before, "22.03-sm89"), detail=LONG_AGO)
    cells = tuple(old if cell.cell == old.cell else cell for cell in before.cells)
    replace(before, cells=cells).write(night.work / history.FOLDER / before.id)
    done = night.run(registry=None, resume=True, selected=selected)
    excluded = of(done, "22.03-sm89")
    assert excluded.reason is Reason.EXCLUDED
    assert (excluded.detail != LONG_AGO) is is_new
    assert {cell.cell for cell in done.cells} == {*CELLS, "22.03-sm89"}


def test_a_cell_that_is_excluded_only_now_stays_as_it_was_with_the_reason(config: Config) -> None:
    run = recorded_runs.good()
    built = replace(run.cells[4], cell="22.12-sm80", triton="22.12", sms=(80,), base="open")
    excluded = replace(built, cell="22.03-sm100", triton="22.03", sms=(100,), reason=Reason.EXCLUDED)
    newly = replace(built, cell="22.03-sm89", triton="22.03", sms=(89,))
    said: list[str] = []
    found = resuming.left(config, replace(run, cells=(newly, excluded, built)), None, said.append)
    assert [cell.id for cell in found.table.cells] == ["22.12-sm80"]
    assert [entry.cell.id for entry in found.table.excluded] == ["22.03-sm100"]
    assert found.kept == {"22.03-sm89": newly}
    (table,) = matrix.select_with_excluded(config, cells=["22.12-sm80", "22.03-sm89"]).excluded
    assert said == [f"[22.03-sm89] stays as it was: {'; '.join(table.reasons)}"]


@pytest.mark.parametrize("change", [{"triton": "19.01"}, {"base": "gone"}, {"sms": (35,)}], ids=str)
def test_a_cell_that_the_configuration_has_no_more_stays_in_the_record(
    night: Night, change: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    before = interrupt(night, "22.12-sm80")
    gone = replace(
        of(before, "22.12-sm86"), cell="gone", state=State.SKIPPED, reason=Reason.NOT_RUN, **change
    )
    replace(before, cells=(gone, *before.cells)).write(night.work / history.FOLDER / before.id)
    done = night.run(registry=None, resume=True)
    assert outcomes(done)["22.12-sm80"] == outcomes(done)["22.12-sm86"] == PASSED
    assert of(done, "gone").reason is Reason.NOT_RUN
    assert done.exit_code == 130
    assert "[gone] stays as it was" in capsys.readouterr().err


def test_a_run_that_ends_before_its_first_cell_can_be_resumed(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*args: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as while_bases_are_made:
        while_bases_are_made.setattr(shell, "stream", ended)
        with pytest.raises(KeyboardInterrupt):
            night.run(registry=None)
    last = history.last(night.work)
    assert last is not None
    assert (last[1].exit_code, last[1].seconds, last[1].jobs) == (130, 0.0, 4)
    assert set(outcomes(night.run(registry=None, resume=True))) == set(CELLS)


def test_a_record_that_cannot_be_read_is_not_resumed(night: Night) -> None:
    before = night.run(registry=None)
    (night.work / history.FOLDER / before.id / record.FILE).write_text("{")
    with pytest.raises(ConfigError, match="the record of the last nightly run cannot be read"):
        night.run(resume=True)


def test_a_resumed_run_does_again_what_has_other_inputs_now(night: Night) -> None:
    first = night.run(registry=None)
    night.commands.ran.clear()
    changed = replace(first, cells=tuple(replace(cell, key="0" * 12) for cell in first.cells))
    changed.write(night.work / history.FOLDER / first.id)
    night.run(registry=None, resume=True)
    assert len(night.commands.ran) == 6


@pytest.mark.parametrize("before", [None, THERE])
def test_what_passed_is_published_to_another_registry_by_a_resumed_run(
    night: Night, before: str | None
) -> None:
    night.commands.codes["22.12-sm86", "build"] = [7]
    night.run(registry=before)
    night.commands.ran.clear()
    done = night.run(registry=f"{HERE}/", resume=True)
    assert outcomes(done) == dict.fromkeys(CELLS, PASSED)
    assert {record.registry for record in done.cells} == {HERE}
    assert done.registry == HERE
    assert night.commands.of("22.12-sm70") == ["publish"]
    assert night.commands.of("22.12-sm80") == ["publish"]
    assert night.commands.of("22.12-sm86") == ["build", "smoke", "publish"]
    assert {registry for registry, _ in night.commands.published} >= {HERE}
    night.commands.ran.clear()
    assert night.run(registry=HERE, resume=True).exit_code == 0
    assert night.commands.ran == []


def test_a_publication_that_failed_is_tried_with_all_steps_next_time(night: Night) -> None:
    """The images may be gone."""
    night.run(registry=None)
    night.commands.ran.clear()
    night.commands.codes["22.12-sm80", "publish"] = [10]
    assert night.run(resume=True).exit_code == 10
    assert night.commands.of("22.12-sm80") == ["publish"]
    assert night.run(resume=True).exit_code == 0
    assert night.commands.of("22.12-sm80") == ["build", "smoke", "publish"]


def test_a_resumed_run_keeps_its_registry(night: Night) -> None:
    night.commands.codes["22.12-sm80", "smoke"] = [9]
    night.run()
    assert night.run(registry=None, resume=True).registry == HERE
    assert (HERE, "22.12-sm80") in night.commands.published


def test_what_one_registry_had_is_built_for_another(night: Night) -> None:
    night.commands.published = {(HERE, cell) for cell in CELLS}
    assert night.run().exit_code == 0
    assert night.commands.ran == []
    done = night.run(registry=THERE, resume=True)
    assert outcomes(done) == dict.fromkeys(CELLS, PASSED)
    assert night.commands.of("22.12-sm80") == ["build", "smoke", "publish"]
