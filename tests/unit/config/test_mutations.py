"""Whatever becomes of the configuration, a user gets a message with a place: no traceback, and soon.

With FTBUILD_FUZZ=MINUTES, mutations of random seeds are tried so long; see testing/configurations.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testing import outcomes
from testing.configurations import Stack, examine, stacks
from testing.outcomes import MINUTES, Outcome

CODES = range(11)
# A process that ends closes the socket with which it has looked for an engine; this one goes on.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def copies() -> Iterator[list[Stack]]:
    with stacks() as found:
        yield found


def check(outcome: Outcome) -> Outcome:
    assert outcome.seconds < outcomes.SECONDS, outcome
    assert outcome.code in CODES, outcome
    if outcome.accepted:
        return outcome
    if outcome.kind == "command line":
        assert outcome.message.startswith("error: "), outcome
    else:
        places = ("/buildcfg/", "/patches/", "/dockerfiles/", "bundle.tar")
        assert any(place in outcome.message for place in places), outcome
    return outcome


# A quarter of a minute on an idle machine, minutes on a busy one.
@pytest.mark.timeout(480)
@settings(outcomes.SETTINGS, max_examples=250)
@given(seed=st.integers(0, 2**64 - 1))
def test_a_mutated_configuration_is_taken_or_refused(memory: None, copies: list[Stack], seed: int) -> None:
    check(examine(seed, copies))


@pytest.mark.timeout(0)
@pytest.mark.skipif(not MINUTES, reason="FTBUILD_FUZZ=MINUTES tries mutations so long")
def test_mutations_of_random_seeds(memory: None, copies: list[Stack]) -> None:
    outcomes.try_random_seeds(lambda seed: check(examine(seed, copies)))
