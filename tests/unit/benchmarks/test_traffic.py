"""The traffic benchmark without a GPU: traces, arrivals, clients, figures, and a batcher that counts."""

import argparse
import json
import math
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.harness import catalogue
from benchmarks.harness.figure import Figure, Machine, Result
from benchmarks.topics import traffic
from benchmarks.topics.inference import server
from benchmarks.topics.inference.life import Contender, Life
from benchmarks.topics.inference.models import FAMILIES
from benchmarks.topics.inference.server import Place
from benchmarks.topics.traffic import __main__ as command_line
from benchmarks.topics.traffic import batcher, drive, measure, peers, record, report, trace
from benchmarks.topics.traffic.batcher import Batcher
from benchmarks.topics.traffic.drive import Outcome
from benchmarks.topics.traffic.measure import Plan
from benchmarks.topics.traffic.peers import Setting
from benchmarks.topics.traffic.sides import Answer, Completions, Side
from benchmarks.topics.traffic.trace import Load, Request
from ftbuild.errors import ConfigError, SmokeError

MANY = Load("mixed", 4000, 64)
BELOW = 90
SHORT = 12
FEW = Plan((Load("mixed", 20, 4),), BELOW, check=5, longest=SHORT)


def counted(prompt: Sequence[int], length: int) -> list[int]:
    """What the stand-in answers: the prompt's sum, and on from there."""
    return [sum(prompt) + number for number in range(length)]


class Counter:
    """An engine that counts, a row a step; it notes its batches, and takes `seconds` for a step."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.batches: list[int] = []

    def compute(
        self, prompts: Sequence[Sequence[int]], lengths: Sequence[int], told: Callable[[int, int], None]
    ) -> None:
        self.batches.append(len(prompts))
        rows = [counted(*pair) for pair in zip(prompts, lengths, strict=True)]
        for step in range(max(lengths)):
            time.sleep(self.seconds)
            for number, row in enumerate(rows):
                if step < len(row):
                    told(number, row[step])


@contextmanager
def serving(counter: Counter, rows: int = 64) -> Iterator[str]:
    """Yield the address of a server of OpenAI's completions that counts."""
    batching = Batcher(counter.compute, rows)
    running = batcher.server(batching, 0)
    for target in (batching.serve, running.serve_forever):
        threading.Thread(target=target, daemon=True).start()
    try:
        yield f"127.0.0.1:{running.server_address[1]}"
    finally:
        running.shutdown()
        running.server_close()


@pytest.fixture
def counting() -> Iterator[Completions]:
    with serving(Counter()) as address:
        yield Completions(address)


# Traces


def test_a_trace_is_the_same_whenever_it_is_drawn_and_another_for_another_load() -> None:
    assert trace.drawn(MANY) == trace.drawn(MANY)
    other = trace.drawn(replace(MANY, clients=32))
    assert [each.prompt for each in other] != [each.prompt for each in trace.drawn(MANY)]


def test_the_trace_of_a_record_is_the_one_of_today() -> None:
    """Records of several machines and Pythons are compared: these numbers must not depend on either."""
    assert [(each.prompt, each.answer) for each in trace.drawn(Load("mixed", 4, 8))] == [
        (126, 19),
        (200, 504),
        (196, 454),
        (65, 399),
    ]
    first, *_ = trace.drawn(Load("mixed", 4, 8))
    assert trace.tokens(Load("mixed", 4, 8), first, 50400)[:3] == [18752, 22398, 33376]


def test_prompts_are_log_normal_around_their_median_and_clipped() -> None:
    prompts = [each.prompt for each in trace.drawn(MANY)]
    assert 112 < statistics.median(prompts) < 128
    assert min(prompts) >= trace.PROMPT_LEAST
    assert max(prompts) <= trace.PROMPT_MAX
    assert 0.75 < statistics.stdev(map(math.log, prompts)) < 0.85


