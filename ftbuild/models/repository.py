"""Complete model repositories for converted weights, from upstream's templates of a release.

A repository refers to no folder outside of itself, so it may be served from anywhere; when the weights or the
tokenizer change, it is made again.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

from ftbuild import features, triton
from ftbuild.config import loader
from ftbuild.config.families import Int8, ModelsConfig, Vectors
from ftbuild.config.schema import Config
from ftbuild.engine import container, daemon
from ftbuild.engine.container import ContainerError
from ftbuild.errors import ConfigError
from ftbuild.host import files
from ftbuild.models import (
    adoption,
    config_ini,
    config_pbtxt,
    ensemble,
    fit,
    left_out,
    sentence,
    tokenizer,
    untrusted,
    vector_models,
    weight_checks,
)
from ftbuild.models.adoption import Adoption
from ftbuild.models.config_pbtxt import Limits
from ftbuild.models.vector_models import Pooling
from ftbuild.plan import LABELS, Plan
from ftbuild.registry import reference

if TYPE_CHECKING:
    import docker

# Models around `fastertransformer`: config.pbtxt by name, the tokenizer's files, warnings.
Around = tuple[dict[str, str], list[Path], tuple[str, ...]]
# The patch of FasterTransformer that serves mixtures of experts.
EXPERTS = "0460-gpt-experts.patch"
# The patch of the backend that computes requests from the step at which they come.
IN_FLIGHT = "0250-in-flight-requests.patch"
STAGES_NEVER_RUN = (
    f"no model over more than {triton.MAX_STAGES_TOGETHER} pipeline stages has ever been run on GPUs"
)


@dataclass(frozen=True)
class RepositoryOptions:
    """The options of a model repository.

    `family` is the one that the weights are served as: GPT-J for CodeGen (models.yaml). `gpus` counts those
    that the weights are split over (tensor parallelism); `instances` compute at the same time. `int8` are the
    family's rules for int8 weights, with which they are kept so. `vectors` is what the family has in
    models.yaml if it returns embeddings, pooled as `pooling` says. `families` says what they read; None:
    those of this checkout.
    """

    family: str
    weights: Path
    out: Path
    gpus: int | None = None
    pipeline: int = 1
    dtype: str = "fp16"
    tokenizer: Path | None = None
    streamed: bool = False
    bare: bool = False
    limits: Limits = field(default_factory=Limits)
    instances: int = 1
    int8: Int8 | None = None
    vectors: Vectors | None = None
    pooling: Pooling = field(default_factory=Pooling)
    families: ModelsConfig | None = None


@dataclass(frozen=True)
class ModelRepository:
    """A finished repository: its models, the GPUs that a server needs, and what its user has to know."""

    folder: Path
    models: tuple[str, ...]
    gpus: int
    warnings: tuple[str, ...] = ()


def served_family(config: Config, model: str) -> str:
    """Return the family that serves `model` of models.yaml; ConfigError when there is no such model."""
    if model not in config.models.families:
        raise ConfigError(
            f"there is no model {model}",
            where=str(config.folder / "models.yaml"),
            hint=f"it describes {', '.join(config.models.families)}",
        )
    return config.models.template(model)


def sdk_image(client: docker.DockerClient, planned: Sequence[Plan]) -> Plan:
    """Return a plan whose SDK image is here; any of a release will do, as templates do not depend on the SM.

    Raises ConfigError when there is none, or when those here are of several releases.
    """
    here = {plan.cell.triton: plan for plan in planned if daemon.image(client, plan.tag("sdk")) is not None}
    if not here:
        raise ConfigError(
            "no SDK image of the selected cells is here, and the templates are in it",
            where=", ".join(plan.tag("sdk") for plan in planned),
            hint="invoke build, or name one with --image",
        )
    if len(here) > 1:
        raise ConfigError(
            f"a repository is for one release, and there are SDK images of {', '.join(sorted(here))}",
            hint="choose with --triton",
        )
    return next(iter(here.values()))


def check_streams(config: Config, model: str, release: str) -> None:
    """Raise ConfigError unless a family's answers can be streamed in a release."""
    known = config.models.families[model].streams
    version = config.version(release, "backend")
    if known is None or not SpecifierSet(known).contains(version):
        raise ConfigError(f"{model} cannot stream its answers in {release}", hint="leave out --streamed")


def check_experts(weights: Path, gpus: int | None, plan: Plan) -> None:
    """Raise ConfigError when a layer of the weights is a mixture of experts, and the release loads none.

    It would look for the layer's one network, and compute with random numbers without it (FT v5.3
    memory_utils.cu:300-320, memory_utils.h:26).
    """
    model = config_ini.find(weights, gpus)
    if config_ini.has_experts(model) and not plan.takes("ft", EXPERTS):
        raise ConfigError(
            f"{plan.cell.triton} serves no mixture of experts",
            where=str(model.folder / config_ini.FILE),
            hint="a later release: --triton",
        )


