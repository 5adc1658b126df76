"""Commands from a checkpoint to a model repository."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ftbuild.cli.arguments import Range
from ftbuild.cli.command import command
from ftbuild.cli.repository_options import MAX_COUNT, MAX_INT, Form, Pushing, Requests, Vectors, Weights
from ftbuild.cli.selection import Selection, plans
from ftbuild.text import units

if TYPE_CHECKING:
    from ftbuild.models.placement import GpuKind

# Of tokens.
LONGEST = 2**20
IgnoredKeys = Annotated[
    Sequence[str], "key of config.json, not known here, that changes nothing of what is computed (repeatable)"
]


@command()
def convert(
    model: Annotated[str, "gpt, opt, bloom, mpt, gptj, codegen, gptneox, t5, llama, bert or t5-encoder"],
    checkpoint: Annotated[Path, "folder from Hugging Face, or GPT-J's original step_<n>"],
    out: Annotated[Path, "folder to make; the weights lie in <out>/<gpus>-gpu"],
    selection: Selection,
    gpus: Annotated[int, Range(1, MAX_COUNT), "GPUs that the weights are split over (tensor parallel)"] = 1,
    dtype: Annotated[str | None, "fp32 or fp16 (default: the converter's own)"] = None,
    image: Annotated[
        str | None, "SDK image (default: of the newest selected release that converts the model)"
    ] = None,
    jobs: Annotated[int, Range(1, MAX_COUNT), "processes of the converter"] = 4,
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
    batch: Annotated[int, Range(1, MAX_COUNT), "rows of prompts that are computed at once"] = 1,
    input_len: Annotated[int, Range(1, LONGEST), "tokens of the longest prompt"] = 512,
    output_len: Annotated[
        int | None, Range(1, LONGEST), "tokens of the longest answer (default: 512)"
    ] = None,
    beams: Annotated[int | None, Range(1, 64), "beams of each row (default: 1)"] = None,
    gpus: Annotated[int, Range(1, MAX_COUNT), "GPUs of one machine, at most"] = 8,
    session_tokens: Annotated[
        int | None,
        Range(1, MAX_INT),
        "tokens of prompt and answer of a session, whose number is told that fit at once (default: 2048)",
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


@command("model-repo.write", default=True, needs={"sign_key": ["push"], "sign_log": ["push"]})
def model_repo(
    out: Annotated[Path, "folder to write; must not exist"],
    selection: Selection,
    of: Weights,
    form: Form,
    requests: Requests,
    vectors: Vectors,
    pushing: Pushing,
    image: Annotated[
        str | None, "SDK image to take the templates from (default: that of the selected release)"
    ] = None,
) -> int:
    """Write the model repository of converted weights: ensemble, tokenizer, config.pbtxt of the release."""
    from ftbuild.config import loader
    from ftbuild.engine import daemon
    from ftbuild.models import repository
    from ftbuild.models.int8 import required as required_int8

    config = loader.load(selection.config)
    model, weights, gpus, adopted = of.chosen(config)
    if adopted:
        print(adopted.render())
    family = repository.served_family(config, model)
    quantized = required_int8(config.models, model) if form.int8 else None
    client = daemon.connect()
    slots = requests.slots
    if image is None:
        plan = repository.sdk_image(client, plans(config, selection))
        image = plan.tag("sdk")
        if not adopted:
            repository.check_experts(weights, gpus, plan)
        if form.streamed:
            repository.check_streams(config, model, plan.cell.triton)
        slots = repository.slots(plan, slots)
    repository.check_left_out(client, image, weights, gpus, int8=form.int8)
    options = repository.RepositoryOptions(
        family=family,
        weights=weights,
        out=out,
        gpus=gpus,
        pipeline=form.pipeline,
        dtype=form.dtype,
        tokenizer=form.tokenizer,
        streamed=form.streamed,
        bare=form.bare,
        limits=requests.limits(slots),
        instances=requests.instances,
        int8=quantized,
        vectors=config.models.families[family].vectors,
        pooling=vectors.pooled(),
        families=config.models,
    )
    templates = repository.templates(client, image, family)
    made = repository.adopt(templates, options, adopted) if adopted else repository.make(templates, options)
    for warning in made.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(f"{made.folder}: {', '.join(sorted(made.models))}, for {units.gpus(made.gpus)}")
    pushing.follow(made.folder)
    return 0
