"""What is known about a conversion before it starts, and whether converted weights are whole."""

from __future__ import annotations

import json
import math
import shutil
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ftbuild.cli import selection as options
from ftbuild.config import loader
from ftbuild.config.schema import Config
from ftbuild.engine.mounted import Folders
from ftbuild.errors import ConfigError
from ftbuild.models import conversion, progress, weights
from ftbuild.models.conversion import Conversion, ConversionRequest

GPT2 = {"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 128, "n_positions": 16, "vocab_size": 50}
IDS = {"bos_token_id": 1, "eos_token_id": 2}
NEOX = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 128, "intermediate_size": 64}
OPT = {
    "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 128, "ffn_dim": 64,
    "max_position_embeddings": 16, "vocab_size": 50,
}  # fmt: skip
BLOOM = {"n_layer": 2, "n_head": 4, "hidden_size": 128, "vocab_size": 50}
MPT = {"n_layers": 2, "n_heads": 4, "d_model": 128, "max_seq_len": 16, "vocab_size": 50}
T5 = {"d_model": 32, "d_kv": 32, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
BERT = {
    "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 128, "intermediate_size": 64,
    "max_position_embeddings": 16, "type_vocab_size": 2, "hidden_act": "gelu_new",
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "gpt": {**GPT2, **IDS},
    "opt": {**OPT, **IDS, "model_type": "opt"},
    "bloom": {**BLOOM, **IDS, "model_type": "bloom"},
    "mpt": {**MPT, **IDS, "model_type": "mpt"},
    "gptj": {**GPT2, **IDS, "model_type": "gptj", "rotary_dim": 4},
    "codegen": {**GPT2, **IDS, "model_type": "codegen", "rotary_dim": 4},
    "gptneox": {**NEOX, **IDS, "model_type": "gpt_neox", "vocab_size": 50},
    "t5": {**T5, **IDS, "model_type": "t5", "vocab_size": 50},
    "bert": {**BERT, "model_type": "bert", "vocab_size": 50},
    "t5-encoder": {**T5, "model_type": "t5", "vocab_size": 50},
}
# The numbers of parameters as the models' cards tell them; files that a converter writes besides, in values.
KNOWN: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "gpt2": (
        "gpt",
        {"n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024, "vocab_size": 50257},
        124_439_808,
        0,
    ),
    "opt-350m": (
        "opt",
        {
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "hidden_size": 1024,
            "ffn_dim": 4096,
            "max_position_embeddings": 2048,
            "vocab_size": 50272,
            "do_layer_norm_before": False,
        },
        331_196_416,
        # Embedding and head as wide as the model, for one 512 wide and two projections; two positions less.
        2 * 50272 * 1024 - 50272 * 512 - 2 * 512 * 1024 - 2 * 1024,
    ),
    "bloom-560m": (
        "bloom",
        {
            "n_layer": 24,
            "n_head": None,
            "num_attention_heads": 16,
            "n_embed": 1024,
            "hidden_size": 1024,
            "vocab_size": 250880,
        },
        559_214_592,
        0,
    ),
    "mpt-7b": (
        "mpt",
        {"n_layers": 32, "n_heads": 32, "d_model": 4096, "max_seq_len": 2048, "vocab_size": 50432},
        6_649_286_656,
        # A row of positions; biases of two norms and four matrices in each layer, and of the last norm.
        4096 + 32 * (2 * 4096 + 3 * 4096 + 4096 + 4 * 4096 + 4096) + 4096,
    ),
    "gpt-j-6b": (
        "gptj",
        {"n_layer": 28, "n_head": 16, "n_embd": 4096, "vocab_size": 50400, "rotary_dim": 64},
        6_050_882_784,
        0,
    ),
    "gpt-neox-20b": (
        "gptneox",
        {
            "num_hidden_layers": 44,
            "num_attention_heads": 64,
            "hidden_size": 6144,
            "intermediate_size": 24576,
            "vocab_size": 50432,
        },
        20_554_567_680,
        44 * 6144,  # sums of two biases
    ),
    "t5-small": (
        "t5",
        {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8, "vocab_size": 32128},
        60_506_624,
        2 * 32128 * 512,  # the table three times
    ),
    "flan-t5-small": (
        "t5",
        {
            "d_model": 512,
            "d_kv": 64,
            "d_ff": 1024,
            "num_layers": 8,
            "num_heads": 6,
            "vocab_size": 32128,
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": False,
        },
        76_961_152,
        32128 * 512,  # the table twice, beside the head
    ),
    "sentence-t5-base": (
        "t5-encoder",
        {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12, "vocab_size": 32128},
        109_628_544,
        32128 * 768,  # the table twice
    ),
}
Make = Callable[..., Path]


def safetensors(values: int = 4) -> bytes:
    """A file with one tensor of fp32."""
    header = {
        "__metadata__": {"format": "pt"},
        "w": {"dtype": "F32", "shape": [values], "data_offsets": [0, 4 * values]},
    }
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(4 * values)


def zipped(path: Path) -> bytes:
    """What torch.save and numpy.savez write."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"x" * 1000)
    return path.read_bytes()


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A checkpoint of a family, with config.json changed and files added or replaced; None takes one away."""

    def write(family: str, files: dict[str, bytes | None] | None = None, **settings: Any) -> Path:
        folder = tmp_path / "checkpoint"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        content: dict[str, bytes | None] = {
            "config.json": json.dumps({**SETTINGS[family], **settings}).encode(),
            "model.safetensors": safetensors(),
            **(files or {}),
        }
        for name, data in content.items():
            if data is not None:
                (folder / name).write_bytes(data)
        return folder

    return write


def planned(config: Config, family: str, folder: Path, release: str = "22.12", **options: Any) -> Conversion:
    return conversion.plan_conversion(
        config, release, ConversionRequest(family, folder, folder.parent / "out", **options)
    )


def refused(config: Config, family: str, folder: Path, release: str = "22.12", **options: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        planned(config, family, folder, release, **options)
    assert caught.value.exit_code == 2
    return caught.value


@pytest.mark.parametrize("family", SETTINGS)
def test_a_checkpoint_is_read_without_loading_it(family: str, config: Config, make: Make) -> None:
    folder = make(family)
    found = planned(config, family, folder)
    assert found.checkpoint.files == (folder / "model.safetensors",)
    assert found.checkpoint.size == len(safetensors())
    facts = found.checkpoint.facts
    wanted = {"layers": 2, "heads": 4, "hidden": 32 if family.startswith("t5") else 128, "vocabulary": 50}
    assert {name: facts[name] for name in wanted} == wanted
    # An encoder alone ends nothing.
    assert facts.get("end") == (None if family in ("bert", "t5-encoder") else 2)
    assert found.data_type == "fp32"


def test_a_checkpoint_of_another_model_is_named_with_the_family_that_reads_it(
    config: Config, make: Make
) -> None:
    error = refused(config, "gptj", make("codegen"))
    assert error.what == "the checkpoint is a codegen model, not gptj"
    assert error.hint == "--model codegen"
    error = refused(config, "gpt", make("gpt", model_type="mistral"))
    assert error.hint == "families: gpt, opt, bloom, mpt, gptj, codegen, gptneox, t5, llama, bert, t5-encoder"


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({"model.safetensors": safetensors()[:-1]}, "truncated or damaged: it has"),
        ({"model.safetensors": safetensors()[:20]}, "truncated or damaged: its header has"),
        ({"model.safetensors": safetensors()[:-17]}, "truncated or damaged: its header has"),
        ({"model.safetensors": b""}, "truncated or damaged: it has 0 bytes"),
        ({"model.safetensors": b"version https://git-lfs.github.com/spec/v1\n"}, "Git LFS pointer"),
        ({"model.safetensors": None}, "no weights for PyTorch"),
        ({"model.safetensors": None, "pytorch_model.bin": b""}, "truncated or damaged: it is empty"),
        ({"model.safetensors": None, "model.safetensors.index.json": b"{}"}, "not an index of weights"),
        ({"config.json": b"{"}, "not a config.json"),
        ({"config.json": b"[]"}, "not a config.json"),
        ({"config.json": None}, "no checkpoint here"),
    ],
)
def test_damage_is_found_and_the_file_named(
    files: dict[str, bytes | None], what: str, config: Config, make: Make
) -> None:
    error = refused(config, "gpt", make("gpt", files))
    assert what in error.what
    damaged = next(reversed(files)) if files[next(reversed(files))] is not None else "checkpoint"
    assert (error.where or "").endswith(damaged)
    assert error.hint


