"""The real converters, as our patches leave them: every file that they write against the checkpoint.

They run on this machine, in a Python with torch and transformers: the one that FTBUILD_TORCH_PYTHON names,
else the tests' own. The command lines and the tables of files are those of `invoke convert`.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.models import conversion, conversion_run, converters, weights
from ftbuild.models.conversion import Conversion, ConversionRequest
from ftbuild.sources import fetch
from ftbuild.sources.patches import series

from .conftest import Need

Array = np.ndarray[Any, Any]
Tensors = Mapping[str, Array]
WORKER = Path(__file__).with_name("torch_worker.py")
RELEASES = {
    "22.03": ("gpt", "t5"),
    "22.07": ("gpt", "gptj", "gptj-sharded", "codegen", "codegen-pickled", "gptneox", "t5", "t5-gated"),
    "22.12": ("gpt", "gptj", "gptj-sharded", "codegen", "codegen-pickled", "gptneox", "t5", "t5-gated"),
}
HEADS = {"codegen-pickled": 8}


class TorchWorker:
    """A process with torch and transformers, which does what torch_worker.py says."""

    def __init__(self, python: str) -> None:
        environment = {"PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [python, str(WORKER)],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *command: str) -> str:
        """What a command says; fails unless it ends well."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        code, said = json.loads(self._process.stdout.readline())
        assert code == 0, said[-4000:]
        return str(said)

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="session")
def worker() -> Iterator[TorchWorker]:
    python = os.environ.get("FTBUILD_TORCH_PYTHON", sys.executable)
    find = "import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, sys.argv[1:])))"
    if subprocess.run([python, "-c", find, "torch", "transformers", "safetensors"], check=False).returncode:
        pytest.skip("needs a Python with torch, transformers and safetensors: FTBUILD_TORCH_PYTHON")
    process = TorchWorker(python)
    yield process
    process.close()


@pytest.fixture(scope="session")
def tree(
    config: Config, cache: Path, need: Need, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """FasterTransformer of a release with our patches."""
    need("ft")
    trees: dict[str, Path] = {}

    def make(release: str) -> Path:
        if release not in trees:
            folder = tmp_path_factory.mktemp(f"ft-{release}")
            fetch.export(config, release, "ft", cache, folder)
            version = config.version(release, "ft")
            for entry in series.applicable(series.read_series(config)["ft"], version):
                series.apply(folder, entry, fetch.entry_diff(config, entry, cache), version=version)
            trees[release] = folder
        return trees[release]

    return make


@pytest.fixture(scope="session")
def checkpoint(
    worker: TorchWorker, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Path, Tensors]]:
    """A tiny random checkpoint of a kind, and its tensors by transformers' names."""
    made: dict[str, Path] = {}

    def make(kind: str) -> tuple[Path, Tensors]:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp(kind)
            worker("make", kind, f"{made[kind]}/hf", f"{made[kind]}/tensors.npz")
        return made[kind] / "hf", dict(np.load(made[kind] / "tensors.npz"))

    return make


def carry_out(planned: Conversion, worker: TorchWorker, tree: Path, out: Path) -> Path:
    """What `conversion_run.convert` does in the SDK image, here."""
    here = {
        converters.TREE: str(tree),
        "/convert/checkpoint": str(planned.checkpoint.folder),
        "/convert/out": str(out),
        "/convert/scripts": str(planned.relayout_script.parent) if planned.relayout_script else "",
    }
    for argv in planned.commands():
        for inside, path in here.items():
            argv = [argument.replace(inside, path) for argument in argv]
        said = worker("run", str(tree), *argv[1:])
        assert [mark for mark in conversion_run.LOST if mark in said] == []
    return out / weights.folder_name(planned.request.gpus)


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

    FT adds the two output biases on every GPU before it sums over them, so each holds its share of the sum.
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
        biases = [t[f"{of}{name}.bias"] / gpus for name in ("attention.dense", "mlp.dense_4h_to_h")]
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
    known = {"gpt": gpt, "gptj": gptj, "codegen": codegen, "gptneox": gptneox, "t5": t5_with_head}
    return t5 if (family, release) == ("t5", "22.03") else known[family]


