"""The gate with a GPU around its suite: what is tested, on which GPU, and what is written down."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound

from ftbuild.cli.selection import Selection, plans
from ftbuild.config import loader
from ftbuild.config.schema import Config
from ftbuild.engine import gpu, orphans
from ftbuild.engine.gpu import Access, Gpu
from ftbuild.errors import ConfigError, HostError, SmokeError
from ftbuild.features import LeftOut
from ftbuild.gates import evidence
from ftbuild.gates.cell_test import Skipped
from ftbuild.gates.report import SMOKE, GateReport
from ftbuild.gates.smoke import gate, job, junit, lasting, models, settings
from ftbuild.gates.smoke.models import Prepared
from ftbuild.gates.subject import Subject
from ftbuild.host import shell
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.text.results import State
from testing import ROOT

A100, H100 = Gpu("A100", 8, 0, 2**30, "12.4"), Gpu("H100", 9, 0, 2**30, "12.4")
IDS = {"runtime": ("sha256:1",), "sdk": ("sha256:2",)}


@dataclass
class Run:
    """A cell whose suite is replaced by a report of all its tests, with one in another state."""

    config: Config
    subject: Subject
    heard: list[str]
    commands: list[list[str]]

    def go(self, **options: Any) -> GateReport | Skipped:
        return gate.run(self.config, self.subject, **options)

    def record(self) -> Any:
        return json.loads((self.subject.folder / SMOKE.record).read_text())

    def job(self) -> job.Job:
        return job.read(self.subject.folder / gate.JOB)


def cases(families: tuple[str, ...], failed: str = "") -> str:
    lines = []
    for family in families:
        for dtype in job.DTYPES:
            served = f"{family}-{dtype}"
            properties = f'<properties><property name="{junit.SERVED}" value="{served}"/></properties>'
            ended = '<failure message="token 1 is 7"/>' if served == failed else ""
            name = f"test_{gate.COMPARED.replace(' ', '_')}[http-{served}-one]"
            lines.append(f'<testcase name="{name}" time="0.1">{properties}{ended}</testcase>')
    return f"<testsuites><testsuite>{''.join(lines)}</testsuite></testsuites>"


Make = Callable[..., Run]


@pytest.fixture
def make(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    def run(
        *found: Gpu,
        triton: str = "22.12",
        without: Sequence[str] = (),
        of: Config = config,
        failed: str = "",
        built: bool = True,
    ) -> Run:
        (plan,) = plans(of, Selection(of.folder, [triton], ["80"], without=without))
        heard, commands = list[str](), list[list[str]]()

        def get(name: str) -> Any:
            product = next((product for product in PRODUCTS if name == plan.tag(product)), None)
            if not built or product is None:
                raise ImageNotFound(name)
            return SimpleNamespace(id=IDS[product][0])

        def stream(command: list[str], *, log: Path, on_line: Callable[[str], None]) -> int:
            commands.append(command)
            for line in (
                "testing",
                "",
                "test_a.py::test_b[gpt-fp32] ",
                "[gw0] [  1%] PASSED test_a.py::test_b",
            ):
                on_line(line)
            (tmp_path / gate.JUNIT).write_text(cases(plan.families, failed))
            return int(bool(failed))

        access = Access("cdi", found) if found else None
        monkeypatch.setattr(gpu, "find", lambda client, image: access)
        monkeypatch.setattr(gpu, "tells_processes", lambda client, image, style: True)
        monkeypatch.setattr(orphans, "remove", lambda client, report: None)
        monkeypatch.setattr(
            models, "ensure", lambda config, subject, at: Prepared(at, "sha256:2", plan.families)
        )
        monkeypatch.setattr(shell, "stream", stream)
        client: Any = SimpleNamespace(images=SimpleNamespace(get=get))
        return Run(of, Subject(client, plan, tmp_path, tmp_path, heard.append), heard, commands)

    return run


def test_a_lean_cell_is_asked_for_the_answers_of_what_it_serves(config: Config) -> None:
    def lean(**options: list[str]) -> Plan:
        (plan,) = plans(config, Selection(config.folder, ["22.12"], ["80"], **options))
        return plan

    whole, some = gate.demands(lean()), gate.demands(lean(head_sizes=["64,128"]))
    assert {str(each.served).partition("-")[0] for each in set(whole) - set(some)} == {"bloom", "mpt"}
    assert gate.demands(lean(without=["beams,experts,int8"])) == whole
    assert not gate.tested_models(config, lean(without=["int8"]), [A100])["gpt"].int8
    assert gate.tested_models(config, lean(without=["beams"]), [A100])["gpt"].int8
    for size, families in (("256", ()), ("32", ("bloom", "mpt"))):
        assert {each.served for each in gate.demands(lean(head_sizes=[size]))} == {
            f"{family}-{dtype}" for family in (*families, "bert", "t5-encoder") for dtype in job.DTYPES
        }


def test_a_cell_without_kernels_for_any_model_can_show_nothing(config: Config) -> None:
    (lean,) = plans(config, Selection(config.folder, ["22.12"], ["80"], head_sizes=["256"]))
    with pytest.raises(SmokeError, match="no kernels for the heads of any model") as refused:
        gate.demands(replace(lean, families=("gpt", "bloom")))
    assert "--head-sizes with 64" in (refused.value.hint or "")


def test_a_tested_cell_has_a_record_that_counts(make: Make) -> None:
    run = make(H100, A100)
    found = run.go()
    assert isinstance(found, GateReport)
    found.require()
    assert evidence.objection(SMOKE, run.subject.plan, run.subject.folder, IDS) is None
    record = run.record()
    assert (record["device"], record["junit"]) == ("gpu", "smoke.xml")
    assert [device["name"] for device in record["gpus"]] == ["A100"]  # the one that runs its code
    assert run.job().indices == (1,)
    assert record["servers"] == 1
    assert record["figures"] == {}
    assert run.heard == ["one server at a time", "testing"]
    (command,) = run.commands
    folder = run.subject.folder
    assert command[1:] == [
        *("-m", "pytest", "-c", f"{gate.SUITE}/pytest.ini", f"--rootdir={gate.SUITE}"),
        *(f"--junitxml={folder}/smoke.xml", "--job", f"{folder}/smoke-job.json", str(gate.SUITE)),
    ]


def test_the_job_names_image_models_gpus_and_what_is_streamed(make: Make, config: Config) -> None:
    run = make(A100)
    run.go()
    task = run.job()
    assert (task.image, task.prepared) == ("sha256:1", run.subject.folder / gate.FOLDER)
    assert (task.style, task.gpus) == ("cdi", [str(A100)])
    assert {name: model.streams for name, model in task.models.items()} == {
        "gpt": True,
        "opt": True,
        "bloom": True,
        "mpt": True,
        "gptj": True,
        "codegen": True,
        "gptneox": True,
        "t5": True,
        "llama": True,
        "bert": False,
        "t5-encoder": False,
    }
    assert task.names(vectors=True) == ("bert", "t5-encoder")
    assert [name for name, model in task.models.items() if model.tensors is None] == ["bert", "t5-encoder"]
    assert task.models["bert"].vectors == config.models.families["bert"].vectors
    assert task.models["t5"].tensors == config.models.families["t5"].tensors
    older = make(A100, triton="22.03")
    older.go()
    assert {name: model.streams for name, model in older.job().models.items()} == {"gpt": False, "t5": False}


@pytest.mark.parametrize(
    ("line", "news"),
    [
        ("", False),
        ("test_a.py::test_b[http-gpt-fp32-one] ", False),
        ("test_a.py::test_b[http-gpt-fp32-one] PASSED                 [  3%]", False),
        ("test_a.py::test_b[http-gpt-fp32-one] SKIPPED (needs 2 GPUs)    [  3%]", False),
        ("12.3 s: suite/test_a.py::test_b[gpt-fp32]", False),
        ("[gw11] [  1%] SKIPPED suite/test_a.py::test_b[gpt-fp32] ", False),
        ("[gw0] [  1%] FAILED suite/test_a.py::test_b[gpt-fp32] ", True),
        ("test_a.py::test_b[gpt-fp32] FAILED                 [  3%]", True),
        ("FAILED test_a.py::test_b[gpt-fp32] - ftbuild.errors.SmokeError", True),
        ("    terminate called after throwing an instance of 'std::runtime_error'", True),
        ("212 of 608 tests in 1 min 20 s, about 2 min 30 s left", True),
    ],
)
def test_tests_that_begin_or_pass_are_in_the_log_alone(line: str, news: bool) -> None:
    assert gate._is_news(line) is news


def test_several_servers_run_side_by_side_and_the_record_says_how_many(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)))
    for asked, number in ((None, 8), (3, 3), (2, 2)):
        run = make(replace(A100, memory=80 * 2**30))
        run.go(servers=asked)
        assert run.commands[0][-3:-1] == ["--job", f"{run.subject.folder}/smoke-job.json"]
        # By server, and the longest first, which the suite has sorted.
        spread = {f"--numprocesses={number}", "--dist=loadscope", "--no-loadscope-reorder"}
        assert spread <= set(run.commands[0])
        assert run.record()["servers"] == number
        assert run.heard[0] == f"up to {number} servers side by side"


def test_tests_of_the_memory_are_alone_where_the_driver_tells_no_process(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make(A100)
    monkeypatch.setattr(gpu, "tells_processes", lambda client, image, style: False)
    run.go()
    assert not run.job().tells_processes
    assert "tests of the memory come last and alone" in run.heard[0]


def test_no_server_outlives_a_suite_that_was_interrupted(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    run, events = make(A100), list[str]()

    def interrupted(*_: object, **__: object) -> int:
        events.append("interrupted")
        raise KeyboardInterrupt

    monkeypatch.setattr(shell, "stream", interrupted)
    monkeypatch.setattr(orphans, "remove", lambda client, report: events.append("removed"))
    with pytest.raises(KeyboardInterrupt):
        run.go()
    assert events == ["interrupted", "removed"]


def test_a_wrong_answer_fails_the_gate_and_is_in_the_record(make: Make) -> None:
    run = make(A100, failed="t5-fp16")
    found = run.go()
    assert isinstance(found, GateReport)
    assert found.exit_code == 9
    assert [f.facts["served"] for f in found.failed] == ["t5-fp16"]
    problem = evidence.objection(SMOKE, run.subject.plan, run.subject.folder, IDS)
    assert problem == f"smoke failed: {gate.COMPARED}"


def test_an_image_for_another_gpu_is_skipped_unless_any_will_do(make: Make) -> None:
    run = make(H100)
    (run.subject.folder / SMOKE.record).write_text("of an earlier run")
    skipped = run.go()
    assert isinstance(skipped, Skipped)
    assert skipped.reason == f"its machine code is for sm_80, here is {H100}"
    assert (run.subject.folder / SMOKE.record).read_text() == "of an earlier run"
    assert isinstance(run.go(any_gpu=True), GateReport)


def test_a_run_that_breaks_leaves_no_earlier_record(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make(A100)
    run.go()
    (run.subject.folder / gate.LOG).write_text("of an earlier run")
    monkeypatch.setattr(shell, "stream", lambda *_, **__: 3)
    with pytest.raises(SmokeError, match="the suite broke") as broken:
        run.go()
    assert broken.value.where == str(run.subject.folder / "smoke.log")
    assert not (run.subject.folder / SMOKE.record).exists()
    assert not (run.subject.folder / gate.LOG).exists()


def test_without_a_gpu_or_an_image_nothing_is_tested(make: Make) -> None:
    with pytest.raises(HostError, match="no GPU: nothing was tested") as missing:
        make().go()
    assert "nvidia-container-toolkit" in (missing.value.hint or "")
    with pytest.raises(SmokeError, match=r"there is no image triton_with_ft:22\.12-sm80-"):
        make(A100, built=False).go()


def test_the_sample_computes_on_the_cpu(make: Make) -> None:
    run = make(of=loader.load(ROOT / "buildcfg/sample"))
    run.go()
    assert (run.record()["device"], run.record()["gpus"]) == ("cpu", [])
    assert (run.job().style, run.job().gpus) == (None, [])
    assert not run.job().replays


@pytest.mark.parametrize(("triton", "replays"), [("22.03", False), ("22.12", True)])
def test_the_job_says_whether_the_servers_replay_steps(make: Make, triton: str, replays: bool) -> None:
    run = make(A100, triton=triton)
    run.go()
    assert run.job().replays is replays


@pytest.mark.parametrize("without", [[], ["beams", "int8"]])
def test_the_job_says_what_the_image_is_built_without(make: Make, without: list[str]) -> None:
    """Else the suite would ask a lean server for what it refuses."""
    run = make(A100, without=without)
    run.go()
    assert run.job().left_out == LeftOut(tuple(without))


def test_the_gate_makes_models_and_runs_with_its_options(
    make: Make, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, made = make(H100), list[Path]()
    prepared = Prepared(run.subject.folder, "sha256:2", run.subject.plan.families)

    def ensure(config: Config, subject: Subject, at: Path) -> Prepared:
        made.append(at)
        return prepared

    monkeypatch.setattr(models, "ensure", ensure)
    gate.Smoke(config).prepare(run.subject)
    assert made == [run.subject.folder / gate.FOLDER]
    assert isinstance(gate.Smoke(config).run(run.subject), Skipped)
    assert isinstance(gate.Smoke(config, any_gpu=True, servers=3).run(run.subject), GateReport)
    assert run.record()["servers"] == 3


def test_only_families_that_were_prepared_are_tested(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make(A100)
    monkeypatch.setattr(models, "ensure", lambda config, subject, at: Prepared(at, "sha256:2", ("gpt",)))
    run.go()
    assert list(run.job().models) == ["gpt"]


def test_extra_models_are_tested_as_their_family_is(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make(A100)
    prepared = Prepared(run.subject.folder, "sha256:2", ("gpt", "t5"), {"gpt-four": "gpt"})
    monkeypatch.setattr(models, "ensure", lambda config, subject, at: prepared)
    run.go()
    task = run.job()
    assert (task.names(), task.names(extra=True)) == (("gpt", "t5"), ("gpt-four",))
    assert task.models["gpt-four"] == replace(task.models["gpt"], family="gpt")


def test_models_are_prepared_in_the_work_folder(make: Make) -> None:
    run = make(A100)
    assert gate.prepare(run.config, run.subject).folder == run.subject.folder / "smoke"


def test_how_many_models_were_prepared_and_where_is_told(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    run, told = make(A100), list[str]()
    prepared = Prepared(run.subject.folder, "sha256:2", ("gpt", "t5"), {"gpt-four": "gpt"})
    monkeypatch.setattr(models, "ensure", lambda config, subject, at: prepared)
    gate.Smoke(run.config).prepare(replace(run.subject, report=told.append))
    assert told[-1] == f"the 3 models are in {run.subject.folder}"


def test_results_of_another_image_would_be_demanded_of_that_image(make: Make) -> None:
    run = make(A100)
    found = run.go()
    assert isinstance(found, GateReport)
    assert {result.subject for result in found.results} == {"runtime"}
    assert {result.state for result in found.results} == {State.OK}
    spoilt = replace(found, results=tuple(replace(r, subject="sdk") for r in found.results))
    spoilt.write(run.subject.folder)
    assert evidence.objection(SMOKE, run.subject.plan, run.subject.folder, IDS)


@pytest.mark.parametrize(("triton", "replays"), [("22.07", False), ("22.12", True)])
def test_releases_with_the_patch_replay_steps(triton: str, replays: bool) -> None:
    """Were the patch renamed, the suite would skip the test that compares replayed steps."""
    (plan,) = plans(loader.load(ROOT / "buildcfg"), Selection(triton=[triton], sm=["90"], base=["open"]))
    assert gate.replays(plan) is replays


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((settings.LOAD, value) for value in ("abc", "-1", "nan", "inf", "1e9", "10 s")),
        *((settings.MALFORMED, value) for value in ("abc", "-1", "0", "1.5", "1e3", "9" * 5000, "\u0663")),
    ],
)
def test_a_setting_that_is_no_number_ends_the_gate_before_anything_else(
    make: Make, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    run = make(H100)
    with pytest.raises(ConfigError, match=f"{name} is .*, which is not a number of") as raised:
        run.go()
    assert len(raised.value.what) < 120
    assert not run.commands


@pytest.mark.parametrize(
    ("value", "seconds", "requests"), [(None, 0.0, None), ("", 0.0, None), ("600", 600.0, 600)]
)
def test_settings_are_what_the_suite_does(
    monkeypatch: pytest.MonkeyPatch, value: str | None, seconds: float, requests: int | None
) -> None:
    for name in (settings.LOAD, settings.MALFORMED, settings.SEED):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    settings.check()
    assert settings.load_seconds() == seconds
    assert settings.malformed_requests() == requests
    assert settings.seed() == (value or "0")


def test_a_load_is_a_number_of_requests_and_then_as_long_as_it_lasts() -> None:
    assert len(list(lasting.repeated(3, time.monotonic()))) == 3
    until = time.monotonic() + 0.05
    assert len(list(lasting.repeated(3, until))) > 3
    assert time.monotonic() >= until