def test_a_pickle_that_is_cut_off_is_found_where_its_format_shows_it(
    config: Config, make: Make, tmp_path: Path
) -> None:
    whole = zipped(tmp_path / "file.zip")
    alone: dict[str, bytes | None] = {"model.safetensors": None, "pytorch_model.bin": whole}
    assert planned(config, "gpt", make("gpt", alone)).checkpoint.size == len(whole)
    assert (
        "truncated" in refused(config, "gpt", make("gpt", {**alone, "pytorch_model.bin": whole[:-30]})).what
    )
    # torch before 1.6
    assert planned(config, "gpt", make("gpt", {**alone, "pytorch_model.bin": b"\x80\x02" + bytes(99)}))


def test_every_shard_must_be_there_and_whole(config: Config, make: Make) -> None:
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "one.safetensors"}}
    shards: dict[str, bytes | None] = {
        "model.safetensors": None,
        "model.safetensors.index.json": json.dumps(index).encode(),
        "one.safetensors": safetensors(),
        "two.safetensors": safetensors(8),
    }
    found = planned(config, "gptneox", make("gptneox", shards))
    assert [file.name for file in found.checkpoint.files] == ["one.safetensors", "two.safetensors"]
    error = refused(config, "gptneox", make("gptneox", {**shards, "two.safetensors": None}))
    assert "1 of 2 files of the checkpoint are missing: two.safetensors" in error.what
    error = refused(config, "gptneox", make("gptneox", {**shards, "two.safetensors": safetensors(8)[:-1]}))
    assert (error.where or "").endswith("two.safetensors")


