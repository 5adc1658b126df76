"""How two images differ: layer by layer by their digests, and file by file where those differ."""

from __future__ import annotations

import hashlib
import io
import operator
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ftbuild.host import archives
from ftbuild.publishing import layers
from ftbuild.publishing.piece_stream import PieceStream
from ftbuild.publishing.remote_image import RemoteImage
from ftbuild.registry.answers import Part
from ftbuild.registry.client import Repository
from ftbuild.registry.malformed import Malformed
from ftbuild.text import bounded_json

if TYPE_CHECKING:
    import docker

# What a configuration tells a container to do, by its names (image-spec v1.1, config.md).
_SETTINGS = (
    "User",
    "Env",
    "Entrypoint",
    "Cmd",
    "WorkingDir",
    "Labels",
    "ExposedPorts",
    "Volumes",
    "StopSignal",
)


@dataclass(frozen=True)
class Entry:
    """What a layer says of a path; `content` is a file's sha256."""

    kind: bytes
    mode: int
    owner: tuple[int, int]
    time: int
    size: int
    link: str
    content: str | None


@dataclass(frozen=True)
class Difference:
    """A path of the layer with this number, from the lowest one on, and in what both sides differ."""

    layer: int
    path: str
    what: tuple[str, ...]

    def __str__(self) -> str:
        return f"layer {self.layer}: {self.path}: {', '.join(self.what)}"


@dataclass(frozen=True)
class Compared:
    """The outcome: for each layer whether it is equal, what differs in those that are not, and settings."""

    layers: tuple[bool, ...]
    files: tuple[Difference, ...] = ()
    settings: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Return whether all layers are equal."""
        return all(self.layers)


def compare(
    repository: Repository, published: RemoteImage, client: docker.DockerClient, image: str, scratch: Path
) -> Compared:
    """Compare an image of a registry with one of the engine; layers are read only if their digests differ.

    `scratch` gets a copy of the local image in that case. Raises PublishError if the registry refuses or an
    image cannot be read.
    """
    stored, attributes = layers.pairs(repository, published), client.images.get(image).attrs
    theirs, ours = [diff_id for _, diff_id in stored], list(attributes["RootFS"]["Layers"])
    settings = tuple(_settings(_raw_config(repository, published), attributes))
    if len(theirs) != len(ours):
        return Compared((False,) * max(len(theirs), len(ours)), (), (*settings, "number of layers"))
    equal = tuple(map(operator.eq, theirs, ours))
    if all(equal):
        return Compared(equal, (), settings)
    local = _saved(client, image, scratch)
    found: list[Difference] = []
    for number, (layer, _) in enumerate(stored):
        if not equal[number]:
            with tarfile.open(local[number]) as opened:
                here = _entries(opened)
            found += _differences(number, _streamed(repository, layer), here)
    return Compared(equal, tuple(found), settings)


def _raw_config(repository: Repository, image: RemoteImage) -> Mapping[str, Any]:
    """Return the configuration with what `Repository.config`, which has found it sound, leaves out."""
    config = image.image.content.config
    assert config is not None
    found: Mapping[str, Any] = bounded_json.loads(repository.part(config))
    return found


def _settings(published: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs in the configurations, labels one by one."""
    theirs, ours = published.get("config") or {}, here.get("Config") or {}
    for name in _SETTINGS:
        one, other = theirs.get(name) or None, ours.get(name) or None
        if one == other:
            continue
        if name == "Labels":
            one, other = one or {}, other or {}
            yield from (f"label {key}" for key in sorted({*one, *other}) if one.get(key) != other.get(key))
        else:
            yield name
    if _second(published.get("created")) != _second(here.get("Created")):
        yield "created"


def _second(time: object) -> str:
    """Return a time without fractions and zone: both are in UTC, and engines write them in two ways."""
    return str(time or "")[:19]


def _saved(client: docker.DockerClient, image: str, scratch: Path) -> list[Path]:
    """Return the layers of a local image as files in `scratch`, the lowest first."""
    with tempfile.TemporaryFile(dir=scratch) as archive:
        archive.writelines(client.images.get(image).save())
        archive.seek(0)
        archives.unpack(archive, scratch)
    (manifest,) = bounded_json.loads((scratch / "manifest.json").read_bytes())
    return [scratch / name for name in manifest["Layers"]]


def _streamed(repository: Repository, layer: Part) -> dict[str, Entry]:
    """Return what a layer in a registry says; Malformed for one that is no archive."""
    where = f"{repository.name}@{layer.digest}"
    pieces = io.BufferedReader(PieceStream(layers.unpacked(repository, layer, where)))
    try:
        with tarfile.open(fileobj=pieces, mode="r|") as streamed:
            return _entries(streamed)
    except tarfile.TarError as broken:
        raise Malformed(f"a layer cannot be read: {broken}", where=where) from broken


def _entries(layer: tarfile.TarFile) -> dict[str, Entry]:
    return {
        member.name: _entry(member, layer.extractfile(member) if member.isreg() else None) for member in layer
    }


def _entry(member: tarfile.TarInfo, content: IO[bytes] | None) -> Entry:
    digest = hashlib.file_digest(content, "sha256").hexdigest() if content else None  # type: ignore[arg-type]
    owner, time = (member.uid, member.gid), int(member.mtime)
    return Entry(member.type, member.mode, owner, time, member.size, member.linkname, digest)


def _differences(layer: int, one: Mapping[str, Entry], other: Mapping[str, Entry]) -> Iterator[Difference]:
    for path in sorted({*one, *other}):
        theirs, ours = one.get(path), other.get(path)
        if theirs is None or ours is None:
            yield Difference(layer, path, ("only published" if theirs else "only here",))
        elif what := _changed(theirs, ours):
            yield Difference(layer, path, what)


def _changed(one: Entry, other: Entry) -> tuple[str, ...]:
    fields = ("kind", "mode", "owner", "time", "size", "link", "content")
    return tuple(name for name in fields if getattr(one, name) != getattr(other, name))


def sentences(found: Compared, most: int = 20) -> Sequence[str]:
    """Return the outcome in lines: layers, then files, then settings; of many files the first."""
    equal = sum(found.layers)
    more = [f"and {len(found.files) - most} more files"] if len(found.files) > most else []
    return [
        f"{equal} of {len(found.layers)} layers are equal",
        *map(str, found.files[:most]),
        *more,
        *(f"configuration: {name}" for name in found.settings),
    ]
