"""Models around `fastertransformer` that make embeddings of token ids, and their ensemble.

The backend computes an encoder alone and gives hidden states. Some begin with hidden states, too (FT v5.3
BertTritonModelInstance.cc, convert_inputs): `embedding` makes them. Others take token ids, and the kernels
read what they are given (T5EncoderTritonModelInstance.cc, convert_inputs): `checking` lets through what they
can take. `pooling` follows both. Upstream has no such models, so tensors and code are ours (`vectors/`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ftbuild.config.families import Embedding, Vectors
from ftbuild.errors import ConfigError
from ftbuild.models import config_ini, config_pbtxt, ensemble, untrusted, vectors
from ftbuild.models.ensemble import ENSEMBLE
from ftbuild.models.sentence import POOLING as POOLING_FOLDER
from ftbuild.models.sentence import Sentence
from ftbuild.models.weights import ITEM_BYTES

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig

EMBEDDING, CHECKING, POOLING = "embedding", "checking", "pooling"
# The ways from states to a vector that `pooling` knows.
POOLINGS: tuple[Literal["mean", "cls"], ...] = ("mean", "cls")
# The models that take token ids, of which a repository has one. It also holds the tokenizer.
FIRST = (EMBEDDING, CHECKING)
# Tensors of the ensemble: [batch, longest], [batch, 1], [batch, hidden].
IDS, LENGTHS, ANSWER = "input_ids", "input_lengths", "embeddings"
# A parameter of the first model: the most tokens of a text.
LONGEST = "longest"
_TABLES = "tables"
# What `embedding` reads them as: numpy has no bf16.
_STORED = ("fp32", "fp16")
_CODE = Path(vectors.__file__).parent
_SHARED = ("answering.py", "vectors.py")
_CONVERT = "run invoke convert again"


@dataclass(frozen=True)
class Pooling:
    """How the states of a text's tokens become one embedding: their mean or the first one, and its length.

    None: as the checkpoint says, else the mean with the length 1. `longest` is the most tokens of a text,
    None for as many as the model takes.
    """

    kind: Literal["mean", "cls"] | None = None
    normalized: bool | None = None
    longest: int | None = None


def served_pooling(chosen: Pooling, sentence: Sentence | None, width: int) -> tuple[Pooling, tuple[str, ...]]:
    """Return the pooling that the options select, else the checkpoint's, and warnings where they differ.

    `width` is the number of values of a state. Raises ConfigError for what a checkpoint says and no model
    here computes, unless the user has chosen the pooling.
    """
    if sentence is None:
        return Pooling(chosen.kind or "mean", chosen.normalized is not False, chosen.longest), ()
    if sentence.width not in (None, width):
        raise ConfigError(
            f"{POOLING_FOLDER} pools states of {sentence.width} values, the weights have {width}",
            hint="name the folder of the checkpoint that was converted",
        )
    if sentence.obstacles and chosen.kind is None:
        raise ConfigError(
            f"the embeddings of this checkpoint are not served: {'; '.join(sentence.obstacles)}",
            where="Sentence Transformers",
            hint=f"--pooling {' or '.join(POOLINGS)} serves other embeddings than those of its model card",
        )
    warnings = [f"not served: {obstacle}" for obstacle in sentence.obstacles]
    if chosen.kind not in (None, sentence.pooling):
        warnings.append(
            f"the checkpoint has the pooling {sentence.pooling}, --pooling is {chosen.kind}: "
            "the latter is served"
        )
    normalized = sentence.normalized is not False if chosen.normalized is None else chosen.normalized
    if sentence.normalized not in (None, normalized):
        lengths = {True: "of length 1", False: "of any length"}
        warnings.append(
            f"the checkpoint has embeddings {lengths[not normalized]}, the options ask for embeddings "
            f"{lengths[normalized]}: the latter are served"
        )
    kind = chosen.kind or next(kind for kind in POOLINGS if kind == sentence.pooling)
    return Pooling(kind, normalized, chosen.longest or sentence.longest), (*warnings, *sentence.notes)


def configs(
    bare: str, weights: config_ini.ConvertedModel, known: Vectors, pooling: Pooling
) -> dict[str, str]:
    """Return the config.pbtxt of each model, for the one of the `fastertransformer` model.

    Raises ConfigError when the weights lack a table, or their config.ini what is needed to read it.
    """
    backend = config_pbtxt.parse(bare)
    hidden = width(weights, known)
    if known.embedding:
        _check_tables(weights, known.embedding, hidden)
        name, first = EMBEDDING, _embedding(weights, known.embedding, hidden, pooling.longest)
    else:
        name, first = CHECKING, _checking(weights, known, pooling.longest)
    for tensor in backend.input:
        if not tensor.optional:
            first.output.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    made = {
        name: first,
        POOLING: _pooling(backend, pooling, hidden),
        ENSEMBLE: _ensemble(name, first, hidden),
    }
    for model, config in made.items():
        config.name = model
        config.max_batch_size = backend.max_batch_size
    return {model: config_pbtxt.text(config) for model, config in made.items()}


def write(
    folder: Path, configs: Mapping[str, str], weights: Path, known: Vectors, tokenizer: list[Path]
) -> None:
    """Add the models to the repository in `folder`, with the tables of `weights`, and the tokenizer's files.

    The tables move there: the backend does not read them.
    """
    ensemble.write_models(folder, configs, _CODE, _SHARED)
    (inside,) = (folder / name / config_pbtxt.VERSION for name in FIRST if name in configs)
    if known.files:
        (inside / _TABLES).mkdir()
    for table in known.files:
        held = folder / config_pbtxt.MODEL / config_pbtxt.VERSION / weights.resolve().name / table
        held.replace(inside / _TABLES / table)
    if tokenizer:
        ensemble.write_tokenizer(inside, tokenizer)


def tokenizer_places() -> tuple[str, ...]:
    """Return where in a repository a tokenizer may lie whose ensemble makes vectors."""
    return tuple(f"{name}/{config_pbtxt.VERSION}/{ensemble.TOKENIZER}" for name in FIRST)


def longest_text(folder: Path) -> int | None:
    """Return the maximum tokens of a text that the repository in `folder` takes, None where it is unknown.

    Raises ConfigError for an invalid config.pbtxt.
    """
    for name in FIRST:
        file = folder / name / config_pbtxt.CONFIG
        if file.is_file():
            parameters = config_pbtxt.read(file).parameters
            written = parameters[LONGEST].string_value if LONGEST in parameters else ""
            with contextlib.suppress(ValueError):
                return max(config_ini.whole_number(written), 0) or None
    return None


def width(weights: config_ini.ConvertedModel, known: Vectors) -> int:
    """Return the number of values of a state; ConfigError when config.ini does not say."""
    return _number(weights, known.hidden)


def _number(weights: config_ini.ConvertedModel, key: str) -> int:
    """Return a number of config.ini; ConfigError when it lacks it, or it is none."""
    with contextlib.suppress(KeyError):
        return weights.at_least_one(key)
    raise _unusable(weights, key)


def _unusable(weights: config_ini.ConvertedModel, keys: str) -> ConfigError:
    return ConfigError(
        f"config.ini has no usable {keys}", where=str(weights.folder / config_ini.FILE), hint=_CONVERT
    )


def _check_tables(weights: config_ini.ConvertedModel, known: Embedding, hidden: int) -> None:
    """Raise ConfigError unless the tables are whole rows, and config.ini says what is needed to read them."""
    stored = weights.values.get("weight_data_type")
    row = hidden * ITEM_BYTES[stored] if stored in _STORED else 0
    epsilon = -1.0
    with contextlib.suppress(ValueError):
        epsilon = float(weights.values.get(known.epsilon, ""))
    if not row or not 0 <= epsilon < 1:
        raise _unusable(weights, f"weight_data_type and {known.epsilon}")
    for table in known.files:
        size = _size(weights, table)
        if not size or size % row:
            raise ConfigError(
                f"{table} has {size} bytes, which is not a table with rows of {row}",
                where=str(weights.folder),
                hint=_CONVERT,
            )


def _size(weights: config_ini.ConvertedModel, file: str) -> int:
    path = weights.folder / file
    return path.stat().st_size if path.is_file() else 0


def _embedding(
    weights: config_ini.ConvertedModel, known: Embedding, hidden: int, longest: int | None
) -> ModelConfig:
    stored = weights.values["weight_data_type"]
    positions = _size(weights, known.positions) // (hidden * ITEM_BYTES[stored])
    return _first(
        {
            "hidden": str(hidden),
            "stored_as": stored,
            "epsilon": weights.values[known.epsilon],
            "words": known.words,
            "positions": known.positions,
            "types": known.types,
            "scale": known.scale,
            "shift": known.shift,
            LONGEST: str(min(positions, longest or positions)),
        }
    )


def _checking(weights: config_ini.ConvertedModel, known: Vectors, longest: int | None) -> ModelConfig:
    most = known.longest or untrusted.MAX
    return _first(
        {"vocabulary": str(_number(weights, "vocab_size")), LONGEST: str(min(most, longest or most))}
    )


def _first(parameters: Mapping[str, str]) -> ModelConfig:
    """Return the config of a model that takes token ids; what it gives is what the backend must have."""
    made = _python(parameters)
    _ids(made)
    return made


def _pooling(backend: ModelConfig, pooling: Pooling, hidden: int) -> ModelConfig:
    normalized = pooling.normalized is not False
    made = _python({"pooling": pooling.kind or POOLINGS[0], "normalized": str(int(normalized))})
    for tensor in backend.output:
        if tensor.name == config_pbtxt.STATES:
            made.input.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    _lengths(made)
    _vector(made, hidden)
    return made


def _ensemble(first_name: str, first: ModelConfig, hidden: int) -> ModelConfig:
    from tritonclient.grpc.model_config_pb2 import ModelConfig

    made = ModelConfig(platform="ensemble")
    _ids(made)
    _vector(made, hidden)
    # What the first model gives may have the name of what it takes, which in an ensemble is one tensor.
    tensors = {tensor.name: f"{first_name}_{tensor.name}" for tensor in first.output}
    states = {config_pbtxt.STATES: config_pbtxt.STATES}
    lengths = {LENGTHS: LENGTHS}
    for model, inputs, outputs in (
        (first_name, {IDS: IDS, **lengths}, tensors),
        (config_pbtxt.MODEL, tensors, states),
        (POOLING, {**states, **lengths}, {ANSWER: ANSWER}),
    ):
        step = made.ensemble_scheduling.step.add(model_name=model, model_version=-1)
        step.input_map.update(inputs)
        step.output_map.update(outputs)
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
    _lengths(made)


def _lengths(made: ModelConfig) -> None:
    from tritonclient.grpc.model_config_pb2 import DataType

    made.input.add(name=LENGTHS, data_type=DataType.TYPE_UINT32, dims=[1])


def _vector(made: ModelConfig, hidden: int) -> None:
    from tritonclient.grpc.model_config_pb2 import DataType

    made.output.add(name=ANSWER, data_type=DataType.TYPE_FP32, dims=[hidden])
