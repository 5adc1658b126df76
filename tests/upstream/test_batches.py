"""Requests that the patched backend computes together: its own headers, a model with upstream's habits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ftbuild.config.schema import Config
from ftbuild.sources import fetch
from ftbuild.sources.patches import series
from testing import needs

from .conftest import Need

PROGRAMS = Path(__file__).parent / "programs"
SEED, ROUNDS = 1, 2000


@pytest.mark.parametrize("release", ["22.03", "22.07", "22.12"])
def test_requests_of_one_batch_get_what_they_get_alone(
    config: Config, cache: Path, need: Need, tmp_path: Path, release: str
) -> None:
    need("backend", "core")
    compiler = needs.program("g++")
    for name in ("backend", "core"):
        fetch.export(config, release, name, cache, tmp_path / name)
    version = config.version(release, "backend")
    for entry in series.applicable(series.read_series(config)["backend"], version):
        diff = fetch.entry_diff(config, entry, cache)
        series.apply(tmp_path / "backend", entry, diff, version=version)
    includes = (PROGRAMS / "include", tmp_path / "backend/src", tmp_path / "core/include")
    program = tmp_path / "request_batches"
    subprocess.run(
        [compiler, "-std=c++14", "-Wall", "-Wextra", "-Werror", "-D_GLIBCXX_ASSERTIONS"]
        + [f"-I{folder}" for folder in includes]
        + [str(PROGRAMS / "request_batches.cc"), "-o", str(program)],
        check=True,
    )
    ran = subprocess.run([program, str(SEED), str(ROUNDS)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    requests, computed = map(int, ran.stdout.split())
    assert requests > 5 * ROUNDS
    assert computed < 0.95 * requests, "several at once"
