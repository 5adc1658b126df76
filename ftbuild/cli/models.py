"""Commands from a checkpoint to a model repository."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ftbuild.cli.arguments import Range
from ftbuild.cli.command import command
from ftbuild.cli.model_artifacts import SignKey, SignLog, publish
from ftbuild.cli.selection import Selection, plans
from ftbuild.text import units

if TYPE_CHECKING:
    from ftbuild.config.schema import Config
    from ftbuild.models.adoption import Adoption
    from ftbuild.models.placement import GpuKind

# Of GPUs, pipeline stages and processes, of rows; of tokens.
MAX = 1024
LONGEST = 2**20
# An int, as config.pbtxt (max_batch_size of model_config.proto) and the backend hold limits.
MAX = 2**31 - 1
IgnoredKeys = Annotated[
    Sequence[str], "key of config.json, not known here, that changes nothing of what is computed (repeatable)"
]


@command()
def convert(
    model: Annotated[str, "gpt, opt, bloom, mpt, gptj, codegen, gptneox, t5, llama, bert or t5-encoder"],
    checkpoint: Annotated[Path, "folder from Hugging Face, or GPT-J's original step_<n>"],
    out: Annotated[Path, "folder to make; the weights lie in <out>/<gpus>-gpu"],
    selection: Selection,
    gpus: Annotated[int, Range(1, MAX), "GPUs that the weights are split over (tensor parallel)"] = 1,
    dtype: Annotated[str | None, "fp32 or fp16 (default: the converter's own)"] = None,
    image: Annotated[
        str | None, "SDK image (default: of the newest selected release that converts the model)"
    ] = None,
    jobs: Annotated[int, Range(1, MAX), "processes of the converter"] = 4,
    ignore_key: IgnoredKeys = (),
    dry_run: Annotated[bool, "print what would be done: needs neither Docker nor network"] = False,
) -> int:
    """Convert a checkpoint to weights for the FasterTransformer backend, with the release's own converter."""
    from ftbuild.config import loader
    from ftbuild.engine import daemon, orphans
    from ftbuild.models import conversion
    from ftbuild.models.conversion_run import convert as run_conversion
    from ftbuild.text import reporter

    config = loader.load(selection.config)
    request = conversion.ConversionRequest(model, checkpoint, out, gpus, dtype, jobs, tuple(ignore_key))
    cells = conversion.candidates(config, plans(config, selection), request)
    planned = conversion.plan_conversion(config, cells[0].cell.triton, request)
    print(planned.render())
    for warning in planned.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if not dry_run:
        client = daemon.connect()
        orphans.remove(client, reporter.to_stderr)
        sdk = conversion.sdk_image(client, cells, image)
        made = run_conversion(client, planned, sdk, reporter.to_stderr)
        print(f"weights: {made}")
        print(f"next: invoke model-repo --model {model} --weights {made} --out FOLDER")
    return 0


@command()
def plan_model(
    checkpoint: Annotated[Path, "folder from Hugging Face, or GPT-J's original step_<n>"],
    selection: Selection,
    model: Annotated[str | None, "model family (default: what the checkpoint is)"] = None,
    batch: Annotated[int, Range(1, MAX), "rows of prompts that are computed at once"] = 1,
    input_len: Annotated[int, Range(1, LONGEST), "tokens of the longest prompt"] = 512,
    output_len: Annotated[
        int | None, Range(1, LONGEST), "tokens of the longest answer (default: 512)"
    ] = None,
    beams: Annotated[int | None, Range(1, 64), "beams of each row (default: 1)"] = None,
    gpus: Annotated[int, Range(1, MAX), "GPUs of one machine, at most"] = 8,
    session_tokens: Annotated[
        int | None,
        Range(1, MAX),
        "tokens of prompt and answer of a slot, of which their number is told (default: 2048)",
    ] = None,
    ignore_key: IgnoredKeys = (),
    format: Annotated[Literal["human", "json"], "human or json"] = "human",  # noqa: A002
) -> int:
    """Tell on which GPUs a checkpoint fits, and over how many: by arithmetic, without a GPU."""
    import json

    from ftbuild.config import loader
    from ftbuild.models import checkpoint as checkpoints
    from ftbuild.models import conversion, placement

    config = loader.load(selection.config)
    family = model or checkpoints.family_of(checkpoint, config.models)
    request = conversion.ConversionRequest(family, checkpoint, out=checkpoint, ignored=tuple(ignore_key))
    plan = conversion.candidates(config, plans(config, selection), request)[0]
    load = placement.load_of(config, family, batch, input_len, output_len, beams)
    slot_tokens = placement.tokens_of_a_slot(config, family, plan, session_tokens)
    found = placement.place(
        config,
        plan.cell.triton,
        family,
        checkpoint,
        load,
        gpus,
        _gpus_here(),
        ignore_key,
        slot_tokens,
        plan.cell.left_out,
    )
    print(json.dumps(found.as_dict(), indent=2) if format == "json" else found.render())
    return 0


