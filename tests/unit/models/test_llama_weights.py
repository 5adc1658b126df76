"""LLaMA's checkpoint, converted by numpy alone: every file, and what is refused before."""

from __future__ import annotations

import configparser
import json
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.models import checkpoint_tensors, conversion, weights
from ftbuild.models.conversion import Conversion, ConversionRequest
from testing import ROOT, scripts

Array = np.ndarray[Any, Any]
HEADS, KV_HEADS, SIZE, INNER, LAYERS, VOCABULARY = 4, 2, 48, 20, 2, 51
HIDDEN = HEADS * SIZE
SETTINGS: dict[str, Any] = {
    "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "vocab_size": VOCABULARY,
    "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2, "rms_norm_eps": 1e-5,
}  # fmt: skip
STORED = {np.dtype(np.float32): "F32", np.dtype(np.float16): "F16", np.dtype(ml_dtypes.bfloat16): "BF16"}


def tensors(*, tied: bool = False) -> dict[str, Array]:
    """By Hugging Face's names; every number is exact in bfloat16."""
    random = np.random.default_rng(5)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        of = f"model.layers.{layer}."
        shapes |= {
            f"{of}input_layernorm.weight": (HIDDEN,),
            f"{of}self_attn.q_proj.weight": (HIDDEN, HIDDEN),
            f"{of}self_attn.k_proj.weight": (KV_HEADS * SIZE, HIDDEN),
            f"{of}self_attn.v_proj.weight": (KV_HEADS * SIZE, HIDDEN),
            f"{of}self_attn.o_proj.weight": (HIDDEN, HIDDEN),
            f"{of}post_attention_layernorm.weight": (HIDDEN,),
            f"{of}mlp.gate_proj.weight": (INNER, HIDDEN),
            f"{of}mlp.up_proj.weight": (INNER, HIDDEN),
            f"{of}mlp.down_proj.weight": (HIDDEN, INNER),
        }
    shapes["model.norm.weight"] = (HIDDEN,)
    if not tied:
        shapes["lm_head.weight"] = (VOCABULARY, HIDDEN)
    return {name: random.integers(-100, 100, shape).astype(np.float32) for name, shape in shapes.items()}


def safetensors(held: dict[str, Array]) -> bytes:
    header, data = {}, b""
    for name, array in held.items():
        end = len(data) + array.nbytes
        entry = {"dtype": STORED[array.dtype], "shape": array.shape, "data_offsets": [len(data), end]}
        header[name] = entry
        data += array.tobytes()
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    return len(text).to_bytes(8, "little") + text + data


def write(folder: Path, held: dict[str, Array], dtype: Any = ml_dtypes.bfloat16, **settings: Any) -> Path:
    """A checkpoint in two files, which part a layer's queries and keys."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**SETTINGS, **settings}))
    names = list(held)
    at = names.index("model.layers.1.self_attn.k_proj.weight")
    index: dict[str, str] = {}
    for number, part in enumerate((names[:at], names[at:])):
        file = f"model-{number}.safetensors"
        (folder / file).write_bytes(safetensors({name: held[name].astype(dtype) for name in part}))
        index |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return folder


def planned(config: Config, folder: Path, release: str = "22.12", **options: Any) -> Conversion:
    request = ConversionRequest("llama", folder, folder.parent / "out", **options)
    return conversion.plan_conversion(config, release, request)


def carry_out(found: Conversion) -> subprocess.CompletedProcess[str]:
    """The command, with the folders of this machine in place of the container's; torch is not needed."""
    (argv,) = found.commands(
        str(found.checkpoint.folder), str(found.request.out), str(ROOT / "ftbuild" / "models")
    )
    return scripts.run(argv)


def converted(config: Config, folder: Path, **options: Any) -> Path:
    found = planned(config, folder, **options)
    done = carry_out(found)
    assert done.returncode == 0, done.stderr
    made = found.request.out / weights.folder_name(found.request.gpus)
    facts = found.checkpoint.facts
    complaints = weights.complaints(made, found.converter, facts, found.request.gpus, found.data_type)
    assert list(complaints) == []
    return made


