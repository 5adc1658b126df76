"""What the processes of a test run share: the first that needs it makes it, the last removes it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock


@contextmanager
def made(
    folder: Path, name: str, make: Callable[[], str | None], remove: Callable[[str], None] | None = None
) -> Iterator[str]:
    """Have `name` made and in use during the block; `folder` is one that all processes of the run share.

    Yields what `make` returned, in whichever process that was.

    A process that comes while another one makes it waits. What could not be made is not tried again.
    `remove` gets what `make` returned, too: what was there before is known only to who made the rest, since
    others may look while things are made or removed.
    """
    ready, failed, users = (folder / f"{name}.{kind}" for kind in ("ready", "failed", "users"))
    lock, user = FileLock(folder / f"{name}.lock"), users / str(os.getpid())
    with lock:
        users.mkdir(exist_ok=True)
        assert not failed.exists(), f"{name} could not be made: {failed.read_text()}"
        if not ready.exists():
            try:
                ready.write_text(make() or "")
            except BaseException as error:
                failed.write_text(f"{error}")
                raise
        user.touch()
        made = ready.read_text()
    try:
        yield made
    finally:
        with lock:
            user.unlink()
            if not any(users.iterdir()):
                ready.unlink()
                if remove:
                    remove(made)
