"""The patch series tried on every release: entries that would stop a build."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from ftbuild.config.schema import Config
from ftbuild.errors import PinError
from ftbuild.sources import patched
from ftbuild.sources.patches.series import PatchStatus
from ftbuild.text.reporter import Reporter
from ftbuild.text.results import CheckResult, State

SUBJECT = "patches"


def check(config: Config, cache: Path, report: Reporter) -> Iterator[CheckResult]:
    """Yield one result for each release, or one for each entry that would stop its build."""
    for release in config.sources.releases:
        try:
            rows = list(patched.survey(config, [release], cache, report))
        except PinError as absent:
            yield CheckResult(
                f"sources of {release}", State.FAIL, f"the series cannot be tried: {absent.what}"
            )
            continue
        yield from judge(release, rows)


def judge(release: str, rows: Sequence[PatchStatus]) -> Iterator[CheckResult]:
    """Yield what the rows of a release mean for its builds."""
    stopped = [row for row in rows if row.stops]
    for row in stopped:
        what = f"{SUBJECT} {release}: {row.component}/{row.file}"
        yield CheckResult(what, State.FAIL, f"{row.status}: {row.detail}")
    if not stopped:
        counts = Counter(row.status.value for row in rows)
        summary = ", ".join(f"{status}: {count}" for status, count in counts.items())
        yield CheckResult(f"{SUBJECT} {release}", State.OK, summary or "none")
