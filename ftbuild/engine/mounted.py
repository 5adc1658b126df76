"""Containers that work on folders of this machine, without network and as the calling user.

Other containers of ftbuild mount nothing (ftbuild/engine/container.py); weights are too big to be copied
twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild.engine.container import created
from ftbuild.errors import HostError

if TYPE_CHECKING:
    import docker
    from docker.models.containers import Container
    from docker.types import Mount

POLL_SECONDS = 0.5
# HOME: the caller has none in the image. LOGNAME: nor a name, which torch asks for (getpass.getuser).
# OFFLINE: Hugging Face's libraries look for newer files otherwise, and wait for a network that is not there.
_ENVIRONMENT = {
    "HOME": "/tmp",
    "LOGNAME": "ftbuild",
    "PYTHONUNBUFFERED": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


@dataclass(frozen=True)
class Folders:
    """Paths inside a container -> folders or files of this machine."""

    readable: Mapping[str, Path]
    writable: Mapping[str, Path]

    def mounts(self) -> list[Mount]:
        """Return bind mounts. A folder with links is mounted file by file, as its links may lead out of it.

        Hugging Face's cache is such a folder: snapshots/<commit>/ links to blobs/ (huggingface_hub's guide
        "Understand caching").
        """
        from docker.types import Mount

        single = dict(_expanded(self.readable))
        return [
            *(Mount(inside, str(path), type="bind", read_only=True) for inside, path in single.items()),
            *(Mount(inside, str(path.resolve()), type="bind") for inside, path in self.writable.items()),
        ]


def run(
    client: docker.DockerClient, image: str, script: str, folders: Folders, tick: Callable[[], None]
) -> tuple[int, str]:
    """Run a shell script in `image` and return its exit code and output; `tick` is called meanwhile.

    The container is gone afterwards, also after an interrupt. Raises HostError when it cannot be started, or
    is taken away.
    """
    from docker.errors import APIError
    from requests import RequestException

    with _started(client, image, script, folders) as container:
        try:
            while container.status != "exited":
                tick()
                time.sleep(POLL_SECONDS)
                container.reload()
            code = int(container.attrs["State"]["ExitCode"])
            return code, container.logs().decode("utf-8", "replace")
        except (APIError, RequestException) as lost:
            raise HostError(
                f"the converter's container was lost: {getattr(lost, 'explanation', None) or lost}",
                where=image,
                hint="was it removed, or the engine stopped? Repeat the command",
            ) from lost


@contextmanager
def _started(client: docker.DockerClient, image: str, script: str, folders: Folders) -> Iterator[Container]:
    from docker.errors import APIError

    with ExitStack() as cleanup:
        try:
            container = cleanup.enter_context(
                created(
                    client,
                    image,
                    script,
                    role="convert",
                    user=f"{os.getuid()}:{os.getgid()}",
                    working_dir="/tmp",
                    environment=_ENVIRONMENT,
                    mounts=folders.mounts(),
                )
            )
            container.start()
        except APIError as refused:
            raise _refused(image, refused) from refused
        container.reload()
        yield container


def _refused(image: str, error: Exception) -> HostError:
    return HostError(
        f"the engine cannot start the converter: {getattr(error, 'explanation', None) or error}",
        where=image,
        hint="the engine must run on this machine: the folders are mounted, not copied",
    )


def _expanded(mounted: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    for inside, path in mounted.items():
        files: Sequence[Path] = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else []
        if any(file.is_symlink() for file in files):
            yield from ((f"{inside}/{file.relative_to(path)}", file.resolve()) for file in files)
        else:
            yield inside, path.resolve()
