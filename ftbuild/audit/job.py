"""The whole audit: pins, bases, Debian packages and series, its table, its JSON and its exit code."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from ftbuild.audit import bases, debian, pins, record, series
from ftbuild.config.schema import Config
from ftbuild.errors import PatchError, PinError, worst
from ftbuild.text import results as text
from ftbuild.text.reporter import Reporter
from ftbuild.text.results import CheckResult


def audit(config: Config, cache: Path, *, report: Reporter = print) -> tuple[CheckResult, ...]:
    """Ask every git URL and every registry at the same time, and try the series meanwhile.

    Fills the cache as a build would. Raises PinError where the lock lacks a pin, PatchError where a series
    is malformed, HostError on a full disk; remote failures become results.
    """
    with tempfile.TemporaryDirectory(prefix="ftbuild-audit-", ignore_cleanup_errors=True) as scratch:
        collect_pins = pins.ask(config, cache, Path(scratch), report)
        collect_bases = bases.ask(config)
        collect_debian = debian.ask(config, report)
        tried = list(series.check(config, cache, report))
        return (*collect_pins(), *collect_bases(), *collect_debian(), *tried)


def exit_code(results: Iterable[CheckResult]) -> int:
    """Return PatchError's code when an entry of a series fails, PinError's for other failures, else 0."""
    failed = [result.check for result in text.failed(results)]
    return worst((PatchError if what.startswith(series.SUBJECT) else PinError).exit_code for what in failed)


def render(results: Sequence[CheckResult], output: str) -> str:
    """Return the results as a table (`human`), the worst last, or as a JSON list (`json`)."""
    if output == "json":
        return json.dumps([record.as_dict(result) for result in results], indent=2)
    return text.render(results)
