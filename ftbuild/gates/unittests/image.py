"""The image of a cell's unit tests: its SDK image with upstream's test programs and their runner.

The image is opt-in: googletest is an optional source, the stage is in no other bake file, and the cell's
input key ignores both. A label of the image therefore holds the key of its own inputs.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from ftbuild import cmake
from ftbuild.build import bake, base, context
from ftbuild.build import run as builds
from ftbuild.build.run import BuildOptions, CellBuild
from ftbuild.config.schema import Config, LockedSource
from ftbuild.engine import buildx, daemon
from ftbuild.engine.daemon import ImageNotBuilt
from ftbuild.errors import BuildError, NothingSelected
from ftbuild.gates.subject import Subject
from ftbuild.host import disk
from ftbuild.plan import LABELS, Plan, digest_of
from ftbuild.sources import fetch, lock

PRODUCT, GOOGLETEST, PREFIX = "unittests", "googletest", "unittests-"
LABEL = f"{LABELS}.{PRODUCT}"
# The runner in the image.
RUN = f"/opt/ftbuild/{PRODUCT}/run"
RUNNER = Path(__file__).with_name("runner.py")


@dataclass(frozen=True)
class Recipe:
    """The image's inputs besides the cell's own; 22.03 tests without googletest."""

    tree: cmake.Tree
    googletest: LockedSource | None

    @property
    def key(self) -> str:
        """The key of these inputs, to be compared together with the cell's own."""
        pinned = self.googletest.model_dump() if self.googletest else None
        runner = hashlib.sha256(RUNNER.read_bytes()).hexdigest()
        return digest_of([asdict(self.tree), pinned, runner])


def recipe(config: Config, plan: Plan) -> Recipe:
    """Return the inputs of a cell's test image.

    Raises NothingSelected for a stack without kernels, which has no such tests, PinError where the lock lacks
    googletest.
    """
    if config.models.device != "gpu":
        raise NothingSelected(
            "upstream's unit tests are those of its kernels; what this configuration builds has none",
            where=str(config.folder),
        )
    release = plan.cell.triton
    used = GOOGLETEST in config.sources.releases[release]
    return Recipe(
        cmake.unit_tests(plan.trees[1], plan.source("ft").version or ""),
        lock.pinned(config, release, GOOGLETEST) if used else None,
    )


def definition(plan: Plan, made_of: Recipe, host: bake.Host) -> dict[str, object]:
    """Return the bake file: the image, and the figures of its compile."""
    image = bake.image_target(plan, PRODUCT, host)
    targets = {
        PRODUCT: {**image, "labels": {**image["labels"], LABEL: made_of.key}},
        f"{PRODUCT}-info": bake.info_target(plan, PRODUCT),
    }
    for target in targets.values():
        target["contexts"] = {**target["contexts"], GOOGLETEST: GOOGLETEST}
        target["args"] = {**target["args"], "UNITTEST_TARGETS": " ".join(made_of.tree.targets)}
    return bake.definition({bake.target_name(plan, name): target for name, target in targets.items()})


def ensure(subject: Subject, options: BuildOptions) -> str:
    """Return the id of the image, which is built unless it exists; errors as those of a build."""
    client, config, plan, report = subject.client, subject.config, subject.plan, subject.report
    made_of, name = recipe(config, plan), plan.tag(PRODUCT)
    found = daemon.image(client, name)
    if found is not None and found.labels.get(LABEL) == made_of.key and not options.rebuild:
        report(f"{name} is already built from these inputs")
        return str(found.id)
    buildx.version()
    host = builds.host_settings(client, options)
    base.ensure(client, config, plan, host, options.work, options.cache, report=report)
    disk.require(options.work, builds.CELL_BYTES, f"building the unit tests of {plan.cell.id}")
    cell = CellBuild(config, plan, client, host, options, report)
    job = bake.Job(cell.folder, definition(plan, made_of, host), PREFIX)
    with daemon.replacing(client, name):
        builds.run_job(cell, job, stage_more=lambda: _stage(subject, made_of))
    try:
        return daemon.require_image(client, name)
    except ImageNotBuilt as absent:
        raise absent.converted(BuildError) from absent


def _stage(subject: Subject, made_of: Recipe) -> None:
    """Put the initial cache and the runner beside the cell's own recipe, googletest beside its sources."""
    folder = subject.folder
    (folder / context.RECIPE / f"{PRODUCT}.cmake").write_text(made_of.tree.initial_cache())
    shutil.copyfile(RUNNER, folder / context.RECIPE / f"{PRODUCT}.py")
    shutil.rmtree(folder / GOOGLETEST, ignore_errors=True)
    if made_of.googletest:
        fetch.export(
            subject.config,
            subject.plan.cell.triton,
            GOOGLETEST,
            subject.cache,
            folder / GOOGLETEST,
            report=subject.report,
        )
    else:
        (folder / GOOGLETEST).mkdir()
