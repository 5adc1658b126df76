"""Answers under load that are not those alone: by rounding, as rows of one request show, or by a fault."""

from __future__ import annotations

import numpy as np
import pytest

from ftbuild.gates.smoke.rounding import COPIES, MAX_QUESTIONS, Difference, faults, parts
from ftbuild.gates.smoke.served import Outputs, unlike

ALONE, OTHER, WRONG = (np.array([[row]]) for row in ([1, 2, 3], [1, 2, 4], [9, 9, 9]))


def difference(got: np.ndarray, answers: dict[int, np.ndarray], question: str = "a") -> Difference:
    """A difference whose question gets an answer of `answers` among so many copies, else the one alone."""

    def ask(copies: int) -> Outputs:
        return {"output_ids": np.concatenate([answers.get(copies, ALONE)] * copies)}

    return Difference(
        question,
        f"{question}: {got.tolist()}",
        ask,
        lambda other: unlike({"output_ids": got}, other, exact=True),
    )


@pytest.mark.parametrize("copies", COPIES)
def test_an_answer_that_rows_of_one_request_have_is_rounding(copies: int) -> None:
    assert not faults([difference(OTHER, {copies: OTHER})])


@pytest.mark.parametrize("answers", [{}, {COPIES[1]: OTHER}])
def test_an_answer_that_no_rows_have_is_a_fault(answers: dict[int, np.ndarray]) -> None:
    wrong = difference(WRONG, answers)
    assert faults([difference(OTHER, {2: OTHER}), wrong]) == [wrong.what]


def test_rounding_decides_few_questions() -> None:
    often = [difference(OTHER, {2: OTHER}, f"question {n}") for n in range(MAX_QUESTIONS)]
    assert not faults(often * 5)
    more = [*often, difference(OTHER, {2: OTHER}, "one more")]
    assert faults(more) == [each.what for each in more]


def test_each_copy_has_all_rows_of_the_question() -> None:
    outputs = {"output_ids": np.arange(12).reshape(6, 1, 2), "sequence_length": np.arange(6).reshape(6, 1)}
    halves = list(parts(outputs, 2))
    assert [half["sequence_length"].tolist() for half in halves] == [[[0], [1], [2]], [[3], [4], [5]]]
    assert np.array_equal(np.concatenate([half["output_ids"] for half in halves]), outputs["output_ids"])
