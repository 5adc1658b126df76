"""What builds with other inputs have left: work folders and images of old keys.

Of each cell (and base), the key of today's inputs stays, and the newest others. What a command holds, by the
lock of the cell's folder or by a container, is left alone.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from ftbuild.host import files, locks, marker
from ftbuild.host.garbage import Garbage, size
from ftbuild.input_key import KEY_DIGITS
from ftbuild.plan import Plan

if TYPE_CHECKING:
    import docker

_KEY = re.compile(rf"[0-9a-f]{{{KEY_DIGITS}}}")
_TAG = re.compile(rf"(?P<group>.*?)-?(?P<key>[0-9a-f]{{{KEY_DIGITS}}})(?:-[a-z]+)*")
IN_USE = "in use"


@dataclass(frozen=True)
class Tagged:
    """A tag of a local image: its group (a cell, or a base), key, time, and the bytes of it alone."""

    name: str
    group: str
    key: str
    created: float
    size: int
    is_alone: bool


def old(seen: Iterable[tuple[str, float]], current: Collection[str], keep: int) -> set[str]:
    """Return the keys that are neither current nor among the newest `keep` others.

    `seen` holds keys with times; the latest time of a key counts.
    """
    latest: dict[str, float] = {}
    for key, time in seen:
        latest[key] = max(time, latest.get(key, 0.0))
    others = sorted(set(latest) - set(current), key=lambda key: latest[key], reverse=True)
    return set(others[keep:])


def folders(work: Path, plans: Iterable[Plan], keep: int) -> Iterator[Garbage]:
    """Yield the work folders of old keys, and what killed or older versions left in the others.

    Only folders that carry our mark are looked at, and none through a link.
    """
    current = current_keys(plans)
    for cell in sorted(path for path in work.glob("*") if path.is_dir() and not path.is_symlink()):
        keyed = _keyed(cell)
        found = old(((path.name, time) for path, time in keyed.items()), current, keep)
        for folder in sorted(keyed):
            if folder.name in found:
                yield Garbage("work folder", str(folder), size(folder), partial(_drop, folder))
            else:
                yield from _unfinished(folder)
        yield from _unfinished(cell)


def _keyed(cell: Path) -> dict[Path, float]:
    """Return our folders of keys in a folder, with their times.

    What is gone by now, another command has removed. What may not be read is nothing of ours: on a disk of
    its own, the work folder has root's lost+found.
    """
    found: dict[Path, float] = {}
    with contextlib.suppress(FileNotFoundError, PermissionError):
        for path in cell.iterdir():
            if _KEY.fullmatch(path.name) and marker.is_on(path):
                with contextlib.suppress(FileNotFoundError):
                    found[path] = path.stat().st_mtime
    return found


def _unfinished(folder: Path) -> Iterator[Garbage]:
    for left in files.leftovers(folder):
        yield Garbage("unfinished", str(left), size(left), partial(files.remove_leftovers, folder))


def _drop(folder: Path) -> str | None:
    """Remove a folder while holding its lock, by another name: nobody finds half of it."""
    gone = folder.with_name(f".{folder.name}.removed{files.PARTIAL}")
    if not marker.is_on(folder):  # another `invoke clean` was faster, and a lock would make it again
        return None
    problem = _locked(folder, partial(_renamed, folder, gone))
    if problem is None:
        marker.remove(gone)
    return problem


def _renamed(folder: Path, gone: Path) -> None:
    """Rename a folder, unless another command did so before this one had its lock, which made it again."""
    if marker.is_on(folder):
        marker.remove(gone)  # of an earlier folder of this key, whose removal was killed
        folder.rename(gone)
        return
    with contextlib.suppress(OSError):
        (folder / locks.NAME).unlink()
        folder.rmdir()


def _locked(folder: Path, act: Callable[[], object]) -> str | None:
    """Call `act` while holding the lock of a cell's folder; return None, or that another command holds it."""
    try:
        with FileLock(folder / locks.NAME, timeout=0):
            act()
    except Timeout:
        return IN_USE
    return None


def images(client: docker.DockerClient, plans: Sequence[Plan], work: Path, keep: int) -> Iterator[Garbage]:
    """Yield the tags of local images of old keys; those with a moving tag as well are no garbage."""
    current = current_keys(plans)
    names = {plan.image for plan in plans}
    bases = {plan.base.serving.rpartition(":")[0] for plan in plans if plan.base.local}
    tagged = list(_tagged(client.api.df()["Images"] or (), names | bases))
    for group in sorted({tag.group for tag in tagged}):
        members = [tag for tag in tagged if tag.group == group]
        found = old(((tag.key, tag.created) for tag in members), current, keep)
        for tag in members:
            if tag.key in found and tag.is_alone:
                yield Garbage("image", tag.name, tag.size, partial(_untag, client, tag, work))


def _tagged(listed: Iterable[Mapping[str, Any]], names: Collection[str]) -> Iterator[Tagged]:
    """Yield our tags from the engine's account of its disk (Docker Engine API, /system/df)."""
    for image in listed:
        tags = image.get("RepoTags") or ()
        own = image.get("Size", 0) - max(image.get("SharedSize", 0), 0)
        keyed = [_TAG.fullmatch(name.rpartition(":")[2]) for name in tags]
        for name, match in zip(tags, keyed, strict=True):
            repository = name.rpartition(":")[0]
            if match and repository in names:
                group = f"{repository}:{match['group']}"
                yield Tagged(name, group, match["key"], image.get("Created", 0), own, all(keyed))


def _untag(client: docker.DockerClient, tag: Tagged, work: Path) -> str | None:
    from docker.errors import APIError, ImageNotFound

    folder = work / tag.group.rpartition(":")[2] / tag.key
    try:
        if folder.is_dir():
            return _locked(folder, partial(client.images.remove, tag.name))
        client.images.remove(tag.name)
    except ImageNotFound:
        return None
    except APIError as refused:
        return IN_USE if refused.status_code == 409 else str(refused.explanation)
    return None


def current_keys(plans: Iterable[Plan]) -> set[str]:
    """Return the keys of the plans, and of their bases."""
    keys: set[str] = set()
    for plan in plans:
        keys |= {plan.key, plan.base.serving.rpartition(":")[2]}
    return keys
