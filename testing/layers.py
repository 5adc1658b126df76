"""The layers of images of the engine: how two images differ, and what an image hides.

An engine hands out gigabytes: they are read once, as they come, those of several images together, and none of
them is written.
"""

from __future__ import annotations

import hashlib
import io
import json
import posixpath
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import PurePosixPath
from typing import Any, TypeVar

Entries = dict[str, tuple[object, ...]]
Content = TypeVar("Content")
_REMOVED, _WHOLE = ".wh.", ".wh..wh..opq"
_BLOCK = 1 << 20


def differences(first: str, second: str) -> Iterator[str]:
    """Yield what differs: fields of the configuration, then files of each layer with both sides' facts."""
    (one, ours), (two, theirs) = _saved([first, second], _entries).values()
    for field in sorted(one.keys() | two.keys()):
        if field != "rootfs" and one.get(field) != two.get(field):
            yield f"{field}: {one.get(field)} / {two.get(field)}"
    for number, (left, right) in enumerate(zip(ours, theirs, strict=True)):
        for path in sorted(left.keys() | right.keys()):
            if left.get(path) != right.get(path):
                yield f"layer {number}: {path}: {left.get(path)} / {right.get(path)}"


def hidden(*images: str) -> dict[str, frozenset[str]]:
    """Return the files in the layers of each image that a container does not see: removed or replaced later.

    How a layer removes files: OCI image specification, "Whiteouts".
    """
    return {image: frozenset(_hidden(layers)) for image, (_, layers) in _saved(images, _names).items()}


def _hidden(layers: Sequence[Set[str]]) -> Iterator[str]:
    below: set[str] = set()
    for own in layers:
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


def _saved(
    images: Sequence[str], read: Callable[[tarfile.TarFile], Content]
) -> dict[str, tuple[Mapping[str, Any], list[Content]]]:
    """Return the configuration of each image, and what is read of its layers, the lowest first."""
    texts: dict[str, bytes] = {}
    layers: dict[str, Content] = {}
    links: dict[str, str] = {}
    with (
        subprocess.Popen(["docker", "save", *images], stdout=subprocess.PIPE) as saving,
        tarfile.open(fileobj=saving.stdout, mode="r|", bufsize=_BLOCK) as archive,
    ):
        for member in archive:
            if member.issym():  # an older engine's way to have a layer once
                folder = posixpath.dirname(member.name)
                links[member.name] = posixpath.normpath(posixpath.join(folder, member.linkname))
            content = archive.extractfile(member) if member.isreg() else None
            if content is None:
                continue
            stream = io.BufferedReader(content, _BLOCK)  # type: ignore[type-var]
            if stream.peek(1)[:1] in (b"{", b"["):
                texts[member.name] = stream.read()
            elif member.size >= tarfile.BLOCKSIZE:
                with tarfile.open(fileobj=stream, mode="r|", bufsize=_BLOCK) as layer:
                    layers[member.name] = read(layer)
    assert saving.returncode == 0, f"docker save {images} ended with {saving.returncode}"
    named = {tag: each for each in json.loads(texts["manifest.json"]) for tag in each["RepoTags"] or ()}
    return {
        image: (
            json.loads(texts[named[image]["Config"]]),
            [layers[links.get(name, name)] for name in named[image]["Layers"]],
        )
        for image in images
    }


def _names(layer: tarfile.TarFile) -> frozenset[str]:
    return frozenset(member.name for member in layer if not member.isdir())


def _entries(layer: tarfile.TarFile) -> Entries:
    found: Entries = {}
    for member in layer:
        content = layer.extractfile(member) if member.isreg() else None
        digest = hashlib.file_digest(content, "sha256").hexdigest() if content else ""  # type: ignore[arg-type]
        about = (member.mtime, oct(member.mode), member.uid, member.gid, member.size, member.linkname)
        found[member.name] = (*about, digest)
    return found
