"""Staged tags that wait for nothing any more: their images are published, or have newer ones beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial

from ftbuild.build import garbage
from ftbuild.errors import PublishError
from ftbuild.host.garbage import Garbage
from ftbuild.input_key import KEY_DIGITS
from ftbuild.plan import Plan
from ftbuild.publishing import remote_image
from ftbuild.publishing.names import UNSMOKED, Names
from ftbuild.registry.client import Repository
from ftbuild.registry.malformed import Malformed
from ftbuild.registry.session import Session

_TAG = re.compile(rf"(?P<cell>.+)-(?P<key>[0-9a-f]{{{KEY_DIGITS}}})(?:-sdk|-devel)?(?:{UNSMOKED})?")


def staged(names: Names, plans: Sequence[Plan], keep: int) -> Iterator[Garbage]:
    """Yield the staged tags whose images are published, and those of old keys (`build.garbage.old`).

    PublishError or HostError if the registry does not answer.
    """
    session = Session()
    staging, published = Repository(names.staging, session), Repository(names.repository, session)
    mark = names.mark
    tags = [tag for tag in staging.tags() if tag.startswith(mark) and _TAG.fullmatch(tag.removeprefix(mark))]
    done = {tag for tag in tags if tag.removeprefix(mark) in set(published.tags())}
    cells: dict[str, dict[str, str]] = {}
    for tag in tags:
        match = _TAG.fullmatch(tag.removeprefix(mark))
        if match and tag not in done:
            cells.setdefault(match["cell"], {})[tag] = match["key"]
    current = garbage.current_keys(plans)
    waiting = {tag for keyed in cells.values() for tag in _old(staging, keyed, current, keep)}
    for tag in sorted(done | waiting):
        alone = staging if names.staging != names.repository else None
        yield Garbage("staged tag", f"{names.staging}:{tag}", 0, partial(_delete, staging, tag, alone))


def _old(staging: Repository, keyed: dict[str, str], current: set[str], keep: int) -> list[str]:
    found = garbage.old(((key, _created(staging, tag)) for tag, key in keyed.items()), current, keep)
    return [tag for tag, key in keyed.items() if key in found]


def _created(staging: Repository, tag: str) -> float:
    """Return the time in an image's label; 0 without one, or without an image, so that it is the oldest."""
    try:
        image = remote_image.read(staging, tag)
    except Malformed:  # whoever put it there, no build waits for it
        return 0.0
    label = staging.config(image.image).labels.get("org.opencontainers.image.created") if image else None
    try:
        return datetime.fromisoformat(label or "").timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _delete(staging: Repository, tag: str, alone: Repository | None) -> str | None:
    """Delete a tag; by its digest only in a repository of its own, where no published index needs it."""
    try:
        if staging.delete(tag):
            return None
        if alone:
            found = alone.head(tag)
            if found is None or alone.delete(found.digest):  # gone with another tag of the same image
                return None
    except PublishError as refused:
        return refused.what
    return "the registry cannot delete a tag"
