"""Keys of config.json: what transformers 5 says in other words, what is contradictory, what nobody knows."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.models import conversion, converters, settings, weights
from ftbuild.models.conversion import Conversion, ConversionRequest
from testing.model_files import CHECKPOINTS

TABLE, OTHER = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((3, 4), np.float32)
T5 = {**CHECKPOINTS["t5"], "feed_forward_proj": "gated-gelu"}
HEADS = {
    "gpt": ("transformer.wte.weight", "lm_head.weight"),
    "opt": ("model.decoder.embed_tokens.weight", "lm_head.weight"),
    "bloom": ("transformer.word_embeddings.weight", "lm_head.weight"),
    "mpt": ("transformer.wte.weight", "lm_head.weight"),
    "t5": ("shared.weight", "lm_head.weight"),
}


def write(folder: Path, settings: Mapping[str, Any], **tensors: np.ndarray[Any, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    header, data = {}, b""
    for name, tensor in (tensors or {"x": OTHER}).items():
        place = [len(data), len(data) + tensor.nbytes]
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": place}
        data += tensor.tobytes()
    written = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(written)) + written + data)
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


def planned(config: Config, family: str, folder: Path, release: str = "22.12", **options: Any) -> Conversion:
    request = ConversionRequest(family, folder, folder.parent / "out", **options)
    return conversion.plan_conversion(config, release, request)


def given(found: Conversion) -> dict[str, Any]:
    """The config.json that the converter gets in place of the checkpoint's."""
    first, second = found.commands()
    assert first[1].endswith("/reconfigure.py")
    assert "/convert/out/.checkpoint" in second
    (option,) = [word for word in first if word.startswith("--config=")]
    settings: dict[str, Any] = json.loads(option.removeprefix("--config="))
    return settings