def check_left_out(
    client: docker.DockerClient, image: str, weights: Path, gpus: int | None, *, int8: bool
) -> None:
    """Raise ConfigError when the images of a cell are built without what the weights need.

    The SDK image tells of its runtime image; one that is not here, or not ours, leaves nothing out.
    """
    here = daemon.image(client, image)
    if here is not None and (lacks := features.of_labels(here.labels, LABELS)):
        model = config_ini.find(weights, gpus)
        needed = left_out.of_weights(model, int8=int8)
        left_out.require(lacks, needed, image, str(model.folder / config_ini.FILE))


def slots(plan: Plan, count: int | None) -> int | None:
    """Return how many slots a model of a release gets, see `Limits`; ConfigError where it has none."""
    if plan.takes("backend", IN_FLIGHT):
        return count
    if count:
        raise ConfigError(
            f"{plan.cell.triton} has no slots: it computes requests in batches that start and end together",
            hint="leave out --slots, or a later release: --triton",
        )
    return 0


def templates(client: docker.DockerClient, image: str, family: str) -> dict[str, str]:
    """Return model name -> upstream's config.pbtxt, of a family, from an SDK image.

    Raises ConfigError when the image has no models of that family.
    """
    reference.check_image(image)
    try:
        with container.archive(client, image, f"{config_pbtxt.TEMPLATES}/{family}") as tar:
            return _configs(b"".join(tar))
    except ContainerError as missing:
        raise ConfigError(
            f"{image} has no templates for {family}",
            where=f"{config_pbtxt.TEMPLATES}/{family}",
            hint="they are in the SDK image, and in the releases that know the family: invoke matrix",
        ) from missing


def make(templates: Mapping[str, str], options: RepositoryOptions) -> ModelRepository:
    """Write the repository from `templates`, by model; all checks come before the first write.

    Raises ConfigError when the options do not fit the weights, the release or what is in `options.out`.
    """
    _refuse_existing(options.out)
    weights = config_ini.find(options.weights, options.gpus)
    untrusted.require_plain(weights.folder, "invoke convert writes none: convert again")
    models = options.families or loader.own_models()
    weight_checks.check_family(weights, options.family, models)
    config_ini.check_pipeline(weights, options.pipeline)
    weight_checks.check_rotation(weights, options.family, models, options.dtype)
    weight_checks.check_range(weights, options.dtype)
    weight_checks.check_files(weights, options.family, models)
    fit.require_own_rows(fit.of_weights(weights), weights.folder)
    bare = _bare(templates, weights, options)
    around, read, warnings = (_vectors if options.vectors else _texts)(templates, bare, weights, options)
    _require_parent(options.out)
    with files.atomic_folder(options.out) as folder:
        config_pbtxt.write(folder, bare, weights.folder)
        if options.vectors:
            vector_models.write(folder, around, weights.folder, options.vectors, read)
        else:
            ensemble.write(folder, around, read)
    if options.pipeline > triton.MAX_STAGES_TOGETHER:
        warnings = (STAGES_NEVER_RUN, *warnings)
    gpus = weights.tensor_para * options.pipeline
    return ModelRepository(options.out, (*around, config_pbtxt.MODEL), gpus, warnings)


def adopt(templates: Mapping[str, str], options: RepositoryOptions, adopted: Adoption) -> ModelRepository:
    """Write the repository of adopted weights, as `make`.

    Their files are linked into it, so that they stay where they are and a container sees them all the same;
    config.ini is another. On another file system they are copied.
    """
    _refuse_existing(options.out)
    _require_parent(options.out)
    with tempfile.TemporaryDirectory(dir=options.out.resolve().parent, prefix=".adopting-") as folder:
        staged = adoption.stage(adopted, Path(folder))
        return make(templates, replace(options, family=adopted.family, weights=staged, gpus=adopted.gpus))


