"""Smoke models, made in the SDK image: checkpoint and reference answers, then the image's own converter.

This needs no GPU: the build machine may do it, and the cell's work folder is carried to the one with the GPU.
Models that were made from the same inputs are kept.
"""

from __future__ import annotations

import hashlib
import io
import json
import shlex
import shutil
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ftbuild.client import golden
from ftbuild.config.schema import Config
from ftbuild.engine import container, daemon, side_by_side
from ftbuild.engine.container import ContainerError
from ftbuild.errors import ConfigError, SmokeError
from ftbuild.gates.subject import Subject
from ftbuild.input_key import digest_of
from ftbuild.models import config_ini, config_pbtxt, conversion, conversion_run, int8, weights
from ftbuild.models.conversion import Conversion, ConversionRequest
from ftbuild.models.converters import find_converter
from ftbuild.plan import Plan
from ftbuild.text import bounded_json, units

if TYPE_CHECKING:
    import docker

MANIFEST = "manifest.json"
CHECKPOINT, WEIGHTS, ANSWERS, CONFIG = "checkpoint", "weights", "answers.json", config_pbtxt.CONFIG
# Of the same checkpoint with int8 weights.
INT8_ANSWERS = "answers-int8.json"
SCRIPTS = "scripts"
# One GPU, the smallest number that needs the GPUs to talk to each other, and one that also can be two by two.
TENSOR_PARA = (1, 2, 4)
_INSIDE = "/tmp/smoke"


@dataclass(frozen=True)
class Prepared:
    """A folder with one folder per model: checkpoint, weights, answers and config.pbtxt of the release.

    Each family has a model of its name; `extra` are the other models, with their families.
    """

    folder: Path
    sdk: str
    families: Sequence[str]
    extra: Mapping[str, str] = field(default_factory=dict)


def ensure(config: Config, subject: Subject, folder: Path) -> Prepared:
    """Return the models that the release converts, made now if `folder` lacks them.

    Raises SmokeError when there is no SDK image to make them in, or a converter fails.
    """
    client, plan = subject.client, subject.plan
    families = plan.families
    extra = config.models.extra_models(config.version(plan.cell.triton, "ft"))
    inputs = _inputs(config, plan, families, extra)
    image = daemon.image(client, plan.tag("sdk"))
    made = _manifest(folder)
    if made.get("inputs") == inputs and (image is None or made["sdk"] == image.id):
        return Prepared(folder, made["sdk"], families, extra)
    if image is None:
        others = ", and those that are there were made from other scripts or by another image"
        raise SmokeError(
            f"there is no image {plan.tag('sdk')} to make the models in{others if made else ''}",
            where=str(folder),
            hint="invoke build, or carry here the folder that `invoke smoke --prepare` made",
        )
    shutil.rmtree(folder, ignore_errors=True)
    sdk, layouts_by_name = str(image.id), {**dict(zip(families, families, strict=True)), **extra}

    def make(name: str, family: str) -> None:
        subject.report(f"making the {name} model in {plan.tag('sdk')}")
        _make(config, subject, sdk, name, family, folder / name)

    side_by_side.run(client, [partial(make, *each) for each in layouts_by_name.items()])
    manifest = {"sdk": sdk, "inputs": inputs}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    return Prepared(folder, sdk, families, extra)


def _inputs(config: Config, plan: Plan, families: Iterable[str], extra: Mapping[str, str]) -> str:
    """Return a digest of what the models are made from; the plan's key stands for the image."""
    converters = [find_converter(config, plan.cell.triton, f) for f in families]
    layouts = [c.layout.script for c in converters if c.layout]
    own_scripts = [*_reference_files(config), *layouts, *(c.own_script for c in converters if c.own_script)]
    own_scripts += [module for c in converters for module in c.own_modules]
    scripts = [hashlib.sha256(config.path(script).read_bytes()).hexdigest() for script in own_scripts]
    backend = config.version(plan.cell.triton, "backend")
    quantized = [f for f in families if int8.rules(config.models.families[f], backend)]
    split = {name: config.models.gpus(name) for name in extra}
    questions = [golden.questions(), quantized, *([dict(extra), split] if extra else [])]
    return digest_of([plan.key, scripts, questions, [c.model_dump() for c in converters]])


def _reference_files(config: Config) -> tuple[str, ...]:
    return (config.models.reference, *config.models.reference_modules)


