"""The benchmark command."""

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
    rounds: Annotated[int, Range(1), "repetitions of quick measurements"] = 5,
    out: Annotated[Path | None, "folder for records and plots (default: .ftbuild/bench)"] = None,
    list: Annotated[bool, "show the benchmarks and stop"] = False,  # noqa: A002
) -> int:
    """Run the benchmarks and compare them with their goals (benchmarks/README.md)."""
    from benchmarks.harness import run

    if list:
        print(run.listing())
        return 0
    return run.bench(
        run.BenchOptions(
            only=only,
            real=real,
            base=base,
            cell=cell,
            jobs=jobs,
            rounds=rounds,
            out=out or work_folder() / "bench",
        )
    )
