"""Traffic benchmark for a machine with few packages: requests of mixed lengths to servers of several engines.

The server runs in a container, in the folder of an unpacked image, or by a command that sees --folder at
--inside:

python -m benchmarks.topics.traffic --image triton_with_ft:26.06-sm90 --family gptj --template config.pbtxt \\
    --peer vLLM --peer CTranslate2 --rounds 3 --out results
python -m benchmarks.topics.traffic --server-root /srv/image --family gptj --template config.pbtxt --keep \\
    --closed mixed:32:256 --closed equal:32:256 --closed short:64:384 --out results
python -m benchmarks.topics.traffic --server-root /srv/image ... --open mixed:8:500 --streamed --append
python -m benchmarks.topics.traffic --server-root /srv/image ... --data-type fp32 --check 64
python -m benchmarks.topics.traffic ... --variant joined --variant static FT_INFLIGHT=0
python -m benchmarks.topics.traffic ... --gpus 4 --parameter in_flight_slots=auto
python -m benchmarks.topics.traffic ... --instances 4
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from benchmarks.harness import plots, table
from benchmarks.harness.counts import at_least_one, at_least_zero
from benchmarks.harness.figure import Machine, Result, load_now
from benchmarks.harness.origin import Origin
from benchmarks.topics.inference import server
from benchmarks.topics.inference.measure import progress
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
from benchmarks.topics.inference.server import Variant
from benchmarks.topics.traffic import NAME, job, record, report, trace
from benchmarks.topics.traffic.job import Found, Job
from benchmarks.topics.traffic.measure import Plan
from benchmarks.topics.traffic.trace import Load
from ftbuild.errors import ConfigError, FtbuildError, Interrupted
from ftbuild.models.config_pbtxt import DATA_TYPES, Limits
from ftbuild.text import tables

# What is measured unless the options say otherwise.
LOADS = (
    Load("mixed", 96, 8),
    Load("mixed", 256, 32),
    Load("mixed", 384, 64),
    Load("equal", 256, 32),
    Load("short", 384, 64),
)
CHECKED_IN_FP32 = 32


def closed(text: str) -> Load:
    """Parse `MIX:CLIENTS:REQUESTS`, for argparse."""
    mix, clients, requests = _parts(text, "MIX:CLIENTS:REQUESTS, as mixed:32:256 is one")
    return Load(mix, at_least_one(requests), at_least_one(clients))


def opened(text: str) -> Load:
    """Parse `MIX:RATE:REQUESTS`, for argparse."""
    mix, rate, requests = _parts(text, "MIX:RATE:REQUESTS, as mixed:2.5:200 is one")
    try:
        each_second = float(rate)
    except ValueError:
        each_second = 0.0
    if not 0 < each_second < float("inf"):
        raise argparse.ArgumentTypeError(f"a rate is a number of requests a second, not {rate!r}")
    return Load(mix, at_least_one(requests), rate=each_second)


def parameter(text: str) -> tuple[str, str]:
    """Parse `NAME=VALUE`, for argparse."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def parser() -> argparse.ArgumentParser:
    """Return the parser; options of the model are named by the fields of shapes."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.topics.traffic",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_server(made)
    add_model(made)
    add_run(
        made,
        rounds=1,
        out="record, plots and servers' logs",
        device="where the model is made",
        minutes="no server and no load",
    )
    mixes = f"MIX is one of {', '.join(trace.MIXES)}"
    described = f"so many clients, each with one request at a time; {mixes} (repeatable)"
    made.add_argument(
        "--closed", action="append", default=[], type=closed, metavar="MIX:CLIENTS:REQUESTS", help=described
    )
    described = "so many requests a second on average, Poisson arrivals (repeatable)"
    made.add_argument(
        "--open", action="append", default=[], type=opened, metavar="MIX:RATE:REQUESTS", help=described
    )
    made.add_argument("--data-type", choices=DATA_TYPES[:2], default="fp16", help="(%(default)s)")
    made.add_argument(
        "--streamed", action="store_true", help="a message for each token: first tokens are timed"
    )
    described = (
        f"answers of each load that are compared with those alone ({CHECKED_IN_FP32} in fp32, else none)"
    )
    made.add_argument("--check", type=at_least_zero, help=described)
    made.add_argument("--no-server", action="store_true", help="only the peers, for instance with --append")
    made.add_argument("--keep", action="store_true", help="keep the model, and take the one that is there")
    made.add_argument("--append", action="store_true", help="add to the record that is in --out")
    described = "cut prompts and answers, for a rehearsal with a tiny model"
    made.add_argument("--longest", type=at_least_one, metavar="TOKENS", help=described)
    described = "GPUs that each instance of the model is on, tensor parallel (%(default)s)"
    made.add_argument("--gpus", type=at_least_one, default=1, help=described)
    described = "instances of the model, on GPUs of their own (%(default)s)"
    made.add_argument("--instances", type=at_least_one, default=1, help=described)
    described = "of config.pbtxt (repeatable)"
    made.add_argument(
        "--parameter", action="append", default=[], type=parameter, metavar="NAME=VALUE", help=described
    )
    made.add_argument(
        "--queue-ms",
        type=at_least_zero,
        default=Limits.queue_ms,
        help="a request waits for others (%(default)s)",
    )
    return made


def described(options: argparse.Namespace) -> Job:
    """Return the job that the options describe; ConfigError for what does not fit together."""
    model = shape(options)
    check = options.check if options.check is not None else CHECKED_IN_FP32 * (options.data_type == "fp32")
    plan = Plan(tuple([*options.closed, *options.open] or LOADS), model.end, check, options.longest)
    _fits(plan, model, options.gpus)
    return Job(
        launcher=launcher(options),
        template=template(options),
        out=options.out,
        variants=[_seeing(options.gpus * options.instances, each) for each in variants(options)],
        shape=model,
        plan=plan,
        data_type=options.data_type,
        streamed=options.streamed,
        rounds=options.rounds,
        device=options.device,
        peers=peers(options),
        minutes=options.minutes,
        limits=Limits(queue_ms=options.queue_ms),
        gpus=options.gpus,
        instances=options.instances,
        parameters=dict(options.parameter),
        kept=options.keep,
        serves=not options.no_server,
    )


def _seeing(gpus: int, variant: Variant) -> Variant:
    """Return a variant whose server sees so many GPUs, unless it says itself what it sees."""
    return replace(variant, environment={**server.seeing(gpus), **variant.environment})


def main() -> int:
    """Measure, write the record, print its figures, and return the exit code."""
    options = parser().parse_args()
    # Servers lead sessions of their own: they would outlive a process that is ended by a time limit.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        require_packages(options)
        description = described(options)
        record_of = _recorder(options, description)
        result = record_of(job.run(description, lambda outcome: record_of(outcome).write(options.out)))
    except FtbuildError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return failure.exit_code
    except KeyboardInterrupt:
        progress("interrupted: the record has what was measured before")
        return Interrupted.exit_code
    progress(f"record: {result.write(options.out)}")
    plots.draw_if_possible([result], options.out)
    print(table.text([result]))
    print(tables.render(*report.table(result.data)))
    return 0


def _recorder(options: argparse.Namespace, job: Job) -> Callable[[Found], Result]:
    """Return what makes a record of what was found; with --append, together with what is in --out."""
    before = load_now()
    measured = job.launcher.cell(job.variants[0])
    cells = list(options.cell) or ([measured] if measured else [])

    def empty() -> Result:
        date = datetime.now(UTC).isoformat(timespec="seconds")
        return Result(
            NAME,
            "real",
            (),
            Machine.here(before),
            date,
            origin=Origin.here(cells),
            subject=report.subject(record.settings(job)),
        )

    file = options.out / empty().file
    earlier = Result.read(file).data if options.append and file.exists() else None

    def made(outcome: Found) -> Result:
        data = record.data(outcome)
        return record.filled(empty(), record.together(earlier, data, file) if earlier else data)

    return made


def _fits(plan: Plan, model: Architecture, gpus: int) -> None:
    """Raise ConfigError for requests longer than the model takes, and for GPUs that cannot share it."""
    for number in ("heads", "kv_heads", "hidden", "inner"):
        if (count := getattr(model, number, 0)) % gpus:
            raise ConfigError(f"{gpus} GPUs cannot share {count} {number}", hint="another number of --gpus")
    longest = plan.most_tokens
    positions = getattr(model, "positions", longest)
    if longest > positions:
        what = f"a prompt with its answer has {longest} tokens, of which the model takes {positions}"
        raise ConfigError(what, hint=f"--positions {longest}, or --longest {positions // 2}")


def _parts(text: str, name: str) -> Sequence[str]:
    parts = text.split(":")
    if len(parts) != 3 or parts[0] not in trace.MIXES:
        raise argparse.ArgumentTypeError(f"{text!r} is not {name}; a mix is one of {', '.join(trace.MIXES)}")
    return parts


if __name__ == "__main__":
    sys.exit(main())
