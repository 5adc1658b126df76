"""Throw-away containers without network: run a script in an image, read files out of one.

Nothing is mounted, so the engine may be on another machine; what goes in and out is a tar.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ftbuild.engine import daemon
from ftbuild.errors import HostError, VerifyError

if TYPE_CHECKING:
    import docker
    from docker.models.containers import Container
    from docker.types import DeviceRequest

SCRIPT_SECONDS = 600
_ROLE = {"io.ftbuild.role": "verify"}
_REPEAT = "docker run the image and repeat it by hand"


def run(
    client: docker.DockerClient,
    image: str,
    script: str,
    *,
    user: str | None = None,
    files: bytes | Iterable[bytes] | None = None,
    devices: Sequence[DeviceRequest] = (),
    seconds: int = SCRIPT_SECONDS,
) -> str:
    """The standard output of a shell script in `image`; `files` is a tar that is unpacked in /tmp before.

    `user` is the image's own unless told, `devices` are GPUs it gets. Raises VerifyError with the last lines
    when the script fails or takes longer than `seconds`.
    """
    with _finished(client, image, script, user, files, devices, seconds) as container:
        return container.logs(stderr=False).decode("utf-8", "replace")


@contextmanager
def produced(
    client: docker.DockerClient,
    image: str,
    script: str,
    path: str,
    *,
    files: bytes | Iterable[bytes] | None = None,
) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Everything that a shell script said, and a file or folder that it made, as a tar stream.

    The tar is named by the last part of `path`; `files` and errors as in `run`.
    """
    with _finished(client, image, script, None, files) as container:
        # Before the archive: the engine holds the container's lock until the archive is read.
        said = container.logs().decode("utf-8", "replace")
        stream, _ = container.get_archive(path)
        with _closing(stream) as chunks:
            yield said, chunks


@contextmanager
def archive(client: docker.DockerClient, image: str, path: str) -> Iterator[Iterable[bytes]]:
    """A file or folder of `image` as a tar stream, named by the last part of `path`.

    Raises VerifyError when the image has no such path.
    """
    from docker.errors import NotFound

    with _created(client, image, "true", None) as container:
        try:
            stream, _ = container.get_archive(path)
        except NotFound as missing:
            raise VerifyError(f"{path} is not in the image", hint="invoke build --rebuild") from missing
        with _closing(stream) as chunks:
            yield chunks


def available(client: docker.DockerClient, name: str, purpose: str, hint: str) -> str:
    """The id of an image, which is pulled when this machine lacks it.

    BuildKit pulls a base into its own store, where containers cannot use it. Raises HostError with `hint`
    when no registry has it.
    """
    from docker.errors import APIError

    found = daemon.image(client, name)
    try:
        found = found or client.images.pull(name)
    except APIError as absent:
        raise HostError(f"{purpose} needs the image {name}", where=str(absent), hint=hint) from absent
    return str(found.id)


@contextmanager
def _closing(stream: Iterator[bytes]) -> Iterator[Iterable[bytes]]:
    """Ends a stream that is not read to its end; the engine keeps the container's lock until then."""
    assert isinstance(stream, Generator)
    try:
        yield stream
    finally:
        stream.close()


@contextmanager
def _finished(
    client: docker.DockerClient,
    image: str,
    script: str,
    user: str | None,
    files: bytes | Iterable[bytes] | None,
    devices: Sequence[DeviceRequest] = (),
    seconds: int = SCRIPT_SECONDS,
) -> Iterator[Container]:
    """A container whose script has ended well."""
    from requests import RequestException

    with _created(client, image, script, user, devices) as container:
        if files is not None:
            container.put_archive("/tmp", files)
        container.start()
        try:
            code = container.wait(timeout=seconds)["StatusCode"]
        except RequestException as late:
            raise VerifyError(f"a script did not end within {seconds} s", hint=_REPEAT) from late
        if code:
            said = container.logs().decode("utf-8", "replace").strip().splitlines()[-5:]
            raise VerifyError("\n".join([f"a script ended with code {code}", *said]), hint=_REPEAT)
        yield container


@contextmanager
def _created(
    client: docker.DockerClient,
    image: str,
    script: str,
    user: str | None,
    devices: Sequence[DeviceRequest] = (),
) -> Iterator[Container]:
    """A container that runs `script` once it is started; an image's own entrypoint would print into it."""
    name = daemon.throw_away_name()
    try:
        yield client.containers.create(
            image,
            name=name,
            entrypoint=["/bin/sh", "-ec", script],
            command=[],
            user=user,
            network_disabled=True,
            device_requests=list(devices),
            labels=_ROLE,
        )
    finally:
        daemon.remove_container(client, name)
