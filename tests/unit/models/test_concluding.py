"""What follows from the names and sizes of weight files, and the config.ini that is concluded from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ftbuild.config.families import LoadedPart, Loading
from ftbuild.models import concluding, solving
from ftbuild.models.concluding import FROM_SIZES, Conclusion, SourcedValue, Sources
from ftbuild.models.solving import Solution
from ftbuild.models.weights import GPUS

FROM_NAMES = "files that are there, or not"
NORM, SQUARE = {"norm.bin": "hidden"}, {"norm.bin": "hidden", "dense.bin": "hidden * hidden"}
# Of a hidden size of 64, in fp32.
NORM_BYTES = {"norm.bin": 64 * 4}
SQUARE_BYTES = {**NORM_BYTES, "dense.bin": 64 * 64 * 4}
TYPE, HIDDEN = "gpt.weight_data_type", "gpt.hidden"
KNOWN = {TYPE: SourcedValue("fp32", FROM_SIZES), HIDDEN: SourcedValue("64", FROM_SIZES)}


def part(files: Mapping[str, str], facts: Mapping[str, Any], **others: Any) -> LoadedPart:
    described = {"data_type": TYPE, "facts": facts, "files": files, "keys": {TYPE: ()}, **others}
    return LoadedPart.model_validate(described)


def concluded(
    described: LoadedPart,
    sizes: Mapping[str, int],
    values: Mapping[str, str] | None = None,
    parameters: Mapping[str, str] | None = None,
) -> Conclusion:
    sources = Sources(values or {}, parameters or {}, {})
    whole = Loading(model_type="GPT", parts=(described,), source="by hand")
    return concluding.conclude(whole, "gpt", sizes, 1, sources)


def written(key: str, value: str) -> SourcedValue:
    section, _, name = key.partition(".")
    return SourcedValue(value, f"config.ini, [{section}] {name} = {value}")


SOLVABLE = part(
    {
        "{layers}.gate.bias.bin": "gated * hidden",
        "{layers}.qkv.{gpus}.bin": "hidden * 3 * hidden",
        "{layers}.dense.bin": "hidden * inner",
        "wte.bin": "vocabulary * hidden",
        "wpe.bin": "positions * hidden",
    },
    {
        "layers": "gpt.num_layer", "hidden": HIDDEN, "inner": "gpt.inter_size",
        "vocabulary": "gpt.vocab_size", "positions": "gpt.positions", "gated": ("gpt.gated", 0),
        "biases": ("gpt.biases", 1), "serial": ("gpt.serial", 0),
    },
    only_if={"{layers}.dense.bias.bin": "biases", "{layers}.out.bias.bin": "biases * serial"},
)  # fmt: skip
HALVES = {
    **{f"{layer}.qkv.{gpu}.bin": 64 * 3 * 64 * 2 // 2 for layer in range(2) for gpu in range(2)},
    **{f"{layer}.dense.bin": 64 * 256 * 2 for layer in range(2)},
    "wte.bin": 96 * 64 * 2,
}
SOLUTION = {GPUS: 2, "layers": 2, "hidden": 64, "inner": 256, "vocabulary": 96, "gated": 0}


def test_files_give_every_number_and_the_size_of_a_value() -> None:
    assert solving.gpus(SOLVABLE, HALVES) == 2
    assert solving.solve(SOLVABLE, HALVES, {GPUS: 2}) == [Solution(2, SOLUTION)]
    gated = {**HALVES, **{f"{layer}.gate.bias.bin": 64 * 2 for layer in range(2)}}
    assert solving.solve(SOLVABLE, gated, {GPUS: 2}) == [Solution(2, {**SOLUTION, "gated": 1})]


def test_a_file_that_a_switch_leaves_unread_says_nothing() -> None:
    spare = {**HALVES, "0.gate.bias.bin": 77}
    assert solving.solve(SOLVABLE, spare, {GPUS: 2, "gated": 0}) == [Solution(2, SOLUTION)]
    assert solving.solve(SOLVABLE, spare, {GPUS: 2}) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"wte.bin": 0},
        {"wte.bin": 96 * 64 * 2 + 1},
        {"0.qkv.0.bin": 64 * 3 * 63 * 2 // 2},
        {"0.qkv.0.bin": 0},
        {"0.dense.bin": 64 * 2, "0.gate.bias.bin": 63 * 2},
    ],
)
def test_files_that_contradict_each_other_have_no_solution(changed: Mapping[str, int]) -> None:
    assert solving.solve(SOLVABLE, {**HALVES, **changed}, {GPUS: 2}) == []


def test_files_that_are_missing_turn_off_the_one_switch_that_they_need() -> None:
    there = ["0.dense.bias.bin", "0.out.bias.bin"]
    for count, switches in ((2, {}), (1, {}), (0, {"biases": 0})):
        assert dict(solving.absent_switches(SOLVABLE, dict.fromkeys(there[:count], 4))) == switches
    assert solving.gpus(SOLVABLE, {}) == 0


@pytest.mark.parametrize(
    ("values", "keys", "missing"),
    [
        ({HIDDEN: "64"}, {TYPE: KNOWN[TYPE], HIDDEN: written(HIDDEN, "64")}, {}),
        ({"gpt.n_embd": "64"}, KNOWN, {}),
        ({TYPE: "fp16"}, {TYPE: written(TYPE, "fp16"), HIDDEN: SourcedValue("128", FROM_SIZES)}, {}),
        ({TYPE: "bf16"}, {TYPE: written(TYPE, "bf16"), HIDDEN: SourcedValue("128", FROM_SIZES)}, {}),
        ({}, {}, {TYPE: "", HIDDEN: ""}),
    ],
)
def test_what_is_known_chooses_between_types_that_both_fit(
    values: Mapping[str, str], keys: Mapping[str, SourcedValue], missing: Mapping[str, str]
) -> None:
    described = part(NORM, {"hidden": (HIDDEN, "gpt.n_embd")}, keys={TYPE: (), HIDDEN: ()})
    assert concluded(described, NORM_BYTES, values) == Conclusion(keys, missing)


def test_a_wrong_type_of_config_ini_does_not_hide_what_the_files_tell() -> None:
    described = part(SQUARE, {"hidden": HIDDEN}, keys={TYPE: (), HIDDEN: ()})
    found = concluded(described, SQUARE_BYTES, {TYPE: "fp16"})
    assert found == Conclusion({**KNOWN, TYPE: written(TYPE, "fp16")}, {})


HEADS, SIZE = "gpt.head_num", "gpt.size"
PRODUCT = f"the files tell {HEADS} * {SIZE} = 64"


@pytest.mark.parametrize(
    ("values", "parameters", "keys", "missing"),
    [
        (
            {HEADS: "4"}, {},
            {HEADS: written(HEADS, "4"), SIZE: SourcedValue("16", f"{FROM_SIZES}, and {HEADS}")}, {},
        ),
        (
            {}, {"head_num": "4"},
            {HEADS: SourcedValue("4", "config.pbtxt, head_num"),
             SIZE: SourcedValue("16", f"{FROM_SIZES}, and {HEADS}")}, {},
        ),
        ({HEADS: "0"}, {}, {HEADS: written(HEADS, "0")}, {SIZE: PRODUCT}),
        ({HEADS: "5"}, {}, {HEADS: written(HEADS, "5")}, {SIZE: PRODUCT}),
    ],
)  # fmt: skip
def test_one_factor_gives_the_other_where_it_divides_the_product(
    values: Mapping[str, str],
    parameters: Mapping[str, str],
    keys: Mapping[str, SourcedValue],
    missing: Mapping[str, str],
) -> None:
    described = part(
        SQUARE, {"hidden": f"{HEADS} * {SIZE}"}, keys={TYPE: (), HEADS: (), SIZE: (), "gpt.id": ()}
    )
    found = concluded(described, SQUARE_BYTES, values, parameters)
    assert found == Conclusion({TYPE: KNOWN[TYPE], **keys}, {**missing, "gpt.id": ""})


def test_every_factor_that_is_known_is_named() -> None:
    values = {HEADS: "4", "gpt.groups": "2"}
    described = part(
        SQUARE,
        {"hidden": f"{HEADS} * gpt.groups * {SIZE}"},
        keys={TYPE: (), **dict.fromkeys((*values, SIZE), ())},
    )
    keys = concluded(described, SQUARE_BYTES, values).keys
    assert keys[SIZE] == SourcedValue("8", f"{FROM_SIZES}, and {HEADS}, and gpt.groups")


NEGATED = {"0": 1, "false": 1}


@pytest.mark.parametrize(
    ("texts", "default", "there", "value", "question"),
    [
        (None, 0, True, "1", None),
        (None, 0, False, None, None),
        (None, 1, False, "0", None),
        (NEGATED, 0, True, "0", None),
        (NEGATED, 1, False, "1", None),
        ({"1": 1, "absolute": 1}, 0, True, "1", None),
        ({"relu": 0, "gated-relu": 1}, 0, True, "gated-relu", None),
        ({"relu": 0, "geglu": 1, "reglu": 1}, 0, True, None, "geglu or reglu, by the files that are there"),
        ({"relative": 1}, 1, True, None, None),
    ],
)
def test_a_switch_is_what_the_files_tell_unless_several_words_say_so(
    texts: Mapping[str, int] | None, default: int, there: bool, value: str | None, question: str | None
) -> None:
    described = part(
        SQUARE,
        {"hidden": HIDDEN, "kind": ("gpt.kind", default)},
        texts={} if texts is None else {"kind": texts},
        more={"gate.bin": "kind * hidden"},
        keys={TYPE: (), HIDDEN: ()},
    )
    found = concluded(described, {**SQUARE_BYTES, **({"gate.bin": 64 * 4} if there else {})})
    of_kind = {"gpt.kind": SourcedValue(value, FROM_NAMES)} if value else {}
    assert found == Conclusion({**KNOWN, **of_kind}, {"gpt.kind": question} if question else {})


POSITIONS, SWITCH = "gpt.positions", "gpt.has_positions"


@pytest.mark.parametrize(
    ("there", "values", "keys"),
    [
        (True, {}, {POSITIONS: SourcedValue("32", FROM_SIZES)}),
        (True, {SWITCH: "1"}, {SWITCH: written(SWITCH, "1"), POSITIONS: SourcedValue("32", FROM_SIZES)}),
        (True, {SWITCH: "0"}, {SWITCH: written(SWITCH, "0")}),
        (False, {}, {SWITCH: SourcedValue("0", FROM_NAMES)}),
    ],
)
def test_a_number_of_a_file_that_is_not_read_is_neither_concluded_nor_asked_for(
    there: bool, values: Mapping[str, str], keys: Mapping[str, SourcedValue]
) -> None:
    described = part(
        {**SQUARE, "wpe.bin": "positions * hidden"},
        {"hidden": HIDDEN, "positions": POSITIONS, "has_positions": (SWITCH, 1)},
        only_if={"wpe.bin": "has_positions"},
        keys={TYPE: (), HIDDEN: (), POSITIONS: ()},
    )
    found = concluded(described, {**SQUARE_BYTES, **({"wpe.bin": 32 * 64 * 4} if there else {})}, values)
    assert found == Conclusion({**KNOWN, **keys}, {})


def test_a_number_of_further_files_is_concluded_too() -> None:
    described = part(
        SQUARE,
        {"hidden": HIDDEN, "adapter_inner": ("gpt.adapter_size", "gpt.inter_size")},
        more={"adapter.bin": "adapter_inner * hidden"},
        keys={TYPE: (), HIDDEN: ()},
    )
    found = concluded(described, {**SQUARE_BYTES, "adapter.bin": 8 * 64 * 4})
    assert found == Conclusion({**KNOWN, "gpt.adapter_size": SourcedValue("8", FROM_SIZES)}, {})


def test_what_is_no_guess_is_asked_for_without_config_ini_alone() -> None:
    described = part(
        SQUARE, {"hidden": HIDDEN}, keys={TYPE: (), HIDDEN: (), "gpt.model_name": ()},
        asks={"gpt.activation": "undescribed"},
    )  # fmt: skip
    named = {"gpt.model_name": SourcedValue("gpt", "a name, which changes nothing")}
    assert concluded(described, SQUARE_BYTES) == Conclusion({**KNOWN, **named}, {"gpt.activation": ""})
    assert concluded(described, SQUARE_BYTES, {"gpt.x": "1"}) == Conclusion({**KNOWN, **named}, {})


def test_what_else_config_ini_has_goes_with_its_section() -> None:
    """The encoder and the decoder of T5 may be in one section; another model's section is left over."""
    sources = Sources(
        {"t5.d_model": "32", "t5.num_tasks": "1", "bert.head_num": "4", "structure.t5_with_bias": "0"}, {}, {}
    )
    keys = dict.fromkeys(("encoder.d_model", "decoder.d_model"), SourcedValue("64", FROM_SIZES))
    made = Conclusion(keys, {}).config(sources)
    both = {"d_model": "64", "num_tasks": "1"}
    assert made == {"encoder": both, "decoder": both, "structure": {"t5_with_bias": "0"}}
    assert list(made) == ["encoder", "decoder", "structure"]
