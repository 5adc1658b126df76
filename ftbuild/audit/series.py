"""The patch series tried on every release: what would stop a build, before a night is spent on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from ftbuild.audit.finding import Finding
from ftbuild.config.schema import Config
from ftbuild.errors import PinError
from ftbuild.sources import patched
from ftbuild.sources.patches.series import PatchStatus
from ftbuild.text.reporter import Reporter

SUBJECT = "patches"


def findings(config: Config, cache: Path, report: Reporter) -> Iterator[Finding]:
    """One finding for each release that is well, else one for each entry that stops its build."""
    for release in config.sources.releases:
        try:
            rows = list(patched.survey(config, [release], cache, report))
        except PinError as absent:
            yield Finding(f"sources of {release}", "fail", f"the series cannot be tried: {absent.what}")
            continue
        yield from judge(release, rows)


def judge(release: str, rows: Sequence[PatchStatus]) -> Iterator[Finding]:
    """What the rows of a release mean for its builds."""
    stopped = [row for row in rows if row.stops]
    for row in stopped:
        what = f"{SUBJECT} {release}: {row.component}/{row.file}"
        yield Finding(what, "fail", f"{row.status}: {row.detail}")
    if not stopped:
        counts = Counter(row.status.value for row in rows)
        said = ", ".join(f"{status}: {count}" for status, count in counts.items())
        yield Finding(f"{SUBJECT} {release}", "ok", said or "none")
