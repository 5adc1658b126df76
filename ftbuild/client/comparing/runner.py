"""The comparison as a whole: both servers asked in turn, and the places where their answers diverge."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ftbuild.client.comparing import answers
from ftbuild.client.comparing.answers import Answer, Parting, Side
from ftbuild.client.comparing.prompts import Prompt
from ftbuild.client.comparing.report import Broken, Compared, ComparisonReport
from ftbuild.client.comparing.servers import Server
from ftbuild.client.connection import Refused, Unanswered
from ftbuild.text.reporter import Reporter

# A message about progress after so many seconds.
_PROGRESS_SECONDS = 10


@dataclass(frozen=True)
class ComparisonOptions:
    """Tokens of an answer, timed requests for each prompt, and the gap that is a tie (natural logarithm)."""

    length: int = 32
    requests: int = 1
    tie: float = 0.1


def run(
    servers: Mapping[str, Server],
    prompts: Sequence[Prompt],
    options: ComparisonOptions,
    report: Reporter,
) -> ComparisonReport:
    """Ask both servers, `old` and `new`, every prompt, one at a time, and compare their answers.

    A server that no longer answers ends the comparison; what was compared before is in the report.
    """
    result = ComparisonReport(
        titles={name: server.title for name, server in servers.items()},
        prompts=len(prompts),
        length=options.length,
        tie=options.tie,
    )
    asking = _Asking(servers, options, result)
    reported = time.monotonic()
    for number, prompt in enumerate(prompts, start=1):
        try:
            if number == 1:
                asking.warm_up(prompt)
            result.compared.append(asking.compare(number, prompt))
        except _Away as away:
            result.broken = Broken(away.server, number, away.reason)
            break
        if time.monotonic() - reported > _PROGRESS_SECONDS:
            reported = time.monotonic()
            report(f"compared {number} of {len(prompts)} prompts")
    return result


class _Away(Exception):
    """A server does not answer any more."""

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(reason)
        self.server, self.reason = server, reason


@dataclass(frozen=True)
class _Asking:
    servers: Mapping[str, Server]
    options: ComparisonOptions
    result: ComparisonReport

    def warm_up(self, prompt: Prompt) -> None:
        """Ask both once: a first request may include set-up, and is not timed."""
        for name in self.servers:
            self._answer(name, prompt, timed=False)

    def compare(self, number: int, prompt: Prompt) -> Compared:
        """Return the comparison of the answers to one prompt; raise _Away."""
        answers_by_server: dict[str, Answer | None] = dict.fromkeys(self.servers)
        wrong: dict[str, str] = {}
        for name in self.servers:
            answer, reason = self._answer(name, prompt)
            answers_by_server[name] = answer
            if reason:
                wrong[name] = reason
        for _ in range(1, self.options.requests):
            for name in self.servers:
                again, reason = self._answer(name, prompt)
                first = answers_by_server[name]
                if reason:
                    wrong[name] = reason
                if first and again and answers.parted_after(first, again) is not None:
                    self.result.unstable[name].add(number)
        old, new = answers_by_server["old"], answers_by_server["new"]
        if old is None or new is None:
            return Compared(number, prompt, old, new, None, wrong)
        step = answers.parted_after(old, new)
        parting = None if step is None else self._parting(prompt, old, new, step)
        return Compared(number, prompt, old, new, parting, wrong)

    def _parting(self, prompt: Prompt, old: Answer, new: Answer, step: int) -> Parting:
        return Parting(
            step, self._side("old", prompt, old, new, step), self._side("new", prompt, new, old, step)
        )

    def _side(self, name: str, prompt: Prompt, own: Answer, other: Answer, step: int) -> Side:
        try:
            choices = self.servers[name].choices(prompt, own, step)
        except Unanswered as silent:
            raise _Away(name, silent.what) from silent
        return answers.side(choices, own.at(step), other.at(step))

    def _answer(self, name: str, prompt: Prompt, *, timed: bool = True) -> tuple[Answer | None, str | None]:
        """Return an answer, or why there is none; raise _Away."""
        start = time.perf_counter()
        try:
            # A token more shows whether the model ends its answer with the last one.
            answer = self.servers[name].answer(prompt, self.options.length + 1)
        except Unanswered as silent:
            raise _Away(name, silent.what) from silent
        except Refused as refused:
            return None, refused.what
        if timed:
            self.result.seconds[name].append(time.perf_counter() - start)
            self.result.tokens[name] += len(answer.tokens)
        return answer.up_to(self.options.length), None
