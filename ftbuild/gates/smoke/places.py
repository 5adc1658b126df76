"""Places for servers under test: how many stand side by side, and which GPUs one may have for itself."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ftbuild.engine.gpu import Gpu

# GPU memory for one server, in bytes. It has some 2 GiB: the context, the weights, slots (64 of 2048 tokens,
# at most 1 GiB for the widest model), and the buffers that the largest request has left.
SHARE_BYTES = 8 * 2**30
# More take turns on a GPU so often that an answer may take too long (served.ANSWER_SECONDS).
MAX_ON_A_GPU = 8
# How many would end as soon as those, did they not hold each other up: from four H100s with 8 servers on each
# (24.10, 2026-11-28).
BUSY = 4
# The server, and the process that asks it.
PROCESSORS = 2
POLL_SECONDS = 0.05


def side_by_side(gpus: Sequence[Gpu], processors: int) -> int:
    """Return how many servers of tiny models may run at a time on these GPUs (none: on processors)."""
    by_processors = max(1, processors // PROCESSORS)
    if not gpus:
        return min(by_processors, MAX_ON_A_GPU)
    on_each = min(min(gpu.memory for gpu in gpus) // SHARE_BYTES, MAX_ON_A_GPU)
    return max(1, min(on_each * len(gpus), by_processors))


@contextmanager
def next_in_line(folder: Path, devices: Sequence[int]) -> Iterator[None]:
    """Be the one server that is started for exactly these GPUs while another has them; wait for the turn.

    A server over several GPUs needs many seconds to get ready, in which it computes next to nothing. One in
    line is enough to fill them, and keeps the memory of those that wait from adding up.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"next-{'-'.join(map(str, devices))}").open("a") as line:
        fcntl.flock(line, fcntl.LOCK_EX)
        yield


@contextmanager
def held(folder: Path, devices: Sequence[int], *, alone: bool) -> Iterator[None]:
    """Have a place on each of these GPUs, beside others or `alone`; wait until all are free at one moment.

    The places are locks of the kernel's (flock) on files in `folder`, shared or exclusive, so that no killed
    process keeps one. Nothing is held while one is lacking: who wants all GPUs would keep those idle that
    others could use. So the ones with few GPUs come first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        while not _taken(stack, folder, devices, fcntl.LOCK_EX if alone else fcntl.LOCK_SH):
            time.sleep(POLL_SECONDS)
        yield


def _taken(stack: ExitStack, folder: Path, devices: Sequence[int], how: int) -> bool:
    """Lock the places, all of them or none; return whether they are."""
    with ExitStack() as tried:
        for device in devices:
            file = tried.enter_context((folder / f"gpu-{device}").open("a"))
            try:
                fcntl.flock(file, how | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        stack.enter_context(tried.pop_all())
    return True
