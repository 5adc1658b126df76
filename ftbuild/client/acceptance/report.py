"""The report of the acceptance test."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from ftbuild.client import latency
from ftbuild.errors import SmokeError
from ftbuild.text import results
from ftbuild.text.results import CheckResult, State


@dataclass
class AcceptanceReport:
    """Results by test, seconds by test and protocol, and notes on what was left out and why."""

    results: list[CheckResult] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    notes: list[str] = field(default_factory=list)
    bleu: float | None = None

    def expect(self, test: str, what: str, wrong: str | None) -> None:
        """Add the result of an expectation; `wrong` says why it does not hold, None that it does."""
        state = State.FAIL if wrong else State.OK
        self.results.append(CheckResult(what, state, wrong or "", subject=test))

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The expectations that do not hold."""
        return results.failed(self.results)

    @property
    def latencies(self) -> dict[str, dict[str, float]]:
        """Percentiles in milliseconds, by test and protocol."""
        return {name: latency.summary(values) for name, values in self.seconds.items()}

    def as_dict(self) -> dict[str, Any]:
        """Return the whole report, ready for JSON."""
        return {
            "passed": not self.failed,
            "checks": [
                {"test": result.subject, "what": result.check, "wrong": result.detail or None}
                for result in self.results
            ],
            "latency_ms": self.latencies,
            "bleu": self.bleu,
            "notes": self.notes,
        }

    def render(self) -> str:
        """Return the results, the latencies, the BLEU score and the notes."""
        parts = [results.render(self.results, subject="Test"), latency.table(self.latencies)]
        if self.bleu is not None:
            parts.append(f"BLEU: {self.bleu}")
        return "\n".join([*parts, *(f"note: {note}" for note in self.notes)])

    def require(self) -> None:
        """Raise SmokeError with every failed expectation, unless all hold."""
        if self.failed:
            lines = [f"{result.subject}: {result.check}: {result.detail}" for result in self.failed]
            raise SmokeError(
                "\n".join([f"{len(self.failed)} of {len(self.results)} checks failed", *lines]),
                hint="do the weights, config.pbtxt and tokenizer belong to this model? "
                "invoke smoke tests the image alone",
            )
