"""Outcomes of mutated input, for property tests: run, judged, and tried for as long as FTBUILD_FUZZ says."""

from __future__ import annotations

import contextlib
import io
import os
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn
from unittest import mock

from hypothesis import HealthCheck, Phase, settings
from invoke.program import Program

import tasks
from ftbuild.errors import FtbuildError

MINUTES = float(os.environ.get("FTBUILD_FUZZ") or 0)
SECONDS = 2
KILOBYTES = 500_000
# Of the processor: a busy machine may leave a process without any for a while. What waits gets more.
HANGING_SECONDS, WAITING_SECONDS = 20, 600
# For `@settings(SETTINGS, max_examples=...)`: the same examples every time.
SETTINGS = settings(
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],  # a seed has no simpler form
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@dataclass(frozen=True)
class Outcome:
    """What became of a mutation: of what, what was changed, exit code, message, and processor seconds."""

    seed: int
    kind: str
    change: str
    code: int
    message: str
    seconds: float

    @property
    def accepted(self) -> bool:
        """Whether nobody complained."""
        return self.code == 0


def timed(seed: int, kind: str, change: str, work: Callable[[], object]) -> Outcome:
    """Do some work; any other exception than FtbuildError passes through."""
    start = time.process_time()
    code, message = 0, ""
    try:
        work()
    except FtbuildError as refused:
        code, message = refused.exit_code, str(refused)
    return Outcome(seed, kind, change, code, message, time.process_time() - start)


def run_in_process(words: list[str], settings: Mapping[str, str], output: io.StringIO) -> int:
    """Run a command line in this process, and return its exit code."""
    with (
        mock.patch.dict(os.environ, settings),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
    ):
        try:
            Program(namespace=tasks.namespace).run(words)
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else bool(ended.code)
    return 0


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """Fail when what is done meanwhile makes this process much larger."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < KILOBYTES


def repeat(seeds: Iterable[str], examine: Callable[[int], Outcome]) -> None:
    """Print what becomes of the changes of some seeds."""
    for seed in map(int, seeds):
        outcome = examine(seed)
        print(f"--- {seed}: {outcome.code}, {outcome.seconds:.2f} s, {outcome.kind}")
        print(outcome.change, outcome.message[:2000], sep="\n")


def try_random_seeds(check: Callable[[int], Outcome]) -> None:
    """Check random seeds for MINUTES, print how many there were of which kind, and fail if any was wrong."""
    end = time.monotonic() + 60 * MINUTES
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    signal.signal(signal.SIGALRM, _hangs)
    signal.signal(signal.SIGPROF, _hangs)
    while time.monotonic() < end:
        seed = random.SystemRandom().getrandbits(64)
        signal.alarm(WAITING_SECONDS)
        signal.setitimer(signal.ITIMER_PROF, HANGING_SECONDS)
        try:
            outcome = check(seed)
            counts[f"{outcome.kind}, {'accepted' if outcome.accepted else 'refused'}"] += 1
        except Exception as failed:
            counts[type(failed).__name__] += 1
            wrong.append(f"seed {seed}: {failed!r}"[:2000])
            print(wrong[-1], flush=True)
    signal.alarm(0)
    signal.setitimer(signal.ITIMER_PROF, 0)
    print(f"{sum(counts.values())} mutations: {dict(sorted(counts.items()))}")
    assert not wrong


def _hangs(number: int, frame: object) -> NoReturn:
    seconds = WAITING_SECONDS if number == signal.SIGALRM else HANGING_SECONDS
    raise TimeoutError(f"nothing for {seconds} s")
