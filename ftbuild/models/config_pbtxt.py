"""The `fastertransformer` model of a repository: upstream's config.pbtxt of the release, filled in.

config.pbtxt is the text form of a protocol buffer (Triton's model_config.proto), and is read and written as
one, never edited as text.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild.errors import ConfigError
from ftbuild.host import reading
from ftbuild.models import untrusted
from ftbuild.models.config_ini import ConvertedModel

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelDynamicBatching

MODEL = "fastertransformer"
VERSION = "1"
CONFIG = "config.pbtxt"
MAKE_AGAIN = "invoke model-repo writes it again, independent of where the weights are"
ADOPT = "invoke model-repo --adopt"
# Where the SDK image has upstream's model repositories (dockerfiles/triton-ft.Dockerfile, stage sdk).
TEMPLATES = "/opt/ftbuild/fastertransformer_backend/all_models"
DATA_TYPES = ("fp16", "fp32", "bf16")
# Upstream's configs name a folder and a file that exist on no user's machine. Without
# both the backend takes <model>/<version>/<n>-gpu (BE v1.1 libfastertransformer.cc:194-206; v1.4 :245-248,
# :412-418), so the repository can be moved.
_CHECKPOINT = "model_checkpoint_path"
# Release 1.1 reads it in place of data_type for GPT-J and T5 (BE v1.1 libfastertransformer.cc:254, :278).
_IS_HALF = "is_half"
# Of in-flight batching (patches/backend/0250, 0260 and 0285), which has these kinds of models.
_SLOTS, _SLOT_TOKENS = "in_flight_slots", "in_flight_slot_tokens"
_CACHE_TOKENS = "in_flight_cache_tokens"
IN_FLIGHT_TYPES = ("GPT", "GPT-J", "GPT-NeoX", "T5")
# Of GPT-NeoX, where it computes in bf16, too (patches/backend/0220).
_COMPUTES = "data_types"
_PROMPT = "input_ids"
# 1: int8 weights (FT v5.3 DenseWeight.h:23-27); 2 wants converted ones and activations of int8, too.
_INT8 = "int8_mode"
# FT v5.3 joins the folder of BERT's weights and their names without a slash (BertWeight.cc:96). Unless it
# computes the padding, too, rows of it keep what earlier requests left in the answer (Bert.cc:638-646).
_BERT, _KEEPS_PADDING = "bert", {"is_remove_padding": "0"}
# The states of an encoder's last layer, which a Python model takes: that has no bf16, as numpy lacks it.
STATES = "output_hidden_state"


@dataclass(frozen=True)
class Limits:
    """What one request may take, and how long it may wait for others to be computed with.

    `output_tokens`, `batch_tokens` and `seconds` are enforced by the backend (patches/backend, 0160, 0203
    and 0170): a request for more tokens is refused, and one that takes longer ends the server; 0 seconds:
    never. `batch_tokens` counts rows x beams x (longest prompt + longest answer) of what is computed at once.
    `queue_ms` are the milliseconds that a request waits for others to be computed with. `batch` is the
    largest batch, in rows; None: the template's. `slots` are the answers that are generated at once, each
    from the step at which its request comes (patches/backend, 0250), and `slot_tokens` how many tokens one
    may have: prompt and answer together, of T5 half of them each; None: as many as the GPUs' free
    memory holds; 0: none, and requests are computed in batches. `cache_tokens` are those that
    all of them have together, of T5 those of answers; None: as many as the memory holds. `queue` is the
    number of requests that may wait, of each of the `priorities` (0: all are alike), and `queue_seconds` how
    long one may: the server refuses what is more (0: nothing).
    """

    output_tokens: int = 2048
    seconds: int = 600
    queue_ms: int = 2
    batch: int | None = None
    batch_tokens: int = 262_144
    slots: int | None = None
    slot_tokens: int = 2048
    cache_tokens: int | None = None
    queue: int = 512
    queue_seconds: int = 0
    priorities: int = 0


def adopt(folder: Path) -> str:
    """Return the hint for weights in `folder`, or a repository of them, that another program wrote."""
    return f"{ADOPT} {shlex.quote(str(folder))} --out FOLDER makes a repository of them"


def template(family: str) -> str:
    """Return the path in the SDK image of upstream's config.pbtxt of a family."""
    return f"{TEMPLATES}/{family}/{MODEL}/{CONFIG}"


