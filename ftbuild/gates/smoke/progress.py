"""How far a run of the suite is, and about how long it still takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from ftbuild.text.units import duration

# About how many seconds a test takes, by the end of its function's name: means of 26.06 on one H100,
# 8 servers side by side on 16 processors (2026-11-28). A wrong one makes estimates wrong, and the order of
# the servers worse, nothing else.
SECONDS = {
    "requests_wait_for_a_slot_and_get_the_answers_that_they_get_alone": 36.0,
    "malformed_requests_leave_the_server_to_the_others": 32.0,
    "requests_wait_for_memory_and_get_the_answers_that_they_get_alone": 31.0,
    "requests_that_come_and_end_at_any_time_get_the_answers_that_they_get_alone": 14.0,
    "many_clients_get_the_answers_that_they_get_alone": 9.0,
    "replayed_steps_are_those_launched_one_by_one": 6.0,
    "a_model_that_is_unloaded_and_loaded_leaves_no_memory": 4.0,
    "clients_that_find_a_full_queue_are_refused_and_the_others_get_their_answers": 3.0,
    "answers_are_those_of_transformers": 3.0,
    "a_streamed_answer_grows_to_the_whole": 2.5,
    "a_killed_server_answers_once_it_is_restarted": 2.0,
}
OTHERS = 0.1
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
    # Those that run, and when they began.
    running: dict[str, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.nodes, self.skipped = frozenset(self.nodes), frozenset(self.skipped)
        self.total, self.work = len(self.nodes), self._work(self.nodes)

    def begin(self, node: str, elapsed: float) -> None:
        """Note that a test begins, so long after the run did."""
        self.running[node] = elapsed

    def finish(self, node: str) -> None:
        """Note that a test has ended."""
        self.running.pop(node, None)
        self.done.add(node)

    def _work(self, nodes: Iterable[str]) -> float:
        return sum(map(self._of, nodes))

    def _of(self, node: str) -> float:
        return 0.0 if node in self.skipped else seconds(node) * self.share(node)

    def _begun(self, elapsed: float) -> float:
        """Return what is done of the tests that run: as the longest begin, most of what is done at first."""
        return sum(
            self._of(node) * min(1.0, (elapsed - begun) / seconds(node))
            for node, begun in self.running.items()
        )

    def line(self, elapsed: float) -> str:
        """Return how many tests have ended by now, and when the others will have at this pace."""
        share = (self._work(self.done) + self._begun(elapsed)) / self.work if self.work else 1.0
        progress = f"{len(self.done)} of {self.total} tests in {duration(elapsed)}"
        if share < EARLY:
            return progress
        return f"{progress}, about {duration(elapsed * (1 - share) / share)} left"
