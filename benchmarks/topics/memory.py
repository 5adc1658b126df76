"""Memory: the largest process of a compile job, and a whole compile within 4 GB.

python -m benchmarks.topics.memory SLOTS... --out FOLDER      # the former, from logs of real builds
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks.harness import compiles, origin
from benchmarks.harness.compiles import Compile, Job, Machine
from benchmarks.harness.figure import Figure, Result, Topic
from benchmarks.harness.workspace import Workspace, measured
from ftbuild import cmake
from ftbuild.engine import daemon
from ftbuild.errors import HostError
from ftbuild.text.units import GIB

NAME = "memory"
LIMIT_BYTES = 4 * GIB
# Version 1, whose limits a step can read; in version 2 the limit is that of the builder's container.
CGROUPS = Path("/sys/fs/cgroup")
CONTROLLER = CGROUPS / "memory"
KINDS = {"nvcc": (".cu.o",), "host compiler": (".cc.o", ".cpp.o")}


def needs(workspace: Workspace) -> str | None:
    """Require a local engine with cgroups of version 1, and permission to create a group."""
    try:
        info = daemon.connect().info()
    except HostError as missing:
        return missing.what
    if (info.get("CgroupVersion"), info.get("CgroupDriver")) != ("1", "cgroupfs"):
        return "needs cgroups of version 1, without systemd"
    return None if os.access(CONTROLLER, os.W_OK) else f"{CONTROLLER} cannot be written"


def run(workspace: Workspace) -> Result:
    """Compile one cell from empty caches within the limit."""
    machine = Machine(workspace)
    with limited(f"ftbuild-{machine.name}", LIMIT_BYTES) as group:
        cold = machine.compile(workspace.plan(), parent=f"/{group.name}")
        control = (group / "memory.oom_control").read_text()
    kills = int(dict(line.split() for line in control.splitlines()).get("oom_kill", 0))
    data = {
        **cold.as_dict(),
        "heaviest": heaviest(cold.jobs),
        "at a time": together(cold.jobs),
        "said": [line for line in cold.log.splitlines() if "jobs: the builder may use" in line],
        "oom_kills": kills,
    }
    cells = [measured(workspace.plan())]
    return workspace.result(NAME, figures(cold, kills, workspace), data, cells=cells)


def figures(cold: Compile, kills: int, workspace: Workspace) -> list[Figure]:
    """Return the peaks against the memory planned per job, and the effect of the limit."""
    within = f"cold compile within {LIMIT_BYTES / GIB:.0f} GiB ({workspace.jobs} jobs wanted)"
    how = f"measured, cgroup limit on the steps; {len(cold.jobs)} units compiled"
    fitting = cmake.jobs(workspace.jobs, LIMIT_BYTES)
    return [
        *peaks(cold.jobs),
        Figure(Topic.MEMORY, f"{within}: jobs at a time", together(cold.jobs), "jobs", fitting, how),
        Figure(Topic.MEMORY, f"{within}: processes killed for memory", kills, "processes", 0, how),
    ]


def peaks(jobs: Sequence[Job]) -> list[Figure]:
    """Return the largest process of each kind of job."""
    by_unit = []
    for kind, endings in KINDS.items():
        own = [job.memory for job in jobs if job.output.endswith(endings)]
        how = f"measured, largest resident process of {len(own)} jobs (getrusage)"
        peak, goal = max(own, default=0), cmake.MEMORY_PER_JOB_BYTES
        by_unit.append(Figure(Topic.MEMORY, f"peak of {kind} jobs", peak, "B", goal, how))
    return by_unit


def heaviest(jobs: Sequence[Job], count: int = 10) -> dict[str, int]:
    """Return the units with the largest processes, and their bytes."""
    return {job.output: job.memory for job in sorted(jobs, key=lambda job: -job.memory)[:count]}


def together(jobs: Sequence[Job]) -> int:
    """Return the largest number of jobs that ran at the same time."""
    moments = sorted({moment for job in jobs for moment in (job.start, job.end)})
    counts = (sum(j.start < end and begin < j.end for j in jobs) for begin, end in pairwise(moments))
    return max(counts, default=0)


@contextlib.contextmanager
def limited(name: str, limit: int) -> Iterator[Path]:
    """Create a group with a memory limit in bytes; the engine makes one with this name per controller."""
    group = CONTROLLER / name
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit))
        yield group
    finally:
        for controller in CGROUPS.iterdir():
            for folder, _, _ in os.walk(controller / name, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()


def main() -> None:
    """Write the record of builds that ran elsewhere."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("logs", nargs="+", type=compiles.LOG, metavar="SLOTS")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    origin.add_option(parser)
    options = parser.parse_args()
    jobs = [job for log in options.logs for job in log]
    workspace = Workspace(options.out, options.out, jobs=1, real=True)
    data, cells = {"heaviest": heaviest(jobs)}, tuple(options.cell)
    print(workspace.result(NAME, peaks(jobs), data, cells=cells).of_files().write(options.out))


if __name__ == "__main__":
    main()
