"""From a checkpoint to weights: which script of FasterTransformer converts it, its command line, the call.

Planning is pure but for reading the checkpoint: `plan` finds every reason not to start. `convert` runs the
script in the SDK image, into a folder beside the wanted one that is renamed when all its files are as they
must be, and not before.
"""

from __future__ import annotations

import configparser
import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

from ftbuild.config.families import CheckpointFormat, Converter, Relayout
from ftbuild.config.schema import Config
from ftbuild.engine import container, daemon, mounted
from ftbuild.engine.container import ContainerError
from ftbuild.errors import ConfigError, HostError, VerifyError
from ftbuild.host import disk
from ftbuild.models import checkpoint as checkpoints
from ftbuild.models import config_ini, progress, weights
from ftbuild.models.checkpoint import Checkpoint
from ftbuild.plan import LABELS, Plan
from ftbuild.text.reporter import Reporter

if TYPE_CHECKING:
    import docker

# Where the SDK image has FasterTransformer's examples (dockerfiles/triton-ft.Dockerfile, stage sdk).
TREE = "/opt/ftbuild/FasterTransformer"
PYTHON = "python3"
RECORD = "conversion.json"
LOG = "convert.log"
SHOWN_LINES = 15
# A converter whose helper process is killed waits for it for ever (multiprocessing.Pool). It is long, as the
# checkpoint is read as a whole before anything is written.
STALL_SECONDS = 3600
# 128 + SIGKILL: what the kernel ends when memory runs out.
KILLED = 137
# What the container sees.
_CHECKPOINT, _OUT, _SCRIPTS = "/convert/checkpoint", "/convert/out", "/convert/scripts"
_LAYOUT = ".checkpoint"
# After these a converter goes on and ends well, with weights missing or wrong: FT v5.0
# huggingface_t5_ckpt_convert.py:129; v5.3 huggingface_t5_ckpt_convert.py:146, huggingface_gpt_convert.py:121;
# numpy's warning of a value that is too large for fp16; transformers' of tensors that the checkpoint lacks.
LOST = (
    "[ERROR]",
    "cannot find key",
    "Fail to save the config",
    "overflow encountered",
    "newly initialized",
)
_FORMATS: Mapping[CheckpointFormat, str] = {
    "huggingface": "a Hugging Face checkpoint",
    "jax": "a checkpoint of Mesh Transformer JAX",
}


class ConversionFailed(VerifyError):
    """A converter ended badly, or what it wrote is not a whole model."""


@dataclass(frozen=True)
class ConversionRequest:
    """What is wanted. `data_type` None: the converter's default."""

    family: str
    checkpoint: Path
    out: Path
    gpus: int = 1
    data_type: str | None = None
    jobs: int = 4


@dataclass(frozen=True)
class Conversion:
    """An order that can be carried out: everything that is known before it starts."""

    order: ConversionRequest
    release: str
    converter: Converter
    checkpoint: Checkpoint
    data_type: str
    layout: Relayout | None
    layout_script: Path | None
    files: Mapping[str, int]

    @property
    def size(self) -> int:
        """Bytes of all weight files."""
        return sum(self.files.values())

    @property
    def needed(self) -> int:
        """Bytes that are written in all: the weights, and the checkpoint if it is saved anew before."""
        return self.size + (self.checkpoint.size if self.layout else 0)

    def commands(self) -> list[list[str]]:
        """What runs inside the SDK image, one after the other."""
        found, source = [], _CHECKPOINT
        if self.layout and self.layout_script:
            source = f"{_OUT}/{_LAYOUT}"
            names = [str(file.relative_to(self.checkpoint.folder)) for file in self.checkpoint.files]
            script = f"{_SCRIPTS}/{self.layout_script.name}"
            found.append([PYTHON, script, self.layout.layout, _CHECKPOINT, source, *names])
        converting = command(
            self.converter,
            checkpoint=source,
            out=_OUT,
            tensor_para=self.order.gpus,
            layers=self.checkpoint.facts["layers"],
            dtype=self.data_type,
            jobs=self.order.jobs,
        )
        return [*found, converting]

    def render(self) -> str:
        """For people: what would be done."""
        order = self.order
        facts = ", ".join(f"{name} {value}" for name, value in self.checkpoint.facts.items())
        return "\n".join(
            [
                f"{order.family} for {order.gpus} GPUs as {self.data_type}, release {self.release}",
                f"  checkpoint  {order.checkpoint} ({self.checkpoint.size / 1e9:.2f} GB; {facts})",
                *(f"  run         {shlex.join(argv)}" for argv in self.commands()),
                f"  write       {order.out / weights.folder_name(order.gpus)}: {len(self.files)} files, "
                f"{self.size / 1e9:.2f} GB",
                f"  disk        {self.needed / 1e9:.2f} GB",
            ]
        )


