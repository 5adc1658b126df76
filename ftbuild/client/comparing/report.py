"""The report of a comparison, as data."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ftbuild.client import latency
from ftbuild.client.comparing.answers import Answer, Outcome, Parting, Side
from ftbuild.client.comparing.prompts import Prompt
from ftbuild.errors import SmokeError


@dataclass(frozen=True)
class Compared:
    """The answers to one prompt, counted from 1; `wrong`: by server, why it gave none."""

    number: int
    prompt: Prompt
    old: Answer | None
    new: Answer | None
    parting: Parting | None
    wrong: Mapping[str, str]

    def outcome(self, tie: float) -> Outcome:
        """Return what the comparison gave."""
        if self.wrong:
            return Outcome.FAILED
        return self.parting.outcome(tie) if self.parting else Outcome.EQUAL


@dataclass(frozen=True)
class Broken:
    """The server that stopped answering, the number of the prompt, and the symptom."""

    server: str
    number: int
    reason: str


@dataclass
class ComparisonReport:
    """Answers, seconds of requests and tokens in them by server (`old`, `new`).

    `unstable`: numbers of prompts to which a server gave itself different answers.
    """

    titles: Mapping[str, str]
    prompts: int
    length: int
    tie: float
    compared: list[Compared] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"old": [], "new": []})
    tokens: dict[str, int] = field(default_factory=lambda: {"old": 0, "new": 0})
    unstable: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    broken: Broken | None = None

    @property
    def counts(self) -> dict[Outcome, int]:
        """The number of prompts by outcome, also of those that none has."""
        by_outcome = Counter(each.outcome(self.tie) for each in self.compared)
        return {outcome: by_outcome[outcome] for outcome in Outcome}

    @property
    def agreeing(self) -> float:
        """The share of all prompts, 0 to 100, whose answers are equal or part at a tie."""
        return 100 * (self.counts[Outcome.EQUAL] + self.counts[Outcome.TIE]) / self.prompts

    @property
    def latencies(self) -> dict[str, dict[str, float]]:
        """Percentiles in milliseconds by server."""
        return {name: latency.summary(values) for name, values in self.seconds.items() if values}

    @property
    def speeds(self) -> dict[str, float]:
        """Tokens of answers in a second of waiting, by server."""
        return {
            name: self.tokens[name] / math.fsum(values) for name, values in self.seconds.items() if values
        }

    @property
    def notes(self) -> list[str]:
        """What a reader should know about the figures."""
        notes = []
        parted = [each.parting for each in self.compared if each.parting]
        for name in ("old", "new"):
            if parted and all(getattr(parting, name).own is None for parting in parted):
                notes.append(f"the {name} server returns no log-probabilities")
            if numbers := sorted(self.unstable[name]):
                listed = ", ".join(map(str, numbers[:20]))
                notes.append(
                    f"the {name} server gave different answers, when asked twice, to the prompts {listed}"
                )
        if self.broken:
            notes.append(
                f"the {self.broken.server} server stopped answering at prompt {self.broken.number}: "
                f"{self.broken.reason}"
            )
            missing = self.prompts - len(self.compared)
            notes.append(f"{missing} of {self.prompts} prompts were not compared")
        return notes

    def as_dict(self) -> dict[str, Any]:
        """Return the whole report, ready for JSON."""
        return {
            "servers": dict(self.titles),
            "prompts": self.prompts,
            "length": self.length,
            "tie": self.tie,
            "outcomes": {outcome.value: count for outcome, count in self.counts.items()},
            "agreeing_percent": round(self.agreeing, 2),
            "latency_ms": self.latencies,
            "tokens_per_second": {name: round(value, 1) for name, value in self.speeds.items()},
            "notes": self.notes,
            "answers": [self._compared(each) for each in self.compared],
        }

    def require(self, threshold: float | None) -> None:
        """Raise SmokeError for a server that failed, or if less than `threshold` percent agree."""
        if self.broken:
            raise SmokeError(
                f"the {self.broken.server} server stopped answering at prompt {self.broken.number} of "
                f"{self.prompts}: {self.broken.reason}",
                where=self.titles[self.broken.server],
                hint="read its log; the report has what was compared until then",
            )
        if failed := [each for each in self.compared if each.wrong]:
            name, reason = next(iter(failed[0].wrong.items()))
            raise SmokeError(
                f"{len(failed)} of {self.prompts} prompts were not answered; prompt {failed[0].number} by "
                f"the {name} server: {reason}",
                where=self.titles[name],
            )
        if threshold is not None and self.agreeing < threshold:
            raise SmokeError(
                f"{self.agreeing:.4g} % of the answers agree, less than --threshold {threshold:g}",
                hint="the report says where the others diverge",
            )

    def _compared(self, each: Compared) -> dict[str, Any]:
        parting = each.parting
        return {
            "number": each.number,
            "prompt": each.prompt.text if each.prompt.text is not None else list(each.prompt.tokens),
            "outcome": each.outcome(self.tie).value,
            "old": _answer(each.old),
            "new": _answer(each.new),
            "equal_tokens": parting.step if parting else None,
            "old_log_probs": _side(parting.old) if parting else None,
            "new_log_probs": _side(parting.new) if parting else None,
            "wrong": dict(each.wrong),
        }


def _answer(answer: Answer | None) -> dict[str, Any] | None:
    return None if answer is None else {"tokens": list(answer.tokens), "ended": answer.ended}


def _side(side: Side) -> dict[str, Any]:
    return {"own": side.own, "other": side.other, "other_is_a_bound": side.bound}
