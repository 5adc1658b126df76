"""Commands that test the images of cells, one for each gate (`ftbuild.gates.table`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from ftbuild.cli.arguments import Range
from ftbuild.cli.command import command
from ftbuild.cli.options import (
    SELECTING,
    Builder,
    CaBundle,
    Format,
    Jobs,
    PlanFile,
    Progress,
    Rebuild,
    work_folder,
)
from ftbuild.cli.selection import Selection, plans
from ftbuild.host.paths import ca_bundle, cache_folder

if TYPE_CHECKING:
    from ftbuild.gates.cell_test import CellTest
    from ftbuild.gates.unittests.image import Recipe
    from ftbuild.plan import Plan


@command()
def verify(selection: Selection, format: Format = "human") -> int:  # noqa: A002
    """Check the built images of every selected cell, without a GPU."""
    from ftbuild.config import loader
    from ftbuild.gates.verify.gate import Verify

    return _tested(Verify(), plans(loader.load(selection.config), selection), format)


@command(beside={"any_gpu": ["prepare"], "servers": ["prepare"], "plan": SELECTING})
def smoke(
    selection: Selection,
    format: Format = "human",  # noqa: A002
    prepare: Annotated[bool, "make the models in the SDK image and stop: needs no GPU"] = False,
    any_gpu: Annotated[bool, "test also on a GPU that the image has no machine code for"] = False,
    servers: Annotated[
        int | None, Range(1, 64), "servers side by side at most (default: as GPU memory and processors allow)"
    ] = None,
    plan: PlanFile = None,
) -> int:
    """Serve tiny models of every family with the built images, on a GPU, and check what they answer."""
    from ftbuild.config import loader
    from ftbuild.gates.smoke.gate import Smoke

    config = loader.load(selection.config)
    test = Smoke(config, any_gpu, servers)
    return _tested(test, plans(config, selection, plan), format, only_prepare=prepare)


@command()
def unittest(
    selection: Selection,
    prepare: Annotated[bool, "build the images and stop: needs no GPU"] = False,
    dry_run: Annotated[
        bool, "print what would be built and run, and stop: needs neither Docker nor network"
    ] = False,
    format: Format = "human",  # noqa: A002
    jobs: Jobs = None,
    ca: CaBundle = None,
    builder: Builder = None,
    progress: Progress = "auto",
    rebuild: Rebuild = False,
) -> int:
    """Build upstream's own unit tests against the patched sources, and run them on a GPU."""
    from ftbuild.build.run import BuildOptions
    from ftbuild.config import loader
    from ftbuild.gates.unittests import image
    from ftbuild.gates.unittests.gate import UnitTests

    config = loader.load(selection.config)
    planned = plans(config, selection)
    recipes = {plan.cell: image.recipe(config, plan) for plan in planned}
    bundle = ca_bundle(ca)
    if dry_run:
        _print_recipes([(plan, recipes[plan.cell]) for plan in planned], format)
        return 0
    options = BuildOptions(cache_folder(), work_folder(), jobs, bundle, builder, progress, rebuild)
    return _tested(UnitTests(recipes, options), planned, format, only_prepare=prepare)


def _tested(test: CellTest, planned: Sequence[Plan], output: str, *, only_prepare: bool = False) -> int:
    """Let a gate test cells on this machine, print the reports, and return the exit code."""
    from ftbuild.engine import daemon, orphans
    from ftbuild.gates import runner
    from ftbuild.gates.cell_test import Place
    from ftbuild.text import reporter

    client = daemon.connect()
    orphans.remove(client, reporter.to_stderr)
    place = Place(client, work_folder(), cache_folder())
    done = runner.run(test, planned, place, reporter.to_stderr, only_prepare=only_prepare)
    done.show(output)
    return done.exit_code()


def _print_recipes(recipes: list[tuple[Plan, Recipe]], output: str) -> None:
    described = [_described(plan, recipe) for plan, recipe in recipes]
    if output == "json":
        print(json.dumps(described, indent=2))
    for facts in described if output == "human" else ():
        print("\n".join(f"{name:<11} {value}" for name, value in facts.items()))


def _described(plan: Plan, recipe: Recipe) -> dict[str, str]:
    from ftbuild.gates.unittests import image

    return {
        "cell": plan.cell.id,
        "image": plan.tag(image.PRODUCT),
        "googletest": recipe.googletest.commit if recipe.googletest else "not used",
        "programs": " ".join(recipe.tree.targets),
        "by hand": f"docker run --rm --gpus all {plan.tag(image.PRODUCT)} {image.RUN}",
    }
