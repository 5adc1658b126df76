"""The staged folder of a plan: patched sources, CMake scripts, wheels, Dockerfile and its programs.

The folder is all that a build needs besides the base image. Sources are staged beside their final place and
renamed, so that an interrupted staging never looks finished. Before each further use they are compared with
the manifest of what was staged: an edited, lost or emptied file would be compiled under the same input key.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection
from pathlib import Path

from ftbuild.build import definitions, manifest
from ftbuild.config.recipe import STEPS
from ftbuild.host import files
from ftbuild.plan import Plan
from ftbuild.sources import downloads, taking
from ftbuild.sources import wheels as python_wheels
from ftbuild.sources.downloads import Download
from ftbuild.sources.inputs import PlannedSource
from ftbuild.sources.requirements import Requirement
from ftbuild.text.reporter import Reporter

SOURCES, MANIFEST = definitions.SOURCES, "sources.json"
RECIPE = "recipe"
_SHOWN = 3
# The stages that install wheels; those of a local base are unpacked by its Dockerfile.
TOOLCHAIN, SERVER = "toolchain", "server"
WHEEL_STAGES = (TOOLCHAIN, "pyt", "runtime", "sdk")
# Compile steps alone: they bind all programs, other steps only theirs.
_OFFLINE = "RUN --network=none \\\n    --mount=type=bind,from=steps,"
# Objects of a remote cache must not reach later builds that do without it.
_OWN_OBJECTS = "id=ftbuild-ccache,", "id=ftbuild-ccache-remote,"


def stage(plan: Plan, cache: Path, folder: Path, *, online: bool = False, report: Reporter = print) -> None:
    """Fetch, verify, export and patch the sources of `plan` into `folder`, unless they are there unchanged.

    With `online`, compile steps get network access. Raises PinError if a source cannot be fetched or does not
    match its pin, PatchError on a conflict.
    """
    recipe(plan, folder / RECIPE, online=online)
    (folder / "plan.json").write_text(json.dumps(plan.as_dict(), indent=2) + "\n")
    sources(plan, plan.own_sources, cache, folder, report=report)


def sources(
    plan: Plan, wanted: Collection[PlannedSource], cache: Path, folder: Path, *, report: Reporter = print
) -> None:
    """Stage those sources of `plan` that are `wanted` into `folder`; see `stage`."""
    if _is_staged(folder, report):
        return
    versions = {source.repository: source.version or "" for source in wanted}
    patches = [patch for patch in plan.patches if patch.component in versions]
    taking.obtain(wanted, patches, cache, report=report)
    with files.atomic_folder(folder / SOURCES, durable=False) as partial:
        trees = {source.repository: partial / source.path for source in wanted}
        taking.export_all(wanted, trees, cache, report=report)
        taking.apply(patches, trees, versions, cache, report)
        for tree in trees.values():
            _open(partial, *tree.relative_to(partial).parts)
        manifest.write(folder / MANIFEST, manifest.take(partial))


def _open(folder: Path, *parts: str) -> None:
    """Give `folder` and the folders below it on the way of `parts` the mode that git gives to folders."""
    for number in range(len(parts) + 1):
        folder.joinpath(*parts[:number]).chmod(0o755)


def _is_staged(folder: Path, report: Reporter) -> bool:
    """Return whether the sources are there as they were staged; remove changed ones."""
    sources = folder / SOURCES
    if not sources.is_dir():
        return False
    changed = manifest.changed(sources, folder / MANIFEST)
    if changed:
        more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        report(f"{sources} is not as it was staged ({', '.join(changed[:_SHOWN])}{more}): staging it anew")
        shutil.rmtree(sources)
    return not changed


def recipe(plan: Plan, folder: Path, *, online: bool = False) -> None:
    """Write all inputs of BuildKit except the sources; for `online` see `stage`."""
    dockerfile(plan, "dockerfile", folder)
    if online:
        file = folder / "Dockerfile"
        text = file.read_text().replace(_OFFLINE, _OFFLINE.replace("--network=none ", ""))
        file.write_text(text.replace(*_OWN_OBJECTS))
    for role in WHEEL_STAGES:
        plan.file(role).write(folder / f"{role}.txt")
    for tree in plan.trees:
        (folder / f"{tree.name}.cmake").write_text(tree.initial_cache())
    open_to_all(folder)


def empty(folder: Path) -> None:
    """Make a folder, without what it held before."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def open_to_all(folder: Path) -> None:
    """Give what a folder holds the modes that git gives, whatever this user's umask is."""
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)


def dockerfile(plan: Plan, role: str, folder: Path) -> None:
    """Write the Dockerfile of a role (dockerfile or base) to `folder`, with the programs that it copies."""
    steps = folder / STEPS
    shutil.rmtree(steps, ignore_errors=True)
    steps.mkdir(parents=True)
    plan.file(role).write(folder / "Dockerfile")
    for step in plan.steps(role):
        step.write(steps / step.path.name)


def wheels(
    plan: Plan,
    roles: Collection[str],
    cache: Path,
    folder: Path,
    *,
    ca: Path | None = None,
    report: Reporter = print,
) -> None:
    """Fetch the wheels of some roles into the store; put those of each into `wheels/ROLE` of `folder`.

    `ca` is trusted for downloads, instead of the system's CAs. Raises PinError if a wheel cannot be fetched.
    """
    wanted = [wheel for wheel in plan.wheels if wheel.role in roles]
    pinned = [Requirement(wheel.name, wheel.version, wheel.file, wheel.sha256) for wheel in wanted]
    python_wheels.fetch(pinned, plan.wheel_options, cache, ca=ca, report=report)
    for role in roles:
        linked = [Download(wheel.file, wheel.sha256) for wheel in wanted if wheel.role == role]
        downloads.link_into(folder / definitions.WHEELS / role, linked, cache)
