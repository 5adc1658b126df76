"""Whatever becomes of a checkpoint, of weights, a repository or an option: a message with a place, and soon.

With FTBUILD_FUZZ=MINUTES, mutations of random seeds are tried so long; see testing/model_files.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testing import needs, outcomes
from testing.model_files import Scene, examine, scene
from testing.outcomes import MINUTES, Outcome

needs.package("tokenizers")
# Protobuf decodes odd escapes.
pytestmark = [pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")]
CODES = (0, 2, 3, 4, 9)


@pytest.fixture(scope="module")
def found() -> Iterator[Scene]:
    with scene() as made:
        yield made


def check(outcome: Outcome) -> Outcome:
    assert outcome.seconds < outcomes.SECONDS, outcome
    assert outcome.code in CODES, outcome
    assert len(outcome.message) < 5000, outcome
    if outcome.accepted:
        return outcome
    if outcome.kind == "command line":
        # It may repeat what was typed, tabs included.
        assert "error: " in outcome.message, outcome
        return outcome
    if outcome.kind != "serving options":
        places = ("/case", "--pipeline", "weight files, more than", "GPUs, more than")
        assert any(place in outcome.message for place in places), outcome
    assert all(line.isprintable() for line in outcome.message.splitlines()), outcome
    return outcome


@settings(outcomes.SETTINGS, max_examples=1000)
@given(seed=st.integers(0, 2**64 - 1))
def test_what_is_not_ours_is_taken_or_refused(memory: None, found: Scene, seed: int) -> None:
    check(examine(seed, found))


def test_a_message_repeats_no_word_of_any_length(memory: None, found: Scene) -> None:
    """Seeds that were wrong once, and are no longer."""
    for seed in (5758567201770614956,):
        check(examine(seed, found))


@pytest.mark.timeout(0)
@pytest.mark.skipif(not MINUTES, reason="FTBUILD_FUZZ=MINUTES tries mutations so long")
def test_mutations_of_random_seeds(memory: None, found: Scene) -> None:
    outcomes.try_random_seeds(lambda seed: check(examine(seed, found)))
