"""The real converters, as our patches leave them: every file that they write against the checkpoint.

They run on this machine, in a Python with torch and transformers: the one that FTBUILD_TORCH_PYTHON names,
else the tests' own. The command lines and the tables of files are those of `invoke convert`.
"""

from __future__ import annotations

import ast
import functools
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.models import conversion, converters, weights
from ftbuild.models.conversion import ConversionRequest
from testing import mesh_checkpoint, needs

from . import ft_gpt, ft_gptneox
from .conversions import Array, Tensors, TorchWorker, carry_out

ALIBI = Path(__file__).parent / "programs" / "alibi_slopes.cc"
# Those that FasterTransformer's GPT computes.
GPTS = ("gpt", "opt", "opt-sharded", "opt-350m", "bloom", "bloom-sharded", "mpt", "mpt-sharded")
OTHERS = ("gptj", "gptj-sharded", "codegen", "codegen-pickled", "gptneox", "t5", "t5-gated")
RELEASES = {"22.03": ("gpt", "t5"), "22.07": (*GPTS, *OTHERS), "22.12": (*GPTS, *OTHERS)}
HEADS = {
    "codegen-pickled": 8,
    "opt": 6,
    "opt-sharded": 6,
    "opt-350m": 6,
    "bloom": 6,
    "mpt": 6,
    "mpt-sharded": 6,
}
# BLOOM has 112 heads.
MAX_HEADS = 128
# Number of heads -> numbers of GPUs.
GPUS = {4: (1, 2, 4), 6: (1, 3), 8: (1, 2, 4)}
MESH = mesh_checkpoint.SETTINGS


def part(matrix: Array, rank: int, gpus: int, axis: int) -> Array:
    """The share of one GPU: contiguous, along an axis."""
    width = matrix.shape[axis] // gpus
    return matrix.take(range(rank * width, (rank + 1) * width), axis)


def fused(qkv: Sequence[Array], rank: int, gpus: int) -> Array:
    """[..., 3, heads of this GPU x size]: what FT's one GEMM for queries, keys and values reads."""
    return np.stack([part(x, rank, gpus, -1) for x in qkv], axis=-2)


def gpt(t: Tensors, gpus: int, heads: int) -> dict[str, Array]:
    """GPT-2 stores its matrices [in, out], as FT does; c_attn is query, key, value side by side."""
    found = {
        "wte": t["transformer.wte.weight"],
        "wpe": t["transformer.wpe.weight"],
        **norm("final_layernorm", t, "transformer.ln_f"),
    }
    for layer in range(2):
        of, ft = f"transformer.h.{layer}.", f"layers.{layer}."
        found |= norm(f"{ft}input_layernorm", t, f"{of}ln_1")
        found |= norm(f"{ft}post_attention_layernorm", t, f"{of}ln_2")
        found[f"{ft}attention.dense.bias"] = t[f"{of}attn.c_proj.bias"]
        found[f"{ft}mlp.dense_4h_to_h.bias"] = t[f"{of}mlp.c_proj.bias"]
        for r in range(gpus):
            for kind in ("weight", "bias"):
                qkv = np.split(t[f"{of}attn.c_attn.{kind}"], 3, axis=-1)
                found[f"{ft}attention.query_key_value.{kind}.{r}"] = fused(qkv, r, gpus)
                found[f"{ft}mlp.dense_h_to_4h.{kind}.{r}"] = part(t[f"{of}mlp.c_fc.{kind}"], r, gpus, -1)
            found[f"{ft}attention.dense.weight.{r}"] = part(t[f"{of}attn.c_proj.weight"], r, gpus, 0)
            found[f"{ft}mlp.dense_4h_to_h.weight.{r}"] = part(t[f"{of}mlp.c_proj.weight"], r, gpus, 0)
    return {f"model.{name}.bin": value for name, value in found.items()}