def _manifest(folder: Path) -> dict[str, str]:
    try:
        manifest = bounded_json.loads((folder / MANIFEST).read_bytes())
        return {name: str(manifest[name]) for name in ("sdk", "inputs")}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _make(config: Config, subject: Subject, sdk: str, name: str, family: str, folder: Path) -> None:
    """Make a model of a family. Those that have the family's name have answers with int8 weights, too."""
    inside = _Sdk(subject.client, sdk)
    made = f"{_INSIDE}/made"
    answers = f"{made}/{ANSWERS}"
    backend = config.version(subject.plan.cell.triton, "backend")
    if name == family and int8.rules(config.models.families[family], backend):
        answers += f" {made}/{INT8_ANSWERS}"
    script = [
        f"mkdir -p {made}",
        f"cd {_INSIDE}",
        f"python3 {Path(config.models.reference).name} {name} {made}/{CHECKPOINT} cases.json {answers}",
        f"cp {config_pbtxt.template(config.models.template(family))} {made}/{CONFIG}",
    ]
    scripts = map(config.path, _reference_files(config))
    files = {
        **{script.name: script.read_bytes() for script in scripts},
        "cases.json": golden.questions().encode(),
    }
    inside.produce(f"the {name} reference", script, made, files, folder)

    gpu_limit = config.models.gpus(name)
    planned = [_planned(config, subject, family, folder, gpus) for gpus in TENSOR_PARA if gpus <= gpu_limit]
    _convert(inside, planned, folder)


def _planned(config: Config, subject: Subject, family: str, folder: Path, gpus: int) -> Conversion:
    """Plan what `invoke convert` would do with the checkpoint."""
    request = ConversionRequest(family, folder / CHECKPOINT, folder / WEIGHTS, gpus, jobs=1)
    try:
        return conversion.plan_conversion(config, subject.plan.cell.triton, request)
    except ConfigError as refused:
        raise refused.converted(SmokeError) from refused


def _convert(inside: _Sdk, planned: Sequence[Conversion], folder: Path) -> None:
    """Convert the checkpoint for each number of GPUs; SmokeError unless the weights are complete."""
    out = f"{_INSIDE}/{WEIGHTS}"
    commands = [
        command
        for each in planned
        for command in each.commands(f"{_INSIDE}/{CHECKPOINT}", out, f"{_INSIDE}/{SCRIPTS}")
    ]
    script = [f"mkdir -p {out}", *map(shlex.join, commands), f"rm -rf {out}/{conversion.RELAID}"]
    files = {f"{CHECKPOINT}/{p.name}": p.read_bytes() for p in (folder / CHECKPOINT).iterdir()}
    files |= {f"{SCRIPTS}/{own.name}": own.read_bytes() for each in planned for own in each.scripts}
    inside.produce(planned[0].converter.name, script, out, files, folder / WEIGHTS)
    for each in planned:
        facts, gpus = each.checkpoint.facts, each.request.gpus
        made = folder / WEIGHTS / weights.folder_name(gpus)
        if added := weights.added_config(each.converter, facts):
            config_ini.add(made, added)
        lost = next(weights.complaints(made, each.converter, facts, gpus, each.data_type), None)
        if lost:
            raise SmokeError(
                f"{each.converter.name} for {units.gpus(gpus)}: {lost}", where=each.request.family
            )


@dataclass(frozen=True)
class _Sdk:
    """The SDK image, where converters run."""

    client: docker.DockerClient
    image: str

    def produce(
        self, what: str, script: Sequence[str], made: str, files: dict[str, bytes], folder: Path
    ) -> None:
        """Run a script on `files`, and keep the folder `made` of the container as `folder`."""
        running = container.produced(self.client, self.image, "\n".join(script), made, files=_tar(files))
        try:
            with running as (output, tar):
                if lost := [x for x in output.splitlines() if any(mark in x for mark in conversion_run.LOST)]:
                    raise SmokeError(f"{what} left something out: {lost[0]}", where=self.image)
                _unpack(tar, folder)
        except ContainerError as failed:
            raise SmokeError(
                f"{what} failed: {failed.what}",
                where=self.image,
                hint="the SDK image's converters must work: docs/smoke.md",
            ) from failed


def _tar(files: dict[str, bytes]) -> bytes:
    """Return a tar of the folder `smoke`, world-writable, as the image's user is not known."""
    buffer = io.BytesIO()
    root = PurePosixPath(_INSIDE).name
    folders = {str(PurePosixPath(root, name).parent) for name in files} | {root}
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in sorted(folders):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o777
            tar.addfile(entry)
        for name, content in files.items():
            entry = tarfile.TarInfo(f"{root}/{name}")
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _unpack(tar: Iterable[bytes], folder: Path) -> None:
    """Unpack a tar with one folder as `folder`."""
    with tarfile.open(fileobj=io.BytesIO(b"".join(tar))) as archive:
        for entry in archive.getmembers():
            inside = PurePosixPath(entry.name).relative_to(PurePosixPath(entry.name).parts[0])
            if ".." in inside.parts:
                raise SmokeError(f"the image's tar names {entry.name}")
            content = archive.extractfile(entry)
            if content is not None:
                target = folder / inside
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.read())
