"""Start-up: what `invoke --list`, `invoke matrix` and `invoke build --dry-run` take."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping

from benchmarks.harness.chart import Bars
from benchmarks.harness.figure import Figure, Result, Topic
from benchmarks.harness.stage import Stage, Timed, timed
from ftbuild.text.reporter import to_stderr
from testing.sample import command

NAME = "startup"
# Processes of each command: they take a fifth of a second, so that other users of the machine show.
PROCESSES_PER_ROUND = 4
LIST_SECONDS = 0.25
BEYOND_SECONDS = 0.3
BARE = "import invoke"


def needs(stage: Stage) -> str | None:
    """Nothing but Python."""
    return None


def run(stage: Stage) -> Result:
    """Every command in turn, so that a busy moment meets all of them; medians."""
    commands: Mapping[str, Callable[[], Timed]] = {
        BARE: lambda: timed([sys.executable, "-c", BARE]),
        "--list": lambda: timed(command("--list")),
        "matrix": lambda: stage.invoke("matrix"),
        "build --dry-run": lambda: stage.invoke("build", "--dry-run"),
    }
    for start in commands.values():
        start()  # the first one writes byte code
    processes = PROCESSES_PER_ROUND * stage.rounds
    to_stderr(f"{processes} processes of each command")
    rounds = [{name: start() for name, start in commands.items()} for _ in range(processes)]
    seconds = {
        name: {"wall": [r[name].wall for r in rounds], "cpu": [r[name].cpu for r in rounds]}
        for name in commands
    }
    return stage.result(NAME, figures(seconds), {"seconds": seconds}, [chart(seconds)])


def figures(seconds: Mapping[str, Mapping[str, list[float]]]) -> list[Figure]:
    """Wall time of the list, and CPU time of what reads the configuration beyond that of a bare import."""
    how = f"measured, median of {len(seconds[BARE]['cpu'])} processes"
    bare = statistics.median(seconds[BARE]["cpu"])
    listing = statistics.median(seconds["--list"]["wall"])
    found = [Figure(Topic.STARTUP, "`invoke --list`, wall time", listing, "s", LIST_SECONDS, how)]
    for name in ("matrix", "build --dry-run"):
        beyond = statistics.median(seconds[name]["cpu"]) - bare
        what = f"`invoke {name}`, CPU time beyond `{BARE}`"
        found.append(Figure(Topic.STARTUP, what, beyond, "s", BEYOND_SECONDS, how))
    return found


def chart(seconds: Mapping[str, Mapping[str, list[float]]]) -> Bars:
    """Both times of every command."""
    medians = {
        kind: tuple(statistics.median(of[kind]) for of in seconds.values()) for kind in ("wall", "cpu")
    }
    series = {"wall time": medians["wall"], "CPU time": medians["cpu"]}
    return Bars("startup", "Start-up, medians", "seconds", tuple(seconds), series)
