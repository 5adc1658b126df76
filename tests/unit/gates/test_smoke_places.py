"""Servers of the suite side by side: how many, on which GPUs, each once, and some of them alone."""

from __future__ import annotations

import ast
import ctypes
import math
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ftbuild.cli.selection import Selection, plans
from ftbuild.config.schema import Config
from ftbuild.engine import gpu, nvml
from ftbuild.engine.gpu import Gpu
from ftbuild.errors import SmokeError
from ftbuild.gates.smoke import gate, junit, places, progress
from ftbuild.gates.smoke.job import Job, Variant
from ftbuild.gates.smoke.models import WEIGHTS
from ftbuild.gates.smoke.progress import Progress
from ftbuild.gates.smoke.served import Connected
from ftbuild.gates.smoke.suite import conftest
from ftbuild.text.results import State
from testing import ROOT, recorded_servers
from testing.recorded_servers import Stay

GIB = 2**30
# Those of the models that the suite is run with here.
FOUR = ("gpt", "t5")
MODELS = (*FOUR, "opt", "bert", "mt5", "gptneox-head-48", *(f"{family}-four" for family in FOUR))


def gpus(number: int, memory: int = 80) -> list[Gpu]:
    return [Gpu("x", 9, 0, memory * GIB, "13.0")] * number


@pytest.mark.parametrize(
    ("found", "processors", "servers"),
    [
        (gpus(1), 16, 8),
        (gpus(1), 64, 8),
        (gpus(4), 64, 32),
        (gpus(1, memory=16), 64, 2),
        (gpus(1, memory=4), 64, 1),
        ([*gpus(1), *gpus(1, memory=16)], 64, 4),
        (gpus(1), 4, 2),
        (gpus(2), 1, 1),
        ([], 2, 1),
        ([], 64, 8),
    ],
)
def test_as_many_servers_run_as_memory_and_processors_allow(
    found: list[Gpu], processors: int, servers: int
) -> None:
    assert places.side_by_side(found, processors) == servers


def test_whoever_is_alone_on_a_gpu_waits_for_the_others_and_they_for_it(tmp_path: Path) -> None:
    inside, leave = Event(), Event()

    def alone() -> None:
        with places.held(tmp_path, (1, 0), alone=True):
            inside.set()
            leave.wait(20)

    with places.held(tmp_path, (0,), alone=False), places.held(tmp_path, (0,), alone=False):
        waiting = Thread(target=alone)
        waiting.start()
        with places.held(tmp_path, (2,), alone=True):  # another GPU
            assert not inside.wait(0.2)
    assert inside.wait(20)
    leave.set()
    with places.held(tmp_path, (0,), alone=False):
        waiting.join()


def test_who_waits_for_all_gpus_keeps_none_from_the_others(tmp_path: Path) -> None:
    inside = Event()

    def all_of_them() -> None:
        with places.held(tmp_path, (0, 1), alone=True):
            inside.set()

    with places.held(tmp_path, (1,), alone=True):
        waiting = Thread(target=all_of_them)
        waiting.start()
        with places.held(tmp_path, (0,), alone=True):
            assert not inside.wait(0.2)
    waiting.join(20)
    assert inside.is_set()


