"""What a nightly run says and records: the table, the machine, and what the commands of its cells leave."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from filelock import FileLock

from ftbuild import __version__, matrix, plan_file
from ftbuild.config.schema import Config
from ftbuild.engine import daemon
from ftbuild.errors import HostError
from ftbuild.gates.report import SMOKE, GateReport
from ftbuild.gates.smoke import gate
from ftbuild.host import shell
from ftbuild.nightly import artifacts, history, notify, run
from ftbuild.nightly.builders import BuilderRequest
from ftbuild.nightly.record import Image, NightlyRun, PastRun, Patch, Reason, State, Unit, read
from ftbuild.nightly.report import wording, write
from ftbuild.plan import Plan
from ftbuild.publishing.publish import RECORD
from ftbuild.text.results import CheckResult
from ftbuild.text.results import State as CheckState
from testing import gate_records, recorded_runs
from tests.unit.nightly.conftest import CELLS, HERE, Commands, Night
from tests.unit.test_plan import plan_of


@pytest.fixture(scope="module")
def plan(config: Config) -> Plan:
    return plan_of(config)


# The run


def test_a_run_records_the_machine_the_command_and_the_checkout(night: Night) -> None:
    done = night.run(registry=f"{HERE}/")
    assert (done.cores, done.memory_bytes, done.jobs) == (4, 64 << 30, 4)
    assert done.command == (f"invoke nightly --cell x --config {night.config.folder} --registry {HERE}/")
    assert (done.ftbuild, done.revision, done.registry) == (__version__, "a" * 40, HERE)
    assert done.started.endswith("+00:00")
    assert done.id == done.started.replace(":", "-").replace("+00-00", "Z")
    assert done.seconds > 0
    assert night.run(registry=None).command == f"invoke nightly --cell x --config {night.config.folder}"


def test_a_run_remembers_those_before_it(night: Night) -> None:
    first = night.run(registry=None)
    earlier = replace(first, id="2020-01-01T00-00-00Z", past=())
    earlier.write(night.work / history.FOLDER / earlier.id)
    done = night.run(registry=None)
    assert earlier.summary() in done.past


def test_a_run_says_what_it_will_do_and_ends_with_a_table(
    night: Night, capsys: pytest.CaptureFixture[str]
) -> None:
    night.commands.codes["22.12-sm80", "build"] = [7]
    done = night.run(registry=None)
    printed = capsys.readouterr()
    folder = history.folders(night.work)[-1]
    assert f"3 cells, 1 at a time, 4 compile jobs in all; {folder}" in printed.err
    assert "[22.12-sm70] passed\n" in printed.err
    assert "[22.12-sm80] failed build\n" in printed.err
    lines = printed.out.splitlines()
    assert lines[0].split() == ["Cell", "State", "Why", "Time", "Detail"]
    assert re.fullmatch(r"22\.12-sm70 +passed +[0-9.]+ s", lines[2].rstrip())
    # What went wrong stands last, next to the counts.
    assert re.fullmatch(r"22\.12-sm80 +failed +build +[0-9.]+ s +build of 22\.12-sm80", lines[-2].rstrip())
    assert lines[-1].startswith("1 of 3 cells went wrong in ")
    assert lines[-1].endswith(f": {folder / 'report.html'}")
    night.run(registry=None, resume=True)
    assert f"resuming the nightly run of {done.started}" in capsys.readouterr().err


def test_a_table_ends_with_what_went_wrong_and_says_nothing_twice(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bad = recorded_runs.bad()
    run._announce(bad, tmp_path, None)
    lines = capsys.readouterr().out.splitlines()[2:-1]
    cells = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert sorted(cells) == sorted(cell.cell for cell in bad.cells)
    assert cells[-len(wording.troubled(bad)) :] == [cell.cell for cell in wording.troubled(bad)]
    for word in ("excluded", "already published", "not run"):
        (line, *_) = (line for line in lines if word in line)
        assert line.replace("-", " ").count(word) == 1, line


def test_two_runs_at_a_time_are_refused(night: Night) -> None:
    lock = night.work / history.FOLDER / "lock"
    lock.parent.mkdir(parents=True)
    with FileLock(lock), pytest.raises(HostError, match="another nightly run is active") as busy:
        night.run()
    assert busy.value.where == str(lock)
    assert night.run().exit_code == 0


def test_cells_that_cannot_exist_are_recorded_with_the_reason(night: Night) -> None:
    night.selected = (*CELLS, "22.03-sm89")
    done = night.run(registry=None)
    record = next(record for record in done.cells if record.cell == "22.03-sm89")
    assert (record.state, record.reason, record.key) == (State.SKIPPED, Reason.EXCLUDED, "")
    (entry,) = matrix.select_with_excluded(night.config, cells=night.selected).excluded
    assert record.detail == "\n".join(entry.reasons)
    assert (record.registry, record.builder, record.start) == ("", "", 0.0)
    assert (record.triton, record.sms, record.base) == ("22.03", (89,), "open")
    assert [cell.cell for cell in done.cells] == ["22.03-sm89", *CELLS]


def test_a_base_is_made_once_and_its_failure_told_in_each_cell(
    night: Night, planned: Mapping[str, Plan]
) -> None:
    night.commands.base_code = 4
    done = night.run(ca=Path("/ca.pem"), builders=[BuilderRequest("far")], from_=HERE, trust=["ours.pub"])
    (options,) = night.commands.bases
    assert options[0] == "--plan"
    assert plan_file.read(Path(options[1])).cell.id == CELLS[0]
    taken = ["--ca", "/ca.pem", "--from", HERE, "--trust", "ours.pub"]
    assert options[2:] == ["--jobs", "4", *taken, "--push", HERE]
    for record in done.cells:
        assert (record.state, record.reason, record.exit_code) == (State.ERROR, Reason.MACHINE, 4)
        assert record.detail == "base open: no network"
    (log,) = (night.work / history.FOLDER / done.id / "bases").iterdir()
    serving = planned[CELLS[0]].base.serving
    assert log.name == f"open-{serving.rpartition(':')[2]}.log"
    assert log.read_text() == "error: no network\n"


def test_a_cell_whose_plan_cannot_be_written_fails_alone(night: Night, planned: Mapping[str, Plan]) -> None:
    folder = planned[CELLS[0]].folder(night.work)
    folder.rmdir()
    folder.write_text("no folder")
    done = night.run(registry=None)
    first, *others = done.cells
    assert (first.state, first.reason, first.exit_code) == (State.ERROR, Reason.MACHINE, 4)
    assert first.detail.startswith("base open: closed-plan.json cannot be written: ")
    assert {record.state for record in others} == {State.PASSED}
    assert len(night.commands.bases) == 1


def test_the_longest_cell_of_the_last_run_begins(night: Night) -> None:
    seconds = {"22.12-sm70": 1.0, "22.12-sm80": 2.0, "22.12-sm86": 3.0}
    past = replace(recorded_runs.good(), id="2020-01-01T00-00-00Z", cells=(), past=())
    steps = (recorded_runs.step("build", "22.12-sm70", 0, 1),)
    cells = tuple(
        replace(recorded_runs.good().cells[2], cell=cell, seconds=took, steps=steps)
        for cell, took in seconds.items()
    )
    replace(past, cells=cells).write(night.work / history.FOLDER / past.id)
    night.run(registry=None)
    assert [cell for cell, name in night.commands.ran if name == "build"] == list(CELLS)[::-1]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("reading\nerror: no network\n  where: here\n", "no network\n  where: here"),
        ("Killed\n", "Killed"),
        ("", "it gave no answer"),
    ],
)
def test_an_audit_that_cannot_run_is_a_warning_and_no_failure(night: Night, said: str, why: str) -> None:
    for answer in ("", "[1]", "{}x", '[{"what": "pins"}]'):
        night.commands.audit = [answer, said]
        done = night.run(registry=None, audit=True)
        assert done.audit == (CheckResult("audit", CheckState.WARN, f"the audit could not run: {why}"),)
        assert done.exit_code == 0
    assert (night.work / history.FOLDER / done.id / "audit.log").read_text() == said


def test_a_gpu_that_does_not_fit_is_the_reason_of_an_untested_cell(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "needs_gpu", lambda config: True)
    monkeypatch.setattr(gate, "find_gpus", lambda client, plan: "gpus")
    monkeypatch.setattr(gate, "unfit", lambda plan, gpus: f"{gpus} of {plan.cell.id}")
    done = night.run(registry=None)
    assert done.cells[0].detail == "built and verified (built, never run); gpus of 22.12-sm70"
    assert done.exit_code == 4


def test_steps_have_commands_logs_and_times(night: Night) -> None:
    done = night.run(registry=None)
    build, smoke = done.cells[0].steps
    plan = night.work / "22.12-sm70" / done.cells[0].key / "closed-plan.json"
    options = f"--plan {plan} --config {night.config.folder}"
    assert build.command == f"invoke build {options} --jobs 4 --progress plain"
    assert smoke.command == f"invoke smoke {options}"
    assert (build.log, smoke.log) == ("cells/22.12-sm70/build.log", "cells/22.12-sm70/smoke.log")
    assert 0 <= build.start <= smoke.start
    first, second, _ = done.cells
    assert 0 < first.start <= build.start
    assert first.start + first.seconds <= second.start
    assert second.start + second.seconds <= done.seconds
    assert first.seconds > 0
    assert (build.code, build.jobs, smoke.jobs) == (0, 4, None)
    folder = history.folders(night.work)[-1]
    assert (folder / build.log).read_text() == "done\n"
    assert done.cells[0].tail == ("done",)


def test_a_notification_that_arrived_needs_no_words(
    night: Night, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(notify, "post", lambda url, run: None)
    night.run(notify="https://hook.invalid/x")
    assert "None" not in capsys.readouterr().err


def environments(night: Night, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the list that gets the environment of each command, none of which has a log yet."""
    seen: list[dict[str, Any]] = []
    stream: Any = Commands.stream

    def note(argv: Any, *, log: Path, **more: Any) -> int:
        assert not log.exists()
        seen.append(more["env"])
        code: int = stream(night.commands, argv, log=log, **more)
        return code

    monkeypatch.setattr(shell, "stream", note)
    return seen


