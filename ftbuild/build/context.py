"""The staged folder of a plan: patched sources, CMake scripts, requirements, Dockerfile and its programs.

The folder is all that a build needs besides the base image. Sources are staged beside their final place and
renamed, so that an interrupted staging never looks finished.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from ftbuild.config.schema import Config
from ftbuild.host import files
from ftbuild.plan import STEPS, Plan
from ftbuild.sources import fetch, patched
from ftbuild.text.reporter import Reporter

SOURCES = "sources"
RECIPE = "recipe"
_OFFLINE = "RUN --network=none "


def stage(
    config: Config,
    plan: Plan,
    cache: Path,
    folder: Path,
    *,
    online: bool = False,
    report: Reporter = print,
) -> None:
    """Fetch, verify, export and patch the sources of `plan` into `folder`, unless they are there already.

    With `online`, compile steps get network access. Raises PinError if a source cannot be fetched or does not
    match its pin, PatchError on a conflict.
    """
    recipe(plan, folder / RECIPE, online=online)
    (folder / "plan.json").write_text(json.dumps(plan.as_dict(), indent=2) + "\n")
    if (folder / SOURCES).is_dir():
        return
    release, sms = plan.cell.triton, plan.cell.sms
    fetch.fetch_release(config, release, cache, sms=sms, report=report)
    with files.atomic_folder(folder / SOURCES) as partial:
        trees = {source.repository: partial / source.path for source in plan.sources}
        for repository, tree in sorted(trees.items(), key=lambda item: item[1]):
            report(f"exporting {repository} {plan.source(repository).commit[:12]}")
            fetch.export(config, release, repository, cache, tree, sms=sms, report=report)
        patched.apply(config, release, trees, cache, report)
        for tree in trees.values():
            _open(partial, *tree.relative_to(partial).parts)


def _open(folder: Path, *parts: str) -> None:
    """Give `folder` and the folders below it on the way of `parts` the mode that git gives to folders."""
    for number in range(len(parts) + 1):
        folder.joinpath(*parts[:number]).chmod(0o755)


def recipe(plan: Plan, folder: Path, *, online: bool = False) -> None:
    """Write all inputs of BuildKit except the sources; for `online` see `stage`."""
    dockerfile(plan, "dockerfile", folder)
    if online:
        file = folder / "Dockerfile"
        file.write_text(file.read_text().replace(_OFFLINE, "RUN "))
    for role in ("toolchain", "pyt", "runtime", "sdk"):
        shutil.copyfile(plan.file(role).path, folder / f"{role}.txt")
    for tree in plan.trees:
        (folder / f"{tree.name}.cmake").write_text(tree.initial_cache())
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)


def dockerfile(plan: Plan, role: str, folder: Path) -> None:
    """Write the Dockerfile of a role (dockerfile or base) to `folder`, with the programs that it copies."""
    steps = folder / STEPS
    shutil.rmtree(steps, ignore_errors=True)
    steps.mkdir(parents=True)
    shutil.copyfile(plan.file(role).path, folder / "Dockerfile")
    for step in plan.steps(role):
        shutil.copy(step.path, steps)
