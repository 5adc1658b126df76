"""Throw-away containers without network and rights: scripts run in an image, files read out of one.

Nothing is mounted here, so the engine may be on another machine; files go in and out as a tar.
"""

from __future__ import annotations

import shlex
import signal
import uuid
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ftbuild.engine import daemon
from ftbuild.errors import FtbuildError, HostError
from ftbuild.host import shell

if TYPE_CHECKING:
    import docker
    from docker.models.containers import Container
    from docker.types import DeviceRequest

ROOT = "0"
SCRIPT_SECONDS = 600
SHOWN_LINES = 5
SIGNALLED = 128
# Upstream's converters start a process for each CPU, torch a thread.
MAX_PROCESSES = 4096
# What the engine and the rest of the machine keep.
RESERVED_MEMORY = 2**30
_REPEAT = "docker run the image and repeat it by hand"
# Written behind the output of a script. An engine under load drops what a container wrote last: it waits two
# seconds for it (moby v26.1 daemon/monitor.go, handleContainerExit).
_END = "end of the output\n"
TRIES = 3


class ContainerError(FtbuildError):
    """A script in a container failed, or the image lacks a path. Callers know what that means for a user."""


def run(
    client: docker.DockerClient,
    image: str,
    script: str,
    *,
    user: str | None = None,
    copied: Sequence[tuple[str, str]] = (),
    devices: Sequence[DeviceRequest] = (),
    seconds: int = SCRIPT_SECONDS,
) -> str:
    """Return the standard output of a shell script in `image`, which runs again if the engine loses some.

    `copied` are images, each with a file or folder of it that is copied to /tmp first, `user` None the
    image's own, `devices` the GPUs that the container gets. Raises ContainerError with the last lines when
    the script fails or takes longer than `seconds`, and when its output is lost again and again.
    """
    marked = f"{script}\nprintf '%s' '{_END}'"
    for _ in range(TRIES):
        with _finished(
            client, image, marked, user, copied=copied, devices=devices, seconds=seconds
        ) as container:
            output = container.logs(stderr=False).decode("utf-8", "replace")
        if output.endswith(_END):
            return output.removesuffix(_END)
    raise ContainerError("the engine lost the output of a script", where=image, hint=_REPEAT)


def run_all(
    client: docker.DockerClient,
    image: str,
    scripts: Sequence[str],
    *,
    user: str | None = None,
    copied: Sequence[tuple[str, str]] = (),
) -> list[str]:
    """Return the standard outputs of shell scripts that run one after the other in one container.

    Raises ContainerError as `run`, and when one of them fails.
    """
    mark = f"{uuid.uuid4()}\n"  # no script prints it by chance
    steps = (f"/bin/sh -ec {shlex.quote(script)}\nprintf '%s' '{mark}'" for script in scripts)
    return run(client, image, "\n".join(steps), user=user, copied=copied).split(mark)[: len(scripts)]


