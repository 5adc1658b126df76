"""The model repository's `fastertransformer` model: upstream's config.pbtxt of the release, fill_template in.

config.pbtxt is the text form of a protocol buffer (Triton's model_config.proto), and is read and written as
one, never edited as text.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild.errors import ConfigError
from ftbuild.models.config_ini import ConvertedModel

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig

MODEL = "fastertransformer"
VERSION = "1"
CONFIG = "config.pbtxt"
# Where the SDK image has upstream's model repositories (dockerfiles/triton-ft.Dockerfile, stage sdk).
TEMPLATES = "/opt/ftbuild/fastertransformer_backend/all_models"
DATA_TYPES = ("fp16", "fp32", "bf16")
# Upstream's configs name a folder that nobody has, and a file that nobody has where that is missing. Without
# both the backend takes <model>/<version>/<n>-gpu (BE v1.1 libfastertransformer.cc:194-206; v1.4 :245-248,
# :412-418), so the repository can be moved.
_CHECKPOINT = "model_checkpoint_path"
# Release 1.1 reads it in place of data_type for GPT-J and T5 (BE v1.1 libfastertransformer.cc:254, :278).
_IS_HALF = "is_half"


def template(family: str) -> str:
    """Where the SDK image has upstream's config.pbtxt of a family."""
    return f"{TEMPLATES}/{family}/{MODEL}/{CONFIG}"


def fill_template(
    template: str,
    *,
    tensor_para: int,
    data_type: str,
    pipeline_para: int = 1,
    decoupled: bool = False,
    structure: ConvertedModel | None = None,
) -> str:
    """`template` for weights of that many GPUs; ConfigError when it is no config.pbtxt.

    `structure` gives the values that release 1.1 wants here, and later ones read from config.ini.
    """
    config = parse(template)
    parameters = {
        "tensor_para_size": str(tensor_para),
        "pipeline_para_size": str(pipeline_para),
        "data_type": data_type,
    }
    if structure is not None:
        parameters |= structure.parameters(config.parameters)
    if _IS_HALF in config.parameters:
        parameters[_IS_HALF] = str(int(data_type == "fp16"))
    for name, value in parameters.items():
        config.parameters[name].string_value = value
    config.parameters.pop(_CHECKPOINT, None)
    config.ClearField("default_model_filename")
    config.model_transaction_policy.decoupled = decoupled
    return text(config)


def data_types(template: str) -> tuple[str, ...]:
    """What a template's model computes in.

    Whatever is not fp16 counts as fp32 without a word for GPT-NeoX, and for GPT-J and T5 in release 1.1
    (BE v1.4 libfastertransformer.cc:283-288; v1.1 :254, :278).
    """
    config = parse(template)
    silent = config.parameters["model_type"].string_value == "GPT-NeoX" or _IS_HALF in config.parameters
    return DATA_TYPES[:2] if silent else DATA_TYPES


def streams(template: str) -> bool:
    """Whether the release of a template knows decoupled models of this kind."""
    return bool(parse(template).HasField("model_transaction_policy"))


def inputs(template: str) -> Mapping[str, str]:
    """Name -> Triton's data type (`TYPE_` left out) of every input that a model takes."""
    from tritonclient.grpc.model_config_pb2 import DataType

    return {i.name: DataType.Name(i.data_type).removeprefix("TYPE_") for i in parse(template).input}


def parse(text: str) -> ModelConfig:
    """The message that a config.pbtxt holds; ConfigError when it is none."""
    from google.protobuf import text_format
    from tritonclient.grpc.model_config_pb2 import ModelConfig

    try:
        return text_format.Parse(text, ModelConfig())
    except text_format.ParseError as broken:
        raise ConfigError(f"not a config.pbtxt: {broken}", hint="see Triton's model_config.proto") from broken


def text(config: ModelConfig) -> str:
    """The config.pbtxt of a message."""
    from google.protobuf import text_format

    written: str = text_format.MessageToString(config)
    return written


def write(folder: Path, config: str, weights: Path) -> None:
    """A repository in `folder` with one model: its config.pbtxt and the folder `weights`.

    The files of the weights are hard links where the file system allows them, so that gigabytes are neither
    copied nor held twice; copies elsewhere.
    """
    model = folder / MODEL
    shutil.copytree(weights, model / VERSION / weights.resolve().name, copy_function=_link)
    (model / CONFIG).write_text(config)


def _link(source: str, target: str) -> None:
    try:
        os.link(Path(source).resolve(), target)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)
