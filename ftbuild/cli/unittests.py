"""What `invoke unittest` does."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from ftbuild.cli import selection as shared
from ftbuild.cli.selection import Selection, ca_bundle, cache_folder, plans, require_format
from ftbuild.config import loader
from ftbuild.errors import FtbuildError, HostError, worst
from ftbuild.gates.unittests import image
from ftbuild.gates.unittests.image import PRODUCT, Recipe
from ftbuild.plan import Plan


def dry_run(selection: Selection, output: str) -> int:
    """Print what would be built and run for the selected cells."""
    require_format(output, "human", "json")
    config = loader.load(selection.config)
    found = [(plan, image.recipe(config, plan)) for plan in plans(config, selection)]
    described = [_described(plan, made_of) for plan, made_of in found]
    if output == "json":
        print(json.dumps(described, indent=2))
    for facts in described if output == "human" else ():
        print("\n".join(f"{name:<11} {value}" for name, value in facts.items()))
    return 0


def run(
    selection: Selection,
    output: str,
    *,
    prepare: bool,
    jobs: int | None,
    ca: str | None,
    builder: str | None,
    progress: str,
    rebuild: bool,
    work: Path,
) -> int:
    """Build the unit tests' images of the selected cells, and run them on a GPU; the worst exit code.

    `prepare` stops after the images. Raises HostError when no cell could be tested.
    """
    from ftbuild import pipeline as builds
    from ftbuild.engine import daemon
    from ftbuild.gates.smoke import gate as smoke
    from ftbuild.gates.unittests import gate

    require_format(output, "human", "json")
    config = loader.load(selection.config)
    planned = plans(config, selection)
    options = builds.Options(cache_folder(), work, jobs, ca_bundle(ca), builder, progress, rebuild)
    client = daemon.connect()
    reports, codes, skipped = [], [], []
    for plan in planned:
        say = functools.partial(_say, plan)
        try:
            made = image.ensure(client, config, plan, options, report=say)
            if prepare:
                codes.append(0)
                continue
            access = smoke.find_gpus(client, plan, PRODUCT)
            if reason := smoke.unfit(plan, access):
                say(f"skipped: {reason}")
                skipped.append(plan.cell.id)
                continue
            made_of, folder = image.recipe(config, plan), plan.folder(options.work)
            reports.append(gate.run(client, plan, made_of, made, access, folder, report=say))
            codes.append(reports[-1].exit_code)
        except FtbuildError as failed:
            say(f"failed: {failed}")
            codes.append(failed.exit_code)
    if output == "json":
        print(json.dumps([report.as_dict() for report in reports], indent=2))
    for report in reports if output == "human" else ():
        print(f"{report.render()}\n{gate.sums(report.facts['tests'])}")
    if not codes:
        raise HostError(
            f"nothing was tested: no GPU here runs {', '.join(skipped)}",
            hint="test these cells on a machine with such a GPU, or select others",
        )
    return worst(codes)


def _described(plan: Plan, made_of: Recipe) -> dict[str, str]:
    return {
        "cell": plan.cell.id,
        "image": plan.tag(PRODUCT),
        "googletest": made_of.googletest.commit if made_of.googletest else "not used",
        "programs": " ".join(made_of.tree.targets),
        "by hand": f"docker run --rm --gpus all {plan.tag(PRODUCT)} {image.RUN}",
    }


def _say(plan: Plan, message: str) -> None:
    shared.progress(f"[{plan.cell.id}] {message}")
