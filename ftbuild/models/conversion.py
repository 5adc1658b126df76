"""Plans of conversions from a checkpoint to weights, with every reason not to start.

Pure but for reading the checkpoint and asking the engine for the SDK image.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild.config.checkpoints import Converter, Relayout
from ftbuild.config.families import ModelsConfig
from ftbuild.config.schema import Config
from ftbuild.engine import daemon
from ftbuild.errors import ConfigError, HostError
from ftbuild.models import (
    checkpoint,
    converters,
    fit,
    generation,
    gpu_memory,
    obstacles,
    sentence,
    tensor_names,
    tokenizer,
    weights,
)
from ftbuild.models.checkpoint import Checkpoint
from ftbuild.models.converters import SCRIPTS
from ftbuild.models.gpu_memory import Footprint
from ftbuild.models.sentence import Sentence
from ftbuild.plan import LABELS, Plan
from ftbuild.registry import reference
from ftbuild.text import units

if TYPE_CHECKING:
    import docker

# Paths inside the converter's container.
CHECKPOINT, OUT = "/convert/checkpoint", "/convert/out"
# Below the output: the checkpoint in the layout that the converter reads.
RELAID = ".checkpoint"


@dataclass(frozen=True)
class ConversionRequest:
    """The conversion that a user asks for; `data_type` None means the converter's default.

    `ignored` are keys of config.json that change nothing, as the user says.
    """

    family: str
    checkpoint: Path
    out: Path
    gpus: int = 1
    data_type: str | None = None
    jobs: int = 4
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True)
class Conversion:
    """A conversion that can start: all that is known before it does.

    One with `tensor_faults` ends before it writes anything.
    """

    request: ConversionRequest
    release: str
    converter: Converter
    checkpoint: Checkpoint
    data_type: str
    relayout: Relayout | None
    relayout_script: Path | None
    own_script: Path | None
    own_modules: tuple[Path, ...]
    files: Mapping[str, int]
    on_gpu: Footprint | None
    sentence: Sentence | None = None
    warnings: tuple[str, ...] = ()
    tensor_faults: tuple[str, ...] = ()

    @property
    def scripts(self) -> tuple[Path, ...]:
        """The project's scripts among the commands, and what they import."""
        candidates = (self.relayout_script, self.own_script, *self.own_modules)
        return tuple(script for script in candidates if script)

    @property
    def size(self) -> int:
        """Bytes of all weight files."""
        return sum(self.files.values())

    @property
    def needed(self) -> int:
        """Bytes that are written in all: the weights, and the checkpoint where its layout changes first."""
        return self.size + (self.checkpoint.size if self.relayout and not self.relayout.links else 0)

    @property
    def memory(self) -> int:
        """Bytes of memory that the converter takes at least: the model, its largest file and largest tensor.

        transformers makes a model of fp32 and reads one file after the other into it; each tensor is then
        copied on its way into a file.
        """
        values = self.size // weights.ITEM_BYTES[self.data_type]
        largest = max(self.files.values()) // weights.ITEM_BYTES[self.data_type] * weights.ITEM_BYTES["fp32"]
        if self.converter.holds == "checkpoint":
            return self.checkpoint.size + largest
        file = max(file.stat().st_size for file in self.checkpoint.files)
        if self.converter.holds == "tensor":
            return self.request.gpus * 3 * largest + file
        return values * weights.ITEM_BYTES["fp32"] + file + largest

    def commands(
        self, checkpoint: str = CHECKPOINT, out: str = OUT, scripts: str = SCRIPTS
    ) -> list[list[str]]:
        """Return the commands to run inside the SDK image, in order, where it has these folders."""
        lines, source = [], checkpoint
        names = [str(file.relative_to(self.checkpoint.folder)) for file in self.checkpoint.files]
        if self.relayout and self.relayout_script:
            source = f"{out}/{RELAID}"
            script = f"{scripts}/{self.relayout_script.name}"
            config = (
                [] if self.checkpoint.configured else [f"--config={json.dumps(self.checkpoint.settings)}"]
            )
            lines.append(
                [converters.PYTHON, script, self.relayout.layout, checkpoint, source, *config, *names]
            )
        converting = converters.command_line(
            self.converter,
            checkpoint=source,
            out=out,
            tensor_para=self.request.gpus,
            layers=self.checkpoint.facts["layers"],
            dtype=self.data_type,
            jobs=self.request.jobs,
            files=names,
            scripts=scripts,
        )
        return [*lines, converting]

    def render(self) -> str:
        """Describe the conversion for people."""
        request = self.request
        facts = ", ".join(f"{name} {value}" for name, value in self.checkpoint.facts.items())
        return "\n".join(
            [
                f"{request.family} for {units.gpus(request.gpus)} as {self.data_type}, "
                f"release {self.release}",
                f"  checkpoint  {request.checkpoint} ({self.checkpoint.size / 1e9:.2f} GB; {facts})",
                *(f"  run         {shlex.join(argv)}" for argv in self.commands()),
                f"  write       {request.out / weights.folder_name(request.gpus)}: {len(self.files)} files, "
                f"{self.size / 1e9:.2f} GB",
                f"  disk        {self.needed / 1e9:.2f} GB",
                f"  memory      {self.memory / 1e9:.2f} GB at least",
                *self._gpu_line(),
                *(f"  refused     {fault}" for fault in self.tensor_faults),
                "  time        unknown: no converter's rate has been measured",
            ]
        )

    def _gpu_line(self) -> list[str]:
        if self.on_gpu is None:
            return []
        each = f"{self.on_gpu.total / 1e9:.2f} GB on each of {self.request.gpus} in fp16"
        return [f"  GPU memory  {each}; invoke plan-model shows for which requests"]


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
    names = [reference.check_image(name)] if name is not None else [p.tag("sdk") for p in candidates]
    built = next((image for image in (daemon.image(client, w) for w in names) if image), None)
    if built is None:
        raise HostError(
            f"there is no SDK image {' or '.join(names)}",
            hint="invoke build with the same --triton and --sm makes it; --image names another",
        )
    release, planned = built.labels.get(f"{LABELS}.triton"), candidates[0].cell.triton
    if release not in (None, planned):
        raise ConfigError(
            f"the image is of release {release}, not {planned}", where=name, hint=f"--triton {release}"
        )
    return str(built.id)


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
    converter, source = convertible(config, release, request)
    data_type = request.data_type or converter.dtypes[0]
    if data_type not in converter.dtypes:
        known = " or ".join(converter.dtypes)
        raise ConfigError(
            f"the {request.family} converter of {release} writes {known}, not {data_type}",
            where=converter.name,
            hint="the server converts weights to its own data_type when it loads them",
        )
    allocated = gpu_memory.rules(config.models, request.family)
    described = config.models.families[request.family]
    carried = sentence.read(source.folder) if described.vectors else None
    # Which refuses numbers that no model has, before names are made of them.
    files = weights.expected(converter, source.facts, request.gpus, data_type)
    names = tensor_names.compare(source, config.models, request.family)
    relayout = converter.layout
    if relayout and relayout.links and source.configured:
        relayout = None
    if relayout and relayout.unless and source.is_file(relayout.unless):
        relayout = None
    return Conversion(
        request=request,
        release=release,
        converter=converters.with_reals(converter, source.reals),
        checkpoint=source,
        data_type=data_type,
        relayout=relayout,
        relayout_script=config.path(relayout.script) if relayout else None,
        own_script=config.path(converter.own_script) if converter.own_script else None,
        own_modules=tuple(map(config.path, converter.own_modules)),
        files=files,
        on_gpu=gpu_memory.footprint(
            gpu_memory.on_gpu(config.models, request.family, converter),
            allocated,
            source.facts,
            request.gpus,
            "fp16",
            gpu_memory.Load(),
        )
        if allocated
        else None,
        sentence=carried,
        warnings=(*_warnings(config.models, request.family, source, carried), *names.unused),
        tensor_faults=names.faults,
    )


