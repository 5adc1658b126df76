"""Our own folders: whether they can be made and written, before work of half an hour finds out."""

from __future__ import annotations

import os
from pathlib import Path

from ftbuild.host.disk import nearest
from ftbuild.text.results import CheckResult, State


def unusable(name: str, variable: str, folder: Path) -> CheckResult | None:
    """Return the failure of a folder that cannot be written, nor made; `variable` names another one."""
    try:
        problem = _problem(folder.absolute())
    except OSError as refused:  # a folder above may not be looked into
        problem = str(refused.strerror)
    if problem is None:
        return None
    hint = f"change that, or let {variable} name another folder"
    return CheckResult(name, State.FAIL, f"{folder}: {problem}", hint)


def _problem(folder: Path) -> str | None:
    place = nearest(folder)
    for path in (folder, *folder.parents):
        if path == place:
            break
        if path.is_symlink():
            return f"{path} is a link to nothing"
    if not place.is_dir():
        return f"{place} is not a folder"
    return None if os.access(place, os.W_OK | os.X_OK) else f"{place} cannot be written"
