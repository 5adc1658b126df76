"""Sources with the longest compile times, for ftbuild/build/compile_order.py, from the logs of builds.

python -m benchmarks.tools.compile_order .ftbuild/*/*/info/*/slots.tsv      # of cells with one SM
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable

from benchmarks.harness import compiles
from benchmarks.harness.compiles import Job
from ftbuild.build import compile_order

# Replayed with 16 jobs, wall time is 1.12 of its limit for the list down to here, 1.14 for the first 60.
SHORTEST_SECONDS = 4.0


def sources(jobs: Iterable[Job]) -> dict[str, float]:
    """Return the longest CPU time in seconds by file name without suffixes, longest first."""
    by_source: dict[str, float] = {}
    for job in jobs:
        name = compile_order.source(job.output)
        by_source[name] = max(by_source.get(name, 0.0), job.cpu)
    heavy = {name: seconds for name, seconds in by_source.items() if seconds >= SHORTEST_SECONDS}
    return dict(sorted(heavy.items(), key=lambda item: -item[1]))


def main() -> None:
    """Print the names as lines of the module, or with their seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("logs", nargs="+", type=compiles.LOG, metavar="SLOTS")
    parser.add_argument("--seconds", action="store_true", help="one a line, with its seconds")
    options = parser.parse_args()
    times = sources(job for log in options.logs for job in log)
    if options.seconds:
        print("\n".join(f"{seconds:7.1f}  {name}" for name, seconds in times.items()))
    else:
        for line in textwrap.wrap(" ".join(times), 98, break_long_words=False):
            print(f'    "{line} "')


if __name__ == "__main__":
    main()
