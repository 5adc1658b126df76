"""Other engines beside ours: their processes, turns and figures, with an engine that counts."""

import io
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.figure import Figure
from benchmarks.topics.inference import __main__ as command_line
from benchmarks.topics.inference import engine, job, measure, peers, report, server
from benchmarks.topics.inference.life import Contender, Life
from benchmarks.topics.inference.measure import FT, Compared, Session, Workload
from benchmarks.topics.inference.models.gpt import Shape
from benchmarks.topics.inference.server import Command, Place
from ftbuild.errors import HostError, SmokeError

WORK = Workload(prompts=(4,), answer=3, batches=(1, 8), runs=2, warm_ups=1)
ONE, EIGHT = (request.name for request in WORK.whole())
FIRSTS = {f"batch {batch}, 1 after 4": [0.05] for batch in (1, 8)}
SIZES = engine.Sizes(7, 8)
PROMPTS = np.zeros((2, 4), np.uint32)
# Answers as an engine's process does; `die` in its arguments: not at all; `once`: a single time.
PROGRAM = """
import json, sys
if "die" in sys.argv:
    sys.exit("no such GPU")
print(json.dumps({"version": "1.2", "settings": {"kind": "fp16"}}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps({"tokens": [list(range(asked["length"])) for _ in asked["prompts"]]}), flush=True)
    if "once" in sys.argv:
        break
"""


@dataclass
class Counting:
    """A side, and an engine, that answers every prompt with 0, 1, 2, ..."""

    name: str
    package = "pytest"
    settings: Mapping[str, str]
    prompt = None

    def answer(self, prompts: object, length: int) -> list[list[int]]:
        return [list(range(length)) for _ in prompts]  # type: ignore[attr-defined]


def contender(name: str, log: list[str], failing: str = "") -> Contender[Counting]:
    @contextmanager
    def start(_: Path) -> Iterator[Life[Counting]]:
        log.append(name)
        if failing:
            raise SmokeError(failing)
        yield Life(Counting(name, {}), 2.0, settings={"version": "1.2"})

    return Contender(name, start, may_fail=bool(failing))


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments of a program that stands for the process of an engine."""
    words: list[str] = []
    monkeypatch.setattr(peers, "command", lambda *_: [sys.executable, "-c", PROGRAM, *words])
    return words


def test_an_engine_answers_from_its_own_process_and_ends_with_the_block(
    tmp_path: Path, program: list[str]
) -> None:
    with peers.started("vLLM", tmp_path, SIZES, "cuda", tmp_path / "log") as life:
        assert life.side.answer(PROMPTS, 3) == [[0, 1, 2], [0, 1, 2]]
        assert life.settings == {"version": "1.2", "kind": "fp16"}
        assert 0 < life.ready_seconds < 60
        running = life.side._process
    assert running.poll() == 0


def test_an_engine_that_does_not_start_is_an_error_and_its_log_is_kept(
    tmp_path: Path, program: list[str]
) -> None:
    program.append("die")
    with (
        pytest.raises(SmokeError, match="vLLM has ended"),
        peers.started("vLLM", tmp_path, SIZES, "cuda", tmp_path / "log"),
    ):
        pass
    assert "no such GPU" in (tmp_path / "log").read_text()


def test_an_engine_that_ends_meanwhile_is_an_error(tmp_path: Path, program: list[str]) -> None:
    program.append("once")
    with peers.started("vLLM", tmp_path, SIZES, "cuda", tmp_path / "log") as life:
        life.side.answer(PROMPTS, 3)
        with pytest.raises(SmokeError, match="vLLM has ended"):
            life.side.answer(PROMPTS, 3)


def test_an_engine_that_never_gets_ready_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "READY_SECONDS", 0.2)
    monkeypatch.setattr(peers, "command", lambda *_: ["sleep", "600"])
    with (
        pytest.raises(SmokeError, match="has ended"),
        peers.started("vLLM", tmp_path, SIZES, "cuda", tmp_path / "log"),
    ):
        pass


def test_the_program_of_an_engine_says_what_it_is_and_answers_each_line() -> None:
    requests = io.StringIO("".join(json.dumps({"prompts": [[1]], "length": n}) + "\n" for n in (1, 2)))
    replies = io.StringIO()
    engine.serve(Counting("x", {"a": "b"}), requests, replies)  # type: ignore[arg-type]
    first, *answers = map(json.loads, replies.getvalue().splitlines())
    assert first == {"version": pytest.__version__, "settings": {"a": "b"}}
    assert answers == [{"tokens": [[0]]}, {"tokens": [[0, 1]]}]


def test_what_an_engine_prints_is_no_reply(tmp_path: Path) -> None:
    """Engines, and what they start, write to the standard output of their process."""
    script = f"""
