"""Plans of conversions from a checkpoint to weights, with every reason not to start.

Pure but for reading the checkpoint and asking the engine for the SDK image.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild.config.families import Converter, Relayout
from ftbuild.config.schema import Config
from ftbuild.engine import daemon
from ftbuild.errors import ConfigError, HostError
from ftbuild.models import checkpoint, converters, weights
from ftbuild.models.checkpoint import Checkpoint
from ftbuild.plan import LABELS, Plan
from ftbuild.registry import reference

if TYPE_CHECKING:
    import docker

# Paths inside the converter's container.
CHECKPOINT, OUT, SCRIPTS = "/convert/checkpoint", "/convert/out", "/convert/scripts"
# Below OUT: the checkpoint in the layout that the converter reads.
RELAID = ".checkpoint"


@dataclass(frozen=True)
class ConversionRequest:
    """The conversion that a user asks for; `data_type` None means the converter's default."""

    family: str
    checkpoint: Path
    out: Path
    gpus: int = 1
    data_type: str | None = None
    jobs: int = 4


@dataclass(frozen=True)
class Conversion:
    """A conversion that can start: all that is known before it does."""

    request: ConversionRequest
    release: str
    converter: Converter
    checkpoint: Checkpoint
    data_type: str
    relayout: Relayout | None
    relayout_script: Path | None
    files: Mapping[str, int]

    @property
    def size(self) -> int:
        """Bytes of all weight files."""
        return sum(self.files.values())

    @property
    def needed(self) -> int:
        """Bytes that are written in all: the weights, and the checkpoint where its layout changes first."""
        return self.size + (self.checkpoint.size if self.relayout else 0)

    def commands(self) -> list[list[str]]:
        """Return the commands to run inside the SDK image, in order."""
        found, source = [], CHECKPOINT
        if self.relayout and self.relayout_script:
            source = f"{OUT}/{RELAID}"
            names = [str(file.relative_to(self.checkpoint.folder)) for file in self.checkpoint.files]
            script = f"{SCRIPTS}/{self.relayout_script.name}"
            found.append([converters.PYTHON, script, self.relayout.layout, CHECKPOINT, source, *names])
        converting = converters.command_line(
            self.converter,
            checkpoint=source,
            out=OUT,
            tensor_para=self.request.gpus,
            layers=self.checkpoint.facts["layers"],
            dtype=self.data_type,
            jobs=self.request.jobs,
        )
        return [*found, converting]

    def render(self) -> str:
        """Describe the conversion for people."""
        request = self.request
        facts = ", ".join(f"{name} {value}" for name, value in self.checkpoint.facts.items())
        return "\n".join(
            [
                f"{request.family} for {request.gpus} GPUs as {self.data_type}, release {self.release}",
                f"  checkpoint  {request.checkpoint} ({self.checkpoint.size / 1e9:.2f} GB; {facts})",
                *(f"  run         {shlex.join(argv)}" for argv in self.commands()),
                f"  write       {request.out / weights.folder_name(request.gpus)}: {len(self.files)} files, "
                f"{self.size / 1e9:.2f} GB",
                f"  disk        {self.needed / 1e9:.2f} GB",
            ]
        )


def candidates(config: Config, plans: Sequence[Plan], request: ConversionRequest) -> list[Plan]:
    """Return the plans of the newest release that converts the checkpoint; ConfigError when none does."""
    kind = checkpoint.format_of(request.checkpoint)
    able = converters.converting_releases(config, request.family, kind)
    fit = [p for p in plans if p.cell.triton in able]
    newest = max(p.cell.triton for p in fit or plans)
    converters.find_converter(config, newest, request.family, kind)
    return [p for p in fit if p.cell.triton == newest]


def sdk_image(client: docker.DockerClient, candidates: Sequence[Plan], name: str | None = None) -> str:
    """Return the SDK image to convert in: the one called `name`, else that of the first plan built here.

    Raises HostError when there is none, ConfigError when it is of another release than the plans.
    """
    wanted = [reference.check_image(name)] if name is not None else [p.tag("sdk") for p in candidates]
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


def plan_conversion(config: Config, release: str, request: ConversionRequest) -> Conversion:
    """Plan a conversion with the converter of a release.

    Raises ConfigError when `out` exists, the release converts no such model, the checkpoint is of another
    model or incomplete, or the converter would write wrong weights for it.
    """
    if request.out.exists():
        raise ConfigError(
            "the output exists; weights are never mixed",
            where=str(request.out),
            hint="name another folder with --out, or remove this one",
        )
    converter = converters.find_converter(
        config, release, request.family, checkpoint.format_of(request.checkpoint)
    )
    data_type = request.data_type or converter.dtypes[0]
    if data_type not in converter.dtypes:
        known = " or ".join(converter.dtypes)
        raise ConfigError(
            f"the {request.family} converter of {release} writes {known}, not {data_type}",
            where=converter.script,
            hint="the server converts weights to its own data_type when it loads them",
        )
    found = checkpoint.read(request.checkpoint, config.models, request.family, converter)
    _refuse_obstacles(config, release, request, found, converter)
    relayout = converter.layout
    if relayout and relayout.unless and found.has_whole(relayout.unless):
        relayout = None
    return Conversion(
        request=request,
        release=release,
        converter=converter,
        checkpoint=found,
        data_type=data_type,
        relayout=relayout,
        relayout_script=config.path(relayout.script) if relayout else None,
        files=weights.expected(converter, found.facts, request.gpus, data_type),
    )


def _refuse_obstacles(
    config: Config, release: str, request: ConversionRequest, found: Checkpoint, converter: Converter
) -> None:
    described = config.models.families[request.family].checkpoint

    def obstacles(candidate: Converter) -> list[str]:
        return checkpoint.obstacles(found, described, candidate, request.gpus)

    if not (reasons := obstacles(converter)):
        return
    others = [
        other
        for other in converters.converting_releases(config, request.family, converter.format)
        if not obstacles(converters.find_converter(config, other, request.family, converter.format))
    ]
    raise ConfigError(
        "\n    ".join([f"{release} cannot convert this checkpoint for {request.gpus} GPUs:", *reasons]),
        where=str(request.checkpoint),
        hint=f"--triton {others[-1]} can" if others else "another number of GPUs, or another checkpoint",
    )