def fill_template(
    template: str,
    *,
    tensor_para: int,
    data_type: str,
    pipeline_para: int = 1,
    decoupled: bool = False,
    model: ConvertedModel | None = None,
    limits: Limits | None = None,
    instances: int = 1,
    int8: bool = False,
) -> str:
    """Fill in `template` for weights of that many GPUs; ConfigError when it is not a config.pbtxt.

    `model` gives the values that release 1.1 wants here, and later ones read from config.ini. `instances`
    compute at the same time, each on as many GPUs as the weights are for. `int8` keeps the weights as int8,
    which a release must be able to (see `quantizes`).
    """
    config, limits = parse(template), limits or Limits()
    parameters = {
        "tensor_para_size": str(tensor_para),
        "pipeline_para_size": str(pipeline_para),
        "data_type": data_type,
        "max_output_len": str(limits.output_tokens),
        "max_batch_tokens": str(limits.batch_tokens),
        "max_request_seconds": str(limits.seconds),
    }
    if model is not None:
        parameters |= model.parameters(config.parameters)
        if model.vocab_size:
            # For clients of the model: the backend reads it in config.ini.
            parameters["vocab_size"] = str(model.vocab_size)
    if has_slots(template, limits, pipeline_para):
        parameters[_SLOTS] = "auto" if limits.slots is None else str(limits.slots)
        parameters[_SLOT_TOKENS] = str(limits.slot_tokens)
        if limits.cache_tokens is not None:
            parameters[_CACHE_TOKENS] = str(limits.cache_tokens)
    if int8:
        parameters[_INT8] = "1"
    if _IS_HALF in config.parameters:
        parameters[_IS_HALF] = str(int(data_type == "fp16"))
    if _model_type(config) == _BERT:
        parameters |= _KEEPS_PADDING
    for name, value in parameters.items():
        config.parameters[name].string_value = value
    config.parameters.pop(_CHECKPOINT, None)
    config.ClearField("default_model_filename")
    if _model_type(config) == _BERT:
        config.default_model_filename = f"{tensor_para}-gpu/"
    _declare_types(config, data_type)
    config.model_transaction_policy.decoupled = decoupled
    if limits.batch is not None:
        config.max_batch_size = limits.batch
    for group in config.instance_group:
        group.count = instances
    _batch(config, limits)
    return text(config)


def has_instances(template: str) -> bool:
    """Return whether the release of a template can have several instances, which share their weights.

    Release 1.1, the only one whose seeds have 32 bits, keeps one stream for each GPU, whatever the number of
    instances (BE v1.1 libfastertransformer.cc, ModelState::LoadModel).
    """
    return inputs(template).get("random_seed") != "INT32"


def has_slots(template: str, limits: Limits, pipeline_para: int) -> bool:
    """Return whether a model gets slots: those that generate do, unless they are divided into stages."""
    return limits.slots != 0 and pipeline_para == 1 and generates_in_flight(template)


def generates_in_flight(template: str) -> bool:
    """Return whether models of this kind have in-flight batching, in releases that do."""
    return _model_type(parse(template)) in IN_FLIGHT_TYPES and has_instances(template)


def quantizes(template: str) -> bool:
    """Return whether the release of a template has int8 weights for this kind of model.

    Only GPT reads the number (BE v1.4 libfastertransformer.cc:257-267); that of release 1.1, which has one
    instance, keeps the others as well (FT v5.0 FfnLayer.cc:60-73).
    """
    return _INT8 in parse(template).parameters and has_instances(template)


def data_types(config: ModelConfig) -> tuple[str, ...]:
    """Return the data types that a model can be computed in.

    Whatever is not fp16 silently counts as fp32 for GPT-J and T5 in release 1.1 (BE v1.1
    libfastertransformer.cc:254, :278), and for GPT-NeoX unless its template says more (BE v1.4 :283-288).
    """
    parameters = {name: value.string_value for name, value in config.parameters.items()}
    if known := parameters.get(_COMPUTES):
        return tuple(known.split())
    silent = _model_type(config) == "GPT-NeoX" or _IS_HALF in parameters
    return DATA_TYPES[:2] if silent or _gives_states(config) else DATA_TYPES


def streams(template: str) -> bool:
    """Return whether the release of a template has decoupled models of this kind."""
    return bool(parse(template).HasField("model_transaction_policy"))


def inputs(template: str) -> Mapping[str, str]:
    """Return name -> Triton's data type (`TYPE_` left out) of every input of a model."""
    from tritonclient.grpc.model_config_pb2 import DataType

    return {i.name: DataType.Name(i.data_type).removeprefix("TYPE_") for i in parse(template).input}


def _model_type(config: ModelConfig) -> str:
    return config.parameters["model_type"].string_value if "model_type" in config.parameters else ""


