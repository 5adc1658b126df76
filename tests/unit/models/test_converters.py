"""Command lines of converters, config.pbtxt, tensors: everything about serving that needs no server."""

from __future__ import annotations

import ast
import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftbuild.cli.repository_options import Requests
from ftbuild.client.tensors import STOP_WORDS, TensorSchema
from ftbuild.config.families import Tensors
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.models import config_pbtxt, converters
from ftbuild.models.config_pbtxt import Limits

# Shortened from fastertransformer_backend v1.4, all_models/gptj/fastertransformer/config.pbtxt.
TEMPLATE = """\
name: "fastertransformer"
backend: "fastertransformer"
max_batch_size: 1024
model_transaction_policy { decoupled: True }
input [
  { name: "input_ids" data_type: TYPE_UINT32 dims: [ -1 ] },
  { name: "input_lengths" data_type: TYPE_UINT32 dims: [ 1 ] reshape: { shape: [ ] } },
  { name: "request_output_len" data_type: TYPE_UINT32 dims: [ -1 ] },
  { name: "runtime_top_p" data_type: TYPE_FP32 dims: [ 1 ] reshape: { shape: [ ] } optional: true },
  { name: "stop_words_list" data_type: TYPE_INT32 dims: [ 2, -1 ] optional: true }
]
parameters { key: "tensor_para_size" value: { string_value: "4" } }
parameters { key: "model_type" value: { string_value: "GPT-J" } }
parameters { key: "model_checkpoint_path" value: { string_value: "./models/j6b_ckpt/4-gpu" } }
"""
# fastertransformer_backend v1.4, all_models/gpt/fastertransformer/config.pbtxt.
GPT_BATCHING = """\
dynamic_batching { max_queue_delay_microseconds: 50000 }
batch_input [
  {
    kind: BATCH_ITEM_SHAPE target_name: "input_ids_item_shape"
    data_type: TYPE_INT32 source_input: "input_ids"
  }
]
"""
DECODER = Tensors(
    prompt="input_ids",
    prompt_length="input_lengths",
    answer_length="request_output_len",
    repeats_prompt=True,
)


def dialect(*, repeats_prompt: bool = True) -> TensorSchema:
    tensors = DECODER.model_copy(update={"repeats_prompt": repeats_prompt})
    return TensorSchema(tensors, config_pbtxt.inputs(TEMPLATE))


def test_each_release_serves_the_families_it_has_converters_for(config: Config) -> None:
    assert config.models.served(config.version("22.03", "ft")) == ("gpt", "t5")
    served = ("gpt", "opt", "bloom", "mpt", "gptj", "codegen", "gptneox", "t5", "llama", "bert", "t5-encoder")
    assert config.models.served(config.version("22.12", "ft")) == served
    assert "llama" not in config.models.served(config.version("22.07", "ft"))
    with pytest.raises(ConfigError, match=r"22\.03 converts no gptneox") as caught:
        converters.find_converter(config, "22.03", "gptneox")
    assert "gpt, t5" in (caught.value.hint or "")


def test_an_unknown_family_is_named_with_the_known_ones(config: Config) -> None:
    with pytest.raises(ConfigError, match="converts no mistral"):
        converters.find_converter(config, "22.12", "mistral")


def test_a_converter_is_told_the_depth_that_it_would_guess(config: Config) -> None:
    command = converters.command_line(
        converters.find_converter(config, "22.12", "gptj"),
        checkpoint="/in",
        out="/out",
        tensor_para=2,
        layers=33,
    )
    assert command[:2] == [
        "python3",
        f"{converters.TREE}/examples/pytorch/gptj/utils/huggingface_gptj_ckpt_convert.py",
    ]
    assert command[2:] == [
        "--ckpt-dir", "/in", "--output-dir", "/out", "--n-inference-gpus", "2", "--n-layers", "33",
    ]  # fmt: skip


def test_a_converter_writes_fp32_in_one_process_unless_it_is_told_otherwise(config: Config) -> None:
    converter = converters.find_converter(config, "22.12", "gpt")

    def arguments(**options: Any) -> list[str]:
        return converters.command_line(
            converter, checkpoint="/in", out="/out", tensor_para=2, layers=3, **options
        )[2:]

    places = ["-i", "/in", "-o", "/out", "-i_g", "2"]
    assert arguments() == [*places, "-p", "1", "-weight_data_type", "fp32"]
    assert arguments(dtype="fp16", jobs=8) == [*places, "-p", "8", "-weight_data_type", "fp16"]