def served(config: Config, release: str) -> tuple[str, ...]:
    """The families that a release serves as themselves from Hugging Face checkpoints, as in models.yaml."""
    return tuple(
        name
        for name, family in config.models.families.items()
        if family.served_as is None and _converter(config, release, name, "huggingface")
    )


def converter(
    config: Config,
    release: str,
    family: str,
    format: CheckpointFormat = "huggingface",  # noqa: A002
) -> Converter:
    """The converter of a family's checkpoints in a release; ConfigError when the release has none."""
    found = _converter(config, release, family, format) if family in config.models.families else None
    if found is None:
        known = [name for name in config.models.families if _converter(config, release, name, format)]
        others = [other for other in config.sources.releases if _converts(config, other, family, format)]
        hint = f"it converts {', '.join(known) or 'none'}"
        raise ConfigError(
            f"{release} converts no {family} from {_FORMATS[format]}",
            where=str(config.folder / "models.yaml"),
            hint=hint + (f"; {family} is converted by {', '.join(others)}" if others else ""),
        )
    return found


def releases(config: Config, family: str, format: CheckpointFormat = "huggingface") -> list[str]:  # noqa: A002
    """The releases that convert a family's checkpoints, as in sources.yaml."""
    return [release for release in config.sources.releases if _converts(config, release, family, format)]


def command(
    converter: Converter,
    *,
    checkpoint: str,
    out: str,
    tensor_para: int,
    layers: int,
    dtype: str = "fp32",
    jobs: int = 1,
) -> list[str]:
    """The converter's command line inside the SDK image; it writes `out`/<tensor_para>-gpu."""
    values = {
        "checkpoint": checkpoint,
        "out": out,
        "tensor_para": tensor_para,
        "layers": layers,
        "dtype": dtype,
        "jobs": jobs,
    }
    return [
        PYTHON,
        f"{TREE}/{converter.script}",
        *(argument.format(**values) for argument in converter.arguments),
    ]


def candidates(config: Config, plans: Sequence[Plan], order: ConversionRequest) -> list[Plan]:
    """Of these plans those of the newest release that converts the checkpoint; ConfigError when none does."""
    kind = checkpoints.format_of(order.checkpoint)
    fit = [p for p in plans if _converts(config, p.cell.triton, order.family, kind)]
    newest = max(p.cell.triton for p in fit or plans)
    converter(config, newest, order.family, kind)
    return [p for p in fit if p.cell.triton == newest]


def sdk_image(client: docker.DockerClient, candidates: Sequence[Plan], name: str | None = None) -> str:
    """The SDK image to convert in: the one called `name`, else that of the first plan that is built here.

    Raises HostError when there is none, ConfigError when it is of another release than the plans.
    """
    wanted = [name] if name else [p.tag("sdk") for p in candidates]
    found = next((image for image in (daemon.image(client, w) for w in wanted) if image), None)
    if found is None:
        raise HostError(
            f"there is no SDK image {' or '.join(wanted)}",
            hint="invoke build with the same --triton and --sm makes it; --image names another",
        )
    release, planned = found.labels.get(f"{LABELS}.triton"), candidates[0].cell.triton
    if release not in (None, planned):
        raise ConfigError(
            f"the image is of release {release}, not {planned}", where=name, hint=f"--triton {release}"
        )
    return str(found.id)


