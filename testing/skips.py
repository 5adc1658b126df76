"""The end of a test run: what was skipped, by reason. A plugin of pytest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pytest


def summary(skipped: Iterable[pytest.TestReport | pytest.CollectReport]) -> list[str]:
    """Return a line for each reason, the most frequent first: number of tests, reason, files."""
    found: dict[str, list[str]] = defaultdict(list)
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        found[reason.removeprefix("Skipped: ")].append(report.nodeid.partition("::")[0])
    ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    return [f"{len(files):5}  {reason}  [{', '.join(sorted(set(files)))}]" for reason, files in ordered]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the summary."""
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.section(f"{len(skipped)} tests did not run here")
        for line in summary(skipped):
            terminalreporter.write_line(line)
