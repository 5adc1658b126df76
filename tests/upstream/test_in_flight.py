"""Requests that join a running batch: the patched backend's own header, a batch that is a function.

Twice: answers that go on prompts, and answers to prompts that an encoder reads.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ftbuild.config.schema import Config
from ftbuild.sources import fetch
from ftbuild.sources.patches import series
from testing import ROOT, patch_programs

from .conftest import Need

PROGRAMS = Path(__file__).parent / "programs"
BATCH = "src/fastertransformer/models/in_flight/InFlightBatch.h"
# The patch that adds the header, and the one that changes it.
ADDED, CHANGED = "0510-in-flight-decoding.patch", "0530-in-flight-t5.patch"
SEED, REQUESTS, SLOTS = 1, 500, 6


@pytest.mark.parametrize("defines", [(), ("SERVER_CANCELS",)], ids=["22.12", "from 23.10 on"])
def test_requests_that_join_a_batch_get_what_they_get_alone(
    config: Config, cache: Path, need: Need, tmp_path: Path, defines: tuple[str, ...]
) -> None:
    """The backend is compiled with 22.12's headers in all releases; later servers tell who has left."""
    need("backend", "core")
    for name in ("backend", "core"):
        fetch.export(config, "22.12", name, cache, tmp_path / name)
    version = config.version("22.12", "backend")
    for entry in series.applicable(series.read_series(config)["backend"], version):
        diff = fetch.entry_diff(config, entry, cache)
        series.apply(tmp_path / "backend", entry, diff, version=version)
    (tmp_path / "ft").mkdir()
    for patch in (ADDED, CHANGED):
        apply = ("git", "apply", f"--include={BATCH}", str(ROOT / "patches/ft" / patch))
        subprocess.run(apply, cwd=tmp_path / "ft", check=True)
    program = patch_programs.compiled(
        PROGRAMS / "in_flight_requests.cc",
        tmp_path / "in_flight_requests",
        PROGRAMS / "include",
        tmp_path / "backend/src",
        tmp_path / "core/include",
        tmp_path / "ft",
        defines=defines,
    )
    done = patch_programs.run(program, SEED, REQUESTS)
    right, failed, left, parts, largest = map(int, done.stdout.split())
    assert right + failed + left == 8 * REQUESTS
    assert failed, "a batch that fails is tried, too"
    assert (left > 0) == bool(defines)
    assert parts > 2 * (right + failed + left), "streams have parts"
    assert largest == SLOTS, "all slots are taken at some time"
