"""What an engine takes to unpack a layer, by the window of Zstandard that it was compressed with.

    python -m benchmarks.tools.window IMAGE --dockerd "$(pidof dockerd)"

The largest layer of IMAGE is compressed with each window, and then imported (docker import) in turn; what was
imported is removed. `--dockerd` adds the processor time of the engine and of what it has started. The layer
lies in the folder for temporary files (TMPDIR), as tar and with each window. Creating files is slow for some
minutes after as many were removed (ext4 keeps their inodes), so there is a pause before each import.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild.engine import daemon
from ftbuild.publishing import compression
from ftbuild.publishing.piece_stream import PieceStream
from testing import processor

if TYPE_CHECKING:
    import docker

_CHUNK = 1 << 20
_BLOBS = "blobs/sha256/"
_IMPORTED = "ftbuild-bench-window"


@dataclass(frozen=True)
class Run:
    """One import: seconds by the clock, and of a processor (0 where they are not known)."""

    seconds: float
    cpu: float


def main(arguments: Sequence[str]) -> None:
    """Measure all windows in turn, and print medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("image", help="in the engine, which has it from a build or a load")
    parser.add_argument(
        "--windows", type=int, nargs="+", default=[27, 24, 23], help="powers of two, of bytes (%(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=2, help="(%(default)s)")
    parser.add_argument("--pause", type=float, default=60, help="seconds before an import (%(default)s)")
    parser.add_argument(
        "--dockerd", type=int, metavar="PID", help="process id of the engine, on this machine"
    )
    options = parser.parse_args(arguments)
    client = daemon.connect()
    with tempfile.TemporaryDirectory(prefix="ftbuild-window-") as folder:
        layer = largest_layer(client, options.image, Path(folder))
        packed = {window: _packed(layer, window) for window in options.windows}
        layer.unlink()
        runs: dict[int, list[Run]] = {window: [] for window in packed}
        for _ in range(options.rounds):
            for window, file in packed.items():
                time.sleep(options.pause)
                runs[window].append(_imported(client, file, options.dockerd))
                print(f"{_mib(window)}: {runs[window][-1].seconds:.1f} s", file=sys.stderr)
        for window, file in packed.items():
            print(f"{_mib(window):>8}  {file.stat().st_size / 1e6:8.1f} MB  {_medians(runs[window])}")


def largest_layer(client: docker.DockerClient, image: str, folder: Path) -> Path:
    """Write the largest layer of an image as a tar below `folder`; return its path."""
    kept, stream = folder / "layer.tar", BufferedReader(PieceStream(client.images.get(image).save()))
    size = 0
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if member.name.startswith(_BLOBS) and member.isfile() and member.size > size:
                content = archive.extractfile(member)
                assert content
                with kept.open("wb") as file:
                    shutil.copyfileobj(content, file, _CHUNK)
                size = member.size
    return kept


def _packed(layer: Path, window: int) -> Path:
    file = layer.with_name(f"layer-{window}.tar.zst")
    with layer.open("rb") as content, file.open("wb") as packed:
        compression.compress(iter(partial(content.read, _CHUNK), b""), packed, window_log=window)
    return file


def _imported(client: docker.DockerClient, file: Path, dockerd: int | None) -> Run:
    """Import a layer, and remove it."""
    name = f"{_IMPORTED}:{os.getpid()}"
    before, start = _engine_seconds(dockerd), time.monotonic()
    client.api.import_image_from_file(str(file), repository=_IMPORTED, tag=str(os.getpid()))
    run = Run(time.monotonic() - start, _engine_seconds(dockerd) - before)
    client.images.remove(name)
    return run


def _engine_seconds(pid: int | None) -> float:
    return 0.0 if pid is None else sum(processor.of_process(pid))


def _medians(runs: Sequence[Run]) -> str:
    seconds = statistics.median(run.seconds for run in runs)
    cpu = statistics.median(run.cpu for run in runs)
    return f"{seconds:6.1f} s" + (f"  {cpu:6.1f} CPU s" if cpu else "")


def _mib(window: int) -> str:
    return f"{2**window / 2**20:g} MiB"


if __name__ == "__main__":
    main(sys.argv[1:])
