"""Sources: bytes fetched against recursive clones, and seconds until BuildKit has a cell's context."""

from __future__ import annotations

import os
import shutil
import statistics
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.harness.chart import Bars
from benchmarks.harness.figure import Figure, Result, Topic
from benchmarks.harness.workspace import Used, Workspace, measured, stopwatch
from benchmarks.tools.transfer import Transfer, send
from ftbuild.build import context
from ftbuild.config.schema import Config
from ftbuild.engine import daemon
from ftbuild.errors import HostError
from ftbuild.host.git import NO_REPOSITORY, git, last_line
from ftbuild.host.shell import CommandFailed
from ftbuild.plan import Plan
from ftbuild.sources import fetch, repositories
from ftbuild.sources.inputs import PlannedSource
from ftbuild.text.reporter import to_stderr

NAME = "sources"
RATIO = 0.05
STAGED_SECONDS = 5.0
# Large parts that a build does not read: histories and test data.
NOT_NEEDED = (".git", "tests")
NOT_NEEDED_BYTES = 100e6
ANSWER_SECONDS = 10.0


def needs(workspace: Workspace) -> str | None:
    """Require reachable repositories, an engine, and the base image."""
    config, plan = workspace.load(), workspace.plan()
    try:
        client = daemon.connect()
        for source in plan.sources:
            git(
                "ls-remote",
                _url(config, source.repository),
                "HEAD",
                env=NO_REPOSITORY,
                timeout=ANSWER_SECONDS,
            )
    except HostError as missing:
        return missing.what
    except CommandFailed as failed:
        return f"a source cannot be reached: {last_line(failed)}"
    builds = daemon.image(client, plan.base.serving)
    return None if builds else f"there is no image {plan.base.serving}: invoke base makes it"


def run(workspace: Workspace) -> Result:
    """Fetch into an empty cache, stage from the full one, transfer to BuildKit twice, and clone."""
    config, plan = workspace.load(), workspace.plan()
    cache = workspace.work / "cache"
    fetch.fetch_release(config, plan.cell.triton, cache, sms=plan.cell.sms, report=to_stderr)
    fetched = {
        store.name.rpartition("-")[0]: packed(store) for store in sorted((cache / "git").glob("*.git"))
    }
    folder = workspace.work / "staged"
    staged = [staging(plan, cache, folder) for _ in range(workspace.rounds)]
    weights = weigh(folder / context.SOURCES)
    recipe = workspace.work / f"transfer-{uuid.uuid4().hex}"
    first, second = (send(plan.base.serving, folder / context.SOURCES, recipe) for _ in range(2))
    cloned, absent = clones(config, plan, workspace.work / "clone")
    data = {
        "fetched": fetched,
        "cloned": cloned,
        "not reached": absent,
        "staging": [vars(used) for used in staged],
        "context bytes": weights,
        "transfer": [vars(first), vars(second)],
    }
    outcomes = [
        ratio(workspace, fetched, cloned, absent),
        *timings(staged, first, second),
        *sizes(weights),
    ]
    return workspace.result(NAME, outcomes, data, [chart(plan, fetched, cloned)], cells=[measured(plan)])


def packed(folder: Path) -> int:
    """Return the bytes of all packs below a folder: the transfer, since git keeps a large one as it is.

    Objects that git unpacked, as it does with small transfers, count with their size on disk.
    """
    packs = list(folder.rglob("*.pack"))
    loose = [file for file in folder.rglob("objects/??/*") if file.is_file()]
    return sum(file.stat().st_size for file in (*packs, *loose))


def clones(config: Config, plan: Plan, scratch: Path) -> tuple[dict[str, int], list[str]]:
    """Return the bytes of `git clone --recursive` of each repository, and unreachable submodules."""
    cloned: dict[str, int] = {}
    absent: list[str] = []
    for source in (source for source in plan.sources if brought_by(plan, source) == source):
        folder = scratch / source.repository
        to_stderr(f"git clone --recursive {source.url}")
        url = _url(config, source.repository)
        git("clone", "--quiet", "--recursive", url, str(folder), env=NO_REPOSITORY, check=False)
        cloned[source.repository] = packed(folder / ".git")
        status = git("submodule", "status", cwd=folder, check=False).stdout
        absent += [line.split()[1] for line in status.splitlines() if line.startswith("-")]
        shutil.rmtree(folder)
    return cloned, absent


