"""What the tests of a run cost: at its end, the files that took longest, in seconds. A plugin of pytest."""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from dataclasses import dataclass

import pytest

SHOWN = 10
_BEFORE = pytest.StashKey[float]()


@dataclass
class Cost:
    """Seconds of a clock, and of processors: in the test's process and in the programs that it waited for.

    What a container or the engine computes is in the first alone.
    """

    clock: float = 0.0
    processor: float = 0.0


def _processor() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Look at the processor's clock before a test."""
    item.stash[_BEFORE] = _processor()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note what setup, call or teardown has cost; the attribute travels from the processes of a run."""
    report = yield
    now = _processor()
    report.__dict__["processor_seconds"] = now - item.stash[_BEFORE]
    item.stash[_BEFORE] = now
    return report


def by_file(reports: Iterable[object]) -> dict[str, Cost]:
    """Return the cost of each file, the longest first."""
    found: dict[str, Cost] = defaultdict(Cost)
    for report in reports:
        if isinstance(report, pytest.TestReport):
            cost = found[report.nodeid.partition("::")[0]]
            cost.clock += report.duration
            cost.processor += getattr(report, "processor_seconds", 0.0)
    return dict(sorted(found.items(), key=lambda item: -item[1].clock))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the files that took longest."""
    found = by_file(report for reports in terminalreporter.stats.values() for report in reports)
    if len(found) <= SHOWN:
        return
    total = Cost(sum(cost.clock for cost in found.values()), sum(cost.processor for cost in found.values()))
    terminalreporter.section(f"the {SHOWN} longest of {len(found)} files")
    terminalreporter.write_line("  clock  processor  seconds")
    for name, cost in [*list(found.items())[:SHOWN], ("all files", total)]:
        terminalreporter.write_line(f"{cost.clock:7.1f}  {cost.processor:9.1f}  {name}")