def test_answers_of_the_mixed_trace_are_of_any_length_alike() -> None:
    answers = [each.answer for each in trace.drawn(MANY)]
    assert (min(answers), max(answers)) == (trace.LEAST, trace.MAX)
    assert 255 < statistics.mean(answers) < 273
    quarters = [sum(answer <= 16 + 124 * part for answer in answers) / len(answers) for part in (1, 2, 3)]
    assert quarters == pytest.approx([0.25, 0.5, 0.75], abs=0.03)


def test_answers_of_the_equal_trace_are_equal() -> None:
    assert {each.answer for each in trace.drawn(replace(MANY, mix="equal"))} == {128}


def test_half_of_the_answers_are_short_ones_among_long_ones() -> None:
    answers = [each.answer for each in trace.drawn(replace(MANY, mix="short"))]
    short = [answer for answer in answers if answer <= trace.SHORT]
    assert 0.47 < len(short) / len(answers) < 0.53
    assert min(answer for answer in answers if answer > trace.SHORT) >= 256


def test_arrivals_are_a_poisson_process() -> None:
    """The gaps are exponential: their mean is one over the rate, as is their deviation."""
    at = [each.at for each in trace.drawn(Load("mixed", 8000, rate=5.0))]
    gaps = [later - earlier for earlier, later in pairwise(at)]
    assert at[0] == 0
    assert statistics.mean(gaps) == pytest.approx(0.2, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(0.2, rel=0.05)
    assert sum(gap > 0.2 for gap in gaps) / len(gaps) == pytest.approx(math.exp(-1), abs=0.02)


def test_nobody_waits_for_an_arrival_in_a_closed_loop() -> None:
    assert {each.at for each in trace.drawn(MANY)} == {0.0}


def test_a_prompt_has_tokens_of_the_vocabulary_and_is_no_other_ones() -> None:
    load, few = Load("mixed", 50, 2), trace.drawn(Load("mixed", 50, 2))
    prompts = [tuple(trace.tokens(load, each, BELOW)) for each in few]
    assert [len(prompt) for prompt in prompts] == [each.prompt for each in few]
    assert all(0 <= token < BELOW for prompt in prompts for token in prompt)
    assert len({prompt[:8] for prompt in prompts}) == len(prompts)


@pytest.mark.parametrize(
    ("answer", "band", "name"),
    [
        (1, 32, "answers of up to 32"),
        (32, 32, "answers of up to 32"),
        (33, 128, "answers of 33 to 128"),
        (128, 128, "answers of 33 to 128"),
        (129, 512, "answers of 129 to 512"),
        (513, 512, "answers of 129 to 512"),
    ],
)
def test_answers_are_told_apart_by_length(answer: int, band: int, name: str) -> None:
    assert trace.band(answer) == band
    assert trace.band_name(band) == name


def test_a_sample_is_spread_over_the_trace() -> None:
    few = trace.drawn(Load("mixed", 10, 2))
    assert [each.number for each in trace.sample(5, few)] == [0, 2, 4, 6, 8]
    assert [each.number for each in trace.sample(3, few)] == [0, 3, 6]
    assert trace.sample(11, few) == few
    assert trace.sample(0, few) == []


def test_the_warm_up_is_a_request_for_each_client_and_shares_no_prompt_with_the_load() -> None:
    plan = Plan((Load("mixed", 20, 4), Load("mixed", 20, rate=2.0), Load("short", 20, 16)), BELOW)
    warm = plan.warm_up
    assert (warm.clients, warm.requests) == (16, 16)
    like = replace(warm, warm_up=False)
    assert trace.tokens(warm, Request(0, 20, 1), BELOW) != trace.tokens(like, Request(0, 20, 1), BELOW)
    assert (plan.clients, replace(plan, loads=plan.loads[::2]).clients) == (0, 16)


# Clients


def answered(found: Sequence[Outcome], load: Load, requests: Sequence[Request]) -> bool:
    """Whether each request has its own answer, in the order of the trace."""
    wanted = [tuple(counted(trace.tokens(load, each, BELOW), each.answer)) for each in requests]
    return [outcome.tokens for outcome in found] == wanted and not any(each.failure for each in found)


@pytest.mark.parametrize(
    "load", [Load("mixed", 30, 5), Load("short", 30, rate=200.0)], ids=["closed", "open"]
)
def test_every_request_is_sent_once_and_gets_its_own_answer(load: Load, counting: Completions) -> None:
    requests = replace(FEW, loads=(load,)).requests(load)
    found = drive.run(counting, load, requests, BELOW)
    assert [outcome.number for outcome in found] == list(range(30))
    assert answered(found, load, requests)
    assert min(outcome.sent for outcome in found) == 0
    assert all(outcome.first is None and outcome.done > outcome.sent for outcome in found)


def test_a_client_of_a_closed_loop_has_one_request_at_a_time() -> None:
    load = Load("equal", 12, 3)
    with serving(Counter(0.002)) as address:
        found = drive.run(Completions(address), load, replace(FEW, loads=(load,)).requests(load), BELOW)
    events = sorted([(each.sent, 1) for each in found] + [(each.done, -1) for each in found])
    running, most = 0, 0
    for _, change in events:
        running += change
        most = max(most, running)
    assert most == 3


def test_an_open_loop_waits_for_no_answer_and_counts_from_the_arrival() -> None:
    """With one row at a time the later ones wait: that is in their latency."""
    load = Load("equal", 10, rate=1000.0)
    requests = replace(FEW, loads=(load,)).requests(load)
    with serving(Counter(0.005), rows=1) as address:
        found = drive.run(Completions(address), load, requests, BELOW)
    assert [outcome.sent for outcome in found] == pytest.approx([each.at for each in requests], abs=1e-6)
    assert max(outcome.sent for outcome in found) < min(outcome.done for outcome in found)
    assert max(outcome.done for outcome in found) >= 10 * SHORT * 0.005


def test_a_streamed_answer_has_the_time_of_its_first_token() -> None:
    load = Load("equal", 4, 2)
    requests = replace(FEW, loads=(load,)).requests(load)
    with serving(Counter(0.01)) as address:
        found = drive.run(Completions(address, streamed=True), load, requests, BELOW)
    assert answered(found, load, requests)
    for outcome in found:
        assert outcome.first is not None
        assert outcome.sent < outcome.first < outcome.done - 0.05


def test_streams_of_many_clients_are_divided_among_processes() -> None:
    load = Load("mixed", 40, drive.STREAMS_OF_A_PROCESS + 4)
    requests = replace(FEW, loads=(load,)).requests(load)
    with serving(Counter(0.001)) as address:
        found = drive.run(Completions(address, streamed=True), load, requests, BELOW)
    assert answered(found, load, requests)
    assert min(outcome.sent for outcome in found) == 0


def test_a_request_without_an_answer_is_an_outcome_with_its_reason() -> None:
    load = Load("mixed", 2, 1)
    found = drive.run(Completions("127.0.0.1:9"), load, FEW.requests(load), BELOW)
    assert all("no answer" in outcome.failure and not outcome.tokens for outcome in found)


def test_a_server_that_does_not_say_its_tokens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher, "_choice", lambda _: b'{"choices": [{"text": "a b c"}]}')
    load = Load("mixed", 2, 1)
    with serving(Counter()) as address:
        for streamed in (False, True):
            found = drive.run(Completions(address, streamed), load, FEW.requests(load), BELOW)
            assert all("an answer has 0 tokens" in outcome.failure for outcome in found)