def test_the_release_that_can_is_named_with_its_base_where_that_is_another(config: Config) -> None:
    assert converters.other_release(config, "22.03", ["22.07", "22.12", "26.06"]) == "--triton 22.12"
    assert (
        converters.other_release(config, "22.03", ["24.10", "26.06"]) == "--triton 26.06 --base open-trixie"
    )
    assert converters.other_release(config, "22.03", ["24.10"]) == "--triton 24.10 --base open-cuda13"
    assert converters.other_release(config, "22.03", []) is None


def test_a_release_that_converts_nothing_of_a_kind_says_so(config: Config) -> None:
    families = {
        name: family.model_copy(update={"converters": family.converters[:0]})
        for name, family in config.models.families.items()
    }
    none = replace(config, models=config.models.model_copy(update={"families": families}))
    with pytest.raises(ConfigError, match=r"22\.12 converts no gptj from a checkpoint of Mesh") as refused:
        converters.find_converter(none, "22.12", "gptj", "jax")
    assert refused.value.hint == "it converts none"


def test_a_filled_config_is_for_these_weights_and_can_be_moved() -> None:
    config = config_pbtxt.parse(config_pbtxt.fill_template(TEMPLATE, tensor_para=2, data_type="fp16"))
    parameters = {name: value.string_value for name, value in config.parameters.items()}
    assert parameters == {
        "tensor_para_size": "2",
        "pipeline_para_size": "1",
        "data_type": "fp16",
        "model_type": "GPT-J",
        "max_output_len": "2048",
        "max_batch_tokens": "262144",
        "max_request_seconds": "600",
        "in_flight_slots": "auto",
        "in_flight_slot_tokens": "2048",
    }
    assert not config.model_transaction_policy.decoupled
    assert [i.name for i in config.input][:2] == ["input_ids", "input_lengths"]


def test_limits_of_requests_and_batches_are_the_operators() -> None:
    batched = TEMPLATE + "dynamic_batching { max_queue_delay_microseconds: 50000 }\n"
    limits = Limits(output_tokens=64, seconds=5, queue_ms=0, batch=16, batch_tokens=4096)
    config = config_pbtxt.parse(
        config_pbtxt.fill_template(batched, tensor_para=1, data_type="fp16", limits=limits)
    )
    assert config.parameters["max_output_len"].string_value == "64"
    assert config.parameters["max_batch_tokens"].string_value == "4096"
    assert config.parameters["max_request_seconds"].string_value == "5"
    assert (config.max_batch_size, config.dynamic_batching.max_queue_delay_microseconds) == (16, 0)
    config = config_pbtxt.parse(config_pbtxt.fill_template(batched, tensor_para=1, data_type="fp16"))
    assert (config.max_batch_size, config.dynamic_batching.max_queue_delay_microseconds) == (1024, 2000)


@pytest.mark.parametrize("kind", ["GPT-J", "T5", "bert"])
@pytest.mark.parametrize(
    ("limits", "size", "microseconds", "levels"),
    [
        (Limits(), 512, 0, 0),
        (Limits(queue=0), 0, 0, 0),
        (Limits(queue=7, queue_seconds=2**31 - 1), 7, (2**31 - 1) * 10**6, 0),
        (Limits(queue=7, queue_seconds=1, priorities=3), 7, 10**6, 3),
    ],
)
def test_the_queue_of_every_family_has_a_limit(
    kind: str, limits: Limits, size: int, microseconds: int, levels: int
) -> None:
    """Of models in flight and of those in batches, whatever upstream's template says."""
    policy = "default_queue_policy { max_queue_size: 3 timeout_action: DELAY }"
    for batching in ("", f"dynamic_batching {{ {policy} }}\n"):
        template = TEMPLATE.replace('"GPT-J"', f'"{kind}"') + batching
        filled = config_pbtxt.fill_template(template, tensor_para=1, data_type="fp16", limits=limits)
        found = config_pbtxt.parse(filled).dynamic_batching
        policy_found = found.default_queue_policy
        assert policy_found.max_queue_size == size
        assert policy_found.default_timeout_microseconds == microseconds
        assert policy_found.allow_timeout_override == (microseconds > 0)
        assert policy_found.timeout_action == policy_found.REJECT
        # A level that is not there would be refused (core r22.12 model_config_utils.cc:1351-1361).
        assert (found.priority_levels, found.default_priority_level) == (levels, levels)