def require_equal(folder: Path, wanted: Mapping[str, Array], data_type: Any = np.float32) -> None:
    assert {path.name for path in folder.glob("*.bin")} == set(wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(
            np.fromfile(folder / name, data_type), array.astype(data_type).ravel(), err_msg=name
        )


def order_of(kind: str, folder: Path, out: Path, **options: Any) -> ConversionRequest:
    return ConversionRequest(kind.partition("-")[0], folder, out / "not there", **{"jobs": 1, **options})


@pytest.mark.parametrize("gpus", [1, 2, 4])
@pytest.mark.parametrize(
    ("release", "kind"), [(release, kind) for release, kinds in RELEASES.items() for kind in kinds]
)
def test_every_weight_is_the_checkpoints(
    release: str,
    kind: str,
    gpus: int,
    config: Config,
    worker: TorchWorker,
    tree: Callable[[str], Path],
    checkpoint: Callable[[str], tuple[Path, Tensors]],
    tmp_path: Path,
) -> None:
    folder, tensors = checkpoint(kind)
    planned = conversion.plan_conversion(config, release, order_of(kind, folder, tmp_path, gpus=gpus))
    made = carry_out(planned, worker, tree(release), tmp_path)
    facts, converter = planned.checkpoint.facts, planned.converter
    assert list(weights.complaints(made, converter, facts, gpus, planned.data_type)) == []
    require_equal(made, files_of(kind, release)(tensors, gpus, HEADS.get(kind, 4)))


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


def test_without_the_parallel_residual_one_gpu_is_right_and_two_are_refused(
    config: Config,
    worker: TorchWorker,
    tree: Callable[[str], Path],
    checkpoint: Callable[[str], tuple[Path, Tensors]],
    tmp_path: Path,
) -> None:
    folder, tensors = checkpoint("gptneox-serial")
    planned = conversion.plan_conversion(config, "22.12", order_of("gptneox", folder, tmp_path))
    made = carry_out(planned, worker, tree("22.12"), tmp_path)
    require_equal(made, gptneox(tensors, 1, 4, parallel=False))
    with pytest.raises(ConfigError, match="use_parallel_residual is False"):
        conversion.plan_conversion(config, "22.12", order_of("gptneox", folder, tmp_path, gpus=2))


def test_a_gated_t5_is_refused_where_its_converter_would_lose_weights(
    config: Config, checkpoint: Callable[[str], tuple[Path, Tensors]], tmp_path: Path
) -> None:
    folder, _ = checkpoint("t5-gated")
    with pytest.raises(ConfigError, match="feed_forward_proj is 'gated-gelu'") as caught:
        conversion.plan_conversion(config, "22.03", order_of("t5", folder, tmp_path))
    assert caught.value.hint == "--triton 22.12 can"


JAX_FACTS = {"layers": 28, "hidden": 32, "inner": 128, "vocabulary": 48}


@pytest.fixture
def mesh(tmp_path: Path) -> tuple[Path, dict[str, Array]]:
    """A tiny checkpoint as Mesh Transformer JAX shards it over 8 cores, and its tensors, [out, in].

    Whole numbers, as the converter rounds to fp16. Its order of tensors, and which axis is sharded, are those
    that the converter expects (FT v5.3 gptj_ckpt_convert.py:158-195); the cores' shares of a bias add up.
    """
    draw = np.random.default_rng(5)
    hidden, inner, rows = JAX_FACTS["hidden"], JAX_FACTS["inner"], JAX_FACTS["vocabulary"]
    shards: list[list[Array]] = [[] for _ in range(8)]
    tensors: dict[str, Array] = {}

    def add(name: str, axis: int | None, *shape: int) -> None:
        array = draw.integers(2, 99, shape).astype(np.float32)
        tensors[name] = array.T
        parts: list[Array] = [array / 8] * 8 if axis is None else np.split(array, 8, axis)
        for shard, piece in zip(shards, parts, strict=True):
            shard.append(piece)

    add("table.bias", None, hidden)
    add("table", 0, rows, hidden)
    for layer in sorted(map(str, range(JAX_FACTS["layers"]))):
        of = f"transformer.h.{layer}."
        for name in ("q", "v", "k"):
            add(f"{of}attn.{name}_proj.weight", 1, hidden, hidden)
        add(f"{of}attn.out_proj.weight", 0, hidden, hidden)
        add(f"{of}mlp.fc_in.bias", 0, inner)
        add(f"{of}mlp.fc_in.weight", 1, hidden, inner)
        add(f"{of}mlp.fc_out.bias", None, hidden)
        add(f"{of}mlp.fc_out.weight", 0, inner, hidden)
        add(f"{of}ln_1.bias", None, hidden)
        add(f"{of}ln_1.weight", None, hidden)
    add("lm_head.bias", 0, rows)
    add("lm_head.weight", 1, hidden, rows)
    add("transformer.ln_f.bias", None, hidden)
    add("transformer.ln_f.weight", None, hidden)
    for number, arrays in enumerate(shards):
        folder = tmp_path / "step_1" / f"shard_{number}"
        folder.mkdir(parents=True)
        np.savez(folder / "0.npz", *arrays)
    tensors["transformer.wte.weight"] = tensors.pop("table").T + tensors.pop("table.bias")
    return tmp_path / "step_1", tensors


@pytest.mark.parametrize("release", RELEASES)
def test_the_original_gptj_checkpoint_is_put_together(
    release: str,
    config: Config,
    worker: TorchWorker,
    tree: Callable[[str], Path],
    mesh: tuple[Path, dict[str, Array]],
    tmp_path: Path,
) -> None:
    """The converter needs jax for a transposition and the name of a data type: numpy does, for fp32."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").touch()
    (tmp_path / "jax" / "numpy.py").write_text("from numpy import *\n")
    folder, tensors = mesh
    planned = conversion.plan_conversion(config, release, order_of("gptj", folder, tmp_path, gpus=2))
    out = tmp_path / "out"
    out.mkdir()
    here = {converters.TREE: str(tree(release)), "/convert/checkpoint": str(folder), "/convert/out": str(out)}
    (argv,) = planned.commands()
    for inside, path in here.items():
        argv = [argument.replace(inside, path) for argument in argv]
    worker("run", str(tmp_path), *argv[1:])
    facts = {**planned.checkpoint.facts, **JAX_FACTS}
    wanted = gptj_like(
        tensors,
        2,
        lambda of: tuple(tensors[f"{of}attn.{n}_proj.weight"].T for n in "qkv"),
        JAX_FACTS["layers"],
    )
    require_equal(out / "2-gpu", wanted)
    assert set(weights.expected(planned.converter, facts, 2, "fp32")) == set(wanted)
    assert (out / "2-gpu" / "config.ini").exists() == (release != "22.03"), "5.0 writes none: we do"


@pytest.mark.parametrize("release", RELEASES)
def test_no_converter_that_is_called_runs_code_of_a_pickle(
    release: str, config: Config, tree: Callable[[str], Path]
) -> None:
    """transformers passes `weights_only` by itself (v4.46.3 modeling_utils.py, load_state_dict)."""
    scripts = {
        found.script
        for family in config.models.families
        for kind in ("huggingface", "jax")
        if (found := converters._find(config, release, family, kind))
    }
    assert scripts
    for script in scripts:
        calls = [
            (ast.unparse(node.func), {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords})
            for node in ast.walk(ast.parse((tree(release) / script).read_text()))
            if isinstance(node, ast.Call)
        ]
        loads = [arguments for called, arguments in calls if called == "torch.load"]
        assert all(arguments.get("weights_only") == "True" for arguments in loads), script
        assert not any("pickle" in called or "allow_pickle" in arguments for called, arguments in calls)
        assert loads or "gptj" not in script
