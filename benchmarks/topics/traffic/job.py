"""One measurement on a GPU: the model's files, our server's variants, and the other engines."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.topics.inference import files, server
from benchmarks.topics.inference.job import tensors
from benchmarks.topics.inference.life import Contender, Life
from benchmarks.topics.inference.measure import progress
from benchmarks.topics.traffic import peers
from benchmarks.topics.traffic.measure import Plan, Session, measure
from benchmarks.topics.traffic.peers import Setting
from benchmarks.topics.traffic.sides import Side, Triton
from ftbuild.errors import ConfigError
from ftbuild.models import config_ini, config_pbtxt
from ftbuild.models.config_pbtxt import Limits

if TYPE_CHECKING:
    from benchmarks.topics.inference.models.architecture import Architecture
    from benchmarks.topics.inference.server import Launcher, Variant

# Beside the weights: what they were made of, once all files are there.
MADE = "made.json"


@dataclass(frozen=True)
class Job:
    """The measurement: `template` is upstream's config.pbtxt of the model.

    Each of `variants` and of `peers` is started `rounds` times, in turn; no server and no load is started
    later than `minutes` after the begin. The server has `instances` of the model, each over `gpus` GPUs of
    its own (tensor parallel). `parameters` are added to config.pbtxt. With `kept` the model's folder may be
    there already, and stays. Without `serves` only the peers are measured. `out` gets the logs.
    """

    launcher: Launcher
    template: str
    out: Path
    variants: Sequence[Variant]
    shape: Architecture
    plan: Plan
    data_type: str = "fp16"
    streamed: bool = False
    rounds: int = 1
    device: str = "cuda"
    peers: Sequence[str] = ()
    minutes: float | None = None
    limits: Limits = field(default_factory=Limits)
    gpus: int = 1
    instances: int = 1
    parameters: Mapping[str, str] = field(default_factory=dict)
    kept: bool = False
    serves: bool = True


@dataclass(frozen=True)
class Found:
    """The results so far: where it ran, all sessions, and the reason of each peer that failed."""

    job: Job
    where: Mapping[str, str]
    sessions: Sequence[Session]
    failures: Mapping[str, str] = field(default_factory=dict)


def run(job: Job, keep: Callable[[Found], object]) -> Found:
    """Make the model, measure, and remove the model; ConfigError if its folder exists and is not `kept`.

    `keep` gets what is there after each load.
    """
    until = None if job.minutes is None else time.monotonic() + 60 * job.minutes
    folder = job.launcher.place.outside
    if folder.exists() and not job.kept:
        hint = "remove it, or --keep"
        raise ConfigError("the folder for the model exists already", where=str(folder), hint=hint)
    job.out.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        where = _prepared(job)
        outcomes, failures = measure(
            list(_contenders(job)),
            job.plan,
            job.out,
            job.rounds,
            until,
            lambda sessions: keep(Found(job, where, tuple(sessions))),
        )
        return Found(job, where, outcomes, failures)
    finally:
        if not job.kept:
            shutil.rmtree(folder, ignore_errors=True)


def config(job: Job, weights: Path) -> str:
    """Return config.pbtxt for `weights`, as `invoke model-repo` writes it, with the job's parameters."""
    filled = config_pbtxt.fill_template(
        job.template,
        tensor_para=job.gpus,
        instances=job.instances,
        data_type=job.data_type,
        decoupled=job.streamed,
        model=config_ini.read(weights),
        limits=job.limits,
    )
    parsed = config_pbtxt.parse(filled)
    for name, value in job.parameters.items():
        parsed.parameters[name].string_value = value
    return config_pbtxt.text(parsed)


def _prepared(job: Job) -> dict[str, str]:
    """Write weights, model repository and variants; return on what they were made.

    PyTorch does that in a process of its own, which leaves the GPU's memory to the servers.
    """
    folder = job.launcher.place.outside
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        where = pool.submit(_made, job.shape, job.device, folder, tuple(job.peers)).result()
    weights, models = files.weights(folder, job.gpus), folder / server.MODELS
    if not weights.exists():
        job.shape.share(files.weights(folder), weights, job.gpus)
    shutil.rmtree(models, ignore_errors=True)
    config_pbtxt.write(models, config(job, weights), weights)
    for variant in job.variants:
        server.equip(job.launcher.place, variant)
    return where


def _made(shape: Architecture, device: str, folder: Path, parts: tuple[str, ...]) -> dict[str, str]:
    """Make the files that an earlier run did not keep; return the names of GPU and packages."""
    import torch
    import transformers

    note, now = files.weights(folder).with_name(MADE), {"family": shape.family, **asdict(shape)}
    made = json.loads(note.read_text()) if note.exists() else {}
    ready: list[str] = made.pop("engines", [])
    if made != now:
        shutil.rmtree(note.parent, ignore_errors=True)
        # Of all engines, since a later run may ask for others.
        files.write(shape, device, folder, other_engines=True)
        ready = []
    else:
        progress("the model is there")
    for name in parts:
        if name not in ready:
            peers.prepare(name, files.checkpoint(folder))
            ready.append(name)
    note.write_text(json.dumps({**now, "engines": ready}))
    gpu = torch.cuda.get_device_name(0) if device == "cuda" else platform.machine()
    return {"gpu": gpu, "torch": torch.__version__, "transformers": transformers.__version__}


def _contenders(job: Job) -> Iterator[Contender[Side]]:
    """Yield all variants, then all peers, in the order in which they are first started."""
    for variant in job.variants if job.serves else ():
        yield Contender(variant.name, partial(_served, job, variant))
    setting = Setting(job.plan.most_tokens, job.plan.clients, job.data_type, job.device, job.streamed)
    checkpoint = files.checkpoint(job.launcher.place.outside)
    for name in job.peers:
        yield Contender(name, partial(peers.started, name, checkpoint, setting), may_fail=True)


@contextlib.contextmanager
def _served(job: Job, variant: Variant, log: Path) -> Iterator[Life[Side]]:
    with server.started(job.launcher, variant, log) as running:
        side = Triton(running.grpc, tensors(job.shape.family), job.streamed)
        yield Life(side, running.ready_seconds, running.cores)