@pytest.mark.parametrize(
    ("kind", "limits", "stages", "slots"),
    [
        ("GPT-J", Limits(), 1, "auto"),
        ("GPT", Limits(slots=8), 1, "8"),
        ("GPT-NeoX", Limits(slots=0), 1, None),
        ("GPT-J", Limits(), 2, None),
        ("GPT-J over two GPUs", Limits(), 1, "auto"),
        ("GPT-J over two GPUs", Limits(slots=8), 1, "8"),
        ("T5", Limits(), 1, "auto"),
        ("T5-Encoder", Limits(), 1, None),
        ("bert", Limits(), 1, None),
    ],
)
def test_models_that_generate_on_one_node_in_one_stage_get_slots(
    kind: str, limits: Limits, stages: int, slots: str | None
) -> None:
    name, _, over = kind.partition(" over ")
    template = TEMPLATE.replace('"GPT-J"', f'"{name}"')
    filled = config_pbtxt.fill_template(
        template, tensor_para=2 if over else 1, pipeline_para=stages, data_type="fp16", limits=limits
    )
    parameters = config_pbtxt.parse(filled).parameters
    assert (parameters["in_flight_slots"].string_value if "in_flight_slots" in parameters else None) == slots
    assert ("in_flight_slot_tokens" in parameters) == (slots is not None)
    assert "in_flight_cache_tokens" not in parameters


def test_the_cache_of_all_slots_has_as_many_tokens_as_are_asked_for() -> None:
    limits = Limits(slots=128, cache_tokens=100_000)
    filled = config_pbtxt.fill_template(TEMPLATE, tensor_para=1, data_type="fp16", limits=limits)
    assert config_pbtxt.parse(filled).parameters["in_flight_cache_tokens"].string_value == "100000"


def test_a_cache_that_holds_no_session_of_full_length_is_refused() -> None:
    requests = Requests(session_tokens=1024, cache_tokens=1023)
    with pytest.raises(ConfigError, match="--cache-tokens 1023 is less than --session-tokens 1024"):
        requests.limits(None)
    assert replace(requests, cache_tokens=1024).limits(None).cache_tokens == 1024


@pytest.mark.parametrize("batching", ["", GPT_BATCHING], ids=["upstream-without", "upstream-with"])
def test_prompts_of_different_length_are_batched_whether_upstreams_template_does_so_or_not(
    batching: str,
) -> None:
    template = TEMPLATE + batching
    config = config_pbtxt.parse(config_pbtxt.fill_template(template, tensor_para=1, data_type="fp16"))
    assert config.dynamic_batching.max_queue_delay_microseconds == 2000
    assert [tensor.name for tensor in config.input if tensor.allow_ragged_batch] == ["input_ids"]
    (item_shape,) = config.batch_input
    assert (list(item_shape.target_name), list(item_shape.source_input)) == (
        ["input_ids_item_shape"],
        ["input_ids"],
    )


def test_sessions_are_not_batched() -> None:
    template = TEMPLATE + "sequence_batching { max_sequence_idle_microseconds: 5000 }\n"
    config = config_pbtxt.parse(config_pbtxt.fill_template(template, tensor_para=1, data_type="fp16"))
    assert config.HasField("sequence_batching")
    assert not any(tensor.allow_ragged_batch for tensor in config.input)


def test_all_instances_are_in_upstreams_group() -> None:
    template = TEMPLATE + "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
    filled = config_pbtxt.fill_template(template, tensor_para=1, data_type="fp16", instances=3)
    assert [group.count for group in config_pbtxt.parse(filled).instance_group] == [3]


def test_text_that_is_no_config_is_refused_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r"not a config\.pbtxt: 1:"):
        config_pbtxt.parse("tensor_para_size = 4")


def test_a_config_that_is_none_or_longer_than_any_is_refused_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "config.pbtxt"
    file.write_text("tensor_para_size = 4")
    with pytest.raises(ConfigError, match=r"not a config\.pbtxt: 1:") as refused:
        config_pbtxt.read(file)
    assert (refused.value.where, refused.value.hint) == (str(file), config_pbtxt.MAKE_AGAIN)
    file.write_text(TEMPLATE + "#" * 2**18)
    with pytest.raises(ConfigError, match=r"it has more than 0\.262144 MB"):
        config_pbtxt.read(file)


