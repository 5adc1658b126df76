"""Questions to models, and their expected answers. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

LENGTH = 16
BEAMS = 4
# Lengths differ within the batch; every model here knows the tokens 0 to 255.
PROMPTS = (
    (71, 3, 12, 200, 41),
    (5, 9, 77),
    (130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141),
    (250, 1, 250, 2),
    (17, 34, 51, 68, 85, 102, 119),
    (99, 98, 97, 96, 95, 94, 93, 92),
    (180, 20, 180),
    (61, 62, 64, 68, 76, 92, 124, 188, 60),
)
# Longer than the 255 tokens up to which one block computes a head's attention (patches/ft/0470), and no
# multiple of the 64 tokens that a block of a prompt's attention takes (patches/ft/0471).
LONG_PROMPT = tuple((7 * place * place + 3 * place) % 251 + 1 for place in range(300))
CASES: Mapping[str, Mapping[str, Any]] = {
    "one": {"prompts": PROMPTS[:1], "length": LENGTH, "beams": 1},
    "eight": {"prompts": PROMPTS, "length": LENGTH, "beams": 1},
    "long": {"prompts": (LONG_PROMPT,), "length": LENGTH, "beams": 1},
    "beams": {"prompts": PROMPTS[4:5], "length": LENGTH, "beams": BEAMS},
}
# Allowed error of fp16 against the fp32 reference for one token, in natural logarithms of probabilities. fp16
# keeps 11 bits (IEEE 754), so a logit of 16 is off by up to 0.008, once per layer and sum on its way.
# bf16 keeps 8 bits, and is allowed eight times as much. The reference of int8 weights computes with what the
# kernel makes of them, fp16 numbers (reference.py).
TOLERANCE = {"fp32": 0.0, "fp16": 0.1, "int8": 0.1, "bf16": 0.8}
# Allowed error of each number of a vector of length 1.
VECTOR_TOLERANCE = {"fp32": 1e-4, "fp16": 5e-3}


@dataclass(frozen=True)
class Row:
    """The reference's answer to one prompt: tokens; with one beam also the confidence in each.

    `near` are, for each step, the tokens that a rounding may put first, with how far they are behind.
    """

    tokens: Sequence[int]
    log_probs: Sequence[float] = ()
    runner_up: Sequence[int] = ()
    gap: Sequence[float] = ()
    near: Sequence[Sequence[tuple[int, float]]] = ()

    def others(self, step: int, tolerance: float) -> set[int]:
        """Return the tokens that are as right as the best one, where `tolerance` behind is a tie."""
        known = [(self.runner_up[step], self.gap[step])] if step < len(self.gap) else []
        known += self.near[step] if step < len(self.near) else []
        return {token for token, gap in known if gap <= tolerance}


@dataclass(frozen=True)
class Expected:
    """The expected answers of a checkpoint; `max_length` counts prompt and answer, None: no limit."""

    vocab_size: int
    end_id: int
    layers: int
    max_length: int | None
    cases: Mapping[str, Sequence[Row]]


@dataclass(frozen=True)
class ExpectedVectors:
    """The expected vectors of a checkpoint, by case; texts have at most `max_length` tokens."""

    vocab_size: int
    max_length: int
    cases: Mapping[str, Sequence[Sequence[float]]]


def questions() -> str:
    """Return the cases as the reference script reads them."""
    return json.dumps({"cases": CASES})


def expected(file: Path) -> Expected:
    """Read the answers that the reference script wrote."""
    record = json.loads(file.read_text(encoding="utf-8"))
    cases = {name: [Row(**row) for row in rows] for name, rows in record["cases"].items()}
    names = ("vocab_size", "end_id", "layers", "max_length")
    return Expected(**{name: record[name] for name in names}, cases=cases)


def expected_vectors(file: Path) -> ExpectedVectors:
    """Read the vectors that the reference script wrote."""
    record = json.loads(file.read_text(encoding="utf-8"))
    return ExpectedVectors(**{name: record[name] for name in ("vocab_size", "max_length", "cases")})


def vector_mismatch(
    expected: Sequence[Sequence[float]], vectors: Sequence[Sequence[float]], tolerance: float
) -> str | None:
    """Return the first vector that differs from the reference's by more than `tolerance`, or None."""
    shape, right = [len(row) for row in vectors], [len(row) for row in expected]
    if shape != right:
        return (
            f"{len(vectors)} embeddings of {sorted(set(shape))} numbers, not {len(expected)} of {right[:1]}"
        )
    for number, (row, reference) in enumerate(zip(vectors, expected, strict=True), start=1):
        # Not a number is never right.
        for place, (got, want) in enumerate(zip(row, reference, strict=True), start=1):
            if not abs(got - want) <= tolerance:
                difference = max(abs(a - b) for a, b in zip(row, reference, strict=True))
                return (
                    f"embedding {number}:  number {place} is {got:.6g}, the reference says {want:.6g}; "
                    f"the largest difference is {difference:.3g}, allowed {tolerance:g}"
                )
    return None


def mismatch(row: Row, tokens: Sequence[int], tolerance: float) -> str | None:
    """Return why `tokens` are not the row's, or None.

    Where other tokens of the reference are at most `tolerance` behind, each is right; what follows one of
    them is another text, and is not compared.
    """
    for step, (want, got) in enumerate(zip_longest(row.tokens, tokens)):
        if want == got:
            continue
        if got in row.others(step, tolerance):
            return None
        gap = f", {row.gap[step]:.3g} ahead of {row.runner_up[step]}" if step < len(row.gap) else ""
        return (
            f"token {step + 1} is {got}, the reference says {want}{gap}; "
            f"answered {list(tokens)}, reference {list(row.tokens)}"
        )
    return None