def test_a_folder_that_does_not_exist_and_an_output_that_does_are_refused(
    config: Config, make: Make, tmp_path: Path
) -> None:
    assert "does not exist" in refused(config, "gpt", tmp_path / "nothing").what
    (tmp_path / "out").mkdir()
    assert "the output exists" in refused(config, "gpt", make("gpt")).what


@pytest.mark.parametrize("family", SETTINGS)
def test_the_gpus_must_divide_the_heads(family: str, config: Config, make: Make) -> None:
    assert planned(config, family, make(family), gpus=4)
    assert "4 heads cannot be split over 3 GPUs" in refused(config, family, make(family), gpus=3).what
    assert "cannot be split over 0 GPUs" in refused(config, family, make(family), gpus=0).what


@pytest.mark.parametrize(
    ("family", "release", "settings", "what"),
    [
        ("t5", "22.03", {"feed_forward_proj": "gated-gelu"}, "feed_forward_proj is 'gated-gelu'"),
        ("t5", "22.03", {"tie_word_embeddings": False}, "tie_word_embeddings is False"),
        ("t5", "22.12", {"feed_forward_proj": "glu"}, "feed_forward_proj is 'glu'"),
        ("gpt", "22.12", {"n_inner": 96}, "inner is 96; the converter assumes 4 * hidden = 512"),
        ("gpt", "22.12", {"tie_word_embeddings": False}, "tie_word_embeddings is False"),
        ("gpt", "22.12", {"activation_function": "relu"}, "activation_function is 'relu'"),
        ("opt", "22.12", {"activation_function": "gelu"}, "activation_function is 'gelu'"),
        ("opt", "22.12", {"enable_bias": False}, "enable_bias is False"),
        (
            "bloom",
            "22.12",
            {"apply_residual_connection_post_layernorm": True},
            "apply_residual_connection_post_layernorm is True",
        ),
        ("mpt", "22.12", {"attn_config": {"clip_qkv": 8}}, "attn_config.clip_qkv is 8"),
        ("mpt", "22.12", {"attn_config": {"alibi": False}}, "attn_config.alibi is False"),
        ("mpt", "22.12", {"expansion_ratio": 2}, "inner is 256; the converter assumes 4 * hidden = 512"),
        ("mpt", "22.12", {"attn_config": "alibi", "no_bias": False}, "no_bias is False"),
        ("gptj", "22.12", {"n_inner": 96}, "inner is 96"),
        ("gptj", "22.12", {"rotary_dim": None}, "config.json has no rotary"),
        ("codegen", "22.12", {"auto_map": {"AutoConfig": "x.y"}}, "auto_map is"),
        ("gptneox", "22.07", {"rotary_emb_base": 500000}, "rotary_emb_base is 500000"),
        ("gptneox", "22.07", {"rope_scaling": {"type": "linear"}}, "rope_scaling is {'type': 'linear'}"),
        ("gptneox", "22.12", {"rope_scaling": {"type": "dynamic"}}, "rope_scaling.type is 'dynamic'"),
        (
            "gptneox",
            "22.12",
            {"rope_parameters": {"rope_theta": 1e6, "rope_type": "yarn"}},
            "rope_scaling.type is 'yarn'",
        ),
        ("gptneox", "22.12", {"rope_parameters": {"mrope_section": [1]}}, "rope_parameters is"),
        ("gpt", "22.12", {"bos_token_id": None}, "config.json has no start"),
    ],
)
def test_what_a_converter_would_get_wrong_is_refused(
    family: str, release: str, settings: dict[str, Any], what: str, config: Config, make: Make
) -> None:
    assert what in refused(config, family, make(family, **settings), release).what


