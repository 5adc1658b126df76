"""Models around `fastertransformer` that make vectors of token ids: embedding, pooling, and their ensemble.

The backend computes the layers of an encoder alone: it takes and gives hidden states (FT v5.3
BertTritonModelInstance.cc, convert_inputs). Upstream has no models for the rest, so tensors and code are ours
(`vectors/`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ftbuild.config.families import Vectors
from ftbuild.errors import ConfigError
from ftbuild.models import config_ini, config_pbtxt, ensemble, vectors
from ftbuild.models.ensemble import ENSEMBLE
from ftbuild.models.weights import ITEM_BYTES

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig

EMBEDDING, POOLING = "embedding", "pooling"
# Tensors of the ensemble: [batch, longest], [batch, 1], [batch, hidden].
IDS, LENGTHS, ANSWER = "input_ids", "input_lengths", "embeddings"
# The backend's.
_INPUT, _OUTPUT, _SEQUENCE = "input_hidden_state", "output_hidden_state", "sequence_lengths"
_TABLES = "tables"
_CODE = Path(vectors.__file__).parent
_SHARED = "vectors.py"
_CONVERT = "run invoke convert again"


@dataclass(frozen=True)
class Pooling:
    """How the states of a text's tokens become one vector: their mean or the first one; its length is 1."""

    kind: Literal["mean", "cls"] = "mean"
    normalized: bool = True


def configs(
    bare: str, weights: config_ini.ConvertedModel, known: Vectors, pooling: Pooling
) -> dict[str, str]:
    """Return the config.pbtxt of each model, for the one of the `fastertransformer` model.

    Raises ConfigError when the weights lack a table, or their config.ini what is needed to read it.
    """
    _check(weights, known)
    backend = config_pbtxt.parse(bare)
    hidden = weights.at_least_one("hidden_size")
    made = {
        EMBEDDING: _embedding(backend, weights, known, hidden),
        POOLING: _pooling(backend, pooling, hidden),
        ENSEMBLE: _ensemble(hidden),
    }
    for name, config in made.items():
        config.name = name
        config.max_batch_size = backend.max_batch_size
    return {name: config_pbtxt.text(config) for name, config in made.items()}


def write(
    folder: Path, configs: Mapping[str, str], weights: Path, known: Vectors, tokenizer: list[Path]
) -> None:
    """Add the models to the repository in `folder`, with the tables of `weights`, and the tokenizer's files.

    The tables move there: the backend does not read them.
    """
    ensemble.write_models(folder, configs, _CODE, _SHARED)
    inside = folder / EMBEDDING / config_pbtxt.VERSION
    (inside / _TABLES).mkdir()
    for table in known.files:
        held = folder / config_pbtxt.MODEL / config_pbtxt.VERSION / weights.resolve().name / table
        held.replace(inside / _TABLES / table)
    if tokenizer:
        ensemble.write_tokenizer(inside, tokenizer)


def _check(weights: config_ini.ConvertedModel, known: Vectors) -> None:
    stored, epsilon = weights.values.get("weight_data_type"), weights.values.get(known.epsilon, "")
    with contextlib.suppress(ValueError, KeyError):
        row = weights.at_least_one("hidden_size") * ITEM_BYTES[str(stored)]
        if 0 <= float(epsilon) < 1:
            for table in known.files:
                size = (weights.folder / table).stat().st_size if (weights.folder / table).is_file() else 0
                if not size or size % row:
                    raise ConfigError(
                        f"{table} has {size} bytes, which is no table with rows of {row}",
                        where=str(weights.folder),
                        hint=_CONVERT,
                    )
            return
    raise ConfigError(
        f"config.ini has no usable hidden_size, weight_data_type and {known.epsilon}",
        where=str(weights.folder / config_ini.FILE),
        hint=_CONVERT,
    )


def _embedding(
    backend: ModelConfig, weights: config_ini.ConvertedModel, known: Vectors, hidden: int
) -> ModelConfig:
    made = _python(
        {
            "hidden": str(hidden),
            "stored_as": weights.values["weight_data_type"],
            "epsilon": weights.values[known.epsilon],
            "words": known.words,
            "positions": known.positions,
            "types": known.types,
            "scale": known.scale,
            "shift": known.shift,
        }
    )
    _ids(made)
    for tensor in backend.input:
        made.output.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    return made


def _pooling(backend: ModelConfig, pooling: Pooling, hidden: int) -> ModelConfig:
    made = _python({"pooling": pooling.kind, "normalized": str(int(pooling.normalized))})
    for tensor in (*backend.output, *(each for each in backend.input if each.name == _SEQUENCE)):
        made.input.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    _vector(made, hidden)
    return made


def _ensemble(hidden: int) -> ModelConfig:
    from tritonclient.grpc.model_config_pb2 import ModelConfig

    made = ModelConfig(platform="ensemble")
    _ids(made)
    _vector(made, hidden)
    for model, inputs, outputs in (
        (EMBEDDING, (IDS, LENGTHS), (_INPUT, _SEQUENCE)),
        (config_pbtxt.MODEL, (_INPUT, _SEQUENCE), (_OUTPUT,)),
        (POOLING, (_OUTPUT, _SEQUENCE), (ANSWER,)),
    ):
        step = made.ensemble_scheduling.step.add(model_name=model, model_version=-1)
        for tensor in inputs:
            step.input_map[tensor] = tensor
        for tensor in outputs:
            step.output_map[tensor] = tensor
    return made


def _python(parameters: Mapping[str, str]) -> ModelConfig:
    from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

    made = ModelConfig(backend="python")
    made.instance_group.add(count=1, kind=ModelInstanceGroup.Kind.KIND_CPU)
    for name, value in parameters.items():
        made.parameters[name].string_value = value
    return made


def _ids(made: ModelConfig) -> None:
    from tritonclient.grpc.model_config_pb2 import DataType

    made.input.add(name=IDS, data_type=DataType.TYPE_UINT32, dims=[-1])
    made.input.add(name=LENGTHS, data_type=DataType.TYPE_UINT32, dims=[1])


def _vector(made: ModelConfig, hidden: int) -> None:
    from tritonclient.grpc.model_config_pb2 import DataType

    made.output.add(name=ANSWER, data_type=DataType.TYPE_FP32, dims=[hidden])
