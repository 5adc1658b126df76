"""The image of a cell's unit tests: its SDK image with upstream's test programs and their runner.

The image is opt-in: googletest is an optional source, the stage is in no other bake file, and the cell's
input key ignores both. A label of the image therefore holds the key of its own inputs.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ftbuild import cmake
from ftbuild.build import base, buildable, context, definitions
from ftbuild.build import run as builds
from ftbuild.build.machine import Host
from ftbuild.build.run import BuildOptions
from ftbuild.config.schema import Config
from ftbuild.engine import buildx, daemon
from ftbuild.engine.daemon import ImageNotBuilt
from ftbuild.errors import BuildError, NothingSelected
from ftbuild.gates.subject import Subject
from ftbuild.input_key import digest_of
from ftbuild.plan import LABELS, Plan
from ftbuild.sources import planned, taking
from ftbuild.sources.inputs import PlannedSource

PRODUCT, GOOGLETEST, PREFIX = "unittests", "googletest", "unittests-"
LABEL = f"{LABELS}.{PRODUCT}"
# The runner in the image.
RUN = f"/opt/ftbuild/{PRODUCT}/run"
RUNNER = Path(__file__).with_name("runner.py")


@dataclass(frozen=True)
class Recipe:
    """The image's inputs in addition to the cell's; 22.03 tests without googletest."""

    tree: cmake.Tree
    googletest: PlannedSource | None
    runner: bytes = field(repr=False)

    @property
    def key(self) -> str:
        """The key of these inputs, to be compared together with the cell's own."""
        taken = self.googletest
        pinned = {"ref": taken.ref, "commit": taken.commit, "tree": taken.tree} if taken else None
        return digest_of([asdict(self.tree), pinned, hashlib.sha256(self.runner).hexdigest()])


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
        planned.source(config, release, GOOGLETEST) if used else None,
        RUNNER.read_bytes(),
    )


def definition(plan: Plan, made_of: Recipe, host: Host) -> dict[str, object]:
    """Return the bake file: the image, and the figures of its compile."""
    image = definitions.image(plan, PRODUCT, host)
    targets = {
        PRODUCT: {**image, "labels": {**image["labels"], LABEL: made_of.key}},
        f"{PRODUCT}-info": definitions.info(plan, PRODUCT),
    }
    for target in targets.values():
        target["contexts"] = {**target["contexts"], GOOGLETEST: GOOGLETEST}
        target["args"] = {**target["args"], "UNITTEST_TARGETS": " ".join(made_of.tree.targets)}
    return definitions.bake_file(
        {definitions.target_name(plan, name): target for name, target in targets.items()}
    )


@dataclass(frozen=True)
class TestImage:
    """The image of a cell's unit tests, built in the cell's folder."""

    subject: Subject
    made_of: Recipe
    options: BuildOptions
    host: Host
    name: str = "this cell"
    prefix: str = PREFIX

    @property
    def folder(self) -> Path:
        """Return the folder of the cell."""
        return self.subject.folder

    def is_made(self) -> bool:
        """Return whether the image is in the engine, of these inputs."""
        return is_made(self.subject, self.made_of)

    def prepare(self) -> None:
        """Make the base."""
        plan, options, report = self.subject.plan, self.options, self.subject.report
        base.ensure(self.subject.client, plan, self.host, options.work, options.cache, report=report)
        builds.require_room(plan, options, f"building the unit tests of {plan.cell.id}")

    def stage(self) -> Mapping[str, object]:
        """Stage the cell's own inputs, and what the tests have beside them."""
        builds.stage(self.subject.plan, self.options, self.folder, self.subject.report)
        _stage(self.subject, self.made_of)
        return definition(self.subject.plan, self.made_of, self.host)


def is_made(subject: Subject, made_of: Recipe) -> bool:
    """Return whether the image of these inputs is in the engine."""
    image = daemon.image(subject.client, subject.plan.tag(PRODUCT))
    return image is not None and image.labels.get(LABEL) == made_of.key


def ensure(subject: Subject, made_of: Recipe, options: BuildOptions) -> str:
    """Return the id of the image, which is built unless it exists; errors as those of a build."""
    client, report, name = subject.client, subject.report, subject.plan.tag(PRODUCT)
    if not options.rebuild and is_made(subject, made_of):
        report(f"{name} is already built from these inputs")
        return daemon.require_image(client, name)
    buildx.version()
    host = builds.host_settings(client, options)
    test_image = TestImage(subject, made_of, options, host)
    with daemon.replacing(client, name):
        buildable.ensure(test_image, host, rebuild=options.rebuild, report=report)
    try:
        return daemon.require_image(client, name)
    except ImageNotBuilt as absent:
        raise absent.converted(BuildError) from absent


def _stage(subject: Subject, made_of: Recipe) -> None:
    """Put the initial cache and the runner beside the cell's own recipe, googletest beside its sources."""
    folder = subject.folder
    (folder / context.RECIPE / f"{PRODUCT}.cmake").write_text(made_of.tree.initial_cache())
    (folder / context.RECIPE / f"{PRODUCT}.py").write_bytes(made_of.runner)
    shutil.rmtree(folder / GOOGLETEST, ignore_errors=True)
    if made_of.googletest:
        taking.export(made_of.googletest, subject.cache, folder / GOOGLETEST, report=subject.report)
    else:
        (folder / GOOGLETEST).mkdir()
