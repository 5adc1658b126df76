"""A cold build of one SM against upstream's recipe: CPU seconds, on the same base, from the same sources."""

from __future__ import annotations

from benchmarks import cpu_times, sampling
from benchmarks.compiles import Machine
from benchmarks.figure import Figure, Result, Topic
from benchmarks.sampling import Estimate
from benchmarks.stage import Stage
from ftbuild import engine
from ftbuild.errors import HostError
from ftbuild.options import progress

NAME = "cold"
RATIO = 0.15
# Name of the CPU times of upstream's recipe, by release: 22.12-upstream.
UPSTREAM = "{release}-upstream"
LAUNCHERS = tuple(f"CMAKE_{language}_COMPILER_LAUNCHER" for language in ("C", "CXX", "CUDA"))
# What we decide otherwise than upstream's recipe, which leaves it at the default.
OURS = ("SM", "USE_NVTX", *LAUNCHERS)
# The default, which a patch of ours makes an error (FT v5.3 CMakeLists.txt:178).
SMS = "70,75,80,86"
# fastertransformer_backend v1.4 docker/Dockerfile: configure as Release, make all that CMake knows. By ninja,
# since the base has no make; the compilers' command lines are the same.
SCRIPT = f"""#!/bin/sh
# compile TREE SOURCE: one tree as upstream's recipe has it, each compiler in one of JOBS slots
set -eu
. /steps/host-environment
tree=$1 source=$2 build=/build/$1 info=/out/info
mkdir -p "$build" "$info"
export JOBS SLOT_LOG="$info/slots.tsv"
touch "$SLOT_LOG" "$info/ccache.statslog"
grep -vE '^set\\(({"|".join(OURS)}) ' "/recipe/$tree.cmake" > /tmp/initial.cmake
cmake -G Ninja -S "$source" -B "$build" -C /tmp/initial.cmake \\
    -D SM={SMS} {" ".join(f"-D {launcher}=/steps/slot" for launcher in LAUNCHERS)}
times > "$info/times"
date +%s%3N > "$info/started"
ninja -C "$build" -j "$JOBS"
cp "$build/.ninja_log" "$info/ninja_log"
times >> "$info/times"
"""


def needs(stage: Stage) -> str | None:
    """An engine; for the real sources CPU times of both sides, since upstream's side takes hours."""
    if stage.real:
        missing = [str(file) for file in map(cpu_times.path, _names(stage)) if not file.exists()]
        return f"no CPU times: {', '.join(missing)}" if missing else None
    try:
        engine.connect()
    except HostError as missing_engine:
        return missing_engine.what
    return None


def run(stage: Stage) -> Result:
    """Both sides; those of the real sources from their CPU times."""
    return _recorded(stage) if stage.real else _whole(stage)


def _whole(stage: Stage) -> Result:
    machines = Machine(stage), Machine(stage)
    try:
        progress("our side")
        ours = machines[0].compile(stage.plan())
        progress("upstream's side")
        upstream = machines[1].compile(stage.plan(), script=SCRIPT)
    finally:
        for machine in machines:
            machine.forget()
    how = f"measured, both whole: {len(ours.jobs)} and {len(upstream.jobs)} units; compile and link"
    data = {"ours": ours.as_dict(), "upstream": upstream.as_dict()}
    return stage.result(NAME, [_figure(ours.cpu, upstream.cpu, how, None)], data)


def _recorded(stage: Stage) -> Result:
    ours_name, upstream_name = _names(stage)
    ours, measured = cpu_times.read(ours_name), cpu_times.read(upstream_name)
    every = sampling.everything(upstream_name)
    if every is None:
        found = Estimate(sum(measured.values()), 0.0, len(measured), len(measured))
    else:
        found = sampling.estimate(every, ours, measured)
    total = sum(ours.values())
    return stage.result(
        NAME,
        [_figure(total, found.seconds, _how(len(ours), found), RATIO)],
        {"cell": ours_name, "ours": total, "upstream": found.seconds, "error": found.error},
    )


def _how(ours: int, upstream: Estimate) -> str:
    whole = f"CPU seconds of compilers; ours whole ({ours} units)"
    if upstream.measured == upstream.units:
        return f"measured, {whole}, upstream's whole ({upstream.units})"
    error = 100 * upstream.error / upstream.seconds
    return (
        f"sampled, {whole}, upstream's {upstream.measured} of {upstream.units} units: all long ones, "
        f"a random part of the rest; ratio estimate, standard error {error:.1f} % (benchmarks/sampling.py)"
    )


def _figure(ours: float, upstream: float, how: str, goal: float | None) -> Figure:
    what = f"one SM ({ours:.0f} CPU s) / upstream's default SMs and all targets ({upstream:.0f} CPU s)"
    return Figure(Topic.COLD, what, ours / upstream, "", goal, how)


def _names(stage: Stage) -> tuple[str, str]:
    plan = stage.plan()
    return plan.cell.id, UPSTREAM.format(release=plan.cell.triton)
