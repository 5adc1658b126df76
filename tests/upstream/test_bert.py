"""BERT, converted, embedded, computed as FasterTransformer does, and pooled: the vectors of transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ftbuild.config.schema import Config
from ftbuild.models import config_ini, conversion, repository, vector_models, weights
from ftbuild.models.conversion import ConversionRequest
from ftbuild.models.repository import RepositoryOptions
from ftbuild.models.vectors import vectors
from testing import ensembles
from testing.bert import TEMPLATE

from .conversions import Array, Tensors, TorchWorker, carry_out, expected_vectors
from .ft_bert import Bert

RELEASES = ("22.07", "22.12")
SCRIPT = "examples/pytorch/bert/utils/huggingface_bert_convert.py"
PROMPTS = [
    [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6],
    [50],
    [0, 1, 0],
    [7, 7, 30, 2],
]
Make = Callable[[str], tuple[Path, Tensors]]
Trees = Callable[[str], Path]


def converted(
    kind: str,
    config: Config,
    worker: TorchWorker,
    checkpoint: Make,
    out: Path,
    gpus: int,
    dtype: str = "fp32",
) -> Path:
    folder, _ = checkpoint(kind)
    out.mkdir()
    request = ConversionRequest("bert", folder, out / "not there", gpus=gpus, data_type=dtype)
    planned = conversion.plan_conversion(config, RELEASES[-1], request)
    made = carry_out(planned, worker, out, out)
    facts = planned.checkpoint.facts
    assert list(weights.complaints(made, planned.converter, facts, gpus, dtype)) == []
    return made


def served(made: Path, config: Config, out: Path, pooling: vector_models.Pooling) -> Array:
    """What the models of a repository make of the prompts, with FasterTransformer's formulas for its own."""
    options = RepositoryOptions(
        "bert", made, out, dtype="fp32", vectors=config.models.families["bert"].vectors, pooling=pooling
    )
    folder = repository.make({"fastertransformer": TEMPLATE}, options).folder

    lengths = np.array([len(prompt) for prompt in PROMPTS], np.uint32)
    ids = np.array([[*prompt, *[0] * (max(lengths) - len(prompt))] for prompt in PROMPTS], np.uint32)
    embeddings = vectors.Embeddings(folder / "embedding/1/tables", ensembles.parameters(folder, "embedding"))
    backend = Bert(folder / "fastertransformer/1" / made.name)
    states = backend.states(embeddings(ids, lengths), lengths)
    # What the backend computes of padding is anything.
    states[np.arange(max(lengths)) >= lengths[:, None]] = np.nan
    given = ensembles.parameters(folder, "pooling")
    return vectors.pooled(states, lengths, given["pooling"], given["normalized"] == "1")


@pytest.mark.parametrize("gpus", [1, 2, 3])
@pytest.mark.parametrize("kind", ["bert", "bert-head"])
def test_embeddings_are_those_of_transformers(
    config: Config, worker: TorchWorker, checkpoint: Make, tmp_path: Path, kind: str, gpus: int
) -> None:
    made = converted(kind, config, worker, checkpoint, tmp_path / "weights", gpus)
    for pooling in (vector_models.Pooling(), vector_models.Pooling("cls", normalized=False)):
        ours = served(made, config, tmp_path / f"models-{pooling.kind}", pooling)
        theirs = expected_vectors(checkpoint(kind)[0], PROMPTS, worker, tmp_path / "states.npz", pooling)
        assert ours.dtype == np.float32
        assert np.abs(ours - theirs).max() < 1e-4, pooling


def test_tables_in_half_precision_give_nearly_the_same(
    config: Config, worker: TorchWorker, checkpoint: Make, tmp_path: Path
) -> None:
    made = converted("bert", config, worker, checkpoint, tmp_path / "weights", 1, "fp16")
    pooling = vector_models.Pooling()
    ours = served(made, config, tmp_path / "models", pooling)
    theirs = expected_vectors(checkpoint("bert")[0], PROMPTS, worker, tmp_path / "states.npz", pooling)
    assert 0 < np.abs(ours - theirs).max() < 1e-2


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("gpus", [1, 2])
def test_upstreams_converter_writes_the_same_files_of_the_layers(
    config: Config,
    worker: TorchWorker,
    tree: Trees,
    checkpoint: Make,
    tmp_path: Path,
    release: str,
    gpus: int,
) -> None:
    ours = converted("bert", config, worker, checkpoint, tmp_path / "ours", gpus)
    script, theirs = str(tree(release) / SCRIPT), tmp_path / "theirs"
    options = ["-o", str(theirs), "-i", str(checkpoint("bert")[0]), "-i_g", str(gpus), "-p", "1"]
    worker("run", str(tree(release)), script, *options)
    found = {file.name: file.read_bytes() for file in (theirs / ours.name).glob("*.bin")}
    mine = {file.name: file.read_bytes() for file in ours.glob("*.bin")}
    assert found
    assert {name: mine[name] for name in found} == found
    assert all(name.startswith("model.embeddings.") for name in mine.keys() - found.keys())
    keys = config_ini.all_values(theirs / ours.name / "config.ini")
    # The converter writes transformers' name of the activation, of which the backend knows few.
    assert keys.pop("bert.activation_type") == "gelu_new"
    keys.pop("bert.position_embedding_type")
    written = config_ini.all_values(ours / "config.ini")
    assert {name: written[name] for name in keys} == keys
