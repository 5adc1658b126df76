from __future__ import annotations

from pathlib import Path

from ftbuild import patching, sources
from ftbuild.config import Config
from ftbuild.patches import Status


def test_the_series_applies_to_the_real_sources_of_every_release(config: Config, cache: Path) -> None:
    rows = list(patching.survey(config, (), cache, print))
    assert {row.release for row in rows} == set(config.sources.releases)
    assert [row for row in rows if row.stops or row.status is Status.CONFLICT] == []


def test_every_entry_applies_somewhere(config: Config, cache: Path) -> None:
    rows = list(patching.survey(config, (), cache, print))
    used = {(row.component, row.file) for row in rows if row.status is Status.APPLIES}
    assert {(row.component, row.file) for row in rows} - used == set()


def test_the_lock_is_what_upstream_says(config: Config, cache: Path) -> None:
    sources.check(config, cache, report=print)
