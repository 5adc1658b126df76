"""Comparisons of answers with each other and with prompts and references. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ftbuild.client import golden, tensors
from ftbuild.client.tensors import Tokens
from ftbuild.config.families import Tensors

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]
    Arrays = Mapping[str, Array]


def shape_of_answer(tensors: Tensors, prompts: Sequence[Tokens], length: int) -> tuple[int, int, int]:
    """Return [batch, beams, tokens] of a greedy answer; decoders repeat the longest prompt."""
    repeated = max(map(len, prompts)) if tensors.repeats_prompt else 0
    return len(prompts), 1, repeated + length


def difference(first: Arrays, other: Arrays, names: Sequence[str]) -> str | None:
    """Return the first difference of two answers in the tensors of these names, or None."""
    import numpy as np

    for name in names:
        if first[name].shape != other[name].shape:
            return f"{name} has the shapes {first[name].shape} and {other[name].shape}"
        if not np.array_equal(first[name], other[name]):
            row = int(np.argwhere(first[name] != other[name])[0][0])
            return f"{name} differs in row {row + 1}: {first[name][row]!r} and {other[name][row]!r}"
    return None


def missing_prompt(outputs: Arrays, prompts: Sequence[Tokens]) -> str | None:
    """Return the first answer that does not begin with its prompt, or None."""
    for number, (row, prompt) in enumerate(zip(outputs[tensors.ANSWER], prompts, strict=True), start=1):
        begin = row[0][: len(prompt)].tolist()
        if begin != list(prompt):
            return f"row {number} begins with {begin}, not {list(prompt)}"
    return None


def missing_text(output: Array, texts: Sequence[str]) -> str | None:
    """Return the first answer that does not begin with its text, or None.

    A tokenizer may add or drop a blank in front.
    """
    answers = [answer.decode(errors="replace") for answer in output.reshape(-1)]
    if len(answers) != len(texts):
        return f"{len(answers)} answers to {len(texts)} texts"
    wrong = (
        f"answer {number} is {answer!r}"
        for number, (answer, text) in enumerate(zip(answers, texts, strict=True), start=1)
        if not answer.lstrip().startswith(text.lstrip())
    )
    return next(wrong, None)


def mismatch(rows: Sequence[golden.Row], answers: Sequence[Tokens], tolerance: float) -> str | None:
    """Return the first difference from the reference's answers, or None."""
    for number, (row, tokens) in enumerate(zip(rows, answers, strict=True), start=1):
        if wrong := golden.mismatch(row, tokens, tolerance):
            return f"prompt {number}: {wrong}"
    return None
