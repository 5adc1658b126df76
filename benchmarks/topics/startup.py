"""Start-up: time of `invoke --list`, `invoke matrix` and `invoke build --dry-run`."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping

from benchmarks.harness.chart import Bars
from benchmarks.harness.figure import Figure, Result, Topic
from benchmarks.harness.workspace import Timed, Workspace, timed
from ftbuild.text.reporter import to_stderr
from testing.sample import command

NAME = "startup"
# Processes of each command: at a fifth of a second each, other users of the machine show.
PROCESSES_PER_ROUND = 4
LIST_SECONDS = 0.25
BEYOND_SECONDS = 0.3
BARE = "import invoke"


def needs(workspace: Workspace) -> str | None:
    """Require only Python."""
    return None


def run(workspace: Workspace) -> Result:
    """Run the commands in turn, so that a busy moment affects all of them."""
    commands: Mapping[str, Callable[[], Timed]] = {
        BARE: lambda: timed([sys.executable, "-c", BARE]),
        "--list": lambda: timed(command("--list")),
        "matrix": lambda: workspace.invoke("matrix"),
        "build --dry-run": lambda: workspace.invoke("build", "--dry-run"),
    }
    for start in commands.values():
        start()  # the first one writes byte code
    processes = PROCESSES_PER_ROUND * workspace.rounds
    to_stderr(f"{processes} processes of each command")
    rounds = [{name: start() for name, start in commands.items()} for _ in range(processes)]
    seconds = {
        name: {"wall": [r[name].wall for r in rounds], "cpu": [r[name].cpu for r in rounds]}
        for name in commands
    }
    return workspace.result(NAME, figures(seconds), {"seconds": seconds}, [chart(seconds)])


def figures(seconds: Mapping[str, Mapping[str, list[float]]]) -> list[Figure]:
    """Return the wall time of the list, and the others' CPU time beyond that of a bare import."""
    how = f"measured, median of {len(seconds[BARE]['cpu'])} processes"
    bare = statistics.median(seconds[BARE]["cpu"])
    listing = statistics.median(seconds["--list"]["wall"])
    times = [Figure(Topic.STARTUP, "`invoke --list`, wall time", listing, "s", LIST_SECONDS, how)]
    for name in ("matrix", "build --dry-run"):
        beyond = statistics.median(seconds[name]["cpu"]) - bare
        what = f"`invoke {name}`, CPU time beyond `{BARE}`"
        times.append(Figure(Topic.STARTUP, what, beyond, "s", BEYOND_SECONDS, how))
    return times


def chart(seconds: Mapping[str, Mapping[str, list[float]]]) -> Bars:
    """Return the chart of both times of every command."""
    medians = {
        kind: tuple(statistics.median(of[kind]) for of in seconds.values()) for kind in ("wall", "cpu")
    }
    series = {"wall time": medians["wall"], "CPU time": medians["cpu"]}
    return Bars("startup", "Start-up, medians", "seconds", tuple(seconds), series)