def brought_by(plan: Plan, source: PlannedSource) -> PlannedSource:
    """Return the source whose recursive clone contains this one as a submodule, else the source itself."""
    parents = Path(source.path).parents
    return next((other for other in plan.sources if Path(other.path) in parents), source)


def staging(plan: Plan, cache: Path, folder: Path) -> Used:
    """Measure copying and patching a cell's sources from a full cache."""
    shutil.rmtree(folder, ignore_errors=True)
    os.sync()  # earlier writes must not count
    used = stopwatch()
    context.stage(plan, cache, folder, report=lambda line: None)
    return used()


def weigh(folder: Path) -> dict[str, int]:
    """Return bytes by the first three folders, and of needless parts by their names."""
    weights: dict[str, int] = dict.fromkeys(NOT_NEEDED, 0)
    for file in folder.rglob("*"):
        if file.is_file() and not file.is_symlink():
            parts, size = file.relative_to(folder).parts, file.stat().st_size
            group = "/".join(parts[:-1][:3])
            weights[group] = weights.get(group, 0) + size
            for name in NOT_NEEDED:
                weights[name] += size if name in parts else 0
    return dict(sorted(weights.items(), key=lambda item: -item[1]))


def ratio(
    workspace: Workspace, fetched: Mapping[str, int], cloned: Mapping[str, int], absent: Iterable[str]
) -> Figure:
    """Return the ratio of bytes; without a goal for the miniature repositories, which have little history."""
    fetching, cloning = sum(fetched.values()), sum(cloned.values())
    without = f", without {', '.join(Path(path).name for path in absent)}" if absent else ""
    return Figure(
        Topic.SOURCES,
        f"bytes fetched ({fetching / 1e6:.1f} MB) / `git clone --recursive` ({cloning / 1e6:.1f} MB"
        f"{without})",
        fetching / cloning,
        "",
        RATIO if workspace.real else None,
        "measured: packs that git received",
    )


def timings(staged: Sequence[Used], first: Transfer, second: Transfer) -> list[Figure]:
    """Return the seconds of staging and transfer."""
    wall = statistics.median(used.wall for used in staged)
    cpu = statistics.median(used.cpu for used in staged)
    how = f"measured: median of {len(staged)} stagings"
    once = "one transfer, BuildKit's own figure"
    return [
        _seconds("staging from a full cache, wall time", wall, how, STAGED_SECONDS),
        _seconds("staging from a full cache, CPU time", cpu, how),
        _seconds("first transfer to BuildKit", first.seconds, f"measured: {once}"),
        _seconds("second transfer to BuildKit", second.seconds, f"measured: {once}"),
        _seconds("staging and first transfer", wall + first.seconds, f"{how}, {once}", STAGED_SECONDS),
    ]


def _seconds(what: str, value: float, how: str, goal: float | None = None) -> Figure:
    return Figure(Topic.SOURCES, what, value, "s", goal, how)


def sizes(weights: Mapping[str, int]) -> list[Figure]:
    """Return the bytes of the context, and of its needless parts."""
    total = sum(size for name, size in weights.items() if name not in NOT_NEEDED)
    needless = sum(weights[name] for name in NOT_NEEDED)
    what = f"{' and '.join(f'`{name}`' for name in NOT_NEEDED)} in the staged context"
    return [
        Figure(Topic.SOURCES, "staged context", total, "B", None, "measured"),
        Figure(Topic.SOURCES, what, needless, "B", NOT_NEEDED_BYTES, "measured"),
    ]


def chart(plan: Plan, fetched: Mapping[str, int], cloned: Mapping[str, int]) -> Bars:
    """Return the chart of bytes by repository, largest first; submodules count with their parent."""
    zeros = dict.fromkeys(cloned, 0)
    for source in plan.sources:
        zeros[brought_by(plan, source).repository] += fetched[source.repository]
    names = tuple(sorted(cloned, key=lambda name: -cloned[name]))
    series = {
        "fetched": tuple(zeros[name] / 1e6 for name in names),
        "git clone --recursive": tuple(cloned[name] / 1e6 for name in names),
    }
    return Bars("sources", f"Bytes received for {plan.cell.id}", "MB", names, series)


def _url(config: Config, repository: str) -> str:
    return repositories.store_of(config, repository, Path()).urls[0]
