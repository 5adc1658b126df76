"""Whatever becomes of a record, a user gets a message with a place: no traceback, and soon.

With FTBUILD_FUZZ=MINUTES, mutations of random seeds are tried so long; see testing/record_files.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftbuild.errors import PublishError
from testing import outcomes
from testing.outcomes import MINUTES, Outcome
from testing.record_files import FORGED, Scene, examine, scene


@pytest.fixture(scope="module")
def found() -> Iterator[Scene]:
    with scene() as made:
        yield made


def check(outcome: Outcome) -> Outcome:
    assert outcome.seconds < outcomes.SECONDS, outcome
    assert outcome.code in (0, PublishError.exit_code), outcome
    assert not (outcome.kind == FORGED and outcome.accepted), outcome
    assert outcome.accepted or "ftbuild-mutations-" in outcome.message, outcome
    assert all(line.isprintable() for line in outcome.message.splitlines()), outcome
    return outcome


@settings(outcomes.SETTINGS, max_examples=400)
@given(seed=st.integers(0, 2**64 - 1))
def test_a_mutated_record_is_taken_or_refused(memory: None, found: Scene, seed: int) -> None:
    check(examine(seed, found))


@pytest.mark.timeout(0)
@pytest.mark.skipif(not MINUTES, reason="FTBUILD_FUZZ=MINUTES tries mutations so long")
def test_mutations_of_random_seeds(memory: None, found: Scene) -> None:
    outcomes.try_random_seeds(lambda seed: check(examine(seed, found)))