def test_hints_and_templates_name_their_folders() -> None:
    assert config_pbtxt.adopt(Path("/my models")) == (
        "invoke model-repo --adopt '/my models' --out FOLDER makes a repository of them"
    )
    assert config_pbtxt.template("gptj") == (
        "/opt/ftbuild/fastertransformer_backend/all_models/gptj/fastertransformer/config.pbtxt"
    )


def refuse_links(*_: object, **__: object) -> None:
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


@pytest.mark.parametrize("elsewhere", [False, True], ids=["linked", "copied to another file system"])
def test_weights_are_put_into_a_repository_without_following_a_link(
    elsewhere: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, secrets = tmp_path / "1-gpu", tmp_path / "secrets"
    for folder in (weights, secrets):
        folder.mkdir()
    (weights / "model.wte.bin").write_bytes(b"weights")
    (weights / "folder").symlink_to(secrets)
    (weights / "file").symlink_to("model.wte.bin")
    if elsewhere:
        monkeypatch.setattr(os, "link", refuse_links)
    config_pbtxt.write(tmp_path / "models", TEMPLATE, weights)
    placed = tmp_path / "models/fastertransformer/1/1-gpu"
    assert (placed / "model.wte.bin").read_bytes() == b"weights"
    assert (placed / "model.wte.bin").samefile(weights / "model.wte.bin") == (not elsewhere)
    assert [(placed / name).is_symlink() for name in ("folder", "file")] == [True, True]
    config_pbtxt.link(weights / "file", tmp_path / "file")
    assert (tmp_path / "file").is_symlink()


def test_a_repository_holds_config_and_weights_below_the_version(tmp_path: Path) -> None:
    weights = tmp_path / "2-gpu"
    weights.mkdir()
    (weights / "config.ini").write_text("[gptj]\n")
    config_pbtxt.write(tmp_path / "models", "name: 'x'\n", weights)
    assert (tmp_path / "models/fastertransformer/1/2-gpu/config.ini").read_text() == "[gptj]\n"
    assert (tmp_path / "models/fastertransformer/config.pbtxt").exists()


def test_a_request_has_the_declared_types_and_pads_short_prompts() -> None:
    asked = dialect().request([[1, 2, 3], [4]], 5, runtime_top_p=0.5)
    assert {name: (a.dtype, a.shape) for name, a in asked.items()} == {
        "input_ids": (np.uint32, (2, 3)),
        "input_lengths": (np.uint32, (2, 1)),
        "request_output_len": (np.uint32, (2, 1)),
        "runtime_top_p": (np.float32, (2, 1)),
    }
    assert asked["input_ids"].tolist() == [[1, 2, 3], [4, 0, 0]]
    assert asked["input_lengths"].tolist() == [[3], [1]]


def test_words_are_their_tokens_and_where_each_ends() -> None:
    asked = dialect().request([[1], [2]], 5, words={STOP_WORDS: [[7, 8], [9]]})
    assert asked[STOP_WORDS].tolist() == [[[7, 8, 9], [2, 3, -1]]] * 2


def test_an_answer_is_what_follows_the_prompt_up_to_the_end() -> None:
    outputs = {"output_ids": np.array([[[1, 2, 3, 10, 11, 99], [0] * 6], [[4, 20, 99, 99, 99, 99], [0] * 6]])}
    assert dialect().answers(outputs, [[1, 2, 3], [4]], 3, end_id=99) == [[10, 11, 99], [20, 99]]


def test_an_encoder_decoder_answers_without_the_prompt() -> None:
    outputs = {"output_ids": np.array([[[10, 11, 12, 0]]])}
    assert dialect(repeats_prompt=False).answers(outputs, [[1, 2]], 3, end_id=99) == [[10, 11, 12]]


def _siblings(script: Path) -> set[str]:
    """Return the files beside a script that it imports by their name alone."""
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(script.read_text()))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
    return {f"{name}.py" for name in imported if (script.parent / f"{name}.py").is_file()}


def test_what_a_script_of_ours_imports_is_put_beside_it_in_the_sdk_image(config: Config) -> None:
    models = config.models
    listed = {models.reference: models.reference_modules}
    for family in models.families.values():
        listed |= {c.own_script: c.own_modules for c in family.converters if c.own_script}
    imported = {script: _siblings(config.path(script)) for script in listed}
    assert imported == {script: {Path(file).name for file in files} for script, files in listed.items()}
    assert imported[models.reference]
