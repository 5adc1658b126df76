"""The benchmark runner: print figures beside their goals, and write records and plots.

python -m benchmarks.harness.run --only startup
python -m benchmarks.harness.run --table benchmarks/results     # updates README.md and the plots from records
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.harness import catalogue, plots, renewal, table
from benchmarks.harness.catalogue import Benchmark
from benchmarks.harness.counts import at_least_one
from benchmarks.harness.figure import Result, load_now
from benchmarks.harness.workspace import Workspace
from ftbuild.cli import demo
from ftbuild.errors import ConfigError, FtbuildError, Interrupted, worst
from ftbuild.text import units
from ftbuild.text.reporter import to_stderr
from testing import ROOT
from testing.sample import SAMPLE

README = ROOT / "benchmarks" / "README.md"
OUT = ROOT / ".ftbuild" / "bench"
ROUNDS = 5


@dataclass(frozen=True)
class BenchOptions:
    """Options of a run: benchmarks, stack and cells (none: the benchmark decides)."""

    only: Sequence[str] = ()
    real: bool = False
    config: Path | None = None
    base: str | None = None
    cell: Sequence[str] = ()
    jobs: int = 2
    rounds: int = ROUNDS
    out: Path = OUT

    def workspace(self, work: Path, at_end: ExitStack) -> Workspace:
        """Return the workspace; the real sources are built on the open base, which is free to use."""
        base = self.base or ("open" if self.real else None)
        config = self.config or (ROOT / "buildcfg" if self.real else SAMPLE)
        return Workspace(config, work, self.jobs, base, tuple(self.cell), self.rounds, self.real, at_end)


def bench(options: BenchOptions) -> int:
    """Run the benchmarks one after the other, each even after a failure, and return the worst exit code.

    Results are written at once, so that Ctrl-C loses only the running benchmark.
    """
    benchmarks = list(catalogue.chosen(options.only))
    if not options.real:
        demo.sample_repositories(ROOT)
    results: list[Result] = []
    codes: list[int] = []
    try:
        with tempfile.TemporaryDirectory(prefix="ftbuild-bench-") as work, ExitStack() as at_end:
            workspace = options.workspace(Path(work), at_end)
            for benchmark in benchmarks:
                codes.append(_run(benchmark, workspace, options.out, results))
    except KeyboardInterrupt:
        to_stderr("interrupted: the results so far are kept")
        codes.append(Interrupted.exit_code)
    if results:
        print(table.text(results))
        plots.draw_if_possible(results, options.out)
    return worst(codes)


def listing() -> str:
    """Return all benchmarks with their descriptions."""
    width = max(map(len, catalogue.NAMES))
    return "\n".join(f"{b.NAME:<{width}}  {catalogue.about(b)}" for b in catalogue.chosen(()))


def renew(folder: Path) -> None:
    """Update README.md, the plots beside the records and their figures, from the data of the records alone.

    Says of each record whether it is of what the checkout is today.
    """
    results = renewal.renewed(folder)
    verdicts = renewal.verdicts(results)
    table.renew(README, results, folder, verdicts)
    print(table.verdicts(results, verdicts))
    plots.draw_if_possible(results, folder)


def _run(benchmark: Benchmark, workspace: Workspace, out: Path, results: list[Result]) -> int:
    """Run a benchmark and return its exit code."""
    start = time.monotonic()
    try:
        if missing := benchmark.needs(workspace):
            to_stderr(f"{benchmark.NAME}: skipped, {missing}")
            return 0
        to_stderr(f"{benchmark.NAME}: {catalogue.about(benchmark)}")
        result = benchmark.run(replace(workspace, load_before=load_now()))
    except FtbuildError as failure:
        to_stderr(f"{benchmark.NAME}: failed: {failure}")
        return failure.exit_code
    except Exception:
        to_stderr(f"{benchmark.NAME}: failed\n{traceback.format_exc()}")
        return FtbuildError.exit_code
    results.append(result)
    to_stderr(f"{benchmark.NAME}: {units.duration(time.monotonic() - start)}, {result.write(out)}")
    return 0


def main() -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="repeatable; --list")
    parser.add_argument("--real", action="store_true", help="on the real sources and the open base")
    parser.add_argument("--config", type=Path, help="configuration folder (default: by --real)")
    parser.add_argument("--base", help="image to build on")
    parser.add_argument("--cell", action="append", default=[], help="glob on cell ids (repeatable)")
    parser.add_argument("--jobs", type=at_least_one, default=2, help="compile jobs at a time (default: 2)")
    parser.add_argument("--rounds", type=at_least_one, default=ROUNDS, help="repeated quick measurements")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for records and plots")
    parser.add_argument("--list", action="store_true", help="show the benchmarks and stop")
    parser.add_argument("--table", type=Path, metavar="FOLDER", help="update README.md from records")
    options = vars(parser.parse_args())
    folder, only_list = options.pop("table"), options.pop("list")
    try:
        if only_list:
            print(listing())
        elif folder:
            renew(folder)
        else:
            return bench(BenchOptions(**options))
    except ConfigError as wrong:
        print(f"error: {wrong}", file=sys.stderr)
        return wrong.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