def test_every_command_is_run_unbuffered_and_anew(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = environments(night, monkeypatch)
    night.run(registry=None)
    assert seen == [{"PYTHONUNBUFFERED": "1"}] * 7  # of the base, and two of each cell


def test_a_command_that_failed_is_run_again_with_a_new_log(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    night.commands.codes["22.12-sm70", "build"] = [7]
    night.run(registry=None)
    assert (history.folders(night.work)[-1] / "cells" / "22.12-sm70" / "build.log").exists()
    seen = environments(night, monkeypatch)
    night.run(registry=None, resume=True)
    assert seen == [{"PYTHONUNBUFFERED": "1"}] * 3  # of the base, and two of the cell that failed


# What the commands leave


def test_images_are_those_of_the_engine_and_their_published_tags(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = None
    here = {plan.tag("runtime"): SimpleNamespace(id="sha256:1", attrs={"Size": 7})}
    monkeypatch.setattr(daemon, "image", lambda client, name: here.get(name))
    assert artifacts.images(client, plan, tmp_path) == {"runtime": Image("sha256:1", 7)}
    published = {"sdk": {"reference": "r.example/x:1", "digest": "sha256:2"}}
    (tmp_path / RECORD).write_text(json.dumps(published))
    found = artifacts.images(client, plan, tmp_path)
    assert found["sdk"] == Image("", 0, "r.example/x:1", "sha256:2")
    assert found["sdk"].pull == "docker pull r.example/x@sha256:2"
    assert found["runtime"].pull == ""
    (tmp_path / RECORD).write_text("{")
    assert list(artifacts.images(client, plan, tmp_path)) == ["runtime"]


def test_patches_have_their_component_and_origin(plan: Plan) -> None:
    assert Patch("ft/0040-sm-89.patch", "by ftbuild") in artifacts.patches(plan)


NINJA = "# ninja log v5\n0\t7000\t1\ta.o\taa\n5\t9000\t1\tb.o\tbb\n"


def test_a_unit_lasts_from_when_it_got_a_slot(plan: Plan, tmp_path: Path) -> None:
    info = tmp_path / "info" / "backend"
    info.mkdir(parents=True)
    (info / "ninja_log").write_text(NINJA)
    unslotted = (Unit(0.0, 7.0, "a.o"), Unit(0.005, 9.0, "b.o"))
    assert artifacts.compiles(plan, tmp_path) == {"backend": unslotted}
    (info / "started").write_text("100000\n")
    (info / "slots.tsv").write_text("102500\t108000\t1\ta.o\n")
    assert artifacts.compiles(plan, tmp_path) == {"backend": (Unit(2.5, 8.0, "a.o"), unslotted[1])}
    (info / "started").write_text("soon")
    assert artifacts.compiles(plan, tmp_path) == {"backend": unslotted}


def test_figures_are_those_of_the_smoke_test(plan: Plan, tmp_path: Path) -> None:
    assert artifacts.figures(tmp_path) == {}
    figures = {"gpt-fp32": {"ready_seconds": 1.5}}
    checks = gate_records.results(SMOKE, plan, CheckState.OK)
    GateReport(SMOKE, plan, {}, checks, facts={"figures": figures}).write(tmp_path)
    assert artifacts.figures(tmp_path) == figures
    (tmp_path / SMOKE.record).write_text("{")
    assert artifacts.figures(tmp_path) == {}


def test_a_log_that_is_no_text_is_read_all_the_same(tmp_path: Path) -> None:
    """Compilers print bytes of the sources, in whatever encoding."""
    (tmp_path / "x.log").write_bytes("error: größe\n".encode("latin-1"))
    assert artifacts.tail(tmp_path / "x.log") == ("error: gr\ufffd\ufffde",)
    assert artifacts.message(tmp_path / "x.log") == "gr\ufffd\ufffde"


def test_a_failed_check_without_a_hint_has_no_next_step(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("")
    checks = (CheckResult("ready", CheckState.FAIL, "no answer", "", "runtime"),)
    GateReport(SMOKE, plan, {}, checks).write(tmp_path)
    assert artifacts.failure(tmp_path / "x.log", tmp_path, Reason.SMOKE) == "failed: ready (runtime)"


def test_of_a_log_the_last_sixty_lines_are_kept(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("".join(f"{n}\n" for n in range(100)))
    assert artifacts.tail(tmp_path / "x.log") == tuple(str(n) for n in range(40, 100))


def test_a_message_has_its_indented_lines_and_at_most_eight(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("error: first\n" + "".join(f"  {n}\n" for n in range(20)) + "not of it\n")
    assert artifacts.failure(log, tmp_path, Reason.BUILD).splitlines() == [
        "first",
        *(f"  {n}" for n in range(7)),
    ]


# The record


def test_a_summary_keeps_what_trends_need() -> None:
    run = recorded_runs.good()
    summary = run.summary()
    assert (summary.id, summary.seconds, summary.exit_code) == (run.id, run.seconds, 0)
    assert summary.states["22.12-sm80"] == "passed"
    assert set(summary.states) == {cell.cell for cell in run.cells}
    assert set(summary.cell_seconds) == {"22.07-sm80", "22.12-sm80", "22.12-sm90"}
    assert summary.cell_bytes["22.12-sm80"] == 1_610_000_000
    assert run.counts == {"passed": 3, "failed": 0, "error": 0, "skipped": 3}
    assert run.is_good
    assert not replace(run, exit_code=1).is_good


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    run: NightlyRun = recorded_runs.good()
    past = PastRun("2025", 1.0, 0, {"x": "passed"}, {"x": 1.0}, {"x": 1})
    audit = (CheckResult("pins", CheckState.WARN, "moved"),)
    run = replace(run, past=(past,), audit=audit)
    run.write(tmp_path)
    assert read(tmp_path) == run
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(ValueError, match="id: Field required"):
        read(tmp_path)


def test_a_record_with_another_time_or_too_many_parts_is_none(tmp_path: Path) -> None:
    run = recorded_runs.good()
    replace(run, started="yesterday").write(tmp_path)
    with pytest.raises(ValueError, match="started: "):
        read(tmp_path)
    noted = replace(run.cells[0], notes=("",) * 100_001)
    replace(run, cells=(noted,)).write(tmp_path)
    with pytest.raises(ValueError, match="at most 100000 items"):
        read(tmp_path)
    replace(run, cells=(replace(noted, notes=("",) * 100_000),)).write(tmp_path)
    assert len(read(tmp_path).cells[0].notes) == 100_000


def test_a_record_is_plain_data() -> None:
    """Of states and reasons it has the words, not the members of Python."""
    data = recorded_runs.bad().as_dict()
    assert {type(cell["state"]) for cell in data["cells"]} == {str}
    assert {type(cell["sms"]) for cell in data["cells"]} == {list}
    assert json.loads(json.dumps(data)) == data


def test_the_reports_are_these_files() -> None:
    assert list(write.RENDERERS) == ["junit.xml", "report.md", "report.html"]
