"""Commands that list the cells of the matrix and build them; what tests them is in `gates`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ftbuild.cli.building import AS_USUAL, Building
from ftbuild.cli.command import command
from ftbuild.cli.options import (
    CONFIG,
    SELECTING,
    BaseNames,
    CaBundle,
    ConfigFolder,
    DryRun,
    Jobs,
    PlanFile,
    Progress,
    Rebuild,
    Releases,
    work_folder,
)
from ftbuild.cli.selection import Selection, loaded
from ftbuild.cli.taking import NOTHING, OWN_MEANS, Substituting, Taking
from ftbuild.host.paths import ca_bundle, cache_folder

if TYPE_CHECKING:
    from ftbuild.config.schema import Config
    from ftbuild.plan import Plan


@command(beside={"why": ["format"]})
def matrix(
    selection: Selection,
    format: Annotated[  # noqa: A002
        Literal["human", "json", "github"], "human, json, or github: what `invoke build` would build"
    ] = "human",
    why: Annotated[bool, "list the cells that cannot be built, with the reasons"] = False,
) -> int:
    """Show which images can be built on each base, and what is known of them."""
    from ftbuild import matrix as matrices
    from ftbuild import proven
    from ftbuild.config import loader

    config = loader.load(selection.config)
    if format == "github":
        print(matrices.as_github(selection.cells(config)))
        return 0
    table = selection.overview(config)
    if format == "json":
        print(proven.as_json(config, table))
        return 0
    from ftbuild.cli import grid

    print(grid.matrix(config, table))
    print(grid.reasons(table) if why else grid.hint(table))
    return 0


@command(needs={"format": ["dry_run"], "trust": ["from_", "objects"]}, beside={"plan": SELECTING})
def build(
    selection: Selection,
    taking: Taking = OWN_MEANS,
    building: Building = AS_USUAL,
    dry_run: DryRun = False,
    format: Annotated[  # noqa: A002
        Literal["human", "all", "json"],
        "of the dry run: human (a screen), all (with where it is from) or json",
    ] = "human",
    plan: PlanFile = None,
) -> int:
    """Build the runtime and the SDK image of every selected cell, or take published ones (`--from`)."""
    from ftbuild.config import loader
    from ftbuild.errors import worst

    config, planned = loaded(selection, plan)
    through = building.through(planned[0].image)
    building.check()
    substitutes, objects_of = taking.substitutes(planned[0].image, work_folder()), taking.objects_of()
    if dry_run:
        _print_plans(config, planned, format)
        return 0
    # A dry run does without them, in a fifth less time.
    from ftbuild import pipeline
    from ftbuild.sources.bundle import read_bundle
    from ftbuild.text import screen

    if building.sources:
        contents = config or loader.load(selection.config)
        read_bundle(contents, Path(building.sources), cache_folder(), report=print)
    outcomes = pipeline.build_cells(planned, building.options(), through, substitutes, objects_of)
    screen.show(pipeline.summary(outcomes))
    if following := _following(selection.config, [each.plan for each in outcomes if not each.error]):
        print(f"next: {following}")
    return worst(outcome.exit_code for outcome in outcomes)


def _following(folder: Path, built: Sequence[Plan]) -> str | None:
    """Return the command that tests what was built, on a machine with its GPU."""
    from ftbuild.sm import sm_list

    if not built:
        return None
    cell = built[0].cell
    on = [] if cell.is_default_base else ["--base", cell.base]
    chosen = ["--triton", cell.triton, "--sm", sm_list(cell.sms), *on, *cell.left_out.words()]
    given = [] if folder == CONFIG else ["--config", str(folder)]
    return f"{shlex.join(['invoke', 'smoke', *given, *chosen])}, on a machine with such a GPU"


def _print_plans(config: Config | None, planned: Sequence[Plan], output: str) -> None:
    from ftbuild.build import machine
    from ftbuild.cli import explain

    if output == "json":
        print(json.dumps([plan.as_dict() for plan in planned], indent=2))
        return
    if output == "all":
        print("\n".join(explain.plan(plan) for plan in planned))
    else:
        print(explain.cells(planned) if len(planned) > 1 else explain.cell(config, planned[0]))
        print("\n--format all has every value and where it is from, --format json the same for programs")
    if machine.compiles_online():
        print(f"\n{machine.ONLINE}")


@command(
    needs={"stage": ["push"], "trust": ["from_"], "without_compiler": ["from_"]},
    beside={"plan": ("triton", "base"), "without_compiler": ("push", "rebuild")},
)
def base(
    config: ConfigFolder = CONFIG,
    triton: Releases = (),
    base: BaseNames = (),
    substituting: Substituting = NOTHING,
    jobs: Jobs = None,
    ca: CaBundle = None,
    progress: Progress = "auto",
    rebuild: Rebuild = False,
    push: Annotated[str | None, "registry (host and path) where builders elsewhere find them"] = None,
    stage: Annotated[str | None, "path below the registry of --push where they wait"] = None,
    plan: PlanFile = None,
    without_compiler: Annotated[bool, "pull no compiler image where verify can do without it"] = False,
) -> int:
    """Build the images that cells are based on (`--base open`: from Debian and PyPI packages)."""
    from ftbuild import pipeline
    from ftbuild.build.run import BuildOptions
    from ftbuild.publishing import names

    _, planned = loaded(Selection(config, triton, base=base), plan)
    image, work = planned[0].image, work_folder()
    staging = names.resolve(push, stage, image, "--push") if push else None
    options = BuildOptions(
        cache_folder(), work, jobs=jobs, ca=ca_bundle(ca), progress=progress, rebuild=rebuild
    )
    pipeline.make_bases(
        planned, options, staging, substituting.substitutes(image, work), compiles=not without_compiler
    )
    return 0
