"""Whatever becomes of the configuration, a user gets a message with a place: no traceback, and soon.

With FTBUILD_FUZZ=MINUTES, mutations of random seeds are tried so long; see testing/configurations.py.
"""

from __future__ import annotations

import os
import random
import resource
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from testing.configurations import Outcome, Stack, examine, stacks

MINUTES = float(os.environ.get("FTBUILD_FUZZ") or 0)
CODES = range(11)


@pytest.fixture(scope="module")
def copies() -> Iterator[list[Stack]]:
    with stacks() as found:
        yield found


def check(outcome: Outcome) -> None:
    assert outcome.seconds < 2, outcome
    assert outcome.code in CODES, outcome
    if outcome.accepted:
        return
    if outcome.kind == "command line":
        assert outcome.message.startswith("error: "), outcome
    else:
        assert any(place in outcome.message for place in ("/buildcfg/", "/patches/", "bundle.tar")), outcome


@pytest.fixture
def memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000


@settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=250,
    phases=[Phase.generate],  # a seed has no simpler form
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 2**64 - 1))
def test_a_mutated_configuration_is_taken_or_refused(memory: None, copies: list[Stack], seed: int) -> None:
    check(examine(seed, copies))


@pytest.mark.timeout(0)
@pytest.mark.skipif(not MINUTES, reason="FTBUILD_FUZZ=MINUTES tries mutations so long")
def test_mutations_of_random_seeds(memory: None, copies: list[Stack]) -> None:
    end = time.monotonic() + 60 * MINUTES
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    while time.monotonic() < end:
        seed = random.SystemRandom().getrandbits(64)
        try:
            outcome = examine(seed, copies)
            check(outcome)
            counts[f"{outcome.kind} {'accepted' if outcome.accepted else 'refused'}"] += 1
        except Exception as failed:
            counts[type(failed).__name__] += 1
            wrong.append(f"seed {seed}: {failed!r}"[:2000])
            print(wrong[-1], flush=True)
    print(f"{sum(counts.values())} mutations: {dict(counts)}")
    assert not wrong