def test_what_a_converter_assumes_is_told(config: Config, make: Make) -> None:
    error = refused(config, "gpt", make("gpt", activation_function="relu", tie_word_embeddings=False))
    assert error.what.splitlines() == [
        "22.12 cannot convert this checkpoint for 1 GPU:",
        "    activation_function is 'relu'; the converter and FasterTransformer assume "
        "gelu_new or gelu or gelu_fast or gelu_pytorch_tanh",
        "    tie_word_embeddings is False; the converter and FasterTransformer assume True",
    ]
    assert error.hint == "another checkpoint"


def test_another_number_of_gpus_is_proposed_where_it_helps(config: Config, make: Make) -> None:
    assert refused(config, "gpt", make("gpt"), gpus=3).hint == "another number of GPUs"
    relu = refused(config, "gpt", make("gpt", activation_function="relu"), gpus=3)
    assert "4 heads cannot be split over 3 GPUs" in relu.what
    assert relu.hint == "another checkpoint"


def test_heads_share_the_hidden_size_evenly(config: Config, make: Make) -> None:
    error = refused(config, "gpt", make("gpt", n_embd=30))
    assert "hidden is 30, which 4 heads cannot share evenly" in error.what
    assert planned(config, "t5", make("t5", d_model=30))


def test_the_length_of_alibi_is_what_the_checkpoint_says_and_the_kernels_take(
    config: Config, make: Make
) -> None:
    def limit(family: str, **settings: Any) -> str:
        found = planned(config, family, make(family, **settings))
        return weights.added_config(found.converter, found.checkpoint.facts)["gpt"]["max_pos_seq_len"]

    assert (limit("mpt"), limit("mpt", max_seq_len=65536), limit("bloom")) == ("16", "4096", "2048")


def test_an_mpt_that_names_no_token_has_that_of_its_tokenizer(config: Config, make: Make) -> None:
    found = planned(config, "mpt", make("mpt", bos_token_id=None, eos_token_id=None))
    assert (found.checkpoint.facts["start"], found.checkpoint.facts["end"]) == (0, 0)
    added = weights.added_config(found.converter, found.checkpoint.facts)["gpt"]
    assert (added["start_id"], added["use_attention_linear_bias"]) == ("0", "1")


def test_an_opt_without_its_last_norm_has_no_file_of_it(config: Config, make: Make) -> None:
    name = "model.final_layernorm.weight.bin"
    assert name in planned(config, "opt", make("opt")).files
    assert name not in planned(config, "opt", make("opt", do_layer_norm_before=False)).files


