"""Memory: the largest process of a compile job, and a whole compile where the builder may use 4 GB only.

python -m benchmarks.topics.memory SLOTS... --out FOLDER      # the first, of real sources, from builds' logs
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks.harness import compiles
from benchmarks.harness.compiles import Compile, Job, Machine
from benchmarks.harness.figure import Figure, Result, Topic
from benchmarks.harness.stage import Stage
from ftbuild import cmake
from ftbuild.engine import daemon
from ftbuild.errors import HostError
from ftbuild.text.units import GIB

NAME = "memory"
LIMIT_BYTES = 4 * GIB
# Version 1, whose limits a step can read; what limits a step of version 2 is the builder's own container.
CGROUPS = Path("/sys/fs/cgroup")
CONTROLLER = CGROUPS / "memory"
KINDS = {"nvcc": (".cu.o",), "host compiler": (".cc.o", ".cpp.o")}


def needs(stage: Stage) -> str | None:
    """An engine here with cgroups of version 1, in which we may make a group."""
    try:
        info = daemon.connect().info()
    except HostError as missing:
        return missing.what
    if (info.get("CgroupVersion"), info.get("CgroupDriver")) != ("1", "cgroupfs"):
        return "needs cgroups of version 1, without systemd"
    return None if os.access(CONTROLLER, os.W_OK) else f"{CONTROLLER} cannot be written"


def run(stage: Stage) -> Result:
    """One cell, from empty caches, within the limit."""
    machine = Machine(stage)
    with limited(f"ftbuild-{machine.name}", LIMIT_BYTES) as group:
        cold = machine.compile(stage.plan(), parent=f"/{group.name}")
        control = (group / "memory.oom_control").read_text()
    kills = int(dict(line.split() for line in control.splitlines()).get("oom_kill", 0))
    data = {
        **cold.as_dict(),
        "heaviest": heaviest(cold.jobs),
        "at a time": together(cold.jobs),
        "said": [line for line in cold.log.splitlines() if "jobs: the builder may use" in line],
        "oom_kills": kills,
    }
    return stage.result(NAME, figures(cold, kills, stage), data)


def figures(cold: Compile, kills: int, stage: Stage) -> list[Figure]:
    """Peaks against what a job is thought to need, and what the limit did."""
    within = f"cold compile within {LIMIT_BYTES / GIB:.0f} GiB ({stage.jobs} jobs wanted)"
    how = f"measured, cgroup limit on the steps; {len(cold.jobs)} units compiled"
    fitting = cmake.jobs(stage.jobs, LIMIT_BYTES)
    return [
        *peaks(cold.jobs),
        Figure(Topic.MEMORY, f"{within}: jobs at a time", together(cold.jobs), "jobs", fitting, how),
        Figure(Topic.MEMORY, f"{within}: processes killed for memory", kills, "processes", 0, how),
    ]


def peaks(jobs: Sequence[Job]) -> list[Figure]:
    """The largest process of each kind of job."""
    found = []
    for kind, endings in KINDS.items():
        own = [job.memory for job in jobs if job.output.endswith(endings)]
        how = f"measured, largest resident process of {len(own)} jobs (getrusage)"
        peak, goal = max(own, default=0), cmake.MEMORY_PER_JOB_BYTES
        found.append(Figure(Topic.MEMORY, f"peak of {kind} jobs", peak, "B", goal, how))
    return found


def heaviest(jobs: Sequence[Job], count: int = 10) -> dict[str, int]:
    """The units with the largest processes, and their bytes."""
    return {job.output: job.memory for job in sorted(jobs, key=lambda job: -job.memory)[:count]}


def together(jobs: Sequence[Job]) -> int:
    """The most jobs that ran at the same time."""
    moments = sorted({moment for job in jobs for moment in (job.start, job.end)})
    counts = (sum(j.start < end and begin < j.end for j in jobs) for begin, end in pairwise(moments))
    return max(counts, default=0)


@contextlib.contextmanager
def limited(name: str, limit: int) -> Iterator[Path]:
    """A group with a memory limit in bytes; the engine makes one of that name for every controller."""
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
    parser.add_argument("logs", nargs="+", type=Path, metavar="SLOTS")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args()
    found = [job for log in options.logs for job in compiles.jobs(log.read_text())]
    stage = Stage(options.out, options.out, jobs=1, real=True)
    print(stage.result(NAME, peaks(found), {"heaviest": heaviest(found)}).write(options.out))


if __name__ == "__main__":
    main()
