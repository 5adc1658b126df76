"""LLaMA and GPT-NeoX, converted and computed as FasterTransformer does: every token is transformers'."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from ftbuild.config.schema import Config
from ftbuild.models import conversion, weights
from ftbuild.models.conversion import ConversionRequest

from .conversions import Array, Tensors, TorchWorker, carry_out
from .ft_gptneox import GptNeoX

RELEASE = "22.12"
TOKENS = 40
Make = Callable[[str], tuple[Path, Tensors]]
Trees = Callable[[str], Path]


def converted(
    kind: str,
    config: Config,
    worker: TorchWorker,
    tree: Trees,
    checkpoint: Make,
    out: Path,
    **options: object,
) -> Path:
    folder, _ = checkpoint(kind)
    out.mkdir()
    request = ConversionRequest(kind.partition("-")[0], folder, out / "not there", jobs=1, **options)  # type: ignore[arg-type]
    planned = conversion.plan_conversion(config, RELEASE, request)
    made = carry_out(planned, worker, tree(RELEASE), out)
    facts = planned.checkpoint.facts
    assert list(weights.complaints(made, planned.converter, facts, request.gpus, planned.data_type)) == []
    return made


def transformers(kind: str, worker: TorchWorker, checkpoint: Make, target: Path) -> Array:
    worker("logits", str(checkpoint(kind)[0]), str(TOKENS), str(target))
    found: Array = np.load(target)
    return found


def ours(made: Path, changed: Mapping[str, str] | None = None) -> Array:
    return GptNeoX(made, changed).logits(list(range(TOKENS)))


def far(found: Array, wanted: Array) -> float:
    """The largest difference, in parts of how much the logits differ among themselves."""
    return float(np.abs(found - wanted).max() / np.std(wanted))


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize("kind", ["llama", "llama-tied", "gptneox-scaled"])
def test_every_token_is_the_one_of_transformers(
    kind: str, gpus: int, config: Config, worker: TorchWorker, tree: Trees, checkpoint: Make, tmp_path: Path
) -> None:
    made = converted(kind, config, worker, tree, checkpoint, tmp_path / "out", gpus=gpus)
    wanted = transformers(kind, worker, checkpoint, tmp_path / "logits.npy")
    found = ours(made)
    np.testing.assert_array_equal(found.argmax(-1), wanted.argmax(-1))
    assert far(found, wanted) < 1e-4


def test_fp16_holds_the_nearest_numbers(
    config: Config, worker: TorchWorker, tree: Trees, checkpoint: Make, tmp_path: Path
) -> None:
    made = converted("llama", config, worker, tree, checkpoint, tmp_path / "out", data_type="fp16")
    assert far(ours(made), transformers("llama", worker, checkpoint, tmp_path / "logits.npy")) < 1e-2


@pytest.mark.parametrize(
    "changed",
    [
        {"rotary_emb_base": "10000"},
        {"rotary_scaling_factor": "1"},
        {"layernorm_eps": "1e-5"},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["llama", "gptneox-scaled"])
def test_each_key_of_config_ini_matters(
    kind: str,
    changed: dict[str, str],
    config: Config,
    worker: TorchWorker,
    tree: Trees,
    checkpoint: Make,
    tmp_path: Path,
) -> None:
    """So the comparison above would see a key that a converter gets wrong."""
    made = converted(kind, config, worker, tree, checkpoint, tmp_path / "out")
    wanted = transformers(kind, worker, checkpoint, tmp_path / "logits.npy")
    assert far(ours(made, changed), wanted) > 1e-3
