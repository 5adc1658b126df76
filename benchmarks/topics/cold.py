"""Cold build of one SM against upstream's recipe: CPU seconds, on the same base, from the same sources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.harness import compiles, requirements, sampling
from benchmarks.harness.compiles import Compile, Machine
from benchmarks.harness.figure import Figure, Result, Topic
from benchmarks.harness.workspace import Workspace, measured
from ftbuild.nightly import ninja
from ftbuild.plan import Plan
from ftbuild.text.reporter import to_stderr

NAME = "cold"
# 2: the name says which seconds count, and the goal is judged at the worse end of the sample's interval.
DEFINITION = 2
RATIO = 0.15
COMPILERS, ALL = "CPU seconds of compilers", "CPU seconds of compiling and linking"
# Standard errors from the middle to the ends of a 95 % interval of the normal distribution.
NORMAL_95 = 1.96
LAUNCHERS = tuple(f"CMAKE_{language}_COMPILER_LAUNCHER" for language in ("C", "CXX", "CUDA"))
# Options that ftbuild sets and upstream's recipe leaves at their defaults.
OURS = ("SM", "USE_NVTX", *LAUNCHERS)
# The default, which one of ftbuild's patches makes an error (FT v5.3 CMakeLists.txt:178).
SMS = (70, 75, 80, 86)
MAKE = 'ninja -C "$build" -j "$JOBS" {words}; cp "$build/.ninja_log" "$info/ninja_log"'
# Continue after errors: some of upstream's other programs need cuDNN, which a base may lack.
SAMPLE = "-k 0 {targets} || true"
# Without nvcc's device links, which are objects too.
_OBJECT = re.compile(r"^(\S+\.o): C(?:XX|UDA)?_COMPILER_", re.M)


def needs(workspace: Workspace) -> str | None:
    """Require an engine."""
    return requirements.engine()


def run(workspace: Workspace) -> Result:
    """Measure both sides; upstream's real sources are sampled, since the whole takes hours."""
    _, compiled = compiles.cold(workspace)
    upstream = Machine(workspace)
    # For the sources that these SMs need.
    known = workspace.load().matrix.sms
    plan = workspace.plan_for(*(sm for sm in SMS if sm in known))
    return (_sampled if workspace.real else _whole)(workspace, plan, compiled, upstream)


def _whole(workspace: Workspace, plan: Plan, own: Compile, machine: Machine) -> Result:
    to_stderr("upstream's recipe")
    upstream = machine.compile(plan, script=script(MAKE.format(words="")))
    data = {"ours": own.as_dict(), "upstream": upstream.as_dict()}
    cells = [measured(workspace.plan())]
    return workspace.result(NAME, [whole(data)], data, cells=cells, definition=DEFINITION)


def whole(data: Mapping[str, Any]) -> Figure:
    """Return the ratio of two whole compiles."""
    own, upstream = data["ours"], data["upstream"]
    how = f"measured, both whole: {own['compiled']} and {upstream['compiled']} units"
    return Figure(
        Topic.COLD, _what(ALL, own["cpu"], upstream["cpu"]), own["cpu"] / upstream["cpu"], "", None, how
    )


def _sampled(workspace: Workspace, plan: Plan, own: Compile, machine: Machine) -> Result:
    to_stderr("upstream's recipe: list of units")
    listed = machine.compile(plan, script=script()).figures.glob("*/targets")
    every = [unit for file in listed for unit in objects(file.read_text())]
    known = own.seconds()
    chosen = sampling.choose(every, known)
    to_stderr(f"upstream's recipe: {len(chosen)} of {len(every)} units")
    compiled = machine.compile(
        plan, script=script(MAKE.format(words=SAMPLE.format(targets=" ".join(chosen))))
    )
    seconds = compiled.seconds()
    logs = compiled.figures.glob("*/ninja_log")
    failed = set(chosen).difference(unit.output for log in logs for unit in ninja.units(log.read_text()))
    estimate = sampling.estimate(every, known, seconds)
    data = {
        "trees": workspace.trees,
        "ours": known,
        "upstream": seconds,
        "every": every,
        "units": estimate.units,
        "failed": sorted(failed),
        "seconds": estimate.seconds,
        "error": estimate.error,
    }
    cells = [measured(workspace.plan())]
    return workspace.result(NAME, [sampled(data)], data, cells=cells, definition=DEFINITION)


def sampled(data: Mapping[str, Any]) -> Figure:
    """Return the ratio with its 95 % interval, at whose worse end the goal is judged."""
    own, upstream, error = sum(data["ours"].values()), data["seconds"], data["error"]
    how = (
        f"sampled, tree {', '.join(data.get('trees', ('backend',)))}; "
        f"ours whole ({len(data['ours'])} units), upstream's {len(data['upstream'])} of {data['units']}: "
        f"all long ones, a random part of the rest ({len(data['failed'])} until an error for want of cuDNN); "
        f"ratio estimate with its 95 % interval, standard error {100 * error / upstream:.1f} %"
    )
    what = _what(COMPILERS, own, upstream)
    low, high = (own / (upstream + sign * NORMAL_95 * error) for sign in (1, -1))
    return Figure(Topic.COLD, what, own / upstream, "", RATIO, how, least=low, most=high)


def recomputed(result: Result) -> Result:
    """Return the record with the figure that follows from its data today."""
    figure = (sampled if result.stack == "real" else whole)(result.data)
    return replace(result, figures=(figure,), definition=DEFINITION)


def _what(seconds: str, own: float, upstream: float) -> str:
    return f"{seconds}: one SM ({own:.0f} s) / upstream's default SMs and all targets ({upstream:.0f} s)"


def script(make: str = "") -> str:
    """Return a script that compiles one tree with upstream's recipe; `make` follows the list of targets.

    fastertransformer_backend v1.4 docker/Dockerfile: configure as Release, make all targets. With ninja,
    since the base has no make; the compilers' command lines are the same.
    """
    return f"""#!/bin/sh
# compile.sh TREE SOURCE: each compiler in one of JOBS slots
set -eu
. /steps/host-environment.sh
tree=$1 source=$2 build=/build/$1 info=/out/info
mkdir -p "$build" "$info"
export JOBS SLOT_LOG="$info/slots.tsv"
touch "$SLOT_LOG" "$info/ccache.statslog" "$info/ninja_log"
grep -vE '^set\\(({"|".join(OURS)}) ' "/recipe/$tree.cmake" > /tmp/initial.cmake
cmake -G Ninja -S "$source" -B "$build" -C /tmp/initial.cmake \\
    -D SM={",".join(map(str, SMS))} {" ".join(f"-D {launcher}=/steps/slot.py" for launcher in LAUNCHERS)}
ninja -C "$build" -t targets all > "$info/targets"
times > "$info/times"
date +%s%3N > "$info/started"
{make}
times >> "$info/times"
"""


def objects(targets: str) -> list[str]:
    """Return the compiled objects in the output of `ninja -t targets all`."""
    return _OBJECT.findall(targets)