import os, sys
from benchmarks.topics.inference import engine
class Loud:
    package, settings = "pytest", {{}}
    def __init__(self, *_):
        print("loading")
        os.system("echo child")
engine.ENGINES = {{"loud": Loud}}
sys.argv = ["engine", "loud", {str(tmp_path)!r}]
engine.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=peers.ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = done.stdout.splitlines()
    assert json.loads(line) == {"version": pytest.__version__, "settings": {}}
    assert {"loading", "child"} <= set(done.stderr.split())


def test_contenders_are_started_in_turn_and_the_first_one_changes(tmp_path: Path) -> None:
    log: list[str] = []
    sessions, failures = measure.vary([contender("a", log), contender("b", log)], WORK, 96, tmp_path, 3)
    assert log == ["a", "b", "b", "a", "a", "b"]
    assert failures == {}
    assert [session.variant for session in sessions] == log
    assert all(session.settings == {"version": "1.2"} for session in sessions)


def test_an_engine_that_fails_is_left_out_and_named(tmp_path: Path) -> None:
    log: list[str] = []
    both = [contender("a", log), contender("b", log, "no wheel for this GPU")]
    sessions, failures = measure.vary(both, WORK, 96, tmp_path, 3)
    assert log == ["a", "b", "a", "a"]
    assert failures == {"b": "SmokeError: no wheel for this GPU"}
    assert [session.variant for session in sessions] == ["a", "a", "a"]


def taking(seconds: float) -> measure.Times:
    return {ONE: [seconds], EIGHT: [seconds], **FIRSTS}


def test_an_interrupted_measurement_keeps_what_it_has(tmp_path: Path) -> None:
    @contextmanager
    def interrupted(_: Path) -> Iterator[Life[Counting]]:
        raise KeyboardInterrupt
        yield

    log: list[str] = []
    both = [contender("a", log), Contender("b", interrupted)]
    sessions, failures = measure.vary(both, WORK, 96, tmp_path, 3)
    assert ([session.variant for session in sessions], failures) == (["a"], {})


def measured(theirs: list[float], failures: Mapping[str, str] | None = None) -> report.Data:
    """Return data of three starts of ours that take 0.1, 0.2 and 0.25 s, and of one engine."""
    times = {FT: taking(0.1)}
    answers = {FT: {ONE: [[1, 2, 3]], EIGHT: [[1, 2, 3]] * 8}}
    ours = [Session("shipped", 4, "0", taking(seconds)) for seconds in (0.2, 0.25)]
    one = {ONE: [[1, 2, 9]], EIGHT: [[1, 9, 9]] * 8}
    sessions = [Session("vLLM", 9, "", taking(seconds), {"version": "1.2"}, one) for seconds in theirs]
    described = job.Job(
        Command(Place(Path("/nowhere"), server.INSIDE), ()),
        "",
        Path(),
        (server.SHIPPED,),
        Shape(),
        WORK,
        peers=("vLLM",),
    )
    first = Session("shipped", 8, "0", times[FT])
    compared = Compared(times, answers, {})
    found = job.Found(described, {"gpu": "H100"}, first, compared, [*ours, *sessions], failures or {})
    return report.data(found)