def plan(config: Config, release: str, order: ConversionRequest) -> Conversion:
    """The conversion that an order means on a release.

    Raises ConfigError when `out` exists, the release converts no such model, the checkpoint is of another
    model or not whole, or the converter would make wrong weights of it.
    """
    if order.out.exists():
        raise ConfigError(
            "the output exists; weights are never mixed",
            where=str(order.out),
            hint="name another folder with --out, or remove this one",
        )
    chosen = converter(config, release, order.family, checkpoints.format_of(order.checkpoint))
    data_type = order.data_type or chosen.dtypes[0]
    if data_type not in chosen.dtypes:
        raise ConfigError(
            f"the {order.family} converter of {release} writes {' or '.join(chosen.dtypes)}, not {data_type}",
            where=chosen.script,
            hint="the server converts weights to its own data_type when it loads them",
        )
    checkpoint = checkpoints.read(order.checkpoint, config.models, order.family, chosen)
    _refuse_obstacles(config, release, order, checkpoint, chosen)
    layout = chosen.layout
    if layout and layout.unless and checkpoint.has_whole(layout.unless):
        layout = None
    return Conversion(
        order=order,
        release=release,
        converter=chosen,
        checkpoint=checkpoint,
        data_type=data_type,
        layout=layout,
        layout_script=config.path(layout.script) if layout else None,
        files=weights.expected(chosen, checkpoint.facts, order.gpus, data_type),
    )


def convert(client: docker.DockerClient, conversion: Conversion, image: str, report: Reporter) -> Path:
    """Carry a conversion out in an SDK image; the folder `<n>-gpu` with the weights.

    What the converter said is in `OUT.log`, beside the output, and stays there. Raises HostError without room
    or without what the converter needs, ConversionFailed with its last words when it fails or its weights are
    not whole; whatever happens, `OUT` is a whole model or does not exist.
    """
    out = conversion.order.out.absolute()
    partial, log = out.with_name(f"{out.name}.partial"), out.with_name(f"{out.name}.log")
    disk.require(out.parent, conversion.needed, "the conversion")
    _require_modules(client, conversion, image)
    _make_anew(partial)
    log.unlink(missing_ok=True)
    try:
        code, said = _run(client, conversion, image, partial, log, report)
        _judge(code, said, partial, log)
        _check(conversion, partial, log)
        (partial / RECORD).write_text(json.dumps(_record(conversion, image), indent=2) + "\n")
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return out / weights.folder_name(conversion.order.gpus)


def _converter(config: Config, release: str, family: str, format: CheckpointFormat) -> Converter | None:  # noqa: A002
    version = config.version(release, "ft")
    return next(
        (
            found
            for found in config.models.families[family].converters
            if found.format == format and SpecifierSet(found.ft).contains(version)
        ),
        None,
    )


def _converts(config: Config, release: str, family: str, format: CheckpointFormat) -> bool:  # noqa: A002
    return family in config.models.families and _converter(config, release, family, format) is not None


def _refuse_obstacles(
    config: Config, release: str, order: ConversionRequest, checkpoint: Checkpoint, chosen: Converter
) -> None:
    layout = config.models.families[order.family].checkpoint
    found = checkpoints.obstacles(checkpoint, layout, chosen, order.gpus)
    if not found:
        return
    others = [
        other
        for other in releases(config, order.family, chosen.format)
        if not checkpoints.obstacles(
            checkpoint, layout, converter(config, other, order.family, chosen.format), order.gpus
        )
    ]
    raise ConfigError(
        "\n    ".join([f"{release} cannot convert this checkpoint for {order.gpus} GPUs:", *found]),
        where=str(order.checkpoint),
        hint=f"--triton {others[-1]} can" if others else "another number of GPUs, or another checkpoint",
    )


