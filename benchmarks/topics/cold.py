"""Cold build of one SM against upstream's recipe: CPU seconds, on the same base, from the same sources."""

from __future__ import annotations

import re

from benchmarks.harness import compiles, sampling
from benchmarks.harness.compiles import Compile, Machine
from benchmarks.harness.figure import Figure, Result, Topic
from benchmarks.harness.workspace import Workspace
from ftbuild.engine import daemon
from ftbuild.errors import HostError
from ftbuild.nightly import ninja
from ftbuild.plan import Plan
from ftbuild.text.reporter import to_stderr

NAME = "cold"
RATIO = 0.15
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
    try:
        daemon.connect()
    except HostError as missing:
        return missing.what
    return None


def run(workspace: Workspace) -> Result:
    """Measure both sides; upstream's real sources are sampled, since the whole takes hours."""
    _, ours = compiles.cold(workspace)
    upstream = Machine(workspace)
    # For the sources that these SMs need.
    known = workspace.load().matrix.sms
    plan = workspace.plan_for(*(sm for sm in SMS if sm in known))
    return (_sampled if workspace.real else _whole)(workspace, plan, ours, upstream)


def _whole(workspace: Workspace, plan: Plan, ours: Compile, machine: Machine) -> Result:
    to_stderr("upstream's recipe")
    upstream = machine.compile(plan, script=script(MAKE.format(words="")))
    how = f"measured, both whole: {len(ours.jobs)} and {len(upstream.jobs)} units; compile and link"
    data = {"ours": ours.as_dict(), "upstream": upstream.as_dict()}
    return workspace.result(NAME, [_figure(ours.cpu, upstream.cpu, how, None)], data)


def _sampled(workspace: Workspace, plan: Plan, ours: Compile, machine: Machine) -> Result:
    to_stderr("upstream's recipe: list of units")
    listed = machine.compile(plan, script=script()).figures.glob("*/targets")
    every = [unit for file in listed for unit in objects(file.read_text())]
    known = ours.seconds()
    chosen = sampling.choose(every, known)
    to_stderr(f"upstream's recipe: {len(chosen)} of {len(every)} units")
    compiled = machine.compile(
        plan, script=script(MAKE.format(words=SAMPLE.format(targets=" ".join(chosen))))
    )
    measured = compiled.seconds()
    logs = compiled.figures.glob("*/ninja_log")
    failed = set(chosen).difference(unit.output for log in logs for unit in ninja.units(log.read_text()))
    found = sampling.estimate(every, known, measured)
    total, error = sum(known.values()), 100 * found.error / found.seconds
    how = (
        f"sampled, CPU seconds of compilers, tree {', '.join(workspace.trees)}; "
        f"ours whole ({len(known)} units), upstream's {found.measured} of {found.units}: "
        "all long ones, a random part of the rest "
        f"({len(failed)} until an error for want of cuDNN); ratio estimate, standard error {error:.1f} %"
    )
    data = {
        "ours": known,
        "upstream": measured,
        "units": found.units,
        "failed": sorted(failed),
        "seconds": found.seconds,
        "error": found.error,
    }
    return workspace.result(NAME, [_figure(total, found.seconds, how, RATIO)], data)


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


def _figure(ours: float, upstream: float, how: str, goal: float | None) -> Figure:
    what = f"one SM ({ours:.0f} CPU s) / upstream's default SMs and all targets ({upstream:.0f} CPU s)"
    return Figure(Topic.COLD, what, ours / upstream, "", goal, how)