def one(of: report.Data, what: str) -> Figure:
    (figure,) = (figure for figure in report.figures(of) if figure.what.endswith(what))
    return figure


def test_the_ratio_to_an_engine_is_over_all_starts_of_both_and_judged_by_its_worst() -> None:
    of = measured([0.3, 0.4, 0.24])
    ratio = one(of, f"{ONE}: tokens/s of {FT} / vLLM")
    assert [ratio.value, ratio.least, ratio.most] == pytest.approx([0.3 / 0.2, 0.24 / 0.25, 0.4 / 0.1])
    assert not ratio.met
    assert "vLLM 1.2, 3 starts" in ratio.how
    assert one(measured([0.3, 0.4, 0.26]), f"{ONE}: tokens/s of {FT} / vLLM").met


def test_the_table_has_rate_first_token_and_equal_tokens_of_an_engine() -> None:
    titles, rows = report.table(measured([0.3, 0.4, 0.25]))
    assert titles == ("prompt", "batch", f"{FT}, 3 starts", "vLLM 1.2, 3 starts")
    assert rows == [
        ("4", "1", "15 (12 to 30); 50 ms", "10 (7.5 to 12); 50 ms; 2 equal"),
        ("4", "8", "120 (96 to 240); 50 ms", "80 (60 to 96); 50 ms; 1 equal"),
    ]


def test_the_answers_of_an_engine_are_compared_and_not_kept() -> None:
    of = measured([0.3])
    assert of["equal_tokens"]["vLLM"] == {ONE: [2], EIGHT: [1] * 8}
    assert all(not session["answers"] for session in of["sessions"])


def test_an_engine_has_a_bar_unless_it_failed() -> None:
    (chart,) = report.charts(measured([0.3]))
    assert list(chart.series) == [FT, "vLLM"]
    failed = measured([], {"vLLM": "no wheel"})
    (chart,) = report.charts(failed)
    assert list(chart.series) == [FT]
    assert failed["failures"] == {"vLLM": "no wheel"}
    assert not [figure for figure in report.figures(failed) if "vLLM" in figure.what]
    assert all("vLLM" not in title for title in report.table(failed)[0])


def test_what_was_not_started_before_the_time_was_up_is_left_out() -> None:
    of = measured([])
    assert report.table(of)[0] == ("prompt", "batch", f"{FT}, 3 starts")
    assert not [figure for figure in report.figures(of) if "vLLM" in figure.what]
    alone = {**of, "variants": {"shipped": {}, "nvtx": {}}}
    assert not [figure for figure in report.figures(alone) if "nvtx" in figure.what]
    assert [chart.name for chart in report.charts(alone)] == ["inference-gpt-4"]


def test_nothing_is_started_when_the_time_is_up(tmp_path: Path) -> None:
    log: list[str] = []
    both = [contender("a", log), contender("b", log)]
    sessions, failures = measure.vary(both, WORK, 96, tmp_path, 3, until=time.monotonic() - 1)
    assert (sessions, failures, log) == ([], {}, [])
    sessions, _ = measure.vary(both, WORK, 96, tmp_path, 1, until=time.monotonic() + 60)
    assert log == ["a", "b"]


def test_the_figures_of_an_engine_follow_from_what_the_record_holds() -> None:
    of = measured([0.3, 0.4])
    again = json.loads(json.dumps(of))
    assert list(report.figures(again)) == list(report.figures(of))
    assert report.charts(again) == report.charts(of)


def test_an_engine_that_is_not_installed_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--image", "x", "--template", str(tmp_path / "config.pbtxt"), "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["inference", *words, "--peer", "vLLM", "--peer", "vLLM"])
    assert command_line.main() == HostError.exit_code
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "lacks" in line]
    assert line.count("vllm") == 1
    assert not list(tmp_path.iterdir())