def _make_anew(folder: Path) -> None:
    """An empty folder; what a killed run left in it goes."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    except OSError as refused:
        raise HostError(
            f"the output cannot be written: {refused.strerror}",
            where=str(folder),
            hint="name a folder of yours with --out",
        ) from refused


def _require_modules(client: docker.DockerClient, conversion: Conversion, image: str) -> None:
    modules = conversion.converter.modules
    if not modules:
        return
    try:
        container.run(client, image, f"{PYTHON} -c 'import {', '.join(modules)}'")
    except ContainerError as missing:
        raise HostError(
            f"{conversion.converter.script} needs {' and '.join(modules)}, which this image lacks",
            where=image,
            hint="convert the model's Hugging Face checkpoint, or give --image an SDK image with "
            f"`pip install {' '.join(modules)}` on top",
        ) from missing


def _run(
    client: docker.DockerClient,
    conversion: Conversion,
    image: str,
    partial: Path,
    log: Path,
    report: Reporter,
) -> tuple[int, str]:
    """Exit code and words of the commands in a container, which writes into `partial`; `log` has these."""
    readable = {_CHECKPOINT: conversion.checkpoint.folder.absolute()}
    if script := conversion.layout_script:
        readable[f"{_SCRIPTS}/{script.name}"] = script
    lines = [f"exec > {_OUT}/{LOG} 2>&1", *(shlex.join(argv) for argv in conversion.commands())]
    folders = mounted.Folders(readable, {_OUT: partial})
    try:
        with progress.shown(
            f"converting {conversion.order.family}", partial, conversion.needed, report
        ) as tick:
            watch = progress.Watch(partial)

            def look() -> None:
                tick()
                if watch() > STALL_SECONDS:
                    raise _stalled(log)

            code, said = mounted.run(client, image, "\n".join(lines), folders, look)
    finally:
        if (partial / LOG).exists():
            shutil.move(partial / LOG, log)
    return code, said + (log.read_text(errors="replace") if log.exists() else "")


def _judge(code: int, text: str, partial: Path, log: Path) -> None:
    """Raise what a converter's exit code and words tell."""
    if code:
        if not disk.free_bytes(partial):
            raise HostError("the disk is full", where=str(partial.parent), hint="free some room and repeat")
        if code == KILLED:
            raise HostError(
                "the converter was killed, most likely for want of memory",
                where=str(log),
                hint="it holds the whole model, some families as fp32 whatever the checkpoint is",
            )
        raise _failed(f"the converter ended with code {code}", text.splitlines()[-SHOWN_LINES:], log)
    if lost := [line for line in text.splitlines() if any(mark in line for mark in LOST)]:
        raise _failed("the converter left something out", lost[:SHOWN_LINES], log)


def _check(conversion: Conversion, partial: Path, log: Path) -> None:
    """Leave nothing but whole weights in `partial`, or raise."""
    shutil.rmtree(partial / _LAYOUT, ignore_errors=True)
    order = conversion.order
    folder = partial / weights.folder_name(order.gpus)
    _write_config(conversion.converter, folder)
    found = list(
        weights.complaints(
            folder, conversion.converter, conversion.checkpoint.facts, order.gpus, conversion.data_type
        )
    )
    if found:
        more = len(found) - SHOWN_LINES
        shown = [*found[:SHOWN_LINES], *([f"and {more} more"] if more > 0 else [])]
        raise _failed("the converter ended well, but its weights are not whole", shown, log)


def _write_config(converter: Converter, folder: Path) -> None:
    """The config.ini that a converter does not write."""
    if not converter.config or not folder.is_dir():
        return
    config = configparser.ConfigParser(interpolation=None)
    config.read_dict(converter.config)
    with (folder / config_ini.FILE).open("w", encoding="utf-8") as file:
        config.write(file)


def _record(conversion: Conversion, image: str) -> dict[str, object]:
    order = conversion.order
    return {
        "family": order.family,
        "release": conversion.release,
        "image": image,
        "gpus": order.gpus,
        "data_type": conversion.data_type,
        "facts": conversion.checkpoint.facts,
        "commands": conversion.commands(),
    }


def _stalled(log: Path) -> ConversionFailed:
    return ConversionFailed(
        f"the converter has written nothing for {STALL_SECONDS / 60:g} minutes",
        where=str(log),
        hint="was one of its processes killed for want of memory? dmesg tells; try --jobs 1",
    )


def _failed(what: str, lines: Sequence[str], log: Path) -> ConversionFailed:
    return ConversionFailed(
        "\n    ".join([f"{what}:", *lines]), where=str(log), hint="the log has all that it said"
    )
