"""The headers of in-flight batching as the backend has them, for programs without a GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ftbuild.config.schema import Config
from ftbuild.sources import fetch
from ftbuild.sources.patches import series
from testing import ROOT

# The backend is compiled with this release's headers of core in all releases.
RELEASE = "22.12"
STUBS = ROOT / "tests/upstream/programs/include"
# The patches of FasterTransformer that add the header of the batch, and change it.
_PATCHES = ("0510-in-flight-decoding.patch", "0530-in-flight-t5.patch", "0550-in-flight-token-ranges.patch")
_BATCH = "src/fastertransformer/models/in_flight/InFlightBatch.h"


def headers(config: Config, cache: Path, folder: Path) -> tuple[Path, ...]:
    """Export the patched backend and core into `folder`; return the folders of all headers, stubs first."""
    for name in ("backend", "core"):
        fetch.export(config, RELEASE, name, cache, folder / name)
    version = config.version(RELEASE, "backend")
    for entry in series.applicable(series.read_series(config)["backend"], version):
        diff = fetch.entry_diff(config, entry, cache)
        series.apply(folder / "backend", entry, diff, version=version)
    (folder / "ft").mkdir()
    for patch in _PATCHES:
        apply = ("git", "apply", f"--include={_BATCH}", str(ROOT / "patches/ft" / patch))
        subprocess.run(apply, cwd=folder / "ft", check=True)
    return (STUBS, folder / "backend/src", folder / "core/include", folder / "ft")