def _warnings(
    models: ModelsConfig, family: str, source: Checkpoint, carried: Sentence | None
) -> Iterator[str]:
    """Yield what matters once the weights are served: a tokenizer that does not fit, unknown poolings."""
    has_tokenizer = tokenizer.is_in(source.folder)
    if models.families[family].vectors is None:
        yield from generation.warnings(source.folder, source.settings)
        if not has_tokenizer:
            yield from generation.other_tokens(source.folder, source.facts, source.settings)
    if has_tokenizer:
        yield from fit.complaints(source.folder, fit.of_checkpoint(family, source.facts))
    for obstacle in carried.obstacles if carried else ():
        yield (
            "invoke model-repo will not serve the embeddings of this checkpoint without --pooling: "
            f"{obstacle}"
        )


def convertible(config: Config, release: str, request: ConversionRequest) -> tuple[Converter, Checkpoint]:
    """Return the converter of a release and the checkpoint that it would convert; nothing is loaded.

    Raises ConfigError when the release converts no such model, the checkpoint is of another model or
    incomplete, or the converter would write wrong weights for it.
    """
    kind = checkpoint.format_of(request.checkpoint)
    converter = converters.find_converter(config, release, request.family, kind)
    source = checkpoint.read(request.checkpoint, config.models, request.family, converter)
    _refuse_obstacles(config, release, request, source)
    return converter, source


def reasons_against(
    config: Config, release: str, request: ConversionRequest, source: Checkpoint
) -> list[str]:
    """Return why the converter of a release would get this checkpoint wrong, or the server its answers."""
    converter = converters.find_converter(config, release, request.family, source.format)
    version = config.version(release, "ft")
    return obstacles.find(
        source, config.models, request.family, converter, version, request.gpus, request.ignored
    )


def _refuse_obstacles(config: Config, release: str, request: ConversionRequest, source: Checkpoint) -> None:
    if not (reasons := reasons_against(config, release, request, source)):
        return
    others = [
        other
        for other in converters.converting_releases(config, request.family, source.format)
        if not reasons_against(config, other, request, source)
    ]
    options = converters.other_release(config, release, others)
    whole = not reasons_against(config, release, replace(request, gpus=1), source)
    raise ConfigError(
        "\n    ".join(
            [f"{release} cannot convert this checkpoint for {units.gpus(request.gpus)}:", *reasons]
        ),
        where=str(request.checkpoint),
        hint=f"{options} can" if options else f"another {'number of GPUs' if whole else 'checkpoint'}",
    )
