"""The command on upstream's own unit tests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

from ftbuild.cli.command import command
from ftbuild.cli.options import Builder, CaBundle, Format, Jobs, Progress, Rebuild, work_folder
from ftbuild.cli.selection import Selection, plans
from ftbuild.host.paths import ca_bundle, cache_folder

if TYPE_CHECKING:
    from ftbuild.gates.report import GateReport
    from ftbuild.gates.runner import Skipped
    from ftbuild.gates.unittests.image import Recipe
    from ftbuild.plan import Plan
    from ftbuild.text.reporter import Reporter


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
    from ftbuild.engine import daemon
    from ftbuild.gates import runner
    from ftbuild.gates.subject import Subject
    from ftbuild.gates.unittests import gate, image
    from ftbuild.host import locks
    from ftbuild.text import reporter

    config = loader.load(selection.config)
    planned = plans(config, selection)
    options = BuildOptions(cache_folder(), work_folder(), jobs, ca_bundle(ca), builder, progress, rebuild)
    recipes = {plan.cell: image.recipe(config, plan) for plan in planned}
    if dry_run:
        _print_recipes([(plan, recipes[plan.cell]) for plan in planned], format)
        return 0
    client = daemon.connect()

    def test(plan: Plan, report: Reporter) -> GateReport | Skipped | None:
        subject = Subject(client, plan, plan.folder(options.work), options.cache, report)
        made_of = recipes[plan.cell]
        made = image.ensure(subject, made_of, options)
        if prepare:
            return None
        with locks.cell(subject.folder, report):
            return gate.run(subject, made, made_of)

    done = runner.run(planned, test, reporter.to_stderr)
    done.show(format)
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
