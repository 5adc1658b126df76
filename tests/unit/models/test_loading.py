"""The files that are read by the values of config.ini: which, how many, how large, and why so large."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ftbuild.config import loader
from ftbuild.config.families import LoadedPart
from ftbuild.errors import ConfigError
from ftbuild.models import loading
from ftbuild.models.loading import ExpectedFile
from ftbuild.models.weights import MAX_FILES

LAYERS = "gpt.num_layer"
SIZES = {LAYERS: "2", "gpt.size": "64", "gpt.inter_size": "256"}


def part(files: Mapping[str, str], **others: Any) -> LoadedPart:
    facts = {
        "layers": LAYERS, "hidden": "gpt.size", "inner": "gpt.inter_size",
        "experts": ("structure.expert_num", 0), "biases": ("gpt.biases", 0), "gated": ("gpt.gated", 0),
    }  # fmt: skip
    return LoadedPart(data_type="gpt.weight_data_type", facts=facts, files=files, keys={}, **others)


def gpt() -> LoadedPart:
    found = loader.own_models().families["gpt"].loading
    assert found
    return found.parts[0]


def expected(
    described: LoadedPart, values: Mapping[str, object] | None = None, gpus: int = 1
) -> list[loading.Files]:
    given = {key: str(value) for key, value in {**SIZES, **(values or {})}.items()}
    return loading.expected(described, loading.numbers(described, given, gpus), "fp16")


def names(described: LoadedPart, values: Mapping[str, object]) -> list[str]:
    return [name for files in expected(described, values) for name in files.names(1)]


def test_what_a_file_should_be_is_told_with_the_keys_that_say_so() -> None:
    (files,) = expected(part({"{layers}.dense.{gpus}.bin": "hidden * inner"}), gpus=2)
    reason = "hidden * inner, gpt.size = 64, gpt.inter_size = 256, fp16, a share of 2"
    assert files.file == ExpectedFile(64 * 256 * 2 // 2, reason)
    assert list(files.names(2)) == ["0.dense.0.bin", "0.dense.1.bin", "1.dense.0.bin", "1.dense.1.bin"]


def test_as_many_files_as_a_model_may_have_are_expected_and_no_more() -> None:
    described = part(
        {"wte.bin": "hidden", "{layers}.norm.bin": "hidden", "{layers}.dense.{gpus}.bin": "inner"}
    )
    assert len(expected(described, {LAYERS: (MAX_FILES - 1) // 3}, gpus=2)) == 3
    with pytest.raises(ConfigError) as refused:
        expected(described, {LAYERS: (MAX_FILES - 1) // 3 + 1}, gpus=2)
    assert refused.value.what == (
        "83334 layers on 2 GPUs: 250003 weight files, more than the 250000 of any model"
    )
    assert refused.value.hint == "check the numbers in config.ini"


EXPERTS = {
    "when": "experts", "layers": "structure.moe_layers",
    "replaces": ("{layers}.dense.bin",), "files": {"{layers}.experts.bin": "experts * inner"},
}  # fmt: skip


def test_layers_of_experts_count_among_the_files() -> None:
    described = part({"{layers}.dense.bin": "inner"}, instead=(EXPERTS,))
    mixed = {"structure.expert_num": 4, "structure.moe_layers": [0]}
    assert expected(described, {**mixed, LAYERS: MAX_FILES})
    with pytest.raises(ConfigError, match=f"{MAX_FILES + 1} weight files"):
        expected(described, {**mixed, LAYERS: MAX_FILES + 1})


@pytest.mark.parametrize(
    ("mixed", "names_read"),
    [
        ({"structure.expert_num": 1, "structure.moe_layers": [1]}, ["1.experts.bin", "0.dense.bin"]),
        ({"structure.expert_num": 4, "structure.moe_layers": [1, 7]}, ["1.experts.bin", "0.dense.bin"]),
        ({"structure.expert_num": 4}, ["0.dense.bin", "1.dense.bin"]),
        ({"structure.expert_num": 0, "structure.moe_layers": [1]}, ["0.dense.bin", "1.dense.bin"]),
    ],
)
def test_layers_that_are_listed_and_there_have_experts(
    mixed: Mapping[str, object], names_read: list[str]
) -> None:
    assert names(part({"{layers}.dense.bin": "inner"}, instead=(EXPERTS,)), mixed) == names_read


TASK = {
    "gpt.num_tasks": 1, "gpt.prompt_learning_type": 3, "task_0.task_name": "squad",
    "task_0.prompt_length": 10, "gpt.head_num": 4, "gpt.size_per_head": 16,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "tables"),
    [
        ({}, ["model.prompt_table.squad.weight.bin"]),
        ({"task_0.task_name": "{layers}{0}"}, ["model.prompt_table.{layers}{0}.weight.bin"]),
        ({"gpt.num_tasks": "many"}, []),
        ({"gpt.prompt_learning_type": "soft"}, []),
        ({"task_0.prompt_length": "long"}, []),
    ],
)
def test_a_learned_prompt_has_a_table_where_config_ini_has_its_numbers(
    changed: Mapping[str, object], tables: list[str]
) -> None:
    found = names(gpt(), {**TASK, **changed})
    assert [name for name in found if "prompt" in name] == tables


GATE = "{layers}.gate.bias.bin"


@pytest.mark.parametrize(
    ("others", "left_out"),
    [
        ({}, [(GATE, "biases")]),
        ({"only_if": {GATE: "biases"}}, []),
        ({"optional": {GATE: 1}}, []),
        ({"spare": [GATE]}, []),
    ],
)
def test_a_file_that_switches_leave_out_is_named_once_with_the_first_of_them(
    others: Mapping[str, Any], left_out: list[tuple[str, str]]
) -> None:
    described = part({"{layers}.dense.bin": "hidden * inner", GATE: "biases * gated * inner"}, **others)
    assert list(loading.left_out(described, loading.numbers(described, SIZES, 1))) == left_out


def test_a_switch_that_is_off_needs_no_other_number() -> None:
    known = loading.numbers(part({"wte.bin": "hidden"}), {}, 1)
    assert known.value("gated * inner") == 0
    assert known.missing == []
    assert known.or_zero("inner") == 0
    assert known.missing == ["config.ini has no gpt.inter_size"]