def _gives_states(config: ModelConfig) -> bool:
    return any(tensor.name == STATES for tensor in config.output)


def _declare_types(config: ModelConfig, data_type: str) -> None:
    """Give hidden states the type that the model computes in, as the backend does when it loads the model.

    Upstream's templates leave it out for BERT, and have fp32 for all outputs of T5's encoder (BE v1.4
    libfastertransformer.cc, AutoCompleteConfig), but an ensemble must know it.
    """
    from tritonclient.grpc.model_config_pb2 import DataType

    computed = [tensor for tensor in config.input if tensor.data_type == DataType.TYPE_INVALID]
    for tensor in (*computed, *(config.output if _gives_states(config) else ())):
        tensor.data_type = DataType.Value(f"TYPE_{data_type.upper()}")


def _batch(config: ModelConfig, limits: Limits) -> None:
    """Let the server compute requests together, also those whose prompts differ in length.

    Not these where the answer is a state for each token: it has the shape of all prompts.
    Upstream's templates do so for GPT alone (BE v1.4 all_models/gpt/fastertransformer/config.pbtxt). The
    backend decides which requests of a batch go together (patches/backend, 0200). An input that may be
    ragged needs a batch input of this name (BE v1.4 libfastertransformer.cc, ValidateInputs).
    """
    from tritonclient.grpc.model_config_pb2 import BatchInput, DataType

    if config.WhichOneof("scheduling_choice") not in (None, "dynamic_batching"):
        return  # sessions: one request at a time
    config.dynamic_batching.max_queue_delay_microseconds = limits.queue_ms * 1000
    _limit_queue(config.dynamic_batching, limits)
    if _gives_states(config):
        return
    for tensor in config.input:
        tensor.allow_ragged_batch |= tensor.name == _PROMPT
    if not any(_PROMPT in known.source_input for known in config.batch_input):
        config.batch_input.add(
            kind=BatchInput.Kind.BATCH_ITEM_SHAPE,
            target_name=[f"{_PROMPT}_item_shape"],
            data_type=DataType.TYPE_INT32,
            source_input=[_PROMPT],
        )


def _limit_queue(batching: ModelDynamicBatching, limits: Limits) -> None:
    """Set what the server refuses; the backend holds what it has taken to the same (patches/backend, 0270).

    A request's own time-out counts only where it is shorter than a model's (core r24.10
    scheduler_utils.cc:180-185). Level 1 is the first one; a request without one gets the last.
    """
    policy = batching.default_queue_policy
    policy.Clear()
    policy.max_queue_size = limits.queue
    policy.default_timeout_microseconds = limits.queue_seconds * 1_000_000
    policy.allow_timeout_override = limits.queue_seconds > 0
    batching.priority_levels = batching.default_priority_level = limits.priorities


def parse(text: str) -> ModelConfig:
    """Return the message in a config.pbtxt; ConfigError when it is not one."""
    from google.protobuf import text_format
    from tritonclient.grpc.model_config_pb2 import ModelConfig

    try:
        return text_format.Parse(text, ModelConfig())
    except (text_format.ParseError, ValueError, RecursionError) as broken:
        raise ConfigError(
            f"not a config.pbtxt: {untrusted.sentence(broken)}", hint="see Triton's model_config.proto"
        ) from broken


def read(file: Path) -> ModelConfig:
    """Return the message in the config.pbtxt of a model repository; ConfigError, which names it, without."""
    content = reading.read_text(file, max_bytes=untrusted.SETTINGS_BYTES)
    try:
        return parse(content)
    except ConfigError as broken:
        raise ConfigError(broken.what, where=str(file), hint=MAKE_AGAIN) from broken


def text(config: ModelConfig) -> str:
    """Return the config.pbtxt of a message."""
    from google.protobuf import text_format

    written: str = text_format.MessageToString(config)
    return written


def write(folder: Path, config: str, weights: Path) -> None:
    """Write a repository with one model into `folder`: its config.pbtxt and the folder `weights`.

    The files of the weights are hard links where the file system allows them, so that gigabytes are neither
    copied nor held twice; copies elsewhere. No link is followed.
    """
    model = folder / MODEL
    shutil.copytree(weights, model / VERSION / weights.resolve().name, symlinks=True, copy_function=link)
    (model / CONFIG).write_text(config, encoding="utf-8")


def link(source: str | Path, target: str | Path) -> None:
    """Put a file into two places: a hard link, or a copy where the file system has none."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target, follow_symlinks=False)
