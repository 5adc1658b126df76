"""Models for text around `fastertransformer`: ensemble, preprocessing, postprocessing.

Their config.pbtxt is upstream's of the release, so that clients of upstream's models find the same tensors.
The code behind it is in `tokenization/`, one for all families: depending on the family, upstream's needs
torch, downloads a tokenizer or ignores where an answer ends (BE v1.4
all_models/{gpt,gptj,gptneox}/{pre,post}processing/1/model.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild.models import config_pbtxt, tokenization

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelEnsembling

ENSEMBLE, PREPROCESSING, POSTPROCESSING = "ensemble", "preprocessing", "postprocessing"
MODELS = (ENSEMBLE, PREPROCESSING, POSTPROCESSING)
# Inputs of upstream's models that applications often lack.
WORDS = ("BAD_WORDS_DICT", "STOP_WORDS_DICT")
LENGTHS = "sequence_length"
# Beside model.py.
TOKENIZER = "tokenizer"
_CODE = Path(tokenization.__file__).parent
_SHARED = ("texts.py", "declared.py")


def fill_templates(templates: Mapping[str, str], bare: str, padding_id: int) -> dict[str, str]:
    """Return the config.pbtxt of each of MODELS, from upstream's `templates`.

    `bare` is the config.pbtxt of the `fastertransformer` model, `padding_id` a token that the model knows.
    All get the batch size of `bare`, as a request passes through all of them.
    """
    configs = {name: config_pbtxt.parse(templates[name]) for name in MODELS}
    for config in configs.values():
        config.max_batch_size = config_pbtxt.parse(bare).max_batch_size
    _fill_preprocessing(configs[PREPROCESSING], padding_id)
    _fill_postprocessing(configs[POSTPROCESSING], config_pbtxt.parse(bare))
    _fill_ensemble(configs[ENSEMBLE])
    return {name: config_pbtxt.text(config) for name, config in configs.items()}


def write(folder: Path, configs: Mapping[str, str], tokenizer: Sequence[Path]) -> None:
    """Add the models to the repository in `folder`, with the tokenizer's files."""
    for version in write_models(folder, configs, _CODE, _SHARED):
        write_tokenizer(version, tokenizer)


def write_models(folder: Path, configs: Mapping[str, str], code: Path, shared: Sequence[str]) -> list[Path]:
    """Add an ensemble and its Python models to the repository in `folder`; return the latter's versions.

    `code` is the folder of their sources, `shared` the names of those that they import.
    """
    versions = []
    for name, config in configs.items():
        version = folder / name / config_pbtxt.VERSION
        version.mkdir(parents=True)
        (folder / name / config_pbtxt.CONFIG).write_text(config, encoding="utf-8")
        if name == ENSEMBLE:
            # An empty folder counts as a version, but git, zip and object stores lose it.
            (version / ".keep").touch()
            continue
        shutil.copyfile(code / f"{name}.py", version / "model.py")
        for module in shared:
            shutil.copyfile(code / module, version / module)
        versions.append(version)
    return versions


def write_tokenizer(version: Path, tokenizer: Sequence[Path]) -> None:
    """Copy a tokenizer's files to where a model's version looks for them."""
    (version / TOKENIZER).mkdir()
    for file in tokenizer:
        shutil.copyfile(file, version / TOKENIZER / file.name)


def _fill_preprocessing(config: ModelConfig, padding_id: int) -> None:
    for tensor in config.input:
        tensor.optional |= tensor.name in WORDS
    _parameters(config, {"tokenizer_path": TOKENIZER, "padding_id": str(padding_id)})


def _fill_postprocessing(config: ModelConfig, bare: ModelConfig) -> None:
    """Add the lengths of the answers; upstream's models of GPT and GPT-J decode the padding, too."""
    if LENGTHS not in [tensor.name for tensor in config.input]:
        (lengths,) = (tensor for tensor in bare.output if tensor.name == LENGTHS)
        config.input.add(name=LENGTHS, data_type=lengths.data_type, dims=lengths.dims, optional=True)
    _parameters(config, {"tokenizer_path": TOKENIZER})


def _fill_ensemble(config: ModelConfig) -> None:
    steps = {step.model_name: step for step in config.ensemble_scheduling.step}
    lengths = steps[config_pbtxt.MODEL].output_map[LENGTHS]
    steps[POSTPROCESSING].input_map[LENGTHS] = lengths
    # Ensembles of 22.03 must have all inputs: its core lacks what the one of 22.12 has for optional ones
    # (core r22.12 ensemble_scheduler.cc:483, ensemble_utils.cc:162).
    if any(tensor.optional for tensor in config.input):
        may_lack = {_source(steps[PREPROCESSING], name) for name in WORDS}
        for tensor in config.input:
            tensor.optional |= tensor.name in may_lack


def _source(step: ModelEnsembling.Step, name: str) -> str | None:
    """Return the ensemble's tensor that feeds an input of a step."""
    return step.input_map[name] if name in step.input_map else None  # noqa: SIM401 (get() of a proto map adds)


def _parameters(config: ModelConfig, values: Mapping[str, str]) -> None:
    config.ClearField("parameters")
    for name, value in values.items():
        config.parameters[name].string_value = value
