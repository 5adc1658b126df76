"""GPT-J as Mesh Transformer JAX saves it, put together as FasterTransformer's converters read it.

Runs inside the SDK image, alone: python3 mesh_shards.py LAYOUT CHECKPOINT TARGET [--config=JSON] FILE...

LAYOUT is `huggingface` (config.json and pytorch_model.bin) or `named` (checkpoint.pt, with the names by which
FasterTransformer's gptj_ckpt_convert.py goes on). FILE are the checkpoint's shard_<core>/<part>.npz. JSON
stands for the config.json of a checkpoint that has none. Needs numpy and torch, no jax. Numbers stay as they
are, most of them bfloat16; only sums are made, in fp32.

Every plan imports this module for what a checkpoint has to hold, so numpy is imported where arrays are read.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import torch

    Array = np.ndarray[Any, Any]

# numpy knows no bfloat16: jax's arrays come back as two bytes without a meaning.
BFLOAT16 = "V2"
# How the cores share a tensor: its rows or its columns; a bias that every core adds, so that they sum up (the
# result of a layer is summed over the cores, mesh_transformer/layers.py, g_psum); norms, of which the first
# core's counts (ReplicatedLayerNorm, all_gather(...)[0]).
ROWS, COLUMNS, SUM, FIRST = "rows", "columns", "sum", "first"
TABLE, TABLE_BIAS = "transformer.wte.weight", "transformer.wte.bias"
# Hugging Face's names -> those of gptj_ckpt_convert.py (FT v5.3 :105-146).
OTHER_NAMES = {
    ".attn.": ".attn.attention.",
    ".mlp.fc_in.": ".mlp.c_fc.",
    ".mlp.fc_out.": ".mlp.c_proj.",
}


@dataclass(frozen=True)
class Tensor:
    """A tensor by Hugging Face's name; `shape` is [in, out] by facts of models.yaml, `shared` as above."""

    name: str
    shape: tuple[str, ...]
    shared: str

    def part(self, facts: Mapping[str, int], cores: int) -> tuple[int, ...]:
        """Return the shape of what one of the cores holds."""
        sizes = [facts[fact] for fact in self.shape]
        if self.shared in (ROWS, COLUMNS):
            sizes[0 if self.shared == ROWS else -1] //= cores
        return tuple(sizes)


def tensors(layers: int) -> Iterator[Tensor]:
    """Yield the tensors in the order of the files: that of jax.tree_flatten, by names as texts.

    A scalar follows, the number of the training step (mesh-transformer-jax checkpoint.py, write_ckpt, of the
    state without its optimizer, slim_model.py). Queries come before values, these before keys (layers.py).
    """
    yield Tensor(TABLE_BIAS, ("hidden",), SUM)
    yield Tensor(TABLE, ("vocabulary", "hidden"), ROWS)
    for layer in sorted(map(str, range(layers))):
        of = f"transformer.h.{layer}."
        for name in ("q", "v", "k"):
            yield Tensor(f"{of}attn.{name}_proj.weight", ("hidden", "hidden"), COLUMNS)
        yield Tensor(f"{of}attn.out_proj.weight", ("hidden", "hidden"), ROWS)
        yield Tensor(f"{of}mlp.fc_in.bias", ("inner",), ROWS)
        yield Tensor(f"{of}mlp.fc_in.weight", ("hidden", "inner"), COLUMNS)
        yield Tensor(f"{of}mlp.fc_out.bias", ("hidden",), SUM)
        yield Tensor(f"{of}mlp.fc_out.weight", ("inner", "hidden"), ROWS)
        yield Tensor(f"{of}ln_1.bias", ("hidden",), FIRST)
        yield Tensor(f"{of}ln_1.weight", ("hidden",), FIRST)
    yield Tensor("lm_head.bias", ("vocabulary",), ROWS)
    yield Tensor("lm_head.weight", ("hidden", "vocabulary"), COLUMNS)
    yield Tensor("transformer.ln_f.bias", ("hidden",), FIRST)
    yield Tensor("transformer.ln_f.weight", ("hidden",), FIRST)


