"""T5's encoder, converted, computed as FasterTransformer does, and pooled: the vectors of transformers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ftbuild.config.schema import Config
from ftbuild.models import conversion, repository, vector_models, weights
from ftbuild.models.conversion import ConversionRequest
from ftbuild.models.repository import RepositoryOptions
from ftbuild.models.vectors import vectors
from testing import ensembles
from testing.t5_encoder import TEMPLATE

from .conversions import Array, Tensors, TorchWorker, carry_out, expected_vectors
from .ft_t5_encoder import T5Encoder

RELEASES = ("22.07", "22.12")
# A relu in a checkpoint that is an encoder alone; a gated gelu in a whole T5.
KINDS = ("t5-encoder", "t5-encoder-gated")
BIAS = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight.{}.bin"
_numbers = random.Random(3)
# Distances of 128 and more share a bucket.
PROMPTS = [[_numbers.randrange(51) for _ in range(length)] for length in (150, 1, 17, 64, 2, 129)]
LONGEST = max(map(len, PROMPTS))
Make = Callable[[str], tuple[Path, Tensors]]
Trees = Callable[[str], Path]


@pytest.fixture
def convert(
    config: Config, worker: TorchWorker, tree: Trees, checkpoint: Make, tmp_path: Path
) -> Callable[..., Path]:
    """What `invoke convert` does with a checkpoint of a kind."""

    def make(kind: str, gpus: int = 1, dtype: str = "fp32", release: str = "22.12") -> Path:
        out = tmp_path / f"weights-{kind}-{gpus}-{dtype}-{release}"
        out.mkdir()
        request = ConversionRequest(
            "t5-encoder", checkpoint(kind)[0], out / "not there", gpus=gpus, data_type=dtype
        )
        planned = conversion.plan_conversion(config, release, request)
        made = carry_out(planned, worker, tree(release), out)
        facts = planned.checkpoint.facts
        assert list(weights.complaints(made, planned.converter, facts, gpus, dtype)) == []
        return made

    return make


def served(made: Path, config: Config, out: Path, pooling: vector_models.Pooling) -> Array:
    """What the models of a repository make of the prompts, with FasterTransformer's formulas for its own."""
    known = config.models.families["t5-encoder"].vectors
    options = RepositoryOptions("t5-encoder", made, out, dtype="fp32", vectors=known, pooling=pooling)
    folder = repository.make({"fastertransformer": TEMPLATE}, options).folder
    lengths = np.array([len(prompt) for prompt in PROMPTS], np.uint32)
    ids = np.array([[*prompt, *[0] * (LONGEST - len(prompt))] for prompt in PROMPTS], np.uint32)
    states = T5Encoder(folder / "fastertransformer/1" / made.name).states(ids, lengths)
    # What the backend gives of padding is anything.
    states[np.arange(LONGEST) >= lengths[:, None]] = np.nan
    given = ensembles.parameters(folder, "pooling")
    return vectors.pooled(states, lengths, given["pooling"], given["normalized"] == "1")


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("release", RELEASES)
def test_embeddings_are_those_of_transformers(
    config: Config,
    worker: TorchWorker,
    checkpoint: Make,
    convert: Callable[..., Path],
    tmp_path: Path,
    release: str,
    kind: str,
    gpus: int,
) -> None:
    made = convert(kind, gpus, release=release)
    for pooling in (vector_models.Pooling(), vector_models.Pooling("cls", normalized=False)):
        ours = served(made, config, tmp_path / f"models-{pooling.kind}", pooling)
        theirs = expected_vectors(checkpoint(kind)[0], PROMPTS, worker, tmp_path / "states.npz", pooling)
        assert ours.dtype == np.float32
        assert np.abs(ours - theirs).max() < 1e-4, pooling


@pytest.mark.parametrize("kind", KINDS)
def test_the_comparison_tells_a_slightly_wrong_position(
    config: Config,
    worker: TorchWorker,
    checkpoint: Make,
    convert: Callable[..., Path],
    tmp_path: Path,
    kind: str,
) -> None:
    made = convert(kind)
    file = made / BIAS.format(0)
    (np.fromfile(file, np.float32) * np.float32(0.9)).tofile(file)
    pooling = vector_models.Pooling()
    ours = served(made, config, tmp_path / "models", pooling)
    theirs = expected_vectors(checkpoint(kind)[0], PROMPTS, worker, tmp_path / "states.npz", pooling)
    assert np.abs(ours - theirs).max() > 1e-3


def test_files_in_half_precision_give_nearly_the_same(
    config: Config, worker: TorchWorker, checkpoint: Make, convert: Callable[..., Path], tmp_path: Path
) -> None:
    made = convert("t5-encoder", dtype="fp16")
    pooling = vector_models.Pooling()
    ours = served(made, config, tmp_path / "models", pooling)
    theirs = expected_vectors(checkpoint("t5-encoder")[0], PROMPTS, worker, tmp_path / "states.npz", pooling)
    assert 0 < np.abs(ours - theirs).max() < 1e-2