def refusal(config: Config, family: str, folder: Path, release: str = "22.12", **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        planned(config, family, folder, release, **options)
    return caught.value.what


@pytest.mark.parametrize(
    ("head", "tied"), [(TABLE, True), (OTHER, False), (None, True)], ids=["table", "own", "absent"]
)
@pytest.mark.parametrize("scaled", [True, False])
def test_t5_of_transformers_5_is_tied_if_its_tensors_are_and_scaled_if_it_says_so(
    head: np.ndarray[Any, Any] | None, tied: bool, scaled: bool, config: Config, tmp_path: Path
) -> None:
    tensors = {"shared.weight": TABLE, **({} if head is None else {"lm_head.weight": head})}
    said = {**T5, "tie_word_embeddings": True, "scale_decoder_outputs": scaled}
    found = planned(config, "t5", write(tmp_path / "hf", said, **tensors))
    settings = given(found) if not tied else found.checkpoint.settings
    assert settings["tie_word_embeddings"] == tied
    assert found.checkpoint.facts["scaled"] == scaled
    assert found.needed == found.size, "the weights are linked"


@pytest.mark.parametrize("other", ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"])
def test_a_table_of_t5_with_two_contents_is_refused(other: str, config: Config, tmp_path: Path) -> None:
    folder = write(tmp_path / "hf", T5, **{"shared.weight": TABLE, other: TABLE})
    assert planned(config, "t5", folder)
    folder = write(tmp_path / "hf", T5, **{"shared.weight": TABLE, other: OTHER})
    assert f"shared.weight and {other} are the same table" in refusal(config, "t5", folder)


def test_t5_of_transformers_4_is_read_as_it_is(config: Config, tmp_path: Path) -> None:
    for tied, head in ((True, TABLE), (False, OTHER), (False, TABLE)):
        folder = write(
            tmp_path / "hf",
            {**T5, "tie_word_embeddings": tied},
            **{"shared.weight": TABLE, "lm_head.weight": head},
        )
        found = planned(config, "t5", folder)
        assert len(found.commands()) == 1
        assert found.checkpoint.facts["scaled"] == tied


def test_the_oldest_converter_of_t5_gets_none_whose_head_is_its_own(config: Config, tmp_path: Path) -> None:
    relu = {**CHECKPOINTS["t5"], "tie_word_embeddings": True}
    own = {"shared.weight": TABLE, "lm_head.weight": OTHER}
    folder = write(tmp_path / "hf", {**relu, "scale_decoder_outputs": False}, **own)
    assert "tie_word_embeddings is False" in refusal(config, "t5", folder, "22.03")
    folder = write(tmp_path / "hf", {**relu, "scale_decoder_outputs": False}, **{"shared.weight": TABLE})
    assert "scale_decoder_outputs is False" in refusal(config, "t5", folder, "22.03")


@pytest.mark.parametrize("family", HEADS)
def test_a_head_of_its_own_that_is_said_to_be_the_table_is_refused(
    family: str, config: Config, tmp_path: Path
) -> None:
    table, head = HEADS[family]
    folder = write(tmp_path / "hf", CHECKPOINTS[family], **{table: TABLE, head: OTHER})
    assert "lm_head.weight is not the table of embeddings" in refusal(config, family, folder)
    assert planned(config, family, write(folder, CHECKPOINTS[family], **{table: TABLE, head: TABLE}))


def test_a_pickled_head_is_not_believed_when_transformers_5_saved_it(config: Config, tmp_path: Path) -> None:
    folder = write(tmp_path / "hf", {**T5, "tie_word_embeddings": True, "scale_decoder_outputs": False})
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02" + bytes(99))
    assert "save them as safetensors" in refusal(config, "t5", folder)


MT5 = {
    name: value for name, value in T5.items() if name not in ("feed_forward_proj", "decoder_start_token_id")
}


@pytest.mark.parametrize(
    ("said", "tied", "scaled"),
    [
        ({}, False, 0),
        ({"tie_word_embeddings": True}, True, 1),
        ({"tie_word_embeddings": True, "transformers_version": "5.24.0"}, False, 0),
        ({"tie_word_embeddings": False, "transformers_version": "4.46.3"}, False, 0),
    ],
    ids=["default", "tied", "transformers 5", "transformers 4"],
)
@pytest.mark.parametrize("family", ["t5", "t5-encoder"])
def test_mt5_is_t5_with_its_own_defaults(
    family: str, said: dict[str, Any], tied: bool, scaled: int, config: Config, tmp_path: Path
) -> None:
    head = TABLE if tied else OTHER
    folder = write(
        tmp_path / "hf",
        {**MT5, "model_type": "mt5", **said},
        **{"shared.weight": TABLE, "lm_head.weight": head},
    )
    found = planned(config, family, folder)
    settings = given(found)
    assert (settings["model_type"], settings["feed_forward_proj"]) == ("t5", "gated-gelu")
    assert found.checkpoint.facts["gated"] == 1
    if family == "t5":
        assert settings["tie_word_embeddings"] == tied
        assert found.checkpoint.facts["scaled"] == scaled
        assert found.checkpoint.facts["start"] == 0


ROTARY = {"rope_theta": 500.0, "partial_rotary_factor": 0.5, "rope_type": "linear", "factor": 4.0}


def test_rotary_positions_of_transformers_5_are_said_as_4_does(config: Config, tmp_path: Path) -> None:
    found = planned(
        config, "gptneox", write(tmp_path / "hf", {**CHECKPOINTS["gptneox"], "rope_parameters": ROTARY})
    )
    settings = given(found)
    assert "rope_parameters" not in settings
    assert (settings["rotary_emb_base"], settings["rotary_pct"]) == (500.0, 0.5)
    assert settings["rope_scaling"] == {"type": "linear", "factor": 4.0}
    usual = {"rope_theta": 10000, "rope_type": "default", "partial_rotary_factor": 0.25}
    folder = write(tmp_path / "hf", {**CHECKPOINTS["gptneox"], "rope_parameters": usual})
    for release in ("22.07", "22.12"):
        assert given(planned(config, "gptneox", folder, release))["rotary_pct"] == 0.25
    folder = write(tmp_path / "hf", {**CHECKPOINTS["gptneox"], "rope_parameters": ROTARY})
    assert "rotary_emb_base is 500.0" in refusal(config, "gptneox", folder, "22.07")


@pytest.mark.parametrize(
    ("said", "scaling"),
    [
        ({"rope_theta": 500.0}, None),
        ({"rope_theta": 500.0, "type": "linear", "factor": 4.0}, {"type": "linear", "factor": 4.0}),
    ],
    ids=["without a kind", "by the older name of the kind"],
)
def test_rotary_positions_that_are_said_in_both_ways_are_said_as_4_does(
    said: dict[str, Any], scaling: object, config: Config, tmp_path: Path
) -> None:
    both = {"rope_theta": 500.0, "rotary_emb_base": 500.0, "rope_parameters": said}
    found = given(planned(config, "gptneox", write(tmp_path / "hf", {**CHECKPOINTS["gptneox"], **both})))
    assert found == {**CHECKPOINTS["gptneox"], "rotary_emb_base": 500.0, "rope_scaling": scaling}


LLAMA = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 300, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
TWICE: Mapping[str, tuple[dict[str, Any], str]] = {
    "two bases": (
        {"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}},
        "rope_theta is 10000.0, and rope_parameters.rope_theta, another name of it, 500000.0",
    ),
    "by an older name": (
        {"rotary_emb_base": 1e4, "rope_parameters": {"rope_theta": 5e5}},
        "rotary_emb_base is 10000.0, and rope_parameters.rope_theta",
    ),
    "two shares": (
        {"rotary_pct": 0.25, "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}},
        "rotary_pct is 0.25, and rope_parameters.partial_rotary_factor",
    ),
    "scaled and not": (
        {
            "rope_scaling": {"type": "linear", "factor": 2.0},
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        },
        "rope_scaling is {'factor': 2.0, 'type': 'linear'}, and rope_parameters",
    ),
    "two factors": (
        {
            "rope_scaling": {"type": "linear", "factor": 2.0},
            "rope_parameters": {"rope_type": "linear", "factor": 4.0},
        },
        "rope_scaling is {'factor': 2.0, 'type': 'linear'}, and rope_parameters",
    ),
    "two kinds": (
        {"rope_scaling": {"type": "linear", "rope_type": "default", "factor": 2.0}},
        "rope_scaling.rope_type is 'default', and rope_scaling.type, another name of it, 'linear'",
    ),
    "no kind": ({"rope_scaling": {"factor": 2.0}}, "rope_scaling has the factor 2.0, and no rope_type"),
    "no factor": ({"rope_scaling": {"type": "linear"}}, "rope_scaling is linear, and has no factor"),
    "no factor of transformers 5": (
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4}},
        "rope_parameters is linear, and has no factor",
    ),
}


@pytest.mark.parametrize("case", TWICE)
@pytest.mark.parametrize("base", [CHECKPOINTS["gptneox"], LLAMA], ids=["gptneox", "llama"])
def test_rotary_positions_that_are_said_in_two_ways_or_by_halves_are_refused(
    base: dict[str, Any], case: str, config: Config, tmp_path: Path
) -> None:
    written, what = TWICE[case]
    family = "llama" if base is LLAMA else "gptneox"
    assert what in refusal(config, family, write(tmp_path / "hf", {**base, **written}))


def test_rotary_positions_that_are_said_twice_in_the_same_way_are_known(
    config: Config, tmp_path: Path
) -> None:
    both = {
        "rope_theta": 500, "rope_scaling": {"type": "linear", "factor": 2},
        "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
    }  # fmt: skip
    for family, base in (("llama", LLAMA), ("gptneox", CHECKPOINTS["gptneox"])):
        reals = planned(config, family, write(tmp_path / "hf", {**base, **both})).checkpoint.reals
        assert (reals["rotary_base"], reals["rotary_scaling"]) == (500.0, 2.0)


@pytest.mark.parametrize(
    ("family", "key"),
    [
        ("gpt", "scale_attn_weights"),
        ("gpt", "tie_word_embeddings"),
        ("opt", "do_layer_norm_before"),
        ("opt", "enable_bias"),
        ("bloom", "tie_word_embeddings"),
        ("mpt", "attn_config.alibi"),
        ("gptj", "scale_attn_weights"),
        ("gptneox", "use_parallel_residual"),
        ("gptneox", "attention_bias"),
        ("t5", "tie_word_embeddings"),
    ],
)
def test_null_is_not_the_default_of_what_is_true_by_default(
    family: str, key: str, config: Config, tmp_path: Path
) -> None:
    outer, _, inner = key.rpartition(".")
    base = CHECKPOINTS[family]
    for empty in json.loads("[null, []]"):
        changed = {outer: {**base[outer], inner: empty}} if outer else {key: empty}
        what = refusal(config, family, write(tmp_path / "hf", {**base, **changed}))
        assert f"{key} is null, which transformers takes for false: without the key it is true" in what


@pytest.mark.parametrize(
    ("family", "key", "name"),
    [
        *((family, "eos_token_id", "end") for family in CHECKPOINTS),
        ("gpt", "bos_token_id", "start"),
        ("t5", "decoder_start_token_id", "start"),
    ],
)
def test_tokens_beyond_the_vocabulary_are_refused(
    family: str, key: str, name: str, config: Config, tmp_path: Path
) -> None:
    """As of GPT-2s trained from scratch with another tokenizer, whose config.json keeps 50256."""
    folder = write(tmp_path / "hf", {**CHECKPOINTS[family], key: 300})
    assert f"the {name} token is 300, and the vocabulary has 300 tokens" in refusal(config, family, folder)
    assert planned(config, family, write(folder, {**CHECKPOINTS[family], key: 299}))


@pytest.mark.parametrize("release", ["22.07", "22.12", "26.06"])
@pytest.mark.parametrize(
    ("family", "said", "wrong"),
    [
        ("gptneox", {"rotary_pct": 0.1}, 3),
        ("gptneox", {"partial_rotary_factor": 0.1}, 3),
        ("gptj", {"rotary_dim": 5}, 5),
        ("gptj", {"rotary_dim": 64}, 64),
        ("codegen", {"rotary_dim": 7}, 7),
    ],
)
def test_a_number_of_rotated_values_that_no_data_type_gets_right_is_refused(
    config: Config, tmp_path: Path, family: str, said: Mapping[str, Any], wrong: int, release: str
) -> None:
    folder = write(tmp_path / "hf", {**CHECKPOINTS[family], **said})
    assert f"{wrong} values of a head are rotated" in refusal(config, family, folder, release)


@pytest.mark.parametrize(
    ("family", "said", "what"),
    [
        ("gpt", {"hidden_size": 64}, "n_embd is 128, and hidden_size, another name of it, 64"),
        ("bloom", {"hidden_size": 64}, "n_embed is 128, and hidden_size, another name of it, 64"),
        ("gptneox", {"rope_theta": 500, "rotary_emb_base": 600}, "rotary_emb_base is 600, and rope_theta"),
        ("t5", {"is_gated_act": True}, "is_gated_act is True, which contradicts feed_forward_proj 'relu'"),
        (
            "t5",
            {"dense_act_fn": "gelu_new"},
            "dense_act_fn is 'gelu_new', which contradicts feed_forward_proj",
        ),
        ("t5-encoder", {"dense_act_fn": "silu"}, "dense_act_fn is 'silu', which contradicts"),
        (
            "t5",
            {"dense_act_fn": "gelu_new", "feed_forward_proj": None},
            "dense_act_fn is 'gelu_new', and feed_forward_proj, from which it follows, is absent",
        ),
        (
            "t5-encoder",
            {"is_gated_act": True, "feed_forward_proj": None},
            "is_gated_act is True, and feed_forward_proj, from which it follows, is absent",
        ),
        ("t5", {"forced_bos_token_id": 3}, "forced_bos_token_id is 3"),
        ("gptneox", {"head_dim": 32.9}, "head_dim is 32.9, not a whole number"),
        ("gptneox", {"head_dim": "wide"}, "head_dim is 'wide', not a whole number"),
        ("gptneox", {"head_dim": 64}, "head_dim * num_attention_heads is 256"),
        ("t5", {"tie_encoder_decoder": True}, "tie_encoder_decoder is True"),
        ("gpt", {"pruned_heads": {"0": [1]}}, "pruned_heads is {'0': [1]}"),
        ("codegen", {"n_head": 2, "n_embd": 64}, "2 heads cannot be shared by 4 evenly"),
    ],
)
def test_what_config_json_says_in_two_ways_is_refused(
    family: str, said: dict[str, Any], what: str, config: Config, tmp_path: Path
) -> None:
    base = CHECKPOINTS[family.partition("-")[0]]
    assert what in refusal(config, family, write(tmp_path / "hf", {**base, **said}))


@pytest.mark.parametrize(
    ("family", "said"),
    [
        ("gpt", {"hidden_size": 128, "num_hidden_layers": 2}),
        ("gptneox", {"head_dim": 32}),
        ("t5", {"is_gated_act": False, "dense_act_fn": "relu", "head_dim": 32}),
    ],
)
def test_what_config_json_says_twice_in_the_same_way_is_known(
    family: str, said: dict[str, Any], config: Config, tmp_path: Path
) -> None:
    assert planned(config, family, write(tmp_path / "hf", {**CHECKPOINTS[family], **said}))


@pytest.mark.parametrize(
    ("family", "unread"),
    [("gpt", []), ("gptj", ["n_positions"]), ("gptneox", []), ("t5", ["bos_token_id"])],
)
def test_what_a_family_reads_is_known_without_a_list_of_what_changes_nothing(
    family: str, unread: list[str], config: Config
) -> None:
    models = config.models.model_copy(update={"neutral": ()})
    described = models.families[family].checkpoint.model_copy(update={"neutral": ()})
    converter = converters.find_converter(config, "22.12", family)
    said = {**CHECKPOINTS[family], "use_cache": True}
    assert settings.unknown(said, models, described, converter) == [*unread, "use_cache"]


def test_an_empty_value_says_nothing() -> None:
    said: dict[str, Any] = {"none": None, "object": {}, "list": [], "zero": 0, "inner": {"a": [], "b": 1}}
    keys = (*said, "inner.a", "inner.b", "zero.a", "absent", "absent.a")
    assert {key: found for key in keys if (found := settings.value(said, key)) is not None} == {
        "zero": 0, "inner": said["inner"], "inner.b": 1,
    }  # fmt: skip


@pytest.mark.parametrize("family", CHECKPOINTS)
def test_a_key_that_nobody_knows_is_refused_by_its_name(family: str, config: Config, tmp_path: Path) -> None:
    folder = write(
        tmp_path / "hf",
        {**CHECKPOINTS[family], "residual_scale": 0.5, "new_mode": None, "tags": [], "map": {}},
    )
    what = refusal(config, family, folder)
    assert "residual_scale = 0.5 (--ignore-key KEY" in what
    assert not [key for key in ("new_mode", "tags", "map") if key in what], "what is empty says nothing"
    assert planned(config, family, folder, ignored=("residual_scale",))


@pytest.mark.parametrize("family", CHECKPOINTS)
def test_code_of_its_own_is_refused_unless_it_is_said_to_compute_the_same(
    family: str, config: Config, tmp_path: Path
) -> None:
    code = {"AutoConfig": "configuration_x.C", "AutoModelForCausalLM": "modeling_x.M"}
    folder = write(tmp_path / "hf", {**CHECKPOINTS[family], "auto_map": code})
    assert "auto_map" in refusal(config, family, folder)
    assert planned(config, family, folder, ignored=("auto_map",))


def test_a_known_key_is_not_ignored(config: Config, tmp_path: Path) -> None:
    folder = write(tmp_path / "hf", {**CHECKPOINTS["gpt"], "activation_function": "relu"})
    assert "activation_function is 'relu'" in refusal(config, "gpt", folder, ignored=("activation_function",))


def test_mpt_as_it_was_published_is_known(config: Config, tmp_path: Path) -> None:
    code = {
        "AutoConfig": "configuration_mpt.MPTConfig",
        "AutoModelForCausalLM": "modeling_mpt.MPTForCausalLM",
    }
    more = {
        "attn_impl": "torch",
        "attn_pdrop": 0,
        "attn_type": "multihead_attention",
        "clip_qkv": None,
        "alibi": True,
    }
    published = {
        **CHECKPOINTS["mpt"], "auto_map": code, "attn_config": more, "embedding_fraction": 1.0,
        "no_bias": True,
        "init_config": {"name": "kaiming_normal_", "fan_mode": "fan_in"}, "verbose": 0,
        "learned_pos_emb": True,
        "norm_type": "low_precision_layernorm", "init_device": "cpu", "use_cache": False,
        "tokenizer_name": "x",
    }  # fmt: skip
    assert planned(config, "mpt", write(tmp_path / "hf", published))
    saved = {**more, "model_type": "", "is_encoder_decoder": False, "return_dict": True, "dtype": None}
    assert planned(config, "mpt", write(tmp_path / "hf", {**published, "attn_config": saved}))
    clipped = {**published, "attn_config": {**more, "clip_qkv": 6, "kv_n_heads": 1, "sinks": 4}}
    what = refusal(config, "mpt", write(tmp_path / "hf", clipped))
    for reason in ("attn_config.clip_qkv is 6", "attn_config.kv_n_heads is 1", "attn_config.sinks = 4"):
        assert reason in what


@pytest.mark.parametrize(
    ("family", "release", "said", "what"),
    [
        ("mpt", "22.03", {}, "converts no mpt"),
        (
            "mpt",
            "22.12",
            {"d_model": 400},
            "a head has 100 values; FasterTransformer 5.3 computes heads of 32, 48",
        ),
        (
            "gpt",
            "22.03",
            {"n_embd": 320},
            "a head has 80 values; FasterTransformer 5.0 computes heads of 32, 64",
        ),
        ("t5", "22.12", {"d_kv": 40}, "a head has 40 values"),
        ("gptj", "22.07", {"n_embd": 400}, "a head has 100 values; FasterTransformer 5.2"),
    ],
)
def test_heads_that_have_no_kernel_are_refused(
    family: str, release: str, said: dict[str, Any], what: str, config: Config, tmp_path: Path
) -> None:
    assert what in refusal(config, family, write(tmp_path / "hf", {**CHECKPOINTS[family], **said}), release)


@pytest.mark.parametrize(
    ("family", "key", "where"),
    [
        ("gpt", "layer_norm_epsilon", [("gpt", "layernorm_eps")]),
        ("bloom", "layer_norm_epsilon", [("gpt", "layernorm_eps")]),
        ("mpt", "layer_norm_epsilon", [("gpt", "layernorm_eps")]),
        ("gptj", "layer_norm_epsilon", [("gptj", "layernorm_eps")]),
        ("codegen", "layer_norm_epsilon", [("gptj", "layernorm_eps")]),
        ("gptneox", "layer_norm_eps", [("gptneox", "layernorm_eps")]),
        ("t5", "layer_norm_epsilon", [("encoder", "layer_norm_epsilon"), ("decoder", "layer_norm_epsilon")]),
    ],
)
@pytest.mark.parametrize("release", ["22.03", "22.07", "22.12"])
def test_the_epsilon_of_the_norms_is_written_for_every_family(
    family: str, key: str, where: list[tuple[str, str]], release: str, config: Config, tmp_path: Path
) -> None:
    if release not in converters.converting_releases(config, family):
        return
    for value in (3e-4, None):
        folder = write(tmp_path / "hf", {**CHECKPOINTS[family], key: value})
        found = planned(config, family, folder, release)
        added = weights.added_config(found.converter, found.checkpoint.facts)
        wanted = value or (1e-6 if family == "t5" else 1e-5)
        assert [float(added[section][name]) for section, name in where] == [wanted] * len(where)


@pytest.mark.parametrize("value", [0, -1e-5, "1e-5", [1e-5], True, 1e400])
def test_an_epsilon_that_is_none_is_refused(value: object, config: Config, tmp_path: Path) -> None:
    folder = write(tmp_path / "hf", {**CHECKPOINTS["gpt"], "layer_norm_epsilon": value})
    what = refusal(config, "gpt", folder)
    assert "layer_norm_epsilon is" in what or "Infinity" in what


def test_several_ends_are_refused_beside_the_other_reasons_and_one_of_a_list_is_taken(
    config: Config, tmp_path: Path
) -> None:
    folder = write(
        tmp_path / "hf", {**CHECKPOINTS["gpt"], "eos_token_id": [7, 8], "activation_function": "relu"}
    )
    what = refusal(config, "gpt", folder)
    assert "eos_token_id names 2 tokens that end an answer" in what
    assert "activation_function is 'relu'" in what
    found = planned(config, "gpt", write(folder, {**CHECKPOINTS["gpt"], "eos_token_id": [7]}))
    assert found.checkpoint.facts["end"] == 7
