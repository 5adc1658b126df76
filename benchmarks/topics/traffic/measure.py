"""Measurements: contenders are started in turn, and each gets every load."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from benchmarks.topics.inference.life import Contender, Life
from benchmarks.topics.inference.measure import in_turn, progress
from benchmarks.topics.traffic import drive, report, trace
from benchmarks.topics.traffic.drive import Outcome
from benchmarks.topics.traffic.sides import Side
from benchmarks.topics.traffic.trace import Load, Request
from ftbuild.errors import SmokeError

_DIGITS = 4


@dataclass(frozen=True)
class Plan:
    """What each contender gets: the loads, with prompts of tokens smaller than `below`.

    `check` answers of each load are compared with those of the same requests alone. `longest` cuts prompts
    and answers, for tiny models; None: as drawn.
    """

    loads: Sequence[Load]
    below: int
    check: int = 0
    longest: int | None = None

    def requests(self, load: Load) -> list[Request]:
        """Return the requests of a load."""
        drawn_requests = trace.drawn(load)
        return drawn_requests if self.longest is None else trace.within(drawn_requests, self.longest)

    @property
    def clients(self) -> int:
        """Return the maximum clients of a load; 0 where there is an open one, whose clients are unknown."""
        counts = [load.clients for load in self.loads]
        return max(counts) if all(counts) else 0

    @property
    def most_tokens(self) -> int:
        """Return the tokens of the longest prompt with its answer."""
        return max(each.prompt + each.answer for load in self.loads for each in self.requests(load))

    @property
    def warm_up(self) -> Load:
        """Return the load that comes first and does not count: a request for each client at once."""
        clients = max([load.clients for load in self.loads] + [1])
        return Load(self.loads[0].mix, clients, clients, warm_up=True)

    @property
    def traces(self) -> dict[str, report.Data]:
        """Return the loads with the lengths of their requests, as in a record."""
        return {load.name: _trace(load, self.requests(load)) for load in self.loads}


@dataclass(frozen=True)
class Seen:
    """What a side did with a load: seconds of each request after the load's begin, and answers compared.

    `first` is empty where the time of the first token is unknown. `failures` are by the request's number.
    """

    sent: Sequence[float]
    first: Sequence[float]
    done: Sequence[float]
    failures: Mapping[int, str]
    checked: int = 0
    unlike: int = 0


@dataclass(frozen=True)
class Session:
    """A start of a server, from which all loads were measured."""

    variant: str
    ready_seconds: float
    cores: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    loads: Mapping[str, Seen] = field(default_factory=dict)


def measure(
    contenders: Sequence[Contender[Side]],
    plan: Plan,
    logs: Path,
    rounds: int,
    until: float | None,
    keep: Callable[[Sequence[Session]], object],
) -> tuple[list[Session], dict[str, str]]:
    """Measure every contender `rounds` times, in alternating order; see `in_turn`.

    No load is begun after the moment `until` either. `keep` gets all sessions after each load, so that a
    measurement that is cut off loses one load.
    """
    sessions: list[Session] = []

    def one_session(contender: Contender[Side], life: Life[Side]) -> Session:
        started = Session(contender.name, life.ready_seconds, life.cores, life.settings)
        _warm(life.side, plan)
        for load in plan.loads:
            if until is not None and time.monotonic() > until:
                progress(f"the time is up before {contender.name}, {load.name}")
                break
            seen = _seen(life.side, load, plan)
            if started.loads:
                sessions.pop()
            started = replace(started, loads={**started.loads, load.name: seen})
            sessions.append(started)
            keep(sessions)
            _tell(started, load, plan)
        return started

    _, failures = in_turn(contenders, one_session, logs, rounds, until)
    return sessions, failures


def _warm(side: Side, plan: Plan) -> None:
    """Let buffers grow, and kernels and graphs be made; SmokeError if nothing is answered."""
    start, load = time.monotonic(), plan.warm_up
    outcomes = drive.run(side, load, plan.requests(load), plan.below)
    if all(outcome.failure for outcome in outcomes):
        raise SmokeError(f"no request is answered: {outcomes[0].failure}")
    progress(f"{load.name}: {time.monotonic() - start:.1f} s")


def _seen(side: Side, load: Load, plan: Plan) -> Seen:
    """Send a load, then some of its requests again alone; SmokeError if nothing is answered."""
    requests = plan.requests(load)
    outcomes = drive.run(side, load, requests, plan.below)
    if all(outcome.failure for outcome in outcomes):
        raise SmokeError(f"{load.name}: no request is answered: {outcomes[0].failure}")
    chosen = trace.sample(plan.check, requests)
    alone = drive.alone(side, load, chosen, plan.below)
    known = all(outcome.first is not None for outcome in outcomes if not outcome.failure)
    return Seen(
        [round(outcome.sent, _DIGITS) for outcome in outcomes],
        [round(outcome.first or outcome.done, _DIGITS) for outcome in outcomes] if known else [],
        [round(outcome.done, _DIGITS) for outcome in outcomes],
        {outcome.number: outcome.failure for outcome in outcomes if outcome.failure},
        len(chosen),
        unlike(outcomes, alone),
    )


def unlike(outcomes: Sequence[Outcome], alone: Sequence[Outcome]) -> int:
    """Return how many answers alone differ from those under load; one that is missing does."""
    under_load = {outcome.number: outcome for outcome in outcomes}
    return sum(bool(each.failure) or each.tokens != under_load[each.number].tokens for each in alone)


def _trace(load: Load, requests: Sequence[Request]) -> dict[str, object]:
    lengths = {"prompts": [each.prompt for each in requests], "answers": [each.answer for each in requests]}
    return {**asdict(load), **lengths}


def _tell(session: Session, load: Load, plan: Plan) -> None:
    seen = asdict(session.loads[load.name])
    progress(f"{session.variant}, {load.name}: {report.line(seen, _trace(load, plan.requests(load)))}")