@contextmanager
def produced(
    client: docker.DockerClient,
    image: str,
    script: str,
    path: str,
    *,
    files: bytes | Iterable[bytes] | None = None,
) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Yield both output streams of a shell script, and a file or folder that it made, as a tar stream.

    The tar is named by the last part of `path`; `files` is a tar that is unpacked in /tmp first. Raises
    ContainerError when the script fails.
    """
    with _finished(client, image, script, None, files=files) as container:
        # Before the archive: the engine holds the container's lock until the archive is read.
        output = container.logs().decode("utf-8", "replace")
        stream, _ = container.get_archive(path)
        with _closing(stream) as chunks:
            yield output, chunks


@contextmanager
def archive(client: docker.DockerClient, image: str, path: str) -> Iterator[Iterable[bytes]]:
    """Yield a file or folder of `image` as a tar stream, named by the last part of `path`.

    Raises ContainerError when the image has no such path.
    """
    from docker.errors import NotFound

    with created(client, image, "true", role="verify") as container:
        try:
            stream, _ = container.get_archive(path)
        except NotFound as missing:
            raise ContainerError(f"{path} is not in the image", hint="invoke build --rebuild") from missing
        with _closing(stream) as chunks:
            yield chunks


def available(client: docker.DockerClient, name: str, purpose: str, hint: str) -> str:
    """Return the id of an image, which is pulled when this machine lacks it.

    BuildKit pulls a base into its own store, where containers cannot use it. Raises HostError with `hint`
    when no registry has it.
    """
    try:
        if not daemon.image(client, name):
            daemon.pull(client, name)
    except daemon.PullRefused as absent:
        raise HostError(f"{purpose} needs the image {name}", where=absent.what, hint=hint) from absent
    return daemon.require_image(client, name)


@contextmanager
def created(
    client: docker.DockerClient, image: str, script: str, *, role: str, **options: Any
) -> Iterator[Container]:
    """Create a container that runs a shell script once it is started, and remove it at the end.

    An image's own entrypoint would print into the output. `options` are those of the SDK's
    `containers.create`. An interrupt removes the container, too; an engine that is gone does not hide the
    error that is under way. Raises Interrupted in the threads of a program that Ctrl-C ends.

    The script cannot gain rights, and has no more of the machine's memory than the machine can spare. As root
    it reads the files of all users, and has no other of root's capabilities.
    """
    from docker.errors import APIError
    from requests import RequestException

    shell.require_uninterrupted("a container")
    name = daemon.throw_away_name()
    try:
        yield client.containers.create(
            image,
            name=name,
            entrypoint=["/bin/sh", "-ec", script],
            command=[],
            network_mode="none",
            cap_drop=["ALL"],
            cap_add=["DAC_OVERRIDE"] if options.get("user") == ROOT else [],
            security_opt=["no-new-privileges"],
            pids_limit=MAX_PROCESSES,
            mem_limit=_spare_memory(client),
            labels=daemon.throw_away_labels(role),
            **options,
        )
    finally:
        with suppress(APIError, RequestException):
            daemon.remove_container(client, name)


def _spare_memory(client: docker.DockerClient) -> int:
    total = int(client.info()["MemTotal"])
    return max(total - RESERVED_MEMORY, total // 2)


@contextmanager
def _finished(
    client: docker.DockerClient,
    image: str,
    script: str,
    user: str | None,
    *,
    files: bytes | Iterable[bytes] | None = None,
    copied: Sequence[tuple[str, str]] = (),
    devices: Sequence[DeviceRequest] = (),
    seconds: int = SCRIPT_SECONDS,
) -> Iterator[Container]:
    """Yield a container whose script has succeeded."""
    from requests import RequestException

    with created(client, image, script, role="verify", user=user, device_requests=list(devices)) as container:
        if files is not None:
            container.put_archive("/tmp", files)
        for source in copied:
            with archive(client, *source) as tar:
                container.put_archive("/tmp", tar)
        container.start()
        try:
            code = container.wait(timeout=seconds)["StatusCode"]
        except RequestException as late:
            raise ContainerError(f"a script did not end within {seconds} s", hint=_REPEAT) from late
        if code:
            last = container.logs().decode("utf-8", "replace").strip().splitlines()[-SHOWN_LINES:]
            raise ContainerError("\n".join([f"a script {ending(code)}", *last]), hint=_REPEAT)
        yield container


def ending(code: int) -> str:
    """Return in words how a container's process ended; the engine adds 128 to the number of a signal."""
    return shell.ending(SIGNALLED - code if SIGNALLED < code < SIGNALLED + signal.NSIG else code)


@contextmanager
def _closing(stream: Iterator[bytes]) -> Iterator[Iterable[bytes]]:
    """Close a stream that is not read to its end: the engine keeps the container's lock until then."""
    assert isinstance(stream, Generator)
    try:
        yield stream
    finally:
        stream.close()