def test_an_answer_with_too_few_tokens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would look fast."""
    monkeypatch.setattr(
        batcher, "_choice", lambda tokens: json.dumps({"choices": [{"token_ids": tokens[1:]}]}).encode()
    )
    load = Load("mixed", 2, 1)
    with serving(Counter()) as address:
        found = drive.run(Completions(address), load, FEW.requests(load), BELOW)
    assert all("which would look fast" in outcome.failure for outcome in found)


# The batcher


def test_a_batch_is_what_waits_and_no_more_than_its_rows() -> None:
    counter = Counter()
    batching = Batcher(counter.compute, rows=4)
    asked = [batching.put([number], 2) for number in range(6)]
    assert [batching.compute_one(), batching.compute_one()] == [4, 2]
    assert [list(each.each()) for each in asked] == [[number, number + 1] for number in range(6)]


def test_a_short_answer_is_sent_before_the_batch_ends() -> None:
    with serving(Counter(0.02)) as address:
        load = Load("mixed", 2, 2)
        requests = [Request(0, 3, 2), Request(1, 3, 20)]
        short, long = drive.run(Completions(address), load, requests, BELOW)
    assert short.done < 0.5 * long.done


def test_the_batcher_says_that_it_is_ready(counting: Completions) -> None:
    with closing(HTTPConnection(counting.address)) as connection:
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200


# Sessions


@contextmanager
def counting_life(_: Path, *, counter: Counter | None = None) -> Iterator[Life[Side]]:
    with serving(counter or Counter()) as address:
        yield Life(Completions(address), 2.0, settings={"version": "1.2"})


def test_every_start_gets_every_load_and_is_kept_after_each(tmp_path: Path) -> None:
    plan = replace(FEW, loads=(Load("mixed", 6, 2), Load("short", 6, 3)))
    kept: list[list[tuple[str, int]]] = []
    contenders = [Contender("ours", counting_life), Contender("vLLM", counting_life, may_fail=True)]
    sessions, failures = measure.measure(
        contenders,
        plan,
        tmp_path,
        2,
        None,
        lambda found: kept.append([(each.variant, len(each.loads)) for each in found]),
    )
    assert [session.variant for session in sessions] == ["ours", "vLLM", "vLLM", "ours"]
    assert all(list(session.loads) == [load.name for load in plan.loads] for session in sessions)
    assert kept[:3] == [[("ours", 1)], [("ours", 2)], [("ours", 2), ("vLLM", 1)]]
    assert failures == {}
    for session in sessions:
        for seen in session.loads.values():
            assert (seen.checked, seen.unlike, seen.failures, seen.first) == (5, 0, {}, [])


class Forgetful(Counter):
    """It answers otherwise when others are computed in the same batch."""

    def compute(
        self, prompts: Sequence[Sequence[int]], lengths: Sequence[int], told: Callable[[int, int], None]
    ) -> None:
        more = len(prompts) - 1
        super().compute([[*prompt, more] for prompt in prompts], lengths, told)


def test_an_answer_that_depends_on_the_load_is_counted(tmp_path: Path) -> None:
    """The same requests alone are the measure: half of them came together with another one."""
    start = partial(counting_life, counter=Forgetful(0.002))
    plan = replace(FEW, loads=(Load("equal", 8, 8),), check=8)
    (session,), _ = measure.measure([Contender("ours", start)], plan, tmp_path, 1, None, lambda _: None)
    (seen,) = session.loads.values()
    assert seen.checked == 8
    assert seen.unlike >= 4


def test_no_load_is_begun_when_the_time_is_up(tmp_path: Path) -> None:
    plan = replace(FEW, loads=(Load("mixed", 6, 2), Load("short", 6, 3)))
    start = partial(counting_life, counter=Counter(0.05))
    until = time.monotonic() + 0.3
    sessions, _ = measure.measure([Contender("ours", start)], plan, tmp_path, 3, until, lambda _: None)
    assert sum(len(session.loads) for session in sessions) < 2


def test_what_has_no_answer_is_unlike() -> None:
    under_load = [Outcome(0, 0, None, 1, (1, 2)), Outcome(1, 0, None, 1, failure="broken")]
    alone = [Outcome(0, 0, None, 1, (1, 2)), Outcome(1, 0, None, 1, (3,))]
    assert measure.unlike(under_load, alone) == 1
    assert measure.unlike(under_load, [Outcome(0, 0, None, 1, failure="broken")]) == 1


def test_a_server_that_answers_nothing_is_an_error_with_its_reason(tmp_path: Path) -> None:
    @contextmanager
    def start(_: Path) -> Iterator[Life[Side]]:
        yield Life(Completions("127.0.0.1:9"), 1.0)

    with pytest.raises(SmokeError, match="no request is answered: no answer"):
        measure.measure([Contender("ours", start)], FEW, tmp_path, 1, None, lambda _: None)


# Figures


def seen(taken: Sequence[float], first: Sequence[float] = (), **more: object) -> dict[str, object]:
    """What a side did with requests that were all sent at once."""
    times = {"sent": [0.0] * len(taken), "first": list(first), "done": list(taken)}
    return {**times, "failures": {}, "checked": 0, "unlike": 0, **more}


def session(variant: str, loads: dict[str, dict[str, object]], version: str = "") -> dict[str, object]:
    settings = {"version": version} if version else {}
    return {"variant": variant, "ready_seconds": 1.0, "cores": "", "settings": settings, "loads": loads}


ANSWERS = [20, 30, 100, 350]


def measured(
    sessions: Sequence[dict[str, object]], mix: str = "mixed", clients: int = 32, **more: object
) -> report.Data:
    drawn = {
        "mix": mix,
        "requests": 4,
        "clients": clients,
        "rate": 0.0,
        "prompts": [9] * 4,
        "answers": ANSWERS,
    }
    return {
        "gpu": "H100",
        "model": "GPT-J",
        "family": "gptj",
        "parameters": 6_050_000_000,
        "data_type": "fp16",
        "streamed": False,
        "ours": "shipped",
        "failures": {},
        "traces": {"load": drawn},
        "sessions": list(sessions),
        **more,
    }


OURS = [session("shipped", {"load": seen([1.0, 2.0, 3.0, seconds])}) for seconds in (4.0, 5.0, 10.0)]
THEIRS = [session("vLLM", {"load": seen([0.5, 0.5, 1.0, seconds])}, "0.26") for seconds in (2.5, 2.0)]


def one(of: report.Data, what: str) -> Figure:
    (found,) = (figure for figure in report.figures(of) if figure.what.endswith(what))
    return found


def test_the_rate_is_all_tokens_by_the_time_from_the_first_request_to_the_last_answer() -> None:
    of = measured(OURS)
    assert one(of, ": tokens/s").value == 500 / 5
    late = {**seen([2.0, 3.0, 4.0, 12.0]), "sent": [2.0, 2.0, 3.0, 4.0]}
    assert report.rate(late, of["traces"]["load"]) == 500 / 10


def test_a_request_without_an_answer_counts_nowhere() -> None:
    """As in a record, the number of a request is text."""
    of = measured([])["traces"]["load"]
    failed = seen([1.0, 2.0, 3.0, 4.0], failures={"3": "broken"})
    assert report.rate(failed, of) == 150 / 4
    assert report.latencies(failed, of) == [1.0, 2.0, 3.0]
    assert report.latencies(failed, of, 512) == []


def test_latencies_are_told_apart_by_the_length_of_the_answer() -> None:
    of = measured([])["traces"]["load"]
    taken = seen([1.0, 2.0, 3.0, 4.0], first=[0.1, 0.2, 0.3, 0.4])
    assert [report.latencies(taken, of, band) for band in trace.BANDS] == [[1.0, 2.0], [3.0], [4.0]]
    assert report.first_tokens(taken, of) == [0.1, 0.2, 0.3, 0.4]
    assert report.first_tokens(seen([1.0] * 4), of) == []


def test_the_ratio_to_vllm_is_judged_by_our_slowest_start_against_its_fastest() -> None:
    ratio = one(measured([*OURS, *THEIRS]), "tokens/s of shipped / vLLM")
    assert [ratio.value, ratio.least, ratio.most] == pytest.approx([100 / 225, 50 / 250, 125 / 200])
    assert (ratio.goal, ratio.met) == (1.0, False)
    assert "vLLM 0.26, 2 starts" in ratio.how
    fast = [session("shipped", {"load": seen([1.0, 1.0, 1.0, 2.0])})]
    assert one(measured([*fast, *THEIRS]), "tokens/s of shipped / vLLM").met


def test_of_ctranslate2_only_the_family_that_vllm_lacks_has_a_goal() -> None:
    theirs = [session("CTranslate2", {"load": seen([1.0, 1.0, 1.0, 8.0])}, "4.8")]
    assert one(measured([*OURS, *theirs]), "/ CTranslate2").goal is None
    assert one(measured([*OURS, *theirs], family="t5"), "/ CTranslate2").goal == 2.0


@pytest.mark.parametrize(("clients", "goal"), [(64, 1.0), (32, None)])
def test_short_answers_among_long_ones_have_a_goal_under_64_clients(clients: int, goal: float | None) -> None:
    of = measured(OURS, "short", clients)
    slow = one(of, "answers of up to 32, 99th percentile")
    assert (slow.value, slow.goal) == (2.0, goal)
    assert slow.met is (None if goal is None else False)


def test_answers_unlike_those_alone_are_a_figure_with_a_goal_in_fp32() -> None:
    loads = [session("shipped", {"load": seen([1.0] * 4, checked=3, unlike=count)}) for count in (0, 1)]
    exact = one(measured(loads, data_type="fp32"), "answers unlike those alone, of 6")
    assert (exact.value, exact.met) == (1, False)
    assert one(measured(loads), "answers unlike those alone, of 6").met is None
    assert not [each for each in report.figures(measured(OURS)) if "unlike" in each.what]


def test_the_table_has_a_row_for_every_load_and_side() -> None:
    streamed = session("shipped", {"load": seen([1.0, 2.0, 3.0, 5.0], [0.1, 0.2, 0.3, 0.4], checked=4)})
    failed = session("vLLM", {"load": seen([0.5, 0.5, 1.0, 2.0], failures={"0": "broken"})}, "0.26")
    titles, rows = report.table(measured([streamed, failed]))
    assert rows == [
        ("load", "shipped, 1 start", "100 (100 to 100)", "2", "5", "2", "3", "5", "0.2, 0.4", "0 of 4", "0"),
        ("load", "vLLM 0.26, 1 start", "240 (240 to 240)", "1", "2", "0.5", "1", "2", "", "", "1"),
    ]
    assert titles[5:8] == tuple(f"{trace.band_name(most)}, p99 s" for most in trace.BANDS)


def test_a_chart_has_the_sides_that_answered_every_load() -> None:
    rates, slow = report.charts(measured([*OURS, *THEIRS]))
    assert (rates.name, slow.name) == ("traffic-gptj-rate", "traffic-gptj-slow")
    assert rates.series == {"shipped": (100.0,), "vLLM": (225.0,)}
    assert slow.series == {"shipped": (2.0, 3.0, 5.0), "vLLM": (0.5, 1.0, 2.25)}
    assert report.charts(measured([])) == []


def test_several_rates_of_arrival_are_a_curve() -> None:
    of = measured([])
    loads = {f"load {rate}": {**of["traces"]["load"], "rate": rate, "clients": 0} for rate in (4.0, 2.0)}
    each = {"load 4.0": seen([9.0] * 4), "load 2.0": seen([1.0] * 4)}
    *_, curve = report.charts({**of, "traces": loads, "sessions": [session("shipped", each)]})
    assert curve.series == {"shipped": ((2.0, 1.0), (4.0, 9.0))}


# Records


def result(of: report.Data) -> Result:
    machine = Machine("a processor", 2, 2**30, "Linux", 0.5)
    empty = Result(traffic.NAME, "real", (), machine, "2026-11-26T00:00:00+00:00")
    return record.filled(empty, of)


def test_the_figures_of_a_record_follow_from_what_it_holds(tmp_path: Path) -> None:
    written = result(measured([*OURS, *THEIRS]))
    again = Result.read(written.write(tmp_path))
    assert written.file == "traffic-gptj-real.json"
    assert catalogue.recomputed(again) == written
    assert "GPT-J of 6.05 billion parameters, fp16, whole answers, on one H100" in catalogue.details(again)


def test_later_starts_are_added_to_a_record() -> None:
    shared: dict[str, object] = {"shape": {}, "limits": {}, "config": {}}
    earlier = {**measured(OURS), **shared}
    later = {**measured(THEIRS), **shared, "failures": {"CTranslate2": "no wheel"}}
    both = record.together(earlier, later, Path("record"))
    assert [each["variant"] for each in both["sessions"]] == ["shipped"] * 3 + ["vLLM"] * 2
    assert both["failures"] == {"CTranslate2": "no wheel"}
    assert one(both, "tokens/s of shipped / vLLM").value == pytest.approx(100 / 225)


@pytest.mark.parametrize("name", ["family", "data_type", "gpu", "gpus", "instances", "streamed", "config"])
def test_starts_of_another_measurement_are_not_added(name: str) -> None:
    earlier = {**measured(OURS), "shape": {}, "limits": {}, "config": {}}
    with pytest.raises(ConfigError, match="the record is of another"):
        record.together(earlier, {**earlier, name: "another"}, Path("record"))


# Other engines


def test_a_peer_is_started_as_a_server_and_ended_with_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = f"import sys; from {__name__} import stand_in; stand_in(int(sys.argv[1]))"
    command = lambda checkpoint, wanted, port: [sys.executable, "-c", program, str(port)]  # noqa: E731
    monkeypatch.setitem(peers.COMMANDS, "vLLM", command)
    monkeypatch.setattr(peers, "version", lambda package: f"{package} 1.2")
    with peers.started("vLLM", tmp_path, Setting(100, 4), tmp_path / "log") as life:
        connection = life.side.connect()
        assert connection.ask([1, 2], 3) == Answer((3, 4, 5))
        connection.close()
        assert life.settings["version"] == "vllm 1.2"
        assert life.ready_seconds > 0
    with closing(life.side.connect()) as late, pytest.raises(SmokeError, match="no answer"):
        late.ask([1], 1)


def stand_in(port: int) -> None:
    """Serve until the process ends."""
    batching = Batcher(Counter().compute, 4)
    threading.Thread(target=batching.serve, daemon=True).start()
    batcher.server(batching, port).serve_forever()


def test_a_peer_that_does_not_start_is_an_error_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = lambda *_: [sys.executable, "-c", "import sys; sys.exit('error: no such GPU')"]  # noqa: E731
    monkeypatch.setitem(peers.COMMANDS, "vLLM", command)
    with (
        pytest.raises(SmokeError, match="no such GPU"),
        peers.started("vLLM", tmp_path, Setting(100, 4), tmp_path / "log"),
    ):
        pass


def test_peers_are_told_data_type_lengths_and_clients() -> None:
    wanted = Setting(1412, 64, "fp32", "cuda")
    theirs = peers.COMMANDS["vLLM"](Path("/checkpoint"), wanted, 8000)
    assert {"--dtype=float32", "--max-model-len=1412", "--max-num-seqs=64", "--port=8000"} <= set(theirs)
    other = peers.COMMANDS["CTranslate2"](Path("/checkpoint"), wanted, 8000)
    assert {"/checkpoint", "--rows=64", "--number=float32", "--device=cuda"} <= set(other)
    unknown = peers.COMMANDS["vLLM"](Path("/checkpoint"), replace(wanted, clients=0), 8000)
    assert not [word for word in unknown if "max-num-seqs" in word]


# Command line


def options(tmp_path: Path, *more: str) -> argparse.Namespace:
    (tmp_path / "config.pbtxt").touch()
    words = ["--image", "x", "--template", str(tmp_path / "config.pbtxt"), "--out", str(tmp_path / "out")]
    return command_line.parser().parse_args([*words, *more])


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_spread_over_gpus_that_can_share_it(family: str, tmp_path: Path) -> None:
    of = ("--family", family, "--heads", "8", "--longest", "50")
    assert command_line.described(options(tmp_path, *of)).gpus == 1
    job = command_line.described(options(tmp_path, *of, "--gpus", "4", "--instances", "2"))
    assert (job.gpus, job.instances) == (4, 2)
    assert [each.environment["CUDA_VISIBLE_DEVICES"] for each in job.variants] == ["0,1,2,3,4,5,6,7"]
    with pytest.raises(ConfigError, match="3 GPUs cannot share 8 heads"):
        command_line.described(options(tmp_path, *of, "--gpus", "3"))


def test_loads_are_named_on_the_command_line(tmp_path: Path) -> None:
    closed = ("--closed", "mixed:32:256", "--closed", "short:64:384", "--open", "equal:2.5:100")
    asked = command_line.described(options(tmp_path, *closed))
    assert asked.plan.loads == (Load("mixed", 256, 32), Load("short", 384, 64), Load("equal", 100, rate=2.5))
    assert command_line.described(options(tmp_path)).plan.loads == command_line.LOADS


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--closed", "mixed:32"), "is not MIX:CLIENTS:REQUESTS"),
        (("--closed", "long:32:256"), "one of mixed, equal, short"),
        (("--closed", "mixed:0:256"), "must be a number from 1"),
        (("--open", "mixed:0:256"), "a number of requests a second"),
        (("--open", "mixed:inf:256"), "a number of requests a second"),
        (("--open", "mixed:nan:256"), "a number of requests a second"),
        (("--parameter", "x"), "is not NAME=VALUE"),
        (("--check", "-1"), "must be a number from 0"),
        (("--queue-ms", "2.5"), "must be a number from 0"),
    ],
)
def test_a_load_that_is_none_is_refused(
    words: tuple[str, ...], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options(tmp_path, *words)
    assert complaint in capsys.readouterr().err


def test_answers_are_compared_in_fp32_unless_another_number_is_given(tmp_path: Path) -> None:
    def checked(*words: str) -> int:
        return command_line.described(options(tmp_path, *words)).plan.check

    assert [checked(), checked("--data-type", "fp32"), checked("--check", "7")] == [0, 32, 7]
    assert checked("--data-type", "fp32", "--check", "0") == 0


def test_requests_that_the_model_does_not_take_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tokens, of which the model takes 256") as refused:
        command_line.described(options(tmp_path, "--positions", "256"))
    assert "--longest 128" in str(refused.value.hint)
    fitting = options(tmp_path, "--positions", "256", "--longest", "128")
    assert command_line.described(fitting).plan.most_tokens <= 256


def test_a_root_without_a_server_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.pbtxt").touch()
    words = ["--server-root", str(tmp_path), "--template", str(tmp_path / "config.pbtxt"), "--out", "x"]
    with pytest.raises(ConfigError, match="tritonserver is missing"):
        command_line.described(command_line.parser().parse_args(words))


def test_a_server_may_be_a_link_that_only_the_root_resolves(tmp_path: Path) -> None:
    folder = tmp_path / "opt" / "tritonserver" / "bin"
    folder.mkdir(parents=True)
    (folder / "tritonserver").symlink_to("/opt/of/the/image/tritonserver")
    assert server.Root.at(tmp_path, Place(tmp_path / "models", "/ftbench")).root == tmp_path


def test_a_server_of_an_unpacked_image_sees_the_models_and_the_drivers_libraries(tmp_path: Path) -> None:
    library = tmp_path / "libcuda.so.1"
    library.touch()
    root = server.Root(Place(tmp_path / "models here", "/ftbench"), tmp_path / "root", [library])
    argv = root.argv(["--http-port=1"], server.Variant("v", None, {"FT_X": "1"}, "0-3"))
    script = argv[argv.index("-c") + 1]
    assert argv[:4] == ["unshare", "--mount", "--propagation", "private"]
    assert argv[4:7] == ["taskset", "--cpu-list", "0-3"]
    assert f"mount --bind '{tmp_path}/models here' {tmp_path}/root/ftbench" in script
    assert f"mount --bind {library} {tmp_path}/root/{server.DRIVERS}/libcuda.so.1" in script
    assert {"FT_X=1", "CUDA_VISIBLE_DEVICES=0", f"LD_LIBRARY_PATH=/{server.DRIVERS}"} <= set(argv)
    assert argv[-2:] == ["tritonserver", "--http-port=1"]


def test_the_folder_of_the_models_is_mounted_only_where_it_lies_elsewhere(tmp_path: Path) -> None:
    inside = server.Root(Place(tmp_path / "root" / "ftbench", "/ftbench"), tmp_path / "root")
    assert "mount --bind" not in " ".join(inside.argv([], server.SHIPPED))
