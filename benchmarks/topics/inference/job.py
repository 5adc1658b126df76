"""One measurement: model repository, comparison, variants."""

from __future__ import annotations

import contextlib
import platform
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.topics.inference import engine, files, peers, server
from benchmarks.topics.inference.life import Contender, Life
from benchmarks.topics.inference.measure import FT, Compared, Session, Workload, compare, progress, vary
from benchmarks.topics.inference.sides import Compiled, FasterTransformer, Side, Transformers
from ftbuild.config import loader
from ftbuild.errors import ConfigError
from ftbuild.models import config_ini, config_pbtxt
from testing import ROOT

if TYPE_CHECKING:
    from benchmarks.topics.inference.models.architecture import Architecture
    from benchmarks.topics.inference.server import Launcher, Variant
    from ftbuild.config.families import Tensors

PLAIN, COMPILED = "transformers", "transformers, compiled"
CONFIGURATION = ROOT / "buildcfg"


@dataclass(frozen=True)
class Job:
    """The measurement: `template` is upstream's config.pbtxt of the model.

    Transformers, in each of the `ways` PLAIN and COMPILED, is compared with the first of `variants`. Each
    variant is started `rounds` times, and in turn with them each of `peers`, other engines by their names in
    engine.ENGINES; nothing is started later than `minutes` after the begin. `out` gets the logs.
    """

    launcher: Launcher
    template: str
    out: Path
    variants: Sequence[Variant]
    shape: Architecture
    workload: Workload
    rounds: int = 2
    device: str = "cuda"
    ways: Sequence[str] = (PLAIN, COMPILED)
    peers: Sequence[str] = ()
    minutes: float | None = None


@dataclass(frozen=True)
class Found:
    """The results: the first server's session, the comparison on it, then those of all variants and peers.

    `failures` has the reason of each peer that failed.
    """

    job: Job
    where: Mapping[str, str]
    first: Session
    compared: Compared
    sessions: Sequence[Session]
    failures: Mapping[str, str] = field(default_factory=dict)


def run(job: Job) -> Found:
    """Make the model, measure, and remove the model; ConfigError if its folder exists already."""
    until = None if job.minutes is None else time.monotonic() + 60 * job.minutes
    folder = job.launcher.place.outside
    if folder.exists():
        raise ConfigError("the folder for the model exists already", where=str(folder), hint="remove it")
    job.out.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(parents=True)
        return _measured(job, _prepared(job), until)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def config(template: str, weights: Path) -> str:
    """Return config.pbtxt for `weights`, in which a single request does not wait for others to batch with.

    With upstream's template it waits 50 ms (BE v1.4 all_models/gpt, max_queue_delay_microseconds).
    """
    filled = config_pbtxt.fill_template(
        template, tensor_para=1, data_type="fp16", model=config_ini.read(weights)
    )
    parsed = config_pbtxt.parse(filled)
    if parsed.HasField("dynamic_batching"):
        parsed.dynamic_batching.max_queue_delay_microseconds = 0
    return config_pbtxt.text(parsed)


def _prepared(job: Job) -> Any:
    """Return transformers' model, and write weights and variants into the launcher's folder."""
    folder = job.launcher.place.outside
    model = files.write(job.shape, job.device, folder, other_engines=bool(job.peers))
    weights = files.weights(folder)
    config_pbtxt.write(folder / server.MODELS, config(job.template, weights), weights)
    for variant in job.variants:
        server.equip(job.launcher.place, variant)
    for name in job.peers:
        peers.prepare(name, files.checkpoint(folder))
    # Half precision on a CPU is slow if it exists at all; this is for rehearsals.
    return model.float() if job.device == "cpu" else model


def _measured(job: Job, model: Any, until: float | None) -> Found:
    first = job.variants[0]
    with server.started(job.launcher, first, job.out / f"{first.name}.log") as running:
        progress(
            f"{first.name}: ready after {running.ready_seconds:.1f} s, cores {running.cores or 'unknown'}"
        )
        own = FasterTransformer(FT, running.grpc, tensors(job.shape.family))
        compared = compare([own, *_transformers(job, model)], job.workload, job.shape.end)
        own.client.close()
    session = Session(first.name, running.ready_seconds, running.cores, compared.times[FT])
    sessions: list[Session] = []
    failures: dict[str, str] = {}
    if len(contenders := list(_contenders(job))) > 1:
        sessions, failures = vary(contenders, job.workload, job.shape.end, job.out, job.rounds, until)
    return Found(job, _where(job.device, model), session, compared, sessions, failures)


def _transformers(job: Job, model: Any) -> Iterator[Side]:
    """Yield transformers in each requested way."""
    if PLAIN in job.ways:
        yield Transformers(PLAIN, model)
    if COMPILED in job.ways:
        yield Compiled(COMPILED, model, job.workload.prompts[0], job.workload.answer)


def tensors(family: str) -> Tensors:
    """Return the names of the tensors of a family."""
    names = loader.load(CONFIGURATION).models.families[family].tensors
    assert names, "each family here answers with tokens"
    return names


def _contenders(job: Job) -> Iterator[Contender[Side]]:
    """Yield all variants, then all peers, in the order in which they are first started."""
    for variant in job.variants:
        yield Contender(variant.name, partial(_served, job, variant))
    work, checkpoint = job.workload, files.checkpoint(job.launcher.place.outside)
    for name in job.peers:
        sizes = engine.Sizes(work.longest, max(work.batches))
        start = partial(peers.started, name, checkpoint, sizes, job.device)
        yield Contender(name, start, may_fail=True)


@contextlib.contextmanager
def _served(job: Job, variant: Variant, log: Path) -> Iterator[Life[Side]]:
    with server.started(job.launcher, variant, log) as running:
        side = FasterTransformer(variant.name, running.grpc, tensors(job.shape.family))
        try:
            yield Life(side, running.ready_seconds, running.cores)
        finally:
            side.client.close()


def _where(device: str, model: Any) -> dict[str, str]:
    import torch
    import transformers

    gpu = torch.cuda.get_device_name(0) if device == "cuda" else platform.machine()
    return {
        "gpu": gpu,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "attention": model.config._attn_implementation,
    }