def count(layers: int) -> int:
    """Return the number of these tensors."""
    return 6 + 10 * layers


def by_core(files: Iterable[str]) -> list[list[str]]:
    """Return the files of each core, the parts in the order of their numbers: 2.npz before 10.npz."""
    cores: dict[int, list[tuple[int, str]]] = {}
    for file in files:
        path = PurePosixPath(file)
        cores.setdefault(int(path.parent.name.removeprefix("shard_")), []).append((int(path.stem), file))
    return [[file for _, file in sorted(cores[core])] for core in sorted(cores)]


def read(folder: Path, files: Iterable[str], layers: int) -> Iterator[tuple[Tensor, Array]]:
    """Yield every tensor with its array, [in, out], still as the cores hold it: bfloat16 as BFLOAT16."""
    cores = [_arrays(folder, parts) for parts in by_core(files)]
    for tensor in tensors(layers):
        parts = [next(arrays, None) for arrays in cores]
        held = [part for part in parts if part is not None]
        if len(held) < len(parts):
            raise SystemExit(f"the checkpoint ends before {tensor.name}")
        yield tensor, _joined(tensor, held)


def put_together(read_tensors: Iterable[tuple[Tensor, Array]]) -> Iterator[tuple[str, Array]]:
    """Yield names and arrays as Hugging Face has them: matrices [out, in], the table with its bias in it."""
    bias: Array | None = None
    for tensor, array in read_tensors:
        if tensor.name == TABLE_BIAS:
            bias = array
        elif tensor.name == TABLE:
            yield tensor.name, as_fp32(array) + bias
        else:
            yield tensor.name, array.T


def as_fp32(array: Array) -> Array:
    """Return the same numbers in fp32; bfloat16 is the upper half of it."""
    import numpy as np

    if array.dtype == BFLOAT16:
        return (np.ascontiguousarray(array).view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


def _arrays(folder: Path, parts: Sequence[str]) -> Iterator[Array]:
    import numpy as np

    for part in parts:
        with np.load(folder / part, allow_pickle=False) as archive:
            for name in archive.files:
                yield archive[name]


def _joined(tensor: Tensor, parts: Sequence[Array]) -> Array:
    import numpy as np

    if tensor.shared == SUM:
        total: Array = np.stack([as_fp32(part) for part in parts]).sum(axis=0)
        return total
    if tensor.shared == FIRST:
        return parts[0]
    return np.concatenate(parts, axis=0 if tensor.shared == ROWS else -1)


def _to_torch(array: Array) -> torch.Tensor:
    import numpy as np
    import torch

    whole = np.ascontiguousarray(array)
    if whole.dtype == BFLOAT16:
        return torch.from_numpy(whole.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(whole)


def _other_name(name: str) -> str:
    for name_in_shards, other in OTHER_NAMES.items():
        name = name.replace(name_in_shards, other)
    return name


def main(layout: str, folder: Path, target: Path, config: str | None, files: Sequence[str]) -> None:
    """Read the checkpoint in `folder`, write it into `target`."""
    import torch

    settings = json.loads((folder / "config.json").read_text() if config is None else config)
    arrays = put_together(read(folder, files, settings["n_layer"]))
    weights = {name: _to_torch(array) for name, array in arrays}
    target.mkdir(parents=True, exist_ok=True)
    if layout == "named":
        torch.save({_other_name(name): tensor for name, tensor in weights.items()}, target / "checkpoint.pt")
    else:
        (target / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
        torch.save(weights, target / "pytorch_model.bin")
    print(f"{len(weights)} tensors in {target}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("layout", choices=("huggingface", "named"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--config")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    main(options.layout, options.folder, options.target, options.config, options.files)