def opt(t: Tensors, gpus: int, heads: int) -> dict[str, Array]:
    """OPT stores [out, in]; two rows of its positions are for padding. 350M projects what it looks up."""
    of = "model.decoder."
    table = t[f"{of}embed_tokens.weight"]
    narrow = f"{of}project_in.weight" in t
    found = {
        "wte": table @ t[f"{of}project_in.weight"].T if narrow else table,
        "lm_head.weight": table @ t[f"{of}project_out.weight"] if narrow else table,
        "wpe": t[f"{of}embed_positions.weight"][2:],
        **({} if narrow else norm("final_layernorm", t, f"{of}final_layer_norm")),
    }
    names = ("self_attn_layer_norm", "self_attn.out_proj", "final_layer_norm", "fc1", "fc2")

    def qkv(layer: str, kind: str) -> list[Array]:
        return [t[f"{layer}self_attn.{x}_proj.{kind}"].T for x in "qkv"]

    return gpt_like(t, found, gpus, f"{of}layers.", names, qkv)


def bloom(t: Tensors, gpus: int, heads: int) -> dict[str, Array]:
    """BLOOM stores [out, in], the rows of query_key_value by head, then query, key, value."""
    found = {
        "wte": t["transformer.word_embeddings.weight"],
        **norm("pre_decoder_layernorm", t, "transformer.word_embeddings_layernorm"),
        **norm("final_layernorm", t, "transformer.ln_f"),
    }
    mlp = ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h")
    names = ("input_layernorm", "self_attention.dense", "post_attention_layernorm", *mlp)

    def qkv(layer: str, kind: str) -> list[Array]:
        rows = t[f"{layer}self_attention.query_key_value.{kind}"]
        by_head = rows.reshape(heads, 3, -1, *rows.shape[1:])
        return [by_head[:, i].reshape(-1, *rows.shape[1:]).T for i in range(3)]

    return gpt_like(t, found, gpus, "transformer.h.", names, qkv)


def mpt(t: Tensors, gpus: int, heads: int) -> dict[str, Array]:
    """MPT stores [out, in] and has neither biases nor positions, which FT reads: they are zero."""
    hidden = t["transformer.wte.weight"].shape[1]
    biases = {
        name.replace(".weight", ".bias"): np.zeros(tensor.shape[0], np.float32) for name, tensor in t.items()
    }
    t = {**biases, **t}
    found = {
        "wte": t["transformer.wte.weight"],
        "wpe": np.zeros((1, hidden), np.float32),
        **norm("final_layernorm", t, "transformer.norm_f"),
    }
    names = ("norm_1", "attn.out_proj", "norm_2", "ffn.up_proj", "ffn.down_proj")

    def qkv(layer: str, kind: str) -> list[Array]:
        return np.split(t[f"{layer}attn.Wqkv.{kind}"].T, 3, axis=-1)

    return gpt_like(t, found, gpus, "transformer.blocks.", names, qkv)


def gpt_like(
    t: Tensors,
    found: dict[str, Array],
    gpus: int,
    blocks: str,
    names: Sequence[str],
    qkv: Callable[[str, str], Sequence[Array]],
) -> dict[str, Array]:
    """Add the layers of a model that stores [out, in]; `names`: norm, matrix, norm, two matrices."""
    first, dense, second, wide, narrow = names
    for layer in range(3):
        of, ft = f"{blocks}{layer}.", f"layers.{layer}."
        found |= norm(f"{ft}input_layernorm", t, f"{of}{first}")
        found |= norm(f"{ft}post_attention_layernorm", t, f"{of}{second}")
        found[f"{ft}attention.dense.bias"] = t[f"{of}{dense}.bias"]
        found[f"{ft}mlp.dense_4h_to_h.bias"] = t[f"{of}{narrow}.bias"]
        for r in range(gpus):
            for kind in ("weight", "bias"):
                found[f"{ft}attention.query_key_value.{kind}.{r}"] = fused(qkv(of, kind), r, gpus)
                found[f"{ft}mlp.dense_h_to_4h.{kind}.{r}"] = part(t[f"{of}{wide}.{kind}"].T, r, gpus, -1)
            found[f"{ft}attention.dense.weight.{r}"] = part(t[f"{of}{dense}.weight"].T, r, gpus, 0)
            found[f"{ft}mlp.dense_4h_to_h.weight.{r}"] = part(t[f"{of}{narrow}.weight"].T, r, gpus, 0)
    return {f"model.{name}.bin": value for name, value in found.items()}


