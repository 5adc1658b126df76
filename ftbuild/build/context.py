"""Plan -> the staged folder: patched sources, CMake scripts, requirements and Dockerfile, nothing else.

The folder is all that a build needs besides the base image. It is made beside its final place and renamed,
so that an interrupted staging never looks finished.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from ftbuild.config.schema import Config
from ftbuild.plan import Plan
from ftbuild.sources import lock, patched
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
    """Fetch, verify, export and patch the sources of `plan` into `folder`, unless they already lie there.

    With `online` the steps that compile get a network, which they are denied otherwise. Raises PinError when
    a source cannot be fetched or does not match its pin, PatchError on a conflict.
    """
    recipe(plan, folder / RECIPE, online=online)
    (folder / "plan.json").write_text(json.dumps(plan.as_dict(), indent=2) + "\n")
    if (folder / SOURCES).is_dir():
        return
    scratch = folder / f"{SOURCES}.partial"
    shutil.rmtree(scratch, ignore_errors=True)
    release, sms = plan.cell.triton, plan.cell.sms
    lock.fetch(config, release, cache, sms=sms, report=report)
    trees = {source.repository: scratch / source.path for source in plan.sources}
    for repository, folder_of in sorted(trees.items(), key=lambda item: item[1]):
        report(f"exporting {repository} {plan.source(repository).commit[:12]}")
        lock.export(config, release, repository, cache, folder_of, sms=sms, report=report)
    patched.apply(config, release, trees, cache, report)
    scratch.rename(folder / SOURCES)


def recipe(plan: Plan, folder: Path, *, online: bool = False) -> None:
    """Write all that BuildKit needs besides the sources; `online` as `stage` has it."""
    folder.mkdir(parents=True, exist_ok=True)
    dockerfile = plan.file("dockerfile").path.read_text()
    (folder / "Dockerfile").write_text(dockerfile.replace(_OFFLINE, "RUN ") if online else dockerfile)
    for role in ("toolchain", "pyt", "runtime", "sdk"):
        shutil.copyfile(plan.file(role).path, folder / f"{role}.txt")
    for tree in plan.trees:
        (folder / f"{tree.name}.cmake").write_text(tree.initial_cache())