def test_a_release_that_can_is_named(config: Config, make: Make) -> None:
    gated = make("t5", feed_forward_proj="gated-gelu")
    assert refused(config, "t5", gated, "22.03").hint == "--triton 22.12 can"
    assert planned(config, "t5", gated, "22.12")
    other_width = make("gpt", n_inner=96)
    assert refused(config, "gpt", other_width, "22.12").hint == "--triton 22.03 can"
    assert planned(config, "gpt", other_width, "22.03")
    error = refused(config, "codegen", make("codegen"), "22.03")
    assert error.what == "22.03 converts no codegen from a Hugging Face checkpoint"
    assert error.hint == "it converts gpt, t5; codegen is converted by 22.07, 22.12, 24.10, 26.06"


@pytest.mark.parametrize("gpus", [1, 2])
def test_without_the_parallel_residual_there_is_no_sum_of_biases(
    config: Config, make: Make, gpus: int
) -> None:
    files = planned(config, "gptneox", make("gptneox", use_parallel_residual=False), gpus=gpus).files
    assert not [name for name in files if name.endswith("bias.sum.bin")]


def test_a_data_type_that_the_converter_does_not_write_is_refused(config: Config, make: Make) -> None:
    assert planned(config, "gpt", make("gpt"), data_type="fp16").data_type == "fp16"
    error = refused(config, "gptj", make("gptj"), data_type="fp16")
    assert error.what == "the gptj converter of 22.12 writes fp32, not fp16"


def test_a_checkpoint_is_saved_anew_where_the_converter_could_not_read_it(
    config: Config, make: Make, tmp_path: Path
) -> None:
    found = planned(config, "gptj", make("gptj"))
    first, second = found.commands()
    assert first == [
        "python3", "/convert/scripts/relayout.py", "single", "/convert/checkpoint",
        "/convert/out/.checkpoint", "model.safetensors",
    ]  # fmt: skip
    assert second[second.index("--ckpt-dir") + 1] == "/convert/out/.checkpoint"
    assert second[second.index("--n-layers") + 1] == "2"
    assert found.needed == found.size + found.checkpoint.size
    assert found.relayout_script
    assert found.relayout_script.is_file()
    alone = {"model.safetensors": None, "pytorch_model.bin": zipped(tmp_path / "file.zip")}
    found = planned(config, "gptj", make("gptj", alone))
    assert len(found.commands()) == 1
    assert found.needed == found.size
    assert "truncated" in refused(config, "gptj", make("gptj", {**alone, "pytorch_model.bin": b"PK"})).what
    # CodeGen is never GPT-J before.
    found = planned(config, "codegen", make("codegen", alone))
    assert next(argv[2] for argv in found.commands()) == "codegen"


def test_of_weights_in_two_formats_those_are_converted_that_transformers_loads(
    config: Config, make: Make, tmp_path: Path
) -> None:
    older = {"pytorch_model.bin": zipped(tmp_path / "file.zip")}
    first, second = planned(config, "gptj", make("gptj", older)).commands()
    assert first[-1] == "model.safetensors"
    assert second[second.index("--ckpt-dir") + 1] == "/convert/out/.checkpoint"


@pytest.mark.parametrize("family", SETTINGS)
def test_an_adapter_beside_the_weights_is_not_lost_without_a_word(
    family: str, config: Config, make: Make
) -> None:
    adapter = {"adapter_config.json": b"{}", "adapter_model.safetensors": safetensors()}
    what = refused(config, family, make(family, adapter)).what
    assert "adapter_config.json beside the weights" in what
    assert "merge_and_unload" in what


@pytest.mark.parametrize("gpus", [1, 2, 4])
@pytest.mark.parametrize("model", KNOWN)
def test_the_files_hold_every_parameter_of_a_known_model(
    model: str, gpus: int, config: Config, make: Make
) -> None:
    family, settings, parameters, more = KNOWN[model]
    if settings.get("num_heads") == 6 and gpus == 4:
        assert "6 heads cannot be split" in refused(config, family, make(family, **settings), gpus=gpus).what
        return
    found = planned(config, family, make(family, **settings), gpus=gpus)
    assert found.size == 4 * (parameters + more)