def _gpus_here() -> list[GpuKind]:
    """Return the kinds of GPUs of this machine; none where no driver names them with their memory."""
    from collections import Counter

    from ftbuild.engine import gpu
    from ftbuild.errors import HostError
    from ftbuild.models.placement import GpuKind

    try:
        found = Counter((each.name, each.sm, each.memory) for each in gpu.installed())
    except HostError:
        return []
    return [GpuKind(name, sm, memory, count) for (name, sm, memory), count in found.items() if memory]


def _adopted(
    config: Config,
    model: str | None,
    weights: Path | None,
    folder: Path | None,
    gpus: int | None,
    ini: tuple[str, ...],
) -> Adoption | None:
    """Return what --adopt concludes; None without it, ConfigError with options that contradict it."""
    from ftbuild.errors import ConfigError
    from ftbuild.models import adoption, repository

    if folder is None:
        if ini:
            raise ConfigError("--ini without --adopt", hint="invoke convert writes config.ini by itself")
        return None
    if weights is not None:
        raise ConfigError("--weights and --adopt name the same thing", hint="leave one of them out")
    family = repository.served_family(config, model) if model else None
    return adoption.adopt(
        folder, config.models, family=family, gpus=gpus, options=adoption.parse_options(ini)
    )


@command("model-repo.write", default=True, needs={"sign_key": ["push"], "sign_log": ["push"]})
def model_repo(
    out: Annotated[Path, "folder to write; must not exist"],
    selection: Selection,
    model: Annotated[str | None, "model family, for instance gptneox"] = None,
    weights: Annotated[
        Path | None, "what invoke convert wrote: a folder <n>-gpu, or the one that holds it"
    ] = None,
    adopt: Annotated[
        Path | None,
        "in place of both: weights that another program converted (FauxPilot, NeMo), or a repository of them",
    ] = None,
    ini: Annotated[
        tuple[str, ...], "with --adopt, KEY=VALUE of config.ini that nothing tells, for instance head_num=16"
    ] = (),
    gpus: Annotated[
        int | None,
        Range(1, MAX),
        "which weights, by the GPUs that they are split over (default: what is there)",
    ] = None,
    pipeline: Annotated[
        int, Range(1, MAX), "pipeline stages; the server then needs gpus x pipeline GPUs"
    ] = 1,
    dtype: Annotated[str, "what the GPUs compute in: fp16, fp32 or, where the model can, bf16"] = "fp16",
    tokenizer: Annotated[
        Path | None, "folder of the checkpoint, with tokenizer.json or vocab.json and merges.txt"
    ] = None,
    int8: Annotated[bool, "keep the weights as int8, half of fp16: gpt, opt, bloom and mpt"] = False,
    streamed: Annotated[bool, "answer token by token, over gRPC"] = False,
    bare: Annotated[bool, "the model of token ids alone, without ensemble and tokenizer"] = False,
    max_output_len: Annotated[
        int, Range(1, MAX), "tokens that one request may ask for; more are refused"
    ] = 2048,
    max_request_seconds: Annotated[
        int,
        Range(0, MAX),
        "seconds after which a batch, or a step of requests in flight, ends the server; 0: never",
    ] = 600,
    max_batch_size: Annotated[
        int | None, Range(1, MAX), "rows of requests computed together (default: upstream's)"
    ] = None,
    max_batch_tokens: Annotated[
        int,
        Range(1, MAX),
        "tokens of rows, times beams, computed together; requests for more are refused",
    ] = 262_144,
    queue_delay: Annotated[
        int, Range(0, MAX), "milliseconds that a request waits for others of its batch"
    ] = 2,
    queue_limit: Annotated[
        int,
        Range(0, MAX),
        "requests that may wait for the model; one more is refused with 503; 0: any number",
    ] = 512,
    queue_timeout: Annotated[
        int,
        Range(0, MAX),
        "seconds that a request may wait until it is refused with 503; it may ask for less; 0: no limit",
    ] = 0,
    priorities: Annotated[
        int,
        Range(0, 16),
        "levels of priority that a request can ask for, 1 the first; without asking it has the last; "
        "0: all are alike",
    ] = 0,
    slots: Annotated[
        int | None,
        Range(0, 1024),
        "answers that are generated at once, each from the moment that its request comes; 0: in batches that "
        "start and end together (default: as many as the GPU's free memory holds, at most 64; "
        "over several GPUs 0)",
    ] = None,
    session_tokens: Annotated[
        int,
        Range(1, MAX),
        "tokens of prompt and answer that each of these has memory for; of t5, half of them for each",
    ] = 2048,
    instances: Annotated[
        int,
        Range(1, MAX),
        "instances that compute at the same time; those on the same GPUs share the weights",
    ] = 1,
    pooling: Annotated[
        Literal["mean", "cls"] | None,
        "how the vector of a text is made of its tokens' (bert, t5-encoder): mean, or the first one "
        "(default: as the checkpoint says, else mean)",
    ] = None,
    unnormalized: Annotated[
        bool,
        "leave vectors (bert, t5-encoder) the length that they have, whatever the checkpoint says",
    ] = False,
    image: Annotated[
        str | None, "SDK image to take the templates from (default: that of the selected release)"
    ] = None,
    push: Annotated[str | None, "oci://HOST/PATH:TAG in a registry, to push it there, too"] = None,
    sign_key: SignKey = None,
    sign_log: SignLog = True,
) -> int:
    """Write the model repository of converted weights: ensemble, tokenizer, config.pbtxt of the release."""
    from ftbuild.config import loader
    from ftbuild.engine import daemon
    from ftbuild.errors import ConfigError
    from ftbuild.models import repository
    from ftbuild.models.config_pbtxt import Limits
    from ftbuild.models.int8 import required as required_int8
    from ftbuild.models.vector_models import Pooling

    config = loader.load(selection.config)
    adopted = _adopted(config, model, weights, adopt, gpus, ini)
    if adopted:
        model, weights, gpus = adopted.family, adopted.folder, adopted.gpus
        print(adopted.render())
    if model is None or weights is None:
        raise ConfigError(
            "which weights?",
            hint="--model FAMILY --weights FOLDER of invoke convert, or --adopt FOLDER of others",
        )
    family = repository.served_family(config, model)
    quantized = required_int8(config.models, model) if int8 else None
    client = daemon.connect()
    if image is None:
        plan = repository.sdk_image(client, plans(config, selection))
        image = plan.tag("sdk")
        if not adopted:
            repository.check_experts(weights, gpus, plan)
        if streamed:
            repository.check_streams(config, model, plan.cell.triton)
        slots = repository.slots(plan, slots)
    repository.check_left_out(client, image, weights, gpus, int8=int8)
    options = repository.RepositoryOptions(
        family=family,
        weights=weights,
        out=out,
        gpus=gpus,
        pipeline=pipeline,
        dtype=dtype,
        tokenizer=tokenizer,
        streamed=streamed,
        bare=bare,
        limits=Limits(
            max_output_len,
            max_request_seconds,
            queue_delay,
            max_batch_size,
            max_batch_tokens,
            slots,
            session_tokens,
            queue_limit,
            queue_timeout,
            priorities,
        ),
        instances=instances,
        int8=quantized,
        vectors=config.models.families[family].vectors,
        pooling=Pooling(pooling, normalized=False if unnormalized else None),
        families=config.models,
    )
    found = repository.templates(client, image, family)
    made = repository.adopt(found, options, adopted) if adopted else repository.make(found, options)
    for warning in made.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(f"{made.folder}: {', '.join(sorted(made.models))}, for {units.gpus(made.gpus)}")
    if push:
        publish(made.folder, push, sign_key, sign_log)
    else:
        print(f"next: invoke serve --model-repo {made.folder}")
    return 0
