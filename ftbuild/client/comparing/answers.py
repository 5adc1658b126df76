"""Answers of two servers to one prompt, and where they part. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import zip_longest

# Natural logarithms of probabilities by token id: the tokens that a server found best at one place.
Choices = Mapping[int, float]


@dataclass(frozen=True)
class Answer:
    """An answer without the token that ends it.

    `ended`: by the model itself, with the token `end_id` if it is known. `choices`: at each place, of servers
    that tell them with the answer.
    """

    tokens: tuple[int, ...]
    ended: bool
    end_id: int | None = None
    choices: tuple[Choices, ...] = ()

    def up_to(self, length: int) -> Answer:
        """Return the first `length` tokens; an end behind them is none."""
        return replace(self, tokens=self.tokens[:length], ended=self.ended and len(self.tokens) < length)

    def at(self, step: int) -> int | None:
        """Return the token at a place, counted from 0, or the one that ends the answer there."""
        if step < len(self.tokens):
            return self.tokens[step]
        return self.end_id if self.ended else None


class Outcome(StrEnum):
    """What comparing two answers gave, best first.

    EQUAL: every token is. TIE: they part where the servers rate both tokens about the same, so that rounding
    decides. PARTED: they diverge elsewhere, or it is unknown. FAILED: a server gave no answer.
    """

    EQUAL = "equal"
    TIE = "tie"
    PARTED = "parted"
    FAILED = "failed"


@dataclass(frozen=True)
class Side:
    """One server at the place where the answers diverge: how it rates its own token, and the other server's.

    Natural logarithms; None where they are unknown. `bound`: the other's token is not among the best that the
    server tells, so that the number is an upper limit.
    """

    own: float | None = None
    other: float | None = None
    bound: bool = False

    @property
    def gap(self) -> float | None:
        """The lower bound of how much it prefers its own token; None where that is unknown."""
        return None if self.own is None or self.other is None else self.own - self.other


@dataclass(frozen=True)
class Parting:
    """Where two answers part: after so many equal tokens."""

    step: int
    old: Side = Side()
    new: Side = Side()

    def outcome(self, tie: float) -> Outcome:
        """Return TIE if no server prefers its own token by more than `tie`, as far as is known.

        A gap that is known to be at least so large may be larger, and is none.
        """
        gaps = [(gap, side.bound) for side in (self.old, self.new) if (gap := side.gap) is not None]
        ties = bool(gaps) and all(gap <= tie and not bound for gap, bound in gaps)
        return Outcome.TIE if ties else Outcome.PARTED


def parted_after(old: Answer, new: Answer) -> int | None:
    """Return the number of tokens after which two answers diverge, None if they are equal.

    An answer that the model ended differs from one that goes on, or was cut off there.
    """
    for step, (first, other) in enumerate(zip_longest(old.tokens, new.tokens)):
        if first != other:
            return step
    return None if old.ended == new.ended else len(old.tokens)


def side(choices: Choices, own: int | None, other: int | None) -> Side:
    """Return what the best tokens at a place say about two of them."""
    rated = {token: value for token, value in choices.items() if math.isfinite(value)}
    rating = rated.get(own) if own is not None else None
    if other is None or other in rated or len(rated) < 2:
        return Side(rating, rated.get(other) if other is not None else None)
    return Side(rating, min(rated.values()), bound=True)
