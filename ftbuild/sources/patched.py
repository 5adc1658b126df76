"""Patched trees: the series applied to a staged release, or tried on every release."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from ftbuild.config.schema import Config
from ftbuild.sources import fetch, repositories
from ftbuild.sources.patches import series
from ftbuild.sources.patches.series import Entry, PatchStatus
from ftbuild.text.reporter import Reporter


def apply(config: Config, release: str, trees: Mapping[str, Path], cache: Path, report: Reporter) -> None:
    """Apply the series for `release` to the exported `trees` (component -> folder), and to no others.

    Raises PatchError naming patch, file and hunk at the first entry that does not apply.
    """
    for component, entries in series.read_series(config).items():
        version = config.version(release, component)
        wanted = series.applicable(entries, version) if component in trees else ()
        if wanted:
            report(f"patching {component} {version} ({len(wanted)} entries)")
        diffs = fetch.entry_diffs(config, wanted, cache, report=report)
        for entry, diff in zip(wanted, diffs, strict=True):
            series.apply(trees[component], entry, diff, version=version)


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