def wanted(held: dict[str, Array], gpus: int) -> dict[str, Array]:
    """Written element by element: which number of the checkpoint is where in a file."""
    head = held.get("lm_head.weight", held["model.embed_tokens.weight"])
    files = {
        "model.wte": held["model.embed_tokens.weight"],
        "model.lm_head.weight": head,
        "model.final_layernorm.weight": held["model.norm.weight"],
    }
    for layer in range(LAYERS):
        of = f"model.layers.{layer}."
        for norm in ("input_layernorm.weight", "post_attention_layernorm.weight"):
            files[f"{of}{norm}"] = held[f"{of}{norm}"]
        mine = HEADS // gpus
        for gpu in range(gpus):
            fused = np.zeros((HIDDEN, 3, mine, SIZE), np.float32)
            for local in range(mine):
                head_at = gpu * mine + local
                for part, (name, share) in enumerate(
                    (("q", 1), ("k", HEADS // KV_HEADS), ("v", HEADS // KV_HEADS))
                ):
                    rows = held[f"{of}self_attn.{name}_proj.weight"]
                    first = head_at // share * SIZE
                    fused[:, part, local] = rows[first : first + SIZE].T
            files[f"{of}attention.query_key_value.weight.{gpu}"] = fused
            columns = slice(gpu * HIDDEN // gpus, (gpu + 1) * HIDDEN // gpus)
            files[f"{of}attention.dense.weight.{gpu}"] = held[f"{of}self_attn.o_proj.weight"][:, columns].T
            inner = slice(gpu * INNER // gpus, (gpu + 1) * INNER // gpus)
            for ft, name in (("dense_h_to_4h", "gate"), ("dense_h_to_4h_2", "up")):
                files[f"{of}mlp.{ft}.weight.{gpu}"] = held[f"{of}mlp.{name}_proj.weight"][inner].T
            files[f"{of}mlp.dense_4h_to_h.weight.{gpu}"] = held[f"{of}mlp.down_proj.weight"][:, inner].T
    return {f"{name}.bin": array for name, array in files.items()}


@pytest.mark.parametrize("gpus", [1, 2, 4])
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32])
def test_every_number_is_the_checkpoints(gpus: int, dtype: Any, config: Config, tmp_path: Path) -> None:
    held = tensors()
    made = converted(config, write(tmp_path / "hf", held, dtype), gpus=gpus)
    expected = wanted(held, gpus)
    assert {file.name for file in made.glob("*.bin")} == set(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(np.fromfile(made / name, np.float32), array.ravel(), err_msg=name)


def test_a_head_that_is_the_table_is_written_as_such(config: Config, tmp_path: Path) -> None:
    held = tensors(tied=True)
    made = converted(config, write(tmp_path / "hf", held, tie_word_embeddings=True), data_type="fp16")
    assert (made / "model.lm_head.weight.bin").read_bytes() == (made / "model.wte.bin").read_bytes()


@pytest.mark.parametrize(
    ("settings", "base", "factor"),
    [
        ({}, 1e4, 1),
        ({"rope_theta": 1000000}, 1e6, 1),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, 1e4, 2),
        ({"rope_theta": 5e5, "rope_scaling": {"rope_type": "default", "factor": 8}}, 5e5, 1),
        ({"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 4}}, 5e5, 4),
    ],
)
def test_config_ini_tells_how_positions_are_rotated(
    settings: dict[str, Any], base: float, factor: float, config: Config, tmp_path: Path
) -> None:
    made = converted(config, write(tmp_path / "hf", tensors(), **settings))
    written = configparser.ConfigParser()
    written.read(made / "config.ini")
    section = written["gptneox"]
    assert (float(section["rotary_emb_base"]), float(section["rotary_scaling_factor"])) == (base, factor)
    assert float(section["layernorm_eps"]) == 1e-5
    keys = {
        "use_rms_norm": "1",
        "activation_type": "gated-silu",
        "use_gptj_residual": "0",
        "rotary_embedding": "48",
    }
    assert {key: section[key] for key in keys} == keys


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_scaling.type is 'dynamic'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_scaling.rope_type is 'llama3'"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters.rope_type is 'yarn'"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is {'bits': 4}"),
        ({"hidden_size": 400}, "a head has 100 values"),
        ({"eos_token_id": [2, 3]}, "eos_token_id names 2 tokens"),
        ({"num_key_value_heads": 3}, "4 heads cannot be shared by 3 kv_heads evenly"),
        ({"head_dim": 64}, "head_dim \\* num_attention_heads is 256"),
    ],
    ids=str,
)
def test_what_cannot_be_computed_is_refused(
    settings: dict[str, Any], what: str, config: Config, tmp_path: Path
) -> None:
    folder = write(tmp_path / "hf", tensors(), **settings)
    with pytest.raises(ConfigError, match=what):
        planned(config, folder)


def test_older_releases_convert_none(config: Config, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"22\.07 converts no llama") as caught:
        planned(config, write(tmp_path / "hf", tensors()), release="22.07")
    assert "22.12, 24.10, 26.06" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("settings", "parameters", "repeated"),
    [
        ({"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
          "num_key_value_heads": None, "vocab_size": 32000}, 6_738_415_616, 0),
        ({"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
          "num_key_value_heads": 8, "vocab_size": 32000}, 68_976_648_192, 80 * 2 * 8192 * (8192 - 1024)),
    ],
    ids=["llama-2-7b", "llama-2-70b"],
)  # fmt: skip
def test_the_files_hold_all_parameters_and_what_grouped_queries_repeat(
    settings: dict[str, Any], parameters: int, repeated: int, config: Config, tmp_path: Path
) -> None:
    found = planned(config, write(tmp_path / "hf", tensors(), **settings))
    assert found.size == 4 * (parameters + repeated)
    assert found.memory < found.size / 4, "a tensor at a time, not the model"


def test_a_number_that_fp16_cannot_hold_ends_the_conversion(config: Config, tmp_path: Path) -> None:
    held = tensors()
    held["model.layers.1.mlp.up_proj.weight"][3, 5] = 2.0**17
    done = carry_out(planned(config, write(tmp_path / "hf", held), data_type="fp16"))
    assert done.returncode == 1
    assert (
        "model.layers.1.mlp.dense_h_to_4h_2.weight.0 has values that are not numbers in fp16" in done.stderr
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"model.layers.0.self_attn.q_proj.weight": np.zeros((HIDDEN, 3), np.float32)},
            "is [192, 3], not [192, 192]",
        ),
        ({"model.norm.weight": None}, "the checkpoint has no model.norm.weight"),
    ],
    ids=["shape", "missing"],
)
def test_a_tensor_that_does_not_fit_is_named(
    change: dict[str, Array | None], said: str, config: Config, tmp_path: Path
) -> None:
    held = {name: array for name, array in {**tensors(), **change}.items() if array is not None}
    done = carry_out(planned(config, write(tmp_path / "hf", held)))
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("empty", [None, {}, []])
def test_keys_that_are_empty_are_written_as_those_that_are_absent(
    empty: Any, config: Config, tmp_path: Path
) -> None:
    absent = {"rms_norm_eps": 1e-6, "rope_theta": 10000.0}
    wanted_text = (
        converted(config, write(tmp_path / "a" / "hf", tensors(), **absent)) / "config.ini"
    ).read_text()
    given = dict.fromkeys(("rms_norm_eps", "rope_theta", "rope_scaling", "tie_word_embeddings"), empty)
    made = converted(config, write(tmp_path / "b" / "hf", tensors(), **given))
    assert (made / "config.ini").read_text() == wanted_text


def test_every_bfloat16_becomes_the_very_same_number(tmp_path: Path) -> None:
    numbers = np.arange(2**16, dtype=np.uint16).view(ml_dtypes.bfloat16)
    (tmp_path / "all.safetensors").write_bytes(safetensors({"w": numbers}))
    found = checkpoint_tensors.Tensors(tmp_path, ["all.safetensors"])("w", 2**16)
    np.testing.assert_array_equal(found, numbers.astype(np.float32))
