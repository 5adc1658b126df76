"""Cold compiles by SM: CPU seconds of each cell's compile, from what `invoke build` has left.

python -m benchmarks.topics.sms .ftbuild/24.10-sm80/* .ftbuild/24.10-sm89/* --out FOLDER    # compiles nothing

The first build is the one that the others are compared with.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.harness import builds, files
from benchmarks.harness.builds import Build
from benchmarks.harness.chart import Bars
from benchmarks.harness.figure import Figure, Result, Topic
from benchmarks.harness.workspace import Workspace
from ftbuild.cli.options import work_folder
from ftbuild.plan import Plan

NAME = "sms"
WHAT = "CPU seconds of compilers"
# Of what ccache had a part of, whose cost is unknown.
AT_LEAST = ", at least"
# FasterTransformer's part of the backend's build tree (FetchContent).
FT_IN_BACKEND = "_deps/repo-ft-build/"
KINDS = {"CUDA": (".cu.o",), "C++": (".cc.o", ".cpp.o")}


@dataclass(frozen=True)
class Cost:
    """CPU seconds by unit as from an empty ccache.

    `shared` are units that ccache had of the same build's other tree, and which cost nothing there either.
    `borrowed` are those that it had before, with the seconds of the build that compiled them: a C++ source
    costs the same for each SM, a CUDA source does not. `lacking` is the number of those that none here has
    compiled; they count nothing.
    """

    build: Build
    shared: int
    borrowed: Mapping[str, float]
    lenders: tuple[str, ...]
    lacking: int

    @property
    def seconds(self) -> dict[str, float]:
        """Return the CPU seconds of all units."""
        return {**self.build.seconds, **self.borrowed}

    @property
    def total(self) -> float:
        """Return the CPU seconds of the whole."""
        return sum(self.seconds.values())

    @property
    def how(self) -> str:
        """Return how the seconds were taken, with every unit that was not compiled in this build."""
        text = f"measured: build of {self.build.started[:10]}, {len(self.build.seconds)} units compiled"
        if self.shared:
            text += f", {self.shared} more are objects of the other tree"
        if self.borrowed:
            text += f"; {len(self.borrowed)} from ccache count as in {', '.join(self.lenders)}"
        if self.lacking:
            text += f"; {self.lacking} from ccache count nothing, as no build here compiled them"
        return text


def needs(workspace: Workspace) -> str | None:
    """Require that a build of the real sources has left its figures here."""
    if not workspace.real:
        return "the sample's sources do not differ by SM (--real)"
    return None if _folders(workspace) else f"no build in {work_folder()} was compiled: invoke build"


def run(workspace: Workspace) -> Result:
    """Read what the builds of the selected cells have left, else of all."""
    return _result(workspace, [builds.read(folder) for folder in _folders(workspace)])


def _folders(workspace: Workspace) -> list[Path]:
    def compiled(plan: Plan) -> bool:
        return (plan.folder(work_folder()) / builds.INFO).is_dir()

    return [plan.folder(work_folder()) for plan in workspace.plans("*") if compiled(plan)]


def _result(workspace: Workspace, builds: Sequence[Build]) -> Result:
    return workspace.result(
        NAME,
        list(figures(builds)),
        {"builds": [build.as_dict() for build in builds]},
        charts(builds),
        cells=[build.measured for build in builds],
    ).of_files()


def recomputed(result: Result) -> Result:
    """Return the record with what follows from its data today."""
    builds = [Build.of(values) for values in result.data["builds"]]
    return replace(result, figures=tuple(figures(builds)), charts=tuple(charts(builds)))


def costs(builds: Sequence[Build]) -> list[Cost]:
    """Return the cost of each build, with units that ccache had at the price of another build."""
    return [_cost(build, [other for other in builds if other is not build]) for build in builds]


def _cost(build: Build, others: Sequence[Build]) -> Cost:
    compiled = _objects(build)
    shared = [unit for unit in build.others if _object(unit) in compiled] if build.hits else []
    if build.hits <= len(shared):
        return Cost(build, len(shared), {}, (), 0)
    lenders = {
        unit: lender
        for unit in build.others
        if unit not in shared and (lender := _lender(unit, build, others))
    }
    # The lender's other tree may have compiled the object, and this one had it for nothing, as it would here.
    borrowed = {unit: other.seconds[unit] for unit, other in lenders.items() if unit in other.seconds}
    names = tuple(dict.fromkeys(lenders[unit].measured.cell for unit in borrowed))
    return Cost(build, len(shared), borrowed, names, max(0, build.hits - len(shared) - len(lenders)))


def _lender(unit: str, build: Build, others: Sequence[Build]) -> Build | None:
    """Return the first build that shows what an object costs: one that compiled it, in either tree."""
    able = (o for o in others if o.sms == build.sms or not unit.endswith(KINDS["CUDA"]))
    return next((other for other in able if _object(unit) in _objects(other)), None)


def _objects(build: Build) -> set[str]:
    return set(map(_object, build.seconds))


def _object(unit: str) -> str:
    """Return the name of an object without its tree; the backend's has FasterTransformer's in it."""
    return unit.partition("/")[2].removeprefix(FT_IN_BACKEND)


def figures(builds: Sequence[Build]) -> Iterator[Figure]:
    """Yield the cost of each cell, and its ratio to the first and to those of its SMs one by one."""
    every = costs(builds)
    for cost in every:
        for figure in _of(cost, every):
            yield replace(figure, of=cost.build.measured.cell)


def _of(cost: Cost, every: Sequence[Cost]) -> Iterator[Figure]:
    trees = dict.fromkeys(unit.partition("/")[0] for unit in (*cost.build.seconds, *cost.build.others))
    named = f"{WHAT}, {'trees' if len(trees) > 1 else 'tree'} {' and '.join(trees)}"
    named += AT_LEAST if cost.lacking else ""
    yield Figure(Topic.COLD, named, cost.total, "s", None, cost.how)
    first, build = every[0], cost.build
    if cost is not first and not (cost.lacking or first.lacking):
        what = f"{WHAT} ({cost.total:.0f} s) / those of {first.build.measured.cell} ({first.total:.0f} s)"
        yield Figure(Topic.COLD, what, cost.total / first.total, "", None, cost.how)
    alone = [_alone(sm, build, every) for sm in build.sms]
    if len(alone) > 1 and all(alone) and not any(other.lacking for other in (cost, *alone) if other):
        summed = sum(other.total for other in alone if other)
        what = f"{WHAT} of one image ({cost.total:.0f} s) / of one for each of its SMs ({summed:.0f} s)"
        yield Figure(Topic.COLD, what, cost.total / summed, "", None, cost.how)


def _alone(sm: int, build: Build, every: Sequence[Cost]) -> Cost | None:
    """Return the cost of the same release and base for this SM alone."""
    cell = build.measured.cell.replace(f"-sm{'_'.join(map(str, build.sms))}", f"-sm{sm}")
    return next((cost for cost in every if cost.build.measured.cell == cell), None)


def charts(builds: Sequence[Build]) -> list[Bars]:
    """Return the chart of CPU seconds by tree and kind of source."""
    every = costs(builds)
    trees = dict.fromkeys(unit.partition("/")[0] for cost in every for unit in cost.seconds)
    series = {
        f"{tree}, {kind}": tuple(round(_part(cost, tree, endings), 1) for cost in every)
        for tree in trees
        for kind, endings in KINDS.items()
    }
    labels = tuple(cost.build.measured.cell + (AT_LEAST if cost.lacking else "") for cost in every)
    title = "Compiling from an empty ccache, CPU seconds of compilers"
    return [Bars(NAME, title, "CPU seconds", labels, series, stacked=True)]


def _part(cost: Cost, tree: str, endings: tuple[str, ...]) -> float:
    return sum(
        s for unit, s in cost.seconds.items() if unit.startswith(f"{tree}/") and unit.endswith(endings)
    )


def main() -> None:
    """Write the record of builds that ran elsewhere."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    build = files.holding("a finished build", builds.read)
    parser.add_argument("builds", nargs="+", type=build, metavar="BUILD", help=".ftbuild/CELL/KEY")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args()
    workspace = Workspace(options.out, options.out, jobs=1, real=True)
    print(_result(workspace, options.builds).write(options.out))


if __name__ == "__main__":
    main()