def gptj(t: Tensors, gpus: int, heads: int) -> dict[str, Array]:
    """GPT-J stores [out, in]."""
    return gptj_like(
        t, gpus, lambda of: tuple(t[f"{of}attn.{name}_proj.weight"].T for name in ("q", "k", "v"))
    )


def codegen(t: Tensors, gpus: int, heads: int) -> dict[str, Array]:
    """CodeGen's 4 blocks of [query, value, key], each of heads / 4 heads."""

    def qkv(of: str) -> tuple[Array, Array, Array]:
        rows = t[f"{of}attn.qkv_proj.weight"]
        hidden = rows.shape[1]
        size = hidden // heads
        taken: dict[str, list[Array]] = {"query": [], "value": [], "key": []}
        at = 0
        for _ in range(4):
            for name in ("query", "value", "key"):
                for _ in range(heads // 4):
                    taken[name].append(rows[at : at + size])
                    at += size
        query, key, value = (np.concatenate(taken[name]).T for name in ("query", "key", "value"))
        return query, key, value

    return gptj_like(t, gpus, qkv)


def gptj_like(
    t: Tensors, gpus: int, qkv: Callable[[str], tuple[Array, ...]], layers: int = 2
) -> dict[str, Array]:
    found = {
        "wte": t["transformer.wte.weight"],
        "lm_head.weight": t["lm_head.weight"],
        "lm_head.bias": t["lm_head.bias"],
        **norm("final_layernorm", t, "transformer.ln_f"),
    }
    for layer in range(layers):
        of, ft = f"transformer.h.{layer}.", f"layers.{layer}."
        found |= norm(f"{ft}input_layernorm", t, f"{of}ln_1")
        found[f"{ft}mlp.dense_4h_to_h.bias"] = t[f"{of}mlp.fc_out.bias"]
        for r in range(gpus):
            found[f"{ft}attention.query_key_value.weight.{r}"] = fused(qkv(of), r, gpus)
            found[f"{ft}attention.dense.weight.{r}"] = part(t[f"{of}attn.out_proj.weight"].T, r, gpus, 0)
            found[f"{ft}mlp.dense_h_to_4h.weight.{r}"] = part(t[f"{of}mlp.fc_in.weight"].T, r, gpus, 1)
            found[f"{ft}mlp.dense_h_to_4h.bias.{r}"] = part(t[f"{of}mlp.fc_in.bias"], r, gpus, 0)
            found[f"{ft}mlp.dense_4h_to_h.weight.{r}"] = part(t[f"{of}mlp.fc_out.weight"].T, r, gpus, 0)
    return {f"model.{name}.bin": value for name, value in found.items()}


def gptneox(t: Tensors, gpus: int, heads: int, *, parallel: bool = True) -> dict[str, Array]:
    """GPT-NeoX stores [out, in], the rows of query_key_value by head, then query, key, value.

    With the parallel residual FT adds the two output biases on every GPU before it sums over them, so each
    holds its share of the sum; else it adds them to that sum (FT v5.3 GptNeoXContextDecoder.cc:416-432).
    """
    found = {
        "wte": t["gpt_neox.embed_in.weight"],
        "lm_head.weight": t["embed_out.weight"],
        **norm("final_layernorm", t, "gpt_neox.final_layer_norm"),
    }
    for layer in range(2):
        of, ft = f"gpt_neox.layers.{layer}.", f"layers.{layer}."
        found |= norm(f"{ft}input_layernorm", t, f"{of}input_layernorm")
        found |= norm(f"{ft}post_attention_layernorm", t, f"{of}post_attention_layernorm")
        shares = gpus if parallel else 1
        biases = [t[f"{of}{name}.bias"] / shares for name in ("attention.dense", "mlp.dense_4h_to_h")]
        found[f"{ft}attention.dense.bias"], found[f"{ft}mlp.dense_4h_to_h.bias"] = biases
        if parallel:
            found[f"{ft}mlp.attention.bias.sum"] = biases[0] + biases[1]
        for r in range(gpus):
            for kind in ("weight", "bias"):
                rows = t[f"{of}attention.query_key_value.{kind}"]
                by_head = rows.reshape(heads, 3, -1, *rows.shape[1:])
                qkv = [by_head[:, i].reshape(-1, *rows.shape[1:]).T for i in range(3)]
                found[f"{ft}attention.query_key_value.{kind}.{r}"] = fused(qkv, r, gpus)
                wide = t[f"{of}mlp.dense_h_to_4h.{kind}"].T
                found[f"{ft}mlp.dense_h_to_4h.{kind}.{r}"] = part(wide, r, gpus, -1)
            found[f"{ft}attention.dense.weight.{r}"] = part(t[f"{of}attention.dense.weight"].T, r, gpus, 0)
            narrow = t[f"{of}mlp.dense_4h_to_h.weight"].T
            found[f"{ft}mlp.dense_4h_to_h.weight.{r}"] = part(narrow, r, gpus, 0)
    return {f"model.{name}.bin": value for name, value in found.items()}


def t5(t: Tensors, gpus: int, heads: int) -> dict[str, Array]:
    """T5 stores [out, in]; the table of relative positions is [buckets, heads], FT's [heads, buckets]."""
    # transposed by name only: the decoder reads it as [vocabulary, hidden] (FT T5DecodingWeight.cc)
    found = {"shared.weight": t["shared.weight"].T, "shared.weight_T": t["shared.weight"]}
    for name, tensor in t.items():
        if name.endswith("layer_norm.weight"):
            found[name] = tensor
        elif name.endswith("relative_attention_bias.weight") or name.endswith((".o.weight", ".wo.weight")):
            found |= {f"{name}.{r}": part(tensor.T, r, gpus, 0) for r in range(gpus)}
        elif name.startswith("decoder") and name.endswith("SelfAttention.q.weight"):
            qkv = [t[name.replace(".q.", f".{x}.")].T for x in "qkv"]
            fused_name = name.replace(".q.", ".qkv.")
            found |= {f"{fused_name}.{r}": fused(qkv, r, gpus) for r in range(gpus)}
        elif name.startswith("decoder") and ".SelfAttention." in name:
            continue
        elif ".block." in name:
            ft = name.replace("wi_0", "wi").replace("wi_1", "wi2")
            found |= {f"{ft}.{r}": part(tensor.T, r, gpus, 1) for r in range(gpus)}
    return {f"{name}.bin": value for name, value in found.items()}


def t5_with_head(t: Tensors, gpus: int, heads: int) -> dict[str, Array]:
    """From 5.2 on the head is written even where it is the table itself."""
    return {**t5(t, gpus, heads), "lm_head.weight.bin": t["lm_head.weight"]}


def norm(ft: str, t: Tensors, name: str) -> dict[str, Array]:
    return {f"{ft}.{kind}": t[f"{name}.{kind}"] for kind in ("weight", "bias")}


def files_of(kind: str, release: str) -> Callable[[Tensors, int, int], dict[str, Array]]:
    family = kind.partition("-")[0]
    known = {
        "gpt": gpt,
        "opt": opt,
        "bloom": bloom,
        "mpt": mpt,
        "gptj": gptj,
        "codegen": codegen,
        "gptneox": gptneox,
        "t5": t5_with_head,
    }
    return t5 if (family, release) == ("t5", "22.03") else known[family]


def require_equal(folder: Path, wanted: Mapping[str, Array], data_type: Any = np.float32) -> None:
    assert {path.name for path in folder.glob("*.bin")} == set(wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(
            np.fromfile(folder / name, data_type), array.astype(data_type).ravel(), err_msg=name
        )


def order_of(kind: str, folder: Path, out: Path, **options: Any) -> ConversionRequest:
    return ConversionRequest(kind.partition("-")[0], folder, out / "not there", **{"jobs": 1, **options})


@pytest.fixture(scope="session")
def slopes(
    tree: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, int], list[list[float]]]:
    """ALiBi's slopes for 1, 2, ... heads from the kernel of a release, compiled for this machine."""
    compiler = needs.program("g++")

    @functools.cache
    def compute(release: str, most: int) -> list[list[float]]:
        folder = tmp_path_factory.mktemp(f"slopes-{release}")
        source = (tree(release) / "src/fastertransformer/kernels/gen_relative_pos_bias.cu").read_text()
        begin, end = (
            source.index("__host__ __device__ uint32_t pow2_roundup"),
            source.index("void invokeBuildAlibi"),
        )
        (folder / "kernel.h").write_text(source[begin:end].removesuffix("template<typename T>\n"))
        command = [compiler, f'-DSOURCE="{folder / "kernel.h"}"', str(ALIBI), "-o", str(folder / "slopes")]
        subprocess.run(command, check=True)
        said = subprocess.run([folder / "slopes", str(most)], capture_output=True, text=True, check=True)
        return [[float(slope) for slope in line.split()] for line in said.stdout.splitlines()]

    return compute


@pytest.mark.parametrize(
    ("release", "kind", "gpus"),
    [
        (release, kind, gpus)
        for release, kinds in RELEASES.items()
        for kind in kinds
        for gpus in GPUS[HEADS.get(kind, 4)]
    ],
)
def test_every_weight_is_the_checkpoints(
    release: str,
    kind: str,
    gpus: int,
    config: Config,
    worker: TorchWorker,
    tree: Callable[[str], Path],
    checkpoint: Callable[[str], tuple[Path, Tensors]],
    slopes: Callable[[str, int], list[list[float]]],
    tmp_path: Path,
) -> None:
    folder, tensors = checkpoint(kind)
    planned = conversion.plan_conversion(config, release, order_of(kind, folder, tmp_path, gpus=gpus))
    made = carry_out(planned, worker, tree(release), tmp_path)
    facts, converter = planned.checkpoint.facts, planned.converter
    assert list(weights.complaints(made, converter, facts, gpus, planned.data_type)) == []
    require_equal(made, files_of(kind, release)(tensors, gpus, HEADS.get(kind, 4)))
    if kind in GPTS and release != "22.03":  # other keys of config.ini, and GPT-2 alone
        found = ft_gpt.Gpt(made, lambda heads: np.array(slopes(release, MAX_HEADS)[heads - 1]))
        require_same_answers(found, worker, folder)


def require_same_answers(found: ft_gpt.Gpt, worker: TorchWorker, folder: Path) -> None:
    """By weights, config.ini and the kernel's slopes; the rest is ft_gpt.py's reading of the sources."""
    out = folder.with_name("logits.npy")
    if not out.exists():
        worker("logits", str(folder), "20", str(out))
    wanted = np.load(out)
    logits = found.logits(range(20))
    np.testing.assert_allclose(logits, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    assert (logits.argmax(-1) == wanted.argmax(-1)).all()


@pytest.mark.parametrize("release", ["22.07", "22.12"])
def test_alibi_gives_every_head_the_slope_of_transformers(
    release: str, worker: TorchWorker, slopes: Callable[[str, int], list[list[float]]]
) -> None:
    wanted = [json.loads(line) for line in worker("slopes", str(MAX_HEADS)).splitlines()]
    for found, models in zip(slopes(release, MAX_HEADS), wanted, strict=True):
        for model in models:
            np.testing.assert_allclose(found, model, rtol=1e-6)


@pytest.mark.parametrize("kind", ["gpt", "gptneox", "t5"])
def test_half_precision_is_half_the_size_and_the_nearest_values(
    kind: str,
    config: Config,
    worker: TorchWorker,
    tree: Callable[[str], Path],
    checkpoint: Callable[[str], tuple[Path, Tensors]],
    tmp_path: Path,
) -> None:
    folder, tensors = checkpoint(kind)
    planned = conversion.plan_conversion(config, "22.12", order_of(kind, folder, tmp_path, data_type="fp16"))
    made = carry_out(planned, worker, tree("22.12"), tmp_path)
    facts, converter = planned.checkpoint.facts, planned.converter
    assert list(weights.complaints(made, converter, facts, 1, "fp16")) == []
    wanted = files_of(kind, "22.12")(tensors, 1, 4)
    # The sum of two biases is that of the rounded ones.
    for name in [name for name in wanted if name.endswith("bias.sum.bin")]:
        layer = name.removesuffix("mlp.attention.bias.sum.bin")
        halves = (
            wanted[f"{layer}{b}.bias.bin"].astype(np.float16)
            for b in ("attention.dense", "mlp.dense_4h_to_h")
        )
        wanted[name] = sum(halves, np.float16(0))  # type: ignore[arg-type]
    require_equal(made, wanted, np.float16)


def test_codegen_computes_the_same_as_gptj(
    config: Config,
    worker: TorchWorker,
    tree: Callable[[str], Path],
    checkpoint: Callable[[str], tuple[Path, Tensors]],
    tmp_path: Path,
) -> None:
    for kind in ("codegen", "codegen-pickled"):
        folder, _ = checkpoint(kind)
        out = tmp_path / kind
        out.mkdir()
        planned = conversion.plan_conversion(config, "22.12", order_of(kind, folder, tmp_path))
        carry_out(planned, worker, tree("22.12"), out)
        assert json.loads((out / ".checkpoint/config.json").read_text())["model_type"] == "gptj"
        worker("same", str(folder), f"{out}/.checkpoint")


@pytest.mark.parametrize("gpus", [1, 2, 4])
@pytest.mark.parametrize("release", ["22.07", "22.12"])
def test_without_the_parallel_residual_each_bias_is_whole(
    config: Config,
    worker: TorchWorker,
    tree: Callable[[str], Path],
    checkpoint: Callable[[str], tuple[Path, Tensors]],
    tmp_path: Path,
    release: str,
    gpus: int,
) -> None:
    folder, tensors = checkpoint("gptneox-serial")
    order = order_of("gptneox", folder, tmp_path, gpus=gpus)
    made = carry_out(conversion.plan_conversion(config, release, order), worker, tree(release), tmp_path)
    require_equal(made, gptneox(tensors, gpus, 4, parallel=False))


def test_a_serial_gptneox_answers_alike_on_any_number_of_gpus(
    config: Config,
    worker: TorchWorker,
    tree: Callable[[str], Path],
    checkpoint: Callable[[str], tuple[Path, Tensors]],
    tmp_path: Path,
) -> None:
    folder, _ = checkpoint("gptneox-serial")
    logits = []
    for gpus in (1, 2, 4):
        order = order_of("gptneox", folder, tmp_path / str(gpus), gpus=gpus)
        planned = conversion.plan_conversion(config, "22.12", order)
        made = carry_out(planned, worker, tree("22.12"), tmp_path / str(gpus))
        logits.append(ft_gptneox.GptNeoX(made).logits([3, 1, 4, 1, 5]))
    for found in logits[1:]:
        np.testing.assert_allclose(found, logits[0], rtol=0, atol=1e-5 * np.abs(logits[0]).max())


def test_a_gated_t5_is_refused_where_its_converter_would_lose_weights(
    config: Config, checkpoint: Callable[[str], tuple[Path, Tensors]], tmp_path: Path
) -> None:
    folder, _ = checkpoint("t5-gated")
    with pytest.raises(ConfigError, match="feed_forward_proj is 'gated-gelu'") as caught:
        conversion.plan_conversion(config, "22.03", order_of("t5", folder, tmp_path))
    assert caught.value.hint == "--triton 22.12 can"


def convert_mesh(
    config: Config, release: str, worker: TorchWorker, tree: Path, folder: Path, gpus: int
) -> Path:
    out = folder.with_name(f"{folder.name}-out")
    out.mkdir()
    planned = conversion.plan_conversion(config, release, order_of("gptj", folder, out, gpus=gpus))
    return carry_out(planned, worker, tree, out)


@pytest.mark.parametrize("data_type", [ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("release", ["22.07", "22.12"])
def test_the_original_gptj_checkpoint_becomes_what_hugging_faces_becomes(
    release: str,
    data_type: Any,
    config: Config,
    worker: TorchWorker,
    tree: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    """Byte by byte, config.ini too; and no image has jax."""
    tensors = mesh_checkpoint.write(tmp_path / "step_1", MESH, np.dtype(data_type))
    mesh_checkpoint.write_huggingface(tmp_path / "hf", tensors, MESH)
    one, other = (
        convert_mesh(config, release, worker, tree(release), tmp_path / name, 2) for name in ("step_1", "hf")
    )
    contents = [{file.name: file.read_bytes() for file in folder.iterdir()} for folder in (one, other)]
    assert contents[0] == contents[1]
    require_equal(one, mesh_files(tensors, MESH["n_layer"]))


def mesh_files(tensors: Tensors, layers: int) -> dict[str, Array]:
    def qkv(of: str) -> tuple[Array, ...]:
        return tuple(tensors[f"{of}attn.{name}_proj.weight"].T for name in "qkv")

    return gptj_like(tensors, 2, qkv, layers)


def test_the_oldest_converter_goes_on_from_what_is_put_together(
    config: Config, worker: TorchWorker, tree: Callable[[str], Path], tmp_path: Path
) -> None:
    """It knows 28 layers, and would give a small model the numbers of GPT-J 6B: those are taken away here."""
    gptj = config.models.families["gptj"]
    found = gptj.converter(config.version("22.03", "ft"), "jax")
    assert found
    free = found.model_copy(update={"fixed": {}})
    family = gptj.model_copy(update={"converters": (free,)})
    models = config.models.model_copy(update={"families": {**config.models.families, "gptj": family}})
    settings = {**MESH, "n_layer": 28}
    tensors = mesh_checkpoint.write(tmp_path / "step_1", settings)
    changed = replace(config, models=models)
    made = convert_mesh(changed, "22.03", worker, tree("22.03"), tmp_path / "step_1", 2)
    require_equal(made, mesh_files(tensors, 28))


@pytest.mark.parametrize("release", RELEASES)
def test_no_converter_that_is_called_runs_code_of_a_pickle(
    release: str, config: Config, tree: Callable[[str], Path]
) -> None:
    """transformers passes `weights_only` by itself (v4.46.3 modeling_utils.py, load_state_dict)."""
    scripts = {
        config.path(found.own_script) if found.own_script else tree(release) / found.name
        for family in config.models.families
        for kind in ("huggingface", "jax")
        if (found := converters._find(config, release, family, kind))
    }
    assert scripts
    for script in scripts:
        calls = [
            (ast.unparse(node.func), {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords})
            for node in ast.walk(ast.parse(script.read_text()))
            if isinstance(node, ast.Call)
        ]
        loads = [arguments for called, arguments in calls if called == "torch.load"]
        assert all(arguments.get("weights_only") == "True" for arguments in loads), script
        assert not any("pickle" in called or "allow_pickle" in arguments for called, arguments in calls)
        assert loads or "gptj" not in script.name
