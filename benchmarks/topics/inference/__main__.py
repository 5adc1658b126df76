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
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.harness import origin, table
from benchmarks.harness.counts import at_least_one
from benchmarks.harness.figure import Machine, Result, load_now
from benchmarks.harness.origin import Origin
from benchmarks.topics.inference import DEFINITION, NAME, engine, job, lacking, report, server
from benchmarks.topics.inference.measure import Workload, progress
from benchmarks.topics.inference.models import FAMILIES
from benchmarks.topics.inference.models.architecture import Architecture
from benchmarks.topics.inference.server import Launcher, Place, Variant
from ftbuild.errors import ConfigError, FtbuildError, HostError, Interrupted
from ftbuild.text import tables

WAYS = {"plain": job.PLAIN, "compiled": job.COMPILED}


def variant(words: Sequence[str]) -> Variant:
    """Parse `NAME [library=DIR] [cpus=LIST] [image=NAME] [VARIABLE=VALUE ...]`; ConfigError if it is not."""
    name, *rest = words
    pairs = [word.partition("=") for word in rest]
    if wrong := [word for word, equals, _ in pairs if not equals]:
        hint = "library=DIR, cpus=LIST, image=NAME or VARIABLE=VALUE"
        raise ConfigError(f"--variant {name}: {wrong[0]} has no value", hint=hint)
    settings = {key: value for key, _, value in pairs}
    library, cpus = settings.pop("library", None), settings.pop("cpus", "")
    image = settings.pop("image", "")
    if library is not None and not (Path(library) / server.LIBRARY).is_file():
        raise ConfigError(f"--variant {name}: there is no {server.LIBRARY}", where=library)
    return Variant(name, Path(library) if library else None, settings, cpus, image)


def launcher(options: argparse.Namespace) -> Launcher:
    """Return the launcher that the options select."""
    folder = options.folder or Path(tempfile.gettempdir(), "ftbuild-inference")
    place = Place(folder.absolute(), options.inside)
    if options.image:
        return server.Image(place, options.image, options.access)
    return server.Command(place, shlex.split(options.server))


def sizes(of: type[Architecture]) -> set[str]:
    """Return the names of the numbers that decide the size of a model."""
    return {field.name for field in fields(of)}


def shape(options: argparse.Namespace) -> Architecture:
    """Return the model that the options select; ConfigError for a number that its family lacks."""
    of = FAMILIES[options.family]
    every = set().union(*map(sizes, FAMILIES.values()))
    given = {name: value for name in every if (value := getattr(options, name)) is not None}
    if foreign := sorted(given.keys() - sizes(of)):
        raise ConfigError(f"--{foreign[0].replace('_', '-')} is no number of a {of.name}")
    return of(**given)


def workload(options: argparse.Namespace, model: Architecture) -> Workload:
    """Return the requests that the options select; ConfigError for texts longer than `model` takes."""
    asked = Workload(
        tuple(options.prompts), options.answer, tuple(options.batches), options.runs, options.warm_ups
    )
    positions = getattr(model, "positions", asked.longest)
    if asked.longest > positions:
        what = f"{max(asked.prompts)} tokens with an answer of {asked.answer} are more than {positions}"
        raise ConfigError(f"--prompts: {what}", hint=f"--positions {asked.longest}")
    return asked


def parser() -> argparse.ArgumentParser:
    """Return the parser; options of model and workload are named by the fields of shapes and Workload."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.topics.inference",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    how = made.add_mutually_exclusive_group(required=True)
    how.add_argument("--image", help="run this image with docker")
    how.add_argument("--server", metavar="COMMAND", help="run this; it gets tritonserver's options")
    made.add_argument("--access", choices=list(server.DEVICES), default="cdi", help="how --image gets GPUs")
    made.add_argument("--template", type=Path, required=True, help="upstream's config.pbtxt of the model")
    made.add_argument("--family", choices=FAMILIES, default="gpt", help="of the model (%(default)s)")
    made.add_argument("--out", type=Path, required=True, help="folder for the record and the servers' logs")
    made.add_argument("--folder", type=Path, help="folder to make for the model; removed at the end")
    made.add_argument("--inside", default=server.INSIDE, help=f"its path for the server ({server.INSIDE})")
    made.add_argument("--variant", action="append", nargs="+", metavar=("NAME", "SETTING"), help="repeatable")
    made.add_argument(
        "--peer", action="append", choices=engine.ENGINES, default=[], help="another engine (repeatable)"
    )
    made.add_argument("--rounds", type=at_least_one, default=2, help="starts of each variant and peer (2)")
    made.add_argument("--device", default="cuda", help="of transformers; cpu for a rehearsal")
    made.add_argument("--way", action="append", choices=WAYS, help="of transformers (repeatable; all)")
    made.add_argument("--no-transformers", action="store_true", help="leave transformers out")
    made.add_argument("--minutes", type=float, help="start no server or engine later than that")
    for name in sorted(set().union(*map(sizes, FAMILIES.values()))):
        made.add_argument(f"--{name.replace('_', '-')}", type=at_least_one, help="of the model")
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
    origin.add_option(made)
    return made


def described(options: argparse.Namespace) -> job.Job:
    """Return the job that the options describe."""
    variants = tuple(map(variant, options.variant or [[server.SHIPPED.name]]))
    if options.server and (given := [each.name for each in variants if each.image]):
        raise ConfigError(f"--variant {given[0]}: --server runs no image", hint="--image, or no image=")
    if not options.template.is_file():
        raise ConfigError("--template: there is no such file", where=str(options.template))
    model = shape(options)
    return job.Job(
        launcher=launcher(options),
        template=options.template.read_text(encoding="utf-8"),
        out=options.out,
        variants=variants,
        shape=model,
        workload=workload(options, model),
        rounds=options.rounds,
        device=options.device,
        ways=[] if options.no_transformers else [WAYS[way] for way in options.way or WAYS],
        peers=tuple(dict.fromkeys(options.peer)),
        minutes=options.minutes,
    )


def main() -> int:
    """Measure, write the record, print its figures, and return the exit code."""
    options = parser().parse_args()
    try:
        if missing := lacking(*(engine.ENGINES[name].package for name in dict.fromkeys(options.peer))):
            raise HostError(missing, hint="install them, or set PYTHONPATH to where they are")
        cells, before = list(options.cell), load_now()
        found = job.run(described(options))
    except FtbuildError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return failure.exit_code
    except KeyboardInterrupt:
        progress("interrupted before the first server was measured: there is no record")
        return Interrupted.exit_code
    data = report.data(found)
    cells = cells or [cell for variant in found.job.variants if (cell := found.job.launcher.cell(variant))]
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
    progress(f"record: {result.write(found.job.out)}")
    print(table.text([result]))
    print(tables.render(*report.table(data)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
