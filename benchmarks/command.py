"""The command that runs the benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ftbuild.cli.arguments import Range
from ftbuild.cli.command import command
from ftbuild.cli.options import BaseName, work_folder


@command("dev.bench")
def bench(
    only: Annotated[
        tuple[str, ...], "name of a benchmark (repeatable; default: all that this machine can run)"
    ] = (),
    real: Annotated[bool, "on the real sources and the open base: hours on a small machine"] = False,
    cell: Annotated[tuple[str, ...], "glob on cell ids, for instance '22.12-*' (repeatable)"] = (),
    base: BaseName = None,
    jobs: Annotated[int, Range(1), "compile jobs at a time (default: 2)"] = 2,
    rounds: Annotated[int, Range(1), "repetitions of what takes seconds"] = 5,
    out: Annotated[Path | None, "folder for records and plots (default: .ftbuild/bench)"] = None,
    list: Annotated[bool, "show the benchmarks and stop"] = False,  # noqa: A002
) -> int:
    """Measure what benchmarks/README.md has goals for; without --real on the sample stack."""
    from benchmarks.harness import run as harness

    if list:
        print(harness.listing())
        return 0
    return harness.bench(
        harness.BenchOptions(
            only=only,
            real=real,
            base=base,
            cell=cell,
            jobs=jobs,
            rounds=rounds,
            out=out or work_folder() / "bench",
        )
    )