def test_files_of_all_gpus_are_equal_shares(config: Config, make: Make) -> None:
    one, four = (planned(config, "gpt", make("gpt"), gpus=gpus).files for gpus in (1, 4))
    name = "model.layers.1.attention.query_key_value.weight.{}.bin"
    assert one[name.format(0)] == 4 * 128 * 3 * 128
    assert [four[name.format(rank)] for rank in range(4)] == [4 * 128 * 3 * 128 // 4] * 4
    assert one["model.wpe.bin"] == four["model.wpe.bin"] == 4 * 16 * 128
    assert math.isclose(sum(one.values()), sum(four.values()))


@pytest.fixture
def converted(config: Config, make: Make, tmp_path: Path) -> tuple[Path, Conversion]:
    """Weights as a converter writes them."""
    found = planned(config, "gpt", make("gpt"), gpus=2)
    folder = tmp_path / "2-gpu"
    folder.mkdir()
    for name, size in found.files.items():
        (folder / name).write_bytes(bytes(size))
    (folder / "config.ini").write_text(
        "[gpt]\nmodel_name = 100%\nhead_num = 4\nsize_per_head = 32\ninter_size = 512\nmax_pos_seq_len = 16\n"
        "num_layer = 2\nvocab_size = 50\nstart_id = 1\nend_id = 2\nweight_data_type = fp32\n"
    )
    return folder, found


def complaints(converted: tuple[Path, Conversion]) -> list[str]:
    folder, found = converted
    return list(weights.complaints(folder, found.converter, found.checkpoint.facts, 2, found.data_type))


def test_whole_weights_have_no_complaint(converted: tuple[Path, Conversion]) -> None:
    assert complaints(converted) == []


def test_what_is_missing_short_or_too_much_is_told(converted: tuple[Path, Conversion]) -> None:
    folder, _ = converted
    (folder / "model.wpe.bin").unlink()
    (folder / "model.wte.bin").write_bytes(b"x")
    (folder / "model.lm_head.weight.bin").write_bytes(b"x")
    assert complaints(converted) == [
        "model.lm_head.weight.bin is not a file of this model",
        "model.wpe.bin is missing",
        "model.wte.bin has 1 bytes, not 25600",
    ]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("num_layer = 2", "num_layer = 28", "config.ini has gpt.num_layer = 28, the checkpoint 2"),
        (
            "size_per_head = 32",
            "size_per_head = 16",
            "gpt.head_num * gpt.size_per_head = 64, the checkpoint 128",
        ),
        ("start_id = 1", "start_id = None", "config.ini has no gpt.start_id"),
        ("end_id = 2", "", "config.ini has no gpt.end_id"),
        ("= fp32", "= fp16", "config.ini has gpt.weight_data_type = fp16, not fp32"),
    ],
)
def test_a_config_that_contradicts_the_checkpoint_is_told(
    old: str, new: str, complaint: str, converted: tuple[Path, Conversion]
) -> None:
    file = converted[0] / "config.ini"
    file.write_text(file.read_text().replace(old, new))
    (found,) = complaints(converted)
    assert complaint in found


def test_weights_without_a_config_are_not_whole(converted: tuple[Path, Conversion]) -> None:
    (converted[0] / "config.ini").unlink()
    assert complaints(converted) == ["config.ini was not written"]
    (converted[0] / "config.ini").write_text("[gpt\n")
    (found,) = complaints(converted)
    assert found.startswith("config.ini cannot be read: ")


def test_each_key_that_a_config_lacks_is_told(converted: tuple[Path, Conversion]) -> None:
    file = converted[0] / "config.ini"
    file.write_text(file.read_text().replace("start_id = 1\nend_id = 2\n", "").replace("= fp32", "= fp16"))
    assert complaints(converted) == [
        "config.ini has no gpt.start_id ('gpt.start_id')",
        "config.ini has no gpt.end_id ('gpt.end_id')",
        "config.ini has gpt.weight_data_type = fp16, not fp32",
    ]


