"""The rendering that gates, doctor, audit and acceptance test share."""

from __future__ import annotations

import re

from ftbuild.text import results
from ftbuild.text.results import CheckResult, State


def test_a_hint_that_several_share_is_shown_once_below_the_last() -> None:
    found = [
        CheckResult("a", State.WARN, "down", "check the network"),
        CheckResult("b", State.WARN, "down", "check the network"),
        CheckResult("c", State.OK, "up"),
    ]
    text = results.render(found)
    assert text.count("-> check the network") == 1
    assert re.search(r"warn +b +down\n +-> check the network\n", text)
    assert text.endswith("failed: 0, warnings: 2")


def test_the_column_of_subjects_is_there_only_for_checks_that_have_one() -> None:
    with_subject = CheckResult("user", State.SKIP, "unknown", subject="sdk")
    assert "Image" in results.render([with_subject], subject="Image").splitlines()[0]
    assert "Image" not in results.render([CheckResult("git", State.OK, "2.39")], subject="Image")
    assert with_subject.label == "user (sdk)"


def test_the_worst_come_first_and_equals_keep_their_order() -> None:
    states = [State.OK, State.FAIL, State.SKIP, State.WARN, State.FAIL]
    found = [CheckResult(str(number), state) for number, state in enumerate(states)]
    assert [result.check for result in results.worst_first(found)] == ["1", "4", "3", "2", "0"]
    assert results.counts(found) == "failed: 2, warnings: 1, skipped: 1"
