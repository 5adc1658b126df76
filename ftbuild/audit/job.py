"""The audit as a whole: pins, bases, series; its table, its JSON and its exit code."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from ftbuild.audit import bases, pins, series
from ftbuild.audit.finding import STATES, Finding, worst_first
from ftbuild.config.schema import Config
from ftbuild.errors import PatchError, PinError, worst
from ftbuild.text import tables
from ftbuild.text.reporter import Reporter


def audit(config: Config, cache: Path, *, report: Reporter = print) -> tuple[Finding, ...]:
    """Ask every git URL and every registry at the same time, and try the series meanwhile.

    Fills the cache as a build would. Raises PinError where the lock lacks a pin, PatchError where a series
    is malformed, HostError on a full disk; whatever the outside says or does not say is a finding.
    """
    with tempfile.TemporaryDirectory(prefix="ftbuild-audit-", ignore_cleanup_errors=True) as scratch:
        told_of_pins = pins.ask(config, cache, Path(scratch), report)
        told_of_bases = bases.ask(config)
        tried = list(series.findings(config, cache, report))
        return (*told_of_pins(), *told_of_bases(), *tried)


def exit_code(findings: Iterable[Finding]) -> int:
    """PatchError's code when an entry of a series fails, PinError's when anything else does, else 0."""
    failed = [finding.what for finding in findings if finding.state == "fail"]
    return worst((PatchError if what.startswith(series.SUBJECT) else PinError).exit_code for what in failed)


def render(findings: Sequence[Finding], output: str) -> str:
    """The findings as a table for people, the worst first, or as JSON: a list of what, state, detail."""
    if output == "json":
        return json.dumps([asdict(finding) for finding in findings], indent=2)
    rows = [(finding.state, finding.what, finding.detail) for finding in worst_first(findings)]
    counts = {state: sum(finding.state == state for finding in findings) for state in STATES}
    total = f"failed: {counts['fail']}, warnings: {counts['warn']}"
    return f"{tables.render(('', 'What', 'Found'), rows)}\n{total}"
