"""The layers of images of the engine: how two images differ, and what an image hides."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterator, Set
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import docker

Entries = dict[str, tuple[object, ...]]
_REMOVED, _WHOLE = ".wh.", ".wh..wh..opq"


def differences(client: docker.DockerClient, first: str, second: str, scratch: Path) -> Iterator[str]:
    """Yield what differs: fields of the configuration, then files of each layer with both sides' facts."""
    (one, ours), (two, theirs) = (_saved(client, image, scratch) for image in (first, second))
    for field in sorted(one.keys() | two.keys()):
        if field != "rootfs" and one.get(field) != two.get(field):
            yield f"{field}: {one.get(field)} / {two.get(field)}"
    for number, (layer, other) in enumerate(zip(ours, theirs, strict=True)):
        left, right = _entries(layer), _entries(other)
        for path in sorted(left.keys() | right.keys()):
            if left.get(path) != right.get(path):
                yield f"layer {number}: {path}: {left.get(path)} / {right.get(path)}"


def hidden(client: docker.DockerClient, image: str, scratch: Path) -> Iterator[str]:
    """Yield the files that a layer of an image has and a container does not see: removed or replaced later.

    How a layer removes files: OCI image specification, "Whiteouts".
    """
    _, archives = _saved(client, image, scratch)
    below: set[str] = set()
    for archive in archives:
        with tarfile.open(archive) as tar:
            members = list(tar)
        own = {member.name for member in members if not member.isdir()}
        marks = {PurePosixPath(name) for name in own if PurePosixPath(name).name.startswith(_REMOVED)}
        folders = {f"{mark.parent}/" for mark in marks if mark.name == _WHOLE}
        removed = {str(mark.with_name(mark.name.removeprefix(_REMOVED))) for mark in marks}
        gone = {path for path in below if path in own or _is_in(path, removed) or _is_below(path, folders)}
        yield from gone
        below = (below - gone) | (own - {str(mark) for mark in marks})


def _is_in(path: str, removed: Set[str]) -> bool:
    return path in removed or any(str(parent) in removed for parent in PurePosixPath(path).parents)


def _is_below(path: str, folders: Set[str]) -> bool:
    return any(f"{parent}/" in folders for parent in PurePosixPath(path).parents)


def _saved(client: docker.DockerClient, image: str, scratch: Path) -> tuple[dict[str, Any], list[Path]]:
    """Return the configuration of an image and the files of its layers, the lowest first."""
    folder = scratch / hashlib.sha256(image.encode()).hexdigest()
    folder.mkdir()
    archive = folder / "image.tar"
    with archive.open("wb") as file:
        file.writelines(client.images.get(image).save())
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    (manifest,) = json.loads((folder / "manifest.json").read_text())
    return json.loads((folder / manifest["Config"]).read_text()), [
        folder / name for name in manifest["Layers"]
    ]


def _entries(layer: Path) -> Entries:
    found: Entries = {}
    with tarfile.open(layer) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            digest = hashlib.file_digest(content, "sha256").hexdigest() if content else ""  # type: ignore[arg-type]
            about = (member.mtime, oct(member.mode), member.uid, member.gid, member.size, member.linkname)
            found[member.name] = (*about, digest)
    return found
