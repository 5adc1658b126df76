"""Inference benchmark for a machine with few packages: a server against transformers.

The server runs in a container or by a command, which sees --folder at the path --inside:

python -m benchmarks.topics.inference --image triton_with_ft:22.12-sm90-open \\
    --template config.pbtxt --out results
python -m benchmarks.topics.inference \\
    --server "chroot /srv/root mpirun -n 1 --allow-run-as-root tritonserver" \\
    --folder /srv/root/ftbench --template config.pbtxt --out results \\
    --variant ours --variant nvtx library=/srv/nvtx --variant four-cores cpus=0-3
python -m benchmarks.topics.inference --image triton_with_ft:22.12-sm90-open --template config.pbtxt \
    --out results --no-transformers --variant old --variant new image=triton_with_ft:24.10-sm90-open-cuda13
python -m benchmarks.topics.inference --image triton_with_ft:22.12-sm90-open --template config.pbtxt \
    --out results --peer vLLM --peer CTranslate2 --rounds 3 --prompts 128 1024 --batches 1 8 32 --way compiled
python -m benchmarks.topics.inference --family t5 --template t5/config.pbtxt --peer CTranslate2 ...
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime

from benchmarks.harness import table
from benchmarks.harness.counts import at_least_one
from benchmarks.harness.figure import Machine, Result, load_now
from benchmarks.harness.origin import Origin
from benchmarks.topics.inference import DEFINITION, NAME, job, report
from benchmarks.topics.inference.measure import Workload, progress
from benchmarks.topics.inference.models.architecture import Architecture
from benchmarks.topics.inference.options import (
    add_model,
    add_run,
    add_server,
    launcher,
    peers,
    require_packages,
    shape,
    template,
    variants,
)
from ftbuild.errors import ConfigError, FtbuildError, Interrupted
from ftbuild.text import tables

WAYS = {"plain": job.PLAIN, "compiled": job.COMPILED}


def workload(options: argparse.Namespace, model: Architecture) -> Workload:
    """Return the requests that the options select; ConfigError for texts longer than `model` takes."""
    mix = Workload(
        tuple(options.prompts), options.answer, tuple(options.batches), options.runs, options.warm_ups
    )
    positions = getattr(model, "positions", mix.longest)
    if mix.longest > positions:
        what = f"{max(mix.prompts)} tokens with an answer of {mix.answer} are more than {positions}"
        raise ConfigError(f"--prompts: {what}", hint=f"--positions {mix.longest}")
    return mix


def parser() -> argparse.ArgumentParser:
    """Return the parser; options of model and workload are named by the fields of shapes and Workload."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.topics.inference",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_server(made)
    add_model(made)
    add_run(
        made,
        rounds=2,
        out="the record and the servers' logs",
        device="of transformers",
        minutes="no server or engine",
    )
    made.add_argument("--way", action="append", choices=WAYS, help="of transformers (repeatable; all)")
    made.add_argument("--no-transformers", action="store_true", help="leave transformers out")
    for name in ("answer", "runs", "warm-ups"):
        default = getattr(Workload, name.replace("-", "_"))
        made.add_argument(
            f"--{name}", type=at_least_one, default=default, help="of the workload (%(default)s)"
        )
    made.add_argument(
        "--prompts", type=at_least_one, nargs="+", default=Workload.prompts, help="(%(default)s)"
    )
    made.add_argument(
        "--batches", type=at_least_one, nargs="+", default=Workload.batches, help="(%(default)s)"
    )
    return made


def described(options: argparse.Namespace) -> job.Job:
    """Return the job that the options describe."""
    model = shape(options)
    return job.Job(
        launcher=launcher(options),
        template=template(options),
        out=options.out,
        variants=variants(options),
        shape=model,
        workload=workload(options, model),
        rounds=options.rounds,
        device=options.device,
        ways=[] if options.no_transformers else [WAYS[way] for way in options.way or WAYS],
        peers=peers(options),
        minutes=options.minutes,
    )


def main() -> int:
    """Measure, write the record, print its figures, and return the exit code."""
    options = parser().parse_args()
    try:
        require_packages(options)
        cells, before = list(options.cell), load_now()
        outcome = job.run(described(options))
    except FtbuildError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return failure.exit_code
    except KeyboardInterrupt:
        progress("interrupted before the first server was measured: there is no record")
        return Interrupted.exit_code
    data = report.data(outcome)
    cells = cells or [
        cell for variant in outcome.job.variants if (cell := outcome.job.launcher.cell(variant))
    ]
    result = Result(
        NAME,
        "real",
        tuple(figure.named(cells[0].cell if cells else "") for figure in report.figures(data)),
        Machine.here(before),
        datetime.now(UTC).isoformat(timespec="seconds"),
        data,
        tuple(report.charts(data)),
        DEFINITION,
        Origin.here(cells),
        data["family"],
    )
    progress(f"record: {result.write(outcome.job.out)}")
    print(table.text([result]))
    print(tables.render(*report.table(data)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
