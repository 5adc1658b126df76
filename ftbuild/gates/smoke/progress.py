"""How far a run of the suite is, and about how long it still takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from ftbuild.text.units import duration

# About how many seconds a test takes, by the end of its function's name. A wrong one makes the estimate wrong
# and the order of the servers worse, nothing else.
SECONDS = {
    "malformed_requests_leave_the_server_to_the_others": 20.0,
    "many_clients_get_the_answers_that_they_get_alone": 10.0,
    "requests_that_come_and_end_at_any_time_get_the_answers_that_they_get_alone": 12.0,
    "requests_wait_for_memory_and_get_the_answers_that_they_get_alone": 8.0,
    "requests_wait_for_a_slot_and_get_the_answers_that_they_get_alone": 8.0,
    "a_model_that_is_unloaded_and_loaded_leaves_no_memory": 8.0,
    "replayed_steps_are_those_launched_one_by_one": 7.0,
    "a_killed_server_answers_once_it_is_restarted": 5.0,
}
OTHERS = 0.3
# The share of the work before which nothing is known of the rest.
EARLY = 0.03
_FUNCTION = re.compile(r"::test_(\w+)")


def seconds(node: str) -> float:
    """Return about how long a test takes, by its id in pytest."""
    function = _FUNCTION.search(node)
    return SECONDS.get(function[1], OTHERS) if function else OTHERS


@dataclass
class Progress:
    """What has been done of a run of the suite; times are in seconds."""

    nodes: Iterable[str]
    # Those that are skipped at once.
    skipped: Collection[str] = ()
    # The share of the GPUs that a test keeps from others.
    share: Callable[[str], float] = lambda node: 1.0
    total: int = field(init=False)
    work: float = field(init=False)
    done: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.nodes, self.skipped = frozenset(self.nodes), frozenset(self.skipped)
        self.total, self.work = len(self.nodes), self._work(self.nodes)

    def finish(self, node: str) -> None:
        """Note that a test has ended."""
        self.done.add(node)

    def _work(self, nodes: Iterable[str]) -> float:
        return sum(seconds(node) * self.share(node) for node in nodes if node not in self.skipped)

    def line(self, elapsed: float) -> str:
        """Return how many tests have ended by now, and when the others will have at this pace."""
        share = self._work(self.done) / self.work if self.work else 1.0
        progress = f"{len(self.done)} of {self.total} tests in {duration(elapsed)}"
        if share < EARLY:
            return progress
        return f"{progress}, about {duration(elapsed * (1 - share) / share)} left"
