"""Folders that are no checkpoint: each is called what it is, with the next step for it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ftbuild.errors import ConfigError
from ftbuild.models import checkpoint, other_formats, weight_files

FORMATS: dict[str, tuple[list[str], str, str]] = {
    "LoRA": (["adapter_config.json", "adapter_model.safetensors"], "adapter", "merge_and_unload"),
    "GGUF": (["llama-7b.Q4_K_M.gguf"], "GGUF", "*.safetensors"),
    "Meta": (
        ["params.json", "consolidated.00.pth", "tokenizer.model"],
        "Meta",
        "convert_llama_weights_to_hf",
    ),
    "TensorFlow": (["tf_model.h5"], "TensorFlow", "from_tf=True"),
    "TensorFlow 1": (["model.ckpt-10.index", "model.ckpt-10.meta"], "TensorFlow 1", "from_tf=True"),
    "TensorFlow's own": (["saved_model.pb"], "TensorFlow", "the same model for PyTorch"),
    "Flax": (["flax_model.msgpack"], "Flax", "from_flax=True"),
    "Flax in parts": (["flax_model.msgpack.index.json"], "Flax", "from_flax=True"),
    "Megatron": (
        ["latest_checkpointed_iteration.txt", "iter_0001000/mp_rank_00/x.pt"],
        "Megatron",
        "--adopt",
    ),
    "Megatron's inside": (["mp_rank_00/model_optim_rng.pt"], "Megatron", "--adopt"),
    "NeMo": (["gpt.nemo"], "NeMo", "--adopt"),
    "DeepSpeed": (["zero_to_fp32.py", "global_step1/x.pt"], "DeepSpeed", "zero_to_fp32.py"),
    "ONNX": (["model.onnx"], "ONNX", "PyTorch"),
    "diffusers": (["model_index.json", "unet/config.json"], "diffusers", "no family here"),
    "converted": (["1-gpu/config.ini", "1-gpu/model.wte.bin"], "converted weights", "--adopt"),
    "converted T5": (["shared.weight_T.bin"], "converted weights", "--adopt"),
    "converted by GPT's own": (["model.wte.bin"], "converted weights", "--adopt"),
    "a repository": (["fastertransformer/1/2-gpu/x.bin"], "converted weights", "--adopt"),
    "a folder above": (["gpt2/config.json"], "folder that holds", "--checkpoint"),
    "a step above": (["step_383500/shard_0/0.npz"], "folder that holds", "step_383500"),
    "shards above": (["gpt-j/shard_0/0.npz"], "folder that holds", "gpt-j"),
    "a cache": (["snapshots/abc/config.json"], "folder that holds", "snapshots/abc"),
    "Sentence Transformers": (["modules.json", "0_Transformer/config.json"], "Sentence", "0_Transformer"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_no_checkpoint_is_called_by_its_name(name: str, tmp_path: Path) -> None:
    files, what, hint = FORMATS[name]
    folder = tmp_path / "given"
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    with pytest.raises(ConfigError, match="no checkpoint here") as refused:
        checkpoint.format_of(folder)
    assert what in refused.value.what
    assert hint in (refused.value.hint or "")
    assert "step_383500" not in (refused.value.hint or "") or "step" in name
    if found := re.search(r"--checkpoint (\S+)", refused.value.hint or ""):
        assert checkpoint.format_of(Path(found[1])) in ("huggingface", "jax")


@pytest.mark.parametrize(
    "name", ["LoRA", "GGUF", "TensorFlow", "Flax", "Meta", "ONNX", "DeepSpeed", "diffusers"]
)
def test_a_checkpoint_without_weights_for_pytorch_is_called_so(name: str, tmp_path: Path) -> None:
    files, what, hint = FORMATS[name]
    for file in (*files, "config.json"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    with pytest.raises(ConfigError, match="no weights for PyTorch") as refused:
        list(weight_files.find(tmp_path))
    assert what in refused.value.what
    assert hint in (refused.value.hint or "")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    with pytest.raises(ConfigError, match="is a file") as refused:
        checkpoint.format_of(tmp_path / "model.gguf")
    with pytest.raises(ConfigError, match="GGUF"):
        checkpoint.format_of(Path((refused.value.hint or "").removeprefix("--checkpoint ")))


def test_nothing_that_is_known_is_said_of_other_folders(tmp_path: Path) -> None:
    (tmp_path / "readme.txt").touch()
    assert other_formats.describe(tmp_path) is None
    with pytest.raises(ConfigError) as refused:
        checkpoint.format_of(tmp_path)
    assert "step_383500" not in str(refused.value)


@pytest.mark.parametrize(
    "files",
    [["params.json"], ["consolidated.00.pth"], ["modules.json"], ["1-gpu/config.ini"], ["snapshots/abc"]],
    ids=str,
)
def test_half_of_what_a_format_has_is_not_taken_for_it(files: list[str], tmp_path: Path) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    assert other_formats.describe(tmp_path) is None
