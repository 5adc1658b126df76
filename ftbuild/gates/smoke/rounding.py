"""Differences that rounding makes: sums of several rows are in another order than those of one row alone.

In fp32 that decides where two tokens are almost as probable, of which one is drawn: on two H100s a step of a
GPT-J, 2e-5 apart in the logarithm, had another token when it was computed with two other rows. The same
request should have it without any neighbour, as rows of one request, since a sum knows no other row; that was
not tried on GPUs yet. What a neighbour does wrong, it does not show.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from ftbuild.gates.smoke.served import Outputs

# How often a request is repeated in one: up to as many rows as come at a time from the suite's clients.
COPIES = (2, 3, 4, 8, 16, 24)
# Of more than a hundred questions.
MAX_QUESTIONS = 2


@dataclass(frozen=True)
class Difference:
    """An answer under load that is not the one alone, and `what` differs.

    `ask` asks the `question` again, so many times in one request; `unlike` says what differs between the
    answer under load and another one of the same shape, or None.
    """

    question: Hashable
    what: str
    ask: Callable[[int], Outputs]
    unlike: Callable[[Outputs], str | None]

    @property
    def is_rounding(self) -> bool:
        """Whether the question gets this answer among copies of itself, too; asks the server."""
        return any(
            self.unlike(answer) is None for copies in COPIES for answer in parts(self.ask(copies), copies)
        )


def parts(outputs: Outputs, copies: int) -> Iterable[Outputs]:
    """Yield the answer to each of the copies of a question that were asked in one request."""
    rows = len(next(iter(outputs.values()))) // copies
    for first in range(0, rows * copies, rows):
        yield {name: values[first : first + rows] for name, values in outputs.items()}


def faults(differences: Iterable[Difference]) -> list[str]:
    """Return what differs by more than rounding, or in more questions than rounding decides."""
    known = list(differences)
    if len({each.question for each in known}) > MAX_QUESTIONS:
        return [each.what for each in known]
    return [each.what for each in known if not each.is_rounding]
