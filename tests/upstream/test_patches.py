from __future__ import annotations

from pathlib import Path

from ftbuild.config.schema import Config
from ftbuild.sources import lock
from ftbuild.sources.patches.series import PatchStatus, Status

from .conftest import Need


def test_the_series_applies_to_the_real_sources_of_every_release(
    config: Config, survey: list[PatchStatus]
) -> None:
    assert {row.release for row in survey} == set(config.sources.releases)
    assert [row for row in survey if row.stops or row.status is Status.CONFLICT] == []


def test_every_entry_applies_somewhere(survey: list[PatchStatus]) -> None:
    used = {(row.component, row.file) for row in survey if row.status is Status.APPLIES}
    assert {(row.component, row.file) for row in survey} - used == set()


def test_the_lock_is_what_upstream_says(config: Config, cache: Path, need: Need) -> None:
    need(*config.sources.repositories)
    lock.check_lock(config, cache, report=print)
