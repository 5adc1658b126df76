"""Folders that are no checkpoint which a converter here reads: what they are, by their files, and what to do.

Only names of files are looked at.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ftbuild.models import config_pbtxt

CONFIG = "config.json"
ADAPTER = "adapter_config.json"
_SAVE = "load it with transformers and save it with save_pretrained, then convert that folder"


@dataclass(frozen=True)
class Format:
    """A format, and the next step for a folder of it."""

    what: str
    hint: str


@dataclass(frozen=True)
class _Rule:
    patterns: tuple[str, ...]
    what: str
    hint: str


def _option(folder: Path) -> str:
    return f"--checkpoint {shlex.quote(str(folder))}"


# The first rule all of whose patterns match some entry of the folder.
_RULES = (
    _Rule(
        (ADAPTER,),
        "the weights of an adapter (LoRA or similar), not of a model",
        "merge it into its base model with peft's merge_and_unload, save that with save_pretrained, then "
        "convert it",
    ),
    _Rule(
        ("*.gguf",),
        "weights of llama.cpp (GGUF)",
        "fetch the checkpoint that they were made of, with config.json and *.safetensors",
    ),
    _Rule(
        ("params.json", "consolidated.*.pth"),
        "weights in Meta's own format",
        "fetch them in Hugging Face's format (the repository whose name ends with -hf), or transformers' "
        "convert_llama_weights_to_hf.py makes it of these",
    ),
    _Rule(
        ("*.nemo",),
        "a model of NeMo",
        "FasterTransformer's nemo_ckpt_convert.py in the SDK image converts it, then "
        "invoke model-repo --adopt FOLDER --out FOLDER",
    ),
    _Rule(
        ("latest_checkpointed_iteration.txt",),
        "a checkpoint of Megatron-LM",
        "FasterTransformer's megatron_ckpt_convert.py in the SDK image converts its iter_<n>, then "
        "invoke model-repo --adopt FOLDER --out FOLDER",
    ),
    _Rule(
        ("mp_rank_*",),
        "a checkpoint of Megatron-LM",
        "FasterTransformer's megatron_ckpt_convert.py in the SDK image converts it, then "
        "invoke model-repo --adopt FOLDER --out FOLDER",
    ),
    _Rule(
        ("zero_to_fp32.py",),
        "a checkpoint of DeepSpeed, in parts",
        f"zero_to_fp32.py, which lies in it, puts the weights together; {_SAVE}",
    ),
    _Rule(("tf_model.h5",), "weights for TensorFlow", f"{_SAVE} (from_pretrained with from_tf=True)"),
    _Rule(("model.ckpt*.index",), "weights for TensorFlow 1", f"{_SAVE} (from_pretrained with from_tf=True)"),
    _Rule(("saved_model.pb",), "weights for TensorFlow", "fetch the same model for PyTorch"),
    _Rule(("flax_model*.msgpack*",), "weights for Flax", f"{_SAVE} (from_pretrained with from_flax=True)"),
    _Rule(("*.onnx",), "a model for ONNX Runtime", "fetch the same model for PyTorch"),
    _Rule(("model_index.json",), "a pipeline of diffusers", "no family here is of such models"),
)


def describe(folder: Path) -> Format | None:
    """Return what a folder is that is no checkpoint, or has no weights of one; None: unknown."""
    for rule in _RULES:
        if all(_first(folder, pattern) for pattern in rule.patterns):
            return Format(rule.what, rule.hint)
    return next(_below(folder), None)


def _below(folder: Path) -> Iterator[Format]:
    """Yield what the folder holds that --checkpoint should name, or what was converted already."""
    for pattern in ("model.wte.bin", "shared.weight_T.bin", "*-gpu/*.bin", "*/1/*-gpu/*.bin"):
        if _first(folder, pattern):
            # By any program: what fits is used as it is.
            yield Format("converted weights, no checkpoint", config_pbtxt.adopt(folder))
    if _first(folder, "modules.json") and (inside := _first(folder, f"*/{CONFIG}")):
        yield Format("the folder of a model of Sentence Transformers", _option(inside.parent))
    for pattern in ("step_*/shard_0", f"snapshots/*/{CONFIG}", f"*/{CONFIG}", "*/shard_0"):
        if inside := _first(folder, pattern):
            yield Format("the folder that holds the checkpoint's", _option(inside.parent))


def _first(folder: Path, pattern: str) -> Path | None:
    return min(folder.glob(pattern), default=None)
