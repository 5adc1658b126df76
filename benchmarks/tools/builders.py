"""A nightly run over two engines against one over a single engine, with the same number of compile jobs.

    python -m benchmarks.tools.builders --rounds 3

The second engine is on this machine, with data and a network of its own, and is reached by TLS, as on another
host. It shares the cores: the ratio is what spreading costs, since what more cores gain depends on them.
Before each measurement the sources get a new patch, as for `benchmarks.tools.nightly`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.tools.nightly import Workspace, measure, options, prepared, record, summary, without_traceback
from ftbuild.engine.builders import ENGINE
from testing.engines import engine

FAR = "ftbuild-far"
CELLS = ("22.07-sm80", "22.07-sm86", "22.12-sm80", "22.12-sm86")


def one_engine(workspace: Workspace, _repository: str) -> None:
    """Run all cells on this engine, two at a time, with all jobs."""
    _night(workspace, "--jobs", str(workspace.jobs), "--parallel", "2")


def two_engines(workspace: Workspace, _repository: str) -> None:
    """Run all cells on both engines, one at a time on each, with half of the jobs each."""
    half = max(1, workspace.jobs // 2)
    builders = [word for name in (ENGINE, FAR) for word in ("--builder", f"{name}={half}")]
    _night(workspace, *builders, "--parallel", "1")


def _night(workspace: Workspace, *arguments: str) -> None:
    """Run a night into the one repository that has the base; every measurement has other keys."""
    chosen = [word for cell in workspace.cells for word in ("--cell", cell.id)]
    workspace.invoke("nightly", *chosen, "--no-audit", "--registry", workspace.registry, *arguments)


def main() -> None:
    """Measure, and print a table and JSON."""
    chosen = options(__doc__, CELLS).parse_args()
    with (
        without_traceback(),
        prepared(chosen.cells or CELLS, chosen.jobs) as workspace,
        tempfile.TemporaryDirectory(prefix="ftbuild-engine-") as folder,
        engine(Path(folder), "ftb-bench", "192.0.2.193/26", tls=True) as far,
    ):
        far.add_context(FAR, Path(workspace.variables["DOCKER_CONFIG"]))
        two_engines(workspace, "")  # carries the base over
        rounds = measure(workspace, chosen.rounds, (two_engines, one_engine))
    print(summary(rounds, two_engines, one_engine))
    print(record(workspace, rounds, two_engines, one_engine))


if __name__ == "__main__":
    main()
