"""The traffic benchmark without a GPU: traces, arrivals, clients, figures, and a batcher that counts."""

import argparse
import json
import math
import queue
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

import pytest

from benchmarks.harness import catalogue
from benchmarks.harness.figure import Figure, Machine, Result
from benchmarks.topics import traffic
from benchmarks.topics.inference import server
from benchmarks.topics.inference.life import Contender, Life
from benchmarks.topics.inference.server import Place
from benchmarks.topics.traffic import __main__ as command_line
from benchmarks.topics.traffic import batcher, drive, measure, peers, record, report, trace
from benchmarks.topics.traffic.batcher import Batcher
from benchmarks.topics.traffic.drive import Outcome
from benchmarks.topics.traffic.measure import Plan, Session
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
    assert max(prompts) <= trace.PROMPT_MOST
    assert 0.75 < statistics.stdev(map(math.log, prompts)) < 0.85


def test_answers_of_the_mixed_trace_are_of_any_length_alike() -> None:
    answers = [each.answer for each in trace.drawn(MANY)]
    assert (min(answers), max(answers)) == (trace.LEAST, trace.MOST)
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
    gaps = [later - earlier for earlier, later in zip(at, at[1:], strict=False)]
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
