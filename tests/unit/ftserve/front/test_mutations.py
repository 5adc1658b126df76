"""Requests from seeds: the front answers each in time, with no error of its own, and goes on.

With FTBUILD_FUZZ=MINUTES, random seeds are tried so long; see testing/front_requests.py.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from testing import bytelevel, front_requests, newer_server, processor
from testing.front import Front, front
from testing.hostile import campaign
from testing.hostile.http_requests import Attempt
from testing.outcomes import KILOBYTES, MINUTES, SECONDS
from tests.unit.ftserve.front.test_chat import CONFIG

COUNT, WORKERS = 200, 4


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Front]:
    tokenizer = bytelevel.write(tmp_path / "tokenizer")
    (tokenizer / "tokenizer_config.json").write_text(json.dumps(CONFIG))
    with newer_server.serve("2.70.0", decoupled=True) as (server, address):
        server.pause = 0
        with front(address, tokenizer, tmp_path / "log", "--context", "200") as found:
            yield found


def send(running: Front, made: Attempt) -> str:
    return campaign.exchange(running.url.removeprefix("http://"), made, SECONDS)


def processes(pid: int) -> list[int]:
    """Return the front and its workers."""
    below = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [pid, *(found for child in below for found in processes(child))]


def computed(pid: int) -> float:
    """Return the processor seconds of the front, which others on this machine do not change."""
    return processor.of_process(pid)[0]


def most_kilobytes(pid: int) -> int:
    peaks = [Path(f"/proc/{each}/status").read_text().partition("VmHWM:")[2] for each in processes(pid)]
    return sum(int(peak.split()[0]) for peak in peaks if peak)


def outlives(running: Front, seeds: list[int]) -> Counter[str]:
    """Send the requests of seeds, some at once, and return how they ended."""
    with ThreadPoolExecutor(WORKERS) as pool:
        ends = list(pool.map(lambda seed: send(running, front_requests.attempt(seed)), seeds))
    assert "Traceback" not in running.log.read_text(), f"one of the seeds {seeds}"
    wrong = [seed for seed, end in zip(seeds, ends, strict=True) if end[:1] == "5" and end != "501"]
    assert wrong == []
    assert send(running, front_requests.right()) == "200", f"after the seeds {seeds}"
    return Counter(ends)


def slow(running: Front, seed: int) -> bool:
    """Return whether the front computes too long for a request, alone."""
    before = computed(running.pid)
    send(running, front_requests.attempt(seed))
    time.sleep(campaign.SILENCE_SECONDS)
    return computed(running.pid) - before > SECONDS


def test_requests_from_seeds_are_answered(running: Front) -> None:
    ended = outlives(running, list(range(COUNT)))
    assert ended["200"]
    assert ended["400"]
    assert ended["404"]
    assert [seed for seed in range(0, COUNT, 10) if slow(running, seed)] == []
    assert most_kilobytes(running.pid) < KILOBYTES


@pytest.mark.skipif(not MINUTES, reason="FTBUILD_FUZZ=MINUTES tries requests so long")
@pytest.mark.timeout(60 * MINUTES + 120)
def test_random_requests_are_answered(running: Front) -> None:
    chance, ended, end = random.SystemRandom(), Counter[str](), time.monotonic() + 60 * MINUTES
    while time.monotonic() < end:
        seeds = [chance.getrandbits(48) for _ in range(COUNT)]
        before = computed(running.pid)
        ended += outlives(running, seeds)
        if computed(running.pid) - before > SECONDS:
            assert [seed for seed in seeds if slow(running, seed)] == []
    kilobytes = most_kilobytes(running.pid)
    print(f"{sum(ended.values())} requests, {kilobytes} kB: {dict(ended)}")
    assert kilobytes < KILOBYTES


def test_a_seed_makes_the_same_request_each_time() -> None:
    for seed in range(COUNT):
        assert front_requests.attempt(seed) == front_requests.attempt(seed)
