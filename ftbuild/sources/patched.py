"""Patched trees: the series applied to a staged release, or tried on every release."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from ftbuild.config.schema import Config
from ftbuild.sources import fetch, planned, repositories, taking
from ftbuild.sources.patches import series
from ftbuild.sources.patches.series import Entry, PatchStatus
from ftbuild.text.reporter import Reporter


def apply(
    config: Config,
    release: str,
    trees: Mapping[str, Path],
    cache: Path,
    report: Reporter,
    *,
    lean: bool = False,
) -> None:
    """Apply the series for `release` to the exported `trees` (component -> folder), and to no others.

    Of a `lean` cell also what can leave something out. Errors as those of `taking.apply`.
    """
    entries = series.read_series(config)
    versions = {component: config.version(release, component) for component in entries if component in trees}
    patches = [
        planned.patch(config, entry)
        for component, version in versions.items()
        for entry in series.applicable(entries[component], version, lean=lean)
    ]
    taking.apply(patches, trees, versions, cache, report)


def survey(config: Config, releases: Collection[str], cache: Path, report: Reporter) -> Iterator[PatchStatus]:
    """Yield the status of every entry on every release (none named: all), each on a tree of its own."""
    diffs: dict[str, bytes] = {}

    def diff_of(entry: Entry) -> bytes:
        if entry.name not in diffs:
            diffs[entry.name] = fetch.entry_diff(config, entry, cache, report=report)
        return diffs[entry.name]

    for release in repositories.chosen_releases(config, releases):
        report(f"{release}: fetching and trying the series")
        fetch.fetch_release(config, release, cache, report=report)
        for component, entries in series.read_series(config).items():
            if component not in config.sources.releases[release]:
                continue
            with tempfile.TemporaryDirectory(prefix="ftbuild-") as tree:
                fetch.export(config, release, component, cache, Path(tree), report=report)
                yield from series.status(
                    entries,
                    Path(tree),
                    release=release,
                    version=config.version(release, component),
                    diff_of=diff_of,
                )
