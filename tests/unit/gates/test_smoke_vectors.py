"""Embeddings under test: what counts as the reference's, and what is said of another one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ftbuild.client import golden
from ftbuild.client.golden import VECTOR_TOLERANCE, vector_mismatch

REFERENCE = [[0.6, 0.8], [0.0, -1.0]]


@pytest.mark.parametrize(("dtype", "allowed"), [("fp32", 1e-4), ("fp16", 5e-3)])
def test_every_number_may_differ_by_the_tolerance_of_the_data_type(dtype: str, allowed: float) -> None:
    tolerance = VECTOR_TOLERANCE[dtype]
    within, beyond = ([[0.6, 0.8], [0.0, -1.0 + factor * allowed]] for factor in (0.9, 1.1))
    assert vector_mismatch(REFERENCE, REFERENCE, tolerance) is None
    assert vector_mismatch(REFERENCE, within, tolerance) is None
    assert "embedding 2:  number 2" in str(vector_mismatch(REFERENCE, beyond, tolerance))


def test_the_first_wrong_number_is_named_with_the_largest_difference() -> None:
    said = vector_mismatch(REFERENCE, [[0.5, 0.3], [0.0, -1.0]], 0.01)
    expected = (
        "embedding 1:  number 1 is 0.5, the reference says 0.6; the largest difference is 0.5, allowed 0.01"
    )
    assert said == expected


def test_what_is_no_number_is_never_right() -> None:
    assert "number 2 is nan" in str(vector_mismatch(REFERENCE, [[0.6, float("nan")], [0.0, -1.0]], 1e9))


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        ([[0.6, 0.8]], "1 embeddings of [2] numbers, not 2 of [2]"),
        ([[0.6, 0.8], [0.0]], "2 embeddings of [1, 2] numbers, not 2 of [2]"),
        ([], "0 embeddings of [] numbers, not 2 of [2]"),
    ],
)
def test_another_number_of_them_is_wrong(vectors: list[list[float]], said: str) -> None:
    assert vector_mismatch(REFERENCE, vectors, 1e9) == said


def test_the_vectors_of_the_reference_script_are_read(tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    file.write_text(
        json.dumps({"vocab_size": 9, "max_length": 512, "cases": {"one": REFERENCE[:1]}, "seed": 3})
    )
    expected = golden.expected_vectors(file)
    assert (expected.vocab_size, expected.max_length, expected.cases) == (9, 512, {"one": REFERENCE[:1]})