def test_as_many_files_as_a_model_has_at_most_are_expected(
    config: Config, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = len(planned(config, "gpt", make("gpt")).files)
    monkeypatch.setattr(weights, "MAX_FILES", count)
    assert len(planned(config, "gpt", make("gpt")).files) == count
    monkeypatch.setattr(weights, "MAX_FILES", count - 1)
    what = f"2 layers, 1 gpus: {count} weight files, more than the {count - 1} of any model"
    assert refused(config, "gpt", make("gpt")).what == what


def test_a_folder_of_links_is_mounted_file_by_file(tmp_path: Path) -> None:
    blobs, snapshot, plain = (tmp_path / name for name in ("blobs", "snapshot", "plain"))
    for folder in (blobs, snapshot, plain):
        folder.mkdir()
    (blobs / "0123").write_text("{}")
    (snapshot / "config.json").symlink_to("../blobs/0123")
    (plain / "config.json").write_text("{}")
    mounts = Folders({"/in": snapshot, "/plain": plain}, {"/out": tmp_path}).mounts()
    assert [(m["Target"], m["Source"], bool(m["ReadOnly"])) for m in mounts] == [
        ("/in/config.json", str(blobs / "0123"), True),
        ("/plain", str(plain), True),
        ("/out", str(tmp_path), False),
    ]


def test_progress_is_a_line_for_every_tenth_where_there_is_no_terminal(tmp_path: Path) -> None:
    lines: list[str] = []
    with progress.shown("converting", tmp_path, 1000, lines.append) as tick:
        for size in (0, 50, 100, 110, 350, 390, 1000, 1000):
            (tmp_path / "file").write_bytes(bytes(size))
            tick()
    assert [line.split(",")[0] for line in lines] == [
        "converting: 10 %", "converting: 35 %", "converting: 100 %",
    ]  # fmt: skip


def test_progress_tells_the_rate_and_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((100.0, 110.0, 200.0))
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    lines: list[str] = []
    with progress.shown("converting", tmp_path, 4_000_000, lines.append) as tick:
        for size in (1_000_000, 4_000_000):
            (tmp_path / "file").write_bytes(bytes(size))
            tick()
    assert lines == [
        "converting: 25 %, 0.0 of 0.0 GB, 100 kB/s, 30 s left",
        "converting: 100 %, 0.0 of 0.0 GB, 40 kB/s",
    ]


def test_plans_of_a_release_that_does_not_convert_the_family_are_left_out(config: Config, make: Make) -> None:
    gpt = config.models.families["gpt"]
    only_old = gpt.model_copy(update={"converters": gpt.converters[:1]})
    families = {**config.models.families, "gpt": only_old}
    older = replace(config, models=config.models.model_copy(update={"families": families}))
    plans = options.plans(older, options.Selection(config.folder, ["22.03", "22.12"], ["80"]))
    request = ConversionRequest("gpt", make("gpt"), Path("out"))
    assert [plan.cell.triton for plan in conversion.candidates(older, plans, request)] == ["22.03"]
    both = [plan.cell.triton for plan in conversion.candidates(config, plans, request)]
    assert both == ["22.12"]


def test_the_dry_run_tells_the_size_of_a_known_model(config: Config, make: Make) -> None:
    family, settings, parameters, _ = KNOWN["gpt2"]
    found = planned(config, family, make(family, **settings), gpus=2)
    first, checkpoint, run, write, disk, memory, gpu, _, time = found.render().splitlines()
    folder = found.request.checkpoint
    facts = ", ".join(f"{name} {value}" for name, value in found.checkpoint.facts.items())
    assert first == "gpt for 2 GPUs as fp32, release 22.12"
    assert checkpoint == f"  checkpoint  {folder} (0.00 GB; {facts})"
    assert run.startswith("  run         python3 /opt/ftbuild/FasterTransformer/examples/pytorch/gpt/")
    assert round(4 * parameters / 1e9, 2) == 0.5
    assert write == f"  write       {folder.parent}/out/2-gpu: {len(found.files)} files, 0.50 GB"
    assert disk == "  disk        0.50 GB"
    # transformers makes it of fp32 in one piece, and the converter copies one tensor at a time.
    assert (
        memory
        == f"  memory      {(4 * (parameters + 50257 * 768) + len(safetensors())) / 1e9:.2f} GB at least"
    )
    each = weights.of_one_gpu(found.converter, found.checkpoint.facts, 2, "fp16")
    assert found.on_gpu
    assert found.on_gpu.total > found.on_gpu.weights > each
    assert gpu == (
        f"  GPU memory  {found.on_gpu.total / 1e9:.2f} GB on each of 2 in fp16; "
        "invoke plan-model shows for which requests"
    )
    assert time == "  time        unknown: no converter's rate has been measured"


def test_gptj_s_converter_holds_the_checkpoint_as_it_is(config: Config, make: Make) -> None:
    family, settings, parameters, _ = KNOWN["gpt-j-6b"]
    found = planned(config, family, make(family, **settings))
    assert found.memory == found.checkpoint.size + 4 * 50400 * 4096
    assert found.memory < 4 * parameters


def test_a_converter_of_ours_holds_a_tensor_for_each_gpu(config: Config, make: Make) -> None:
    found = planned(config, "bert", make("bert", vocab_size=1000), gpus=2, data_type="fp16")
    assert found.memory == 2 * 3 * 4 * 1000 * 128 + len(safetensors())


def test_the_converter_gets_as_many_processes_as_are_asked_for(config: Config, make: Make) -> None:
    (command,) = planned(config, "gpt", make("gpt"), jobs=7).commands()
    assert command[command.index("-p") + 1] == "7"


def test_the_dry_run_tells_no_gpu_memory_where_none_is_known(config: Config, make: Make) -> None:
    gpt = config.models.families["gpt"].model_copy(update={"gpu_memory": None})
    models = config.models.model_copy(update={"families": {**config.models.families, "gpt": gpt}})
    lines = planned(replace(config, models=models), "gpt", make("gpt")).render().splitlines()
    assert [line.split()[0] for line in lines[-4:]] == ["disk", "memory", "refused", "time"]


def test_the_dry_run_tells_what_would_be_done(config: Config, make: Make) -> None:
    folder = make("gptneox")
    text = planned(config, "gptneox", folder, gpus=2, data_type="fp16").render()
    assert "gptneox for 2 GPUs as fp16, release 22.12" in text
    assert f"  checkpoint  {folder} (0.00 GB; layers 2, heads 4, " in text
    assert "\n  disk        0.00 GB\n" in text
    assert "-i /convert/checkpoint -o /convert/out -i_g 2" in text
    assert "out/2-gpu" in text


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("hidden * 3 * hidden", "hidden * 3 * hiden", "gpt uses the fact 'hiden'"),  # codespell:ignore hiden
        ("rows * length * hidden", "rows * length * width", "gpt uses the fact 'width'"),
        ("        settings: *gptj_6b\n", "", "a jax checkpoint has no config.json"),
        ("model.layers.{layers}.mlp", "model.layers.{layer}.mlp", "gpt uses the fact 'layer'"),
        ("splits: [heads, inner]", "splits: [head, inner]", "gpt uses the fact 'head'"),
        ("        rotary: rotary_dim\n", "", "gptj uses the fact 'rotary'"),
        ("    served_as: gptj", "    served_as: gptx", "codegen is served as 'gptx', which is not a family"),
    ],
)
def test_a_name_that_nothing_defines_is_found_when_the_configuration_is_read(
    old: str, new: str, what: str, config_folder: Path
) -> None:
    file = config_folder / "models.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(ConfigError, match=what):
        loader.load(config_folder)


def test_the_newest_release_that_converts_it_is_taken(config: Config, make: Make) -> None:
    def chosen(family: str, *triton: str) -> list[str]:
        order = ConversionRequest(family, make(family), Path("out"))
        found = options.plans(config, options.Selection(config.folder, triton))
        return sorted({plan.cell.triton for plan in conversion.candidates(config, found, order)})

    assert chosen("gptj") == ["26.06"]
    assert chosen("gptj", "22.03", "22.07") == ["22.07"]
    with pytest.raises(ConfigError, match=r"22\.03 converts no gptj from a Hugging Face checkpoint"):
        chosen("gptj", "22.03")