def _bare(
    templates: Mapping[str, str], weights: config_ini.ConvertedModel, options: RepositoryOptions
) -> str:
    template = templates[config_pbtxt.MODEL]
    known = config_pbtxt.data_types(config_pbtxt.parse(template))
    if options.dtype not in known:
        raise ConfigError(
            f"{options.family} cannot be served as {options.dtype} in this release",
            hint=f"--dtype {' or '.join(known)}",
        )
    if options.int8:
        weight_checks.check_int8(template, options.int8, weights, options.dtype)
    if options.streamed and options.pipeline > 1:
        # Only the first stage knows of a stream; it would wait for tokens that the last one does not send
        # (FT v5.3 GptJ.cc:1061-1068; BE v1.4 libfastertransformer.cc, ThreadForward).
        raise ConfigError(
            f"a model over {options.pipeline} pipeline stages cannot stream its answers",
            hint="leave out --streamed, or spread the model by tensor parallelism alone: --gpus",
        )
    if options.streamed and not config_pbtxt.streams(template):
        raise ConfigError(
            f"{options.family} cannot stream its answers in this release",
            hint="leave out --streamed",
        )
    if options.limits.slots and (options.pipeline > 1 or not config_pbtxt.generates_in_flight(template)):
        raise ConfigError(
            f"{options.family} over {options.pipeline} pipeline stages has no slots"
            if options.pipeline > 1
            else f"{options.family} has no slots in this release",
            hint="leave out --slots",
        )
    if options.limits.cache_tokens is not None and not config_pbtxt.has_slots(
        template, options.limits, options.pipeline
    ):
        raise ConfigError(
            "--cache-tokens is the memory of slots, and the model gets none",
            hint="leave out --cache-tokens, or ask for slots: --slots",
        )
    if options.instances > 1 and not config_pbtxt.has_instances(template):
        raise ConfigError(
            f"{options.family} has one instance in this release",
            hint="leave out --instances: each would load the weights again",
        )
    return config_pbtxt.fill_template(
        template,
        tensor_para=weights.tensor_para,
        pipeline_para=options.pipeline,
        data_type=options.dtype,
        decoupled=options.streamed,
        model=weights,
        limits=options.limits,
        instances=options.instances,
        int8=options.int8 is not None,
    )


def _texts(
    templates: Mapping[str, str], bare: str, weights: config_ini.ConvertedModel, options: RepositoryOptions
) -> Around:
    """Return the models for text and the tokenizer's files, where the release has such models."""
    if options.bare:
        return {}, [], ()
    if not set(ensemble.MODELS) <= set(templates):
        if options.tokenizer is None:
            return {}, [], ()
        raise ConfigError(
            f"upstream has no ensemble for {options.family} in this release",
            hint="leave out --tokenizer: clients send and receive token ids",
        )
    if options.tokenizer is None:
        raise ConfigError(
            f"the ensemble of {options.family} needs a tokenizer",
            hint="--tokenizer DIR, the checkpoint's folder; or --bare for the model of token ids alone",
        )
    read = tokenizer.files(options.tokenizer)
    warnings = fit.check(options.tokenizer, fit.of_weights(weights))
    return ensemble.fill_templates(templates, bare, weights.number("end_id")), read, warnings


def _vectors(
    templates: Mapping[str, str], bare: str, weights: config_ini.ConvertedModel, options: RepositoryOptions
) -> Around:
    """Return the models from token ids to vectors, and the tokenizer's files, which only clients read."""
    assert options.vectors
    if options.bare:
        raise ConfigError(
            f"{options.family} has no model of token ids alone",
            where="--bare",
            hint="leave it out: a model before the layers looks up token ids, or checks them",
        )
    read: list[Path] = []
    warnings: tuple[str, ...] = ()
    if options.tokenizer is not None:
        read = tokenizer.files(options.tokenizer)
        warnings = fit.check(options.tokenizer, fit.of_weights(weights))
    width = vector_models.width(weights, options.vectors)
    pooling, differing = vector_models.served_pooling(
        options.pooling, _declared_pooling(weights, options.tokenizer), width
    )
    configs = vector_models.configs(bare, weights, options.vectors, pooling)
    return configs, read, (*warnings, *differing)


def _declared_pooling(
    weights: config_ini.ConvertedModel, checkpoint: Path | None
) -> sentence.Sentence | None:
    """Return what the checkpoint says of its vectors: its own files, or what the conversion carried."""
    own = sentence.read(checkpoint) if checkpoint else None
    return own or sentence.carried(weights)


def _refuse_existing(out: Path) -> None:
    if out.exists():
        raise ConfigError("the output exists", where=str(out), hint="remove it, or name another --out")


def _require_parent(out: Path) -> None:
    parent = out.resolve().parent
    if not parent.is_dir():
        raise ConfigError(
            "the parent folder of the output does not exist", where=str(parent), hint="create it first"
        )


def _configs(tar: bytes) -> dict[str, str]:
    """Return the `<family>/<model>/config.pbtxt` of a tar, by model."""
    configs = {}
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        for entry in archive.getmembers():
            parts = PurePosixPath(entry.name).parts
            if len(parts) == 3 and parts[2] == config_pbtxt.CONFIG and (file := archive.extractfile(entry)):
                configs[parts[1]] = file.read(untrusted.SETTINGS_BYTES).decode("utf-8", "replace")
    return configs