@pytest.fixture(scope="module")
def task(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """The job of a release's cell on four GPUs, with weights of which only the layers are known."""
    (plan,) = plans(config, Selection(config.folder, ["22.12"], ["90"]))
    prepared = tmp_path_factory.mktemp("models")
    known = gate.tested_models(config, plan, ())
    extra = config.models.extra_models("5.3")
    tested = {**known, **{name: replace(known[family], family=family) for name, family in extra.items()}}
    tested = {name: tested[name] for name in MODELS}
    for name in tested:
        layers = 4 if name.endswith("-four") else 2
        (prepared / name).mkdir()
        (prepared / name / "config.pbtxt").write_text(
            'backend: "fastertransformer"\ninput [{ name: "input_ids" data_type: TYPE_UINT32 dims: [-1] }]\n'
        )
        for split in ("1-gpu", "2-gpu"):
            weights = prepared / name / WEIGHTS / split
            weights.mkdir(parents=True)
            (weights / "config.ini").write_text(f"[gpt]\nnum_layer={layers}\n")
    return Job("sha256:1", prepared, tested, "cdi", ["GPU"] * 4, replays=True, tells_processes=True)


def suite(task: Job, folder: Path, *more: str) -> str:
    """Run the suite on servers that answer nothing; return what pytest says."""
    task.write(folder / gate.JOB)
    command = [sys.executable, "-m", "pytest", "-c", f"{gate.SUITE}/pytest.ini", f"--rootdir={gate.SUITE}"]
    done = subprocess.run(
        [
            *command,
            *("-p", "xdist", "-p", "testing.recorded_servers"),
            "--job",
            str(folder / gate.JOB),
            "--tb=no",
            *more,
            str(gate.SUITE),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            # Those of this environment that the suite does without.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            recorded_servers.FILE: str(folder / "stays"),
            recorded_servers.PLACES: str(folder / "places"),
        },
    )
    assert done.returncode in (0, 1), done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def collected(task: Job, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """Function and parameters of each test, in the order of the suite."""
    lines = suite(task, tmp_path_factory.mktemp("collected"), "--collect-only", "-qq").splitlines()
    nodes = [line.partition("::")[2] for line in lines if "::" in line]
    return [(name, parameters.rstrip("]")) for name, _, parameters in (node.partition("[") for node in nodes)]


@pytest.fixture(scope="module")
def whole(task: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run of the whole suite in three processes has written."""
    folder = tmp_path_factory.mktemp("whole")
    xml = folder / gate.JUNIT
    options = ("--numprocesses=3", "--dist=loadscope", "--no-loadscope-reorder", f"--junitxml={xml}")
    suite(task, folder, *options)
    return folder


def test_several_processes_run_the_same_tests_and_start_each_server_once(
    whole: Path, collected: list[tuple[str, str]]
) -> None:
    results = junit.results(whole / gate.JUNIT, "runtime")
    ran = Counter((f"test_{result.check.replace(' ', '_')}", result.facts["variant"]) for result in results)
    assert ran == Counter(collected)
    stays = recorded_servers.read(whole / "stays")
    assert {stay.variant for stay in stays} >= {
        "gpt-fp32",
        "t5-fp16",
        "gpt-fp32-tp2",
        *(f"{family}-four-fp32-{way}" for family in FOUR for way in ("tp4", "tp2-pp2", "pp4", "x2", "x4")),
        "bert-fp32",
        "mt5-fp32",
    }
    first = [stay for stay in stays if not stay.within]
    assert max(Counter((stay.variant, stay.alone) for stay in first).values()) == 1
    assert len({stay.process for stay in stays}) == 3
    several = {(0, 1), (2, 3), (0, 1, 2, 3)}
    assert (
        {(0,), (1,), (2,)}
        < {stay.devices for stay in stays if not stay.alone}
        <= {(0,), (1,), (2,), *several}
    )
    assert {stay.devices for stay in stays if stay.alone} == several
    assert any(one.overlaps(other) for one, other in combinations(stays, 2))
    assert not list(crowds(recorded_servers.read(whole / "places")))


def crowds(stays: list[Stay]) -> Iterator[tuple[Stay, Stay]]:
    """Yield two stays that were on one GPU at one time, of which one should have been alone.

    A server that a test starts beside its own makes none: it is asked while that one is idle.
    """
    for one, other in combinations(stays, 2):
        shares = one.process != other.process and {*one.devices} & {*other.devices}
        if shares and (one.alone or other.alone) and one.overlaps(other):
            yield one, other


def test_a_server_that_waits_for_its_gpus_gets_ready_meanwhile(task: Job, tmp_path: Path) -> None:
    options = ("-k", "four and (tp4 or pp4) and figures", "--numprocesses=3", "--dist=loadscope")
    suite(task, tmp_path, *options, "--no-loadscope-reorder")
    ready = recorded_servers.read(tmp_path / "stays")
    assert len(ready) == 2 * len(FOUR)
    assert any(one.overlaps(other) for one, other in combinations(ready, 2))
    # Beside the one under test: one that ends, and the one that comes next.
    assert max(sum(one.start <= other.start < one.end for other in ready) for one in ready) <= 3
    assert not list(crowds(recorded_servers.read(tmp_path / "places")))


def test_where_the_driver_tells_no_process_what_reads_the_memory_is_alone(task: Job, tmp_path: Path) -> None:
    blind = replace(task, tells_processes=False, gpus=["GPU"])
    asked = "gpt-fp32 and (stop_word or leaves_no_memory) or opt-fp32 and (malformed or bad_word)"
    options: tuple[str, ...] = ("-k", f"{asked} or gpt-four and instances")
    xml = tmp_path / gate.JUNIT
    options += ("--numprocesses=3", "--dist=loadscope", "--no-loadscope-reorder", f"--junitxml={xml}")
    suite(blind, tmp_path, *options)
    results = junit.results(xml, "runtime")
    reasons = {r.detail for r in results if r.state is State.SKIP and "four" in r.facts["served"]}
    assert reasons == {"needs 2 GPUs, 1 is there", "needs 4 GPUs, 1 is there"}
    stays = recorded_servers.read(tmp_path / "stays")
    assert Counter(
        (stay.variant, stay.alone) for stay in stays if stay.variant[-3:-1] not in ("tp", "pp")
    ) == {(variant, alone): 1 for variant in ("gpt-fp32", "opt-fp32") for alone in (False, True)}
    assert not list(crowds(stays))


def test_tests_of_a_server_follow_each_other_and_the_longest_begin(collected: list[tuple[str, str]]) -> None:
    names = [name for name, _ in collected]
    first = names[0]
    assert first == "test_" + max(progress.SECONDS, key=progress.SECONDS.__getitem__)
    assert {"test_" + name for name in progress.SECONDS} <= set(names)


def test_servers_alone_on_many_gpus_come_after_those_on_few(collected: list[tuple[str, str]]) -> None:
    """One that waits for all GPUs would keep pairs of them idle."""
    counts = [
        math.prod(int(number) for number in re.findall(r"-(?:tp|pp|x)(\d)", parameters))
        for name, parameters in collected
        if re.search(r"-(?:tp|pp)\d", parameters) or name == "test_instances_use_their_gpus_evenly"
    ]
    assert counts == sorted(counts)
    assert set(counts) == {2, 4}


def test_instances_share_their_gpus_until_it_is_compared_how_busy_these_are(whole: Path) -> None:
    ways = [f"gpt-four-fp32-{way}" for way in ("x2", "x4")]
    stays = recorded_servers.read(whole / "stays")
    assert Counter((stay.variant, stay.alone) for stay in stays if stay.variant in ways) == {
        (way, alone): 1 for way in ways for alone in (False, True)
    }


def test_every_test_that_compares_the_memory_is_known_to() -> None:
    """Beside other servers such a test would see theirs, where the driver does not tell whose it is."""

    found = set()
    for file in gate.SUITE.glob("test_*.py"):
        functions = {
            each.name: each
            for each in ast.walk(ast.parse(file.read_text()))
            if isinstance(each, ast.FunctionDef)
        }
        reading = {name for name, each in functions.items() if "gpu_memory" in names(each)}
        while more := {n for n, each in functions.items() if names(each) & reading} - reading:
            reading |= more
        found |= {name for name in reading if name.startswith("test_")}
    assert found - {"test_figures"} == set(conftest.READ_MEMORY)


def names(function: ast.FunctionDef) -> set[str]:
    """Return the names and attributes that a function uses."""
    walked = list(ast.walk(function))
    used = {each.id for each in walked if isinstance(each, ast.Name)}
    return used | {each.attr for each in walked if isinstance(each, ast.Attribute)}


def test_the_rest_of_a_run_is_estimated_from_what_is_done() -> None:
    long = [f"test_a.py::test_{name}[gpt-fp32]" for name in progress.SECONDS]
    short = [f"test_b.py::test_other[{number}]" for number in range(10)]
    run = Progress([*long, *short])
    assert run.line(3) == f"0 of {len(long) + 10} tests in 3.0 s"
    for node in long:
        run.finish(node)
    share = sum(progress.SECONDS.values()) / (sum(progress.SECONDS.values()) + 10 * progress.OTHERS)
    left = 100 * (1 - share) / share
    assert run.line(100) == f"{len(long)} of {len(long) + 10} tests in 1 min 40 s, about {left:.1f} s left"
    for node in short:
        run.finish(node)
    assert run.line(110) == f"{run.total} of {run.total} tests in 1 min 50 s, about 0.0 s left"


def test_what_is_done_of_a_test_that_runs_counts() -> None:
    """The longest come first: after half of the time of a real gate 4 % of its tests had ended."""
    nodes = [
        f"test_a.py::test_malformed_requests_leave_the_server_to_the_others[{number}]" for number in "ab"
    ]
    run = Progress(nodes)
    for node in nodes:
        run.begin(node, 1.0)
    assert run.line(9.0) == "0 of 2 tests in 9.0 s, about 27 s left"
    run.finish(nodes[0])
    assert run.line(9.0) == "1 of 2 tests in 9.0 s, about 5.4 s left"
    assert run.line(60.0) == "1 of 2 tests in 1 min 00 s, about 0.0 s left"


def test_a_test_that_begins_in_whichever_process_is_noted() -> None:
    found = Reports()
    teller = conftest.Teller(cast(pytest.Config, found))
    teller.pytest_runtest_logstart("a")
    assert list(found.stash[conftest.PROGRESS].running) == ["a"]


def test_tests_that_need_more_gpus_are_no_work() -> None:
    """Those are skipped; an estimate that counted them told too long a time."""
    done, left, skipped = (f"test_a.py::test_a_killed_server_answers[{name}]" for name in "abc")
    run = Progress([done, left, skipped], [skipped])
    run.finish(done)
    assert run.line(10) == "1 of 3 tests in 10 s, about 10 s left"


def test_a_server_that_has_all_gpus_takes_more_of_the_time_than_one_beside_others(task: Job) -> None:
    """Such servers come last, one after the other: "1 min 36 s left" were 11 min on four GPUs."""
    several = "test_a.py::test_many_clients_get_the_answers_that_they_get_alone[gpt-four-fp32-{}]"
    ways = ("x2", "x4", "tp2", "tp4", "tp2-pp2")
    shares = {way: conftest._share(task, several.format(way)) for way in ways}
    assert shares == {"x2": 1 / 16, "x4": 1 / 16, "tp2": 1 / 2, "tp4": 1, "tp2-pp2": 1}
    assert conftest._share(task, "test_i.py::test_instances_use_their_gpus_evenly[gpt-four-fp32-x4]") == 1
    run = Progress([several.format(way) for way in ("x2", "tp4")], share=partial(conftest._share, task))
    run.finish(several.format("x2"))
    assert run.line(10) == "1 of 2 tests in 10 s, about 2 min 40 s left"


class Reports:
    """What pytest has, as far as the suite's plugin looks: a place for the progress, and a terminal."""

    def __init__(self) -> None:
        self.stash = {conftest.PROGRESS: Progress(["a", "b"])}
        self.lines: list[str] = []
        self.pluginmanager = self

    def get_plugin(self, name: str) -> Any:
        return self if name == "terminalreporter" else None

    def ensure_newline(self) -> None:
        pass

    def write_line(self, line: str) -> None:
        self.lines.append(line)


def test_the_log_has_the_seconds_of_slow_tests_whatever_ends_in_between() -> None:
    """As reports of several processes come; pytest's own times are those of another test then."""
    found = Reports()
    teller = conftest.Teller(cast(pytest.Config, found))
    steps = [("a", "setup", 4.0), ("b", "setup", 0.1), ("b", "call", 0.2), ("a", "call", 20.5)]
    for node, when, seconds in [*steps, ("b", "teardown", 0.0), ("a", "teardown", 0.1)]:
        report = SimpleNamespace(nodeid=node, when=when, duration=seconds)
        teller.pytest_runtest_logreport(cast(pytest.TestReport, report))
    assert found.lines == ["24.6 s: a"]


class Library:
    """NVML with two GPUs and processes on the second one; an older one lacks the newest call."""

    def __init__(self, processes: dict[int, int], lists: str = nvml.LISTS[0]) -> None:
        self.processes, self.lists = processes, lists

    def __getattr__(self, name: str) -> Any:
        if name != self.lists:
            raise AttributeError(name)
        return self._list

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, device: Any) -> int:  # noqa: N802
        device._obj.value = index + 1
        return 0 if index < 2 else 2

    def nvmlDeviceGetMemoryInfo(self, device: ctypes.c_void_p, memory: Any) -> int:  # noqa: N802
        memory._obj.used = (device.value or 0) * GIB
        return 0

    def nvmlDeviceGetUtilizationRates(self, device: ctypes.c_void_p, rates: Any) -> int:  # noqa: N802
        rates._obj.gpu = 40 + (device.value or 0)
        return 0

    def _list(self, device: ctypes.c_void_p, count: Any, found: Any) -> int:
        listed = self.processes if device.value == 2 else {}
        for place, (pid, used) in enumerate(listed.items()):
            found[place] = nvml.Process(pid, used)
        count._obj.value = len(listed)
        return 0


def test_a_server_counts_its_own_memory_where_that_is_told_and_all_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: dict[str, int | None] = {"own": 3, "all": 50}
    asked: list[int] = []

    def read(whose: str) -> Any:
        def of(container: object, device: int) -> int | None:
            asked.append(device)
            return told[whose]

        return of

    monkeypatch.setattr(gpu, "own_memory", read("own"))
    monkeypatch.setattr(gpu, "memory_used", read("all"))
    task = Job("sha256:1", Path(), {}, "cdi", ["GPU"] * 2, tells_processes=True, place=1)
    server: Any = SimpleNamespace(container=SimpleNamespace(get_wrapped_container=lambda: None))
    here, blind = (Connected(Variant("gpt"), server, t) for t in (task, replace(task, tells_processes=False)))
    assert (here.gpu_memory(), blind.gpu_memory(), asked) == (3, 50, [1, 1])
    told.update(own=None, all=None)
    assert blind.gpu_memory() == 0
    with pytest.raises(SmokeError, match="NVML does not tell the memory that gpt-fp32 has on GPU 1"):
        here.gpu_memory()
    assert Connected(Variant("gpt"), server, replace(task, style=None)).gpu_memory() == 0


@pytest.mark.parametrize("lists", nvml.LISTS)
def test_the_memory_of_own_processes_is_told_apart(lists: str) -> None:
    here, gone = os.getpid(), 2**22 + 1  # no process has a larger number (proc(5), pid_max)
    library: Any = Library({here: 5 * GIB, gone: 7 * GIB, os.getppid(): nvml.UNKNOWN}, lists)
    assert (nvml.of_all(library, 1), nvml.of_each(library, 1)) == (2 * GIB, {here: 5 * GIB, gone: 7 * GIB})
    assert nvml.busy(library, 1) == 42
    assert nvml.of_each(library, 0) == nvml.of_each(library, 9) == {}
    with pytest.raises(SystemExit, match="GPU 9: NVML ended with 2"):
        nvml.of_all(library, 9)


@pytest.mark.parametrize(
    ("listed", "told"),
    [([os.getpid()], True), ([2**22 + 1], False), ([os.getpid(), 2**22 + 1], False), ([], False)],
)
def test_a_driver_tells_processes_if_one_finds_itself_alone(listed: list[int], told: bool) -> None:
    cuda: Any = SimpleNamespace(cuInit=lambda flags: 0, cuDevicePrimaryCtxRetain=lambda context, device: 0)
    library: Any = Library(dict.fromkeys(listed, GIB))
    assert nvml.tells(library, cuda) is told
    cuda.cuInit = lambda flags: 100
    assert not nvml.tells(library, cuda)
