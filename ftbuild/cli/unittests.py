"""The command on upstream's own unit tests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

from ftbuild.cli.command import command
from ftbuild.cli.options import Builder, CaBundle, Format, Jobs, Progress, Rebuild, work_folder
from ftbuild.cli.selection import Selection, ca_bundle, cache_folder, plans

if TYPE_CHECKING:
    from ftbuild.gates.unittests.image import Recipe
    from ftbuild.plan import Plan


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
    from ftbuild.errors import FtbuildError, HostError, worst
    from ftbuild.gates.smoke import gate as smoke
    from ftbuild.gates.unittests import gate, image
    from ftbuild.text import reporter

    config = loader.load(selection.config)
    planned = plans(config, selection)
    if dry_run:
        _print_recipes([(plan, image.recipe(config, plan)) for plan in planned], format)
        return 0
    options = BuildOptions(cache_folder(), work_folder(), jobs, ca_bundle(ca), builder, progress, rebuild)
    client = daemon.connect()
    reports, codes, skipped = [], [], []
    for plan in planned:
        report = reporter.prefixed(reporter.to_stderr, plan.cell.id)
        try:
            made = image.ensure(client, config, plan, options, report=report)
            if prepare:
                codes.append(0)
                continue
            access = smoke.find_gpus(client, plan, image.PRODUCT)
            if reason := smoke.unfit(plan, access):
                report(f"skipped: {reason}")
                skipped.append(plan.cell.id)
                continue
            recipe, folder = image.recipe(config, plan), plan.folder(options.work)
            reports.append(gate.run(client, plan, recipe, made, access, folder, report=report))
            codes.append(reports[-1].exit_code)
        except FtbuildError as failed:
            report(f"failed: {failed}")
            codes.append(failed.exit_code)
    if format == "json":
        print(json.dumps([report.as_dict() for report in reports], indent=2))
    for found in reports if format == "human" else ():
        print(f"{found.render()}\n{gate.sums(found.facts['tests'])}")
    if not codes:
        raise HostError(
            f"nothing was tested: no GPU here runs {', '.join(skipped)}",
            hint="test these cells on a machine with such a GPU, or select others",
        )
    return worst(codes)


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
