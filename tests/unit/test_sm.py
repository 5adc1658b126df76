from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftbuild.errors import ConfigError
from ftbuild.sm import FIRST, Sm, parse_sms, sm_codes, sm_list, sm_set_id, stand_ins

NUMBERS = st.integers(10, 999).map(Sm)


@given(NUMBERS)
def test_every_way_to_print_an_sm_can_be_read_back(sm: Sm) -> None:
    assert {Sm.parse(text) for text in (str(sm), sm.code, sm.ptx, sm.capability)} == {sm}


@given(st.sets(NUMBERS, min_size=1))
def test_every_way_to_print_a_set_can_be_read_back(sms: set[Sm]) -> None:
    wanted = tuple(sorted(sms))
    assert {parse_sms(text) for text in (sm_list(sms), sm_set_id(sms), sm_codes(sms))} == {wanted}


@pytest.mark.parametrize(
    "text", ["", "8", "sm80", "sm_8.0", "90a", "8.60", "22.12", "1000", "-80", "80.", "٨٠", "80,", "80,,86"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not an SM"):
        parse_sms(text)


def test_records_hold_plain_numbers() -> None:
    sm = Sm.of_capability(8, 6)
    assert json.dumps({sm: [sm]}) == '{"86": [86]}'
    assert {86: "Ampere"}[sm] == "Ampere"
    assert f"{sm}" == "86"


@pytest.mark.parametrize(
    ("code", "gpu", "runs"),
    [(80, 80, True), (80, 86, True), (86, 80, False), (80, 90, False), (100, 103, True), (90, 100, False)],
)
def test_machine_code_runs_on_its_major_version_from_its_minor_version_on(
    code: int, gpu: int, runs: bool
) -> None:
    assert Sm(code).runs_on(Sm(gpu)) is runs


def test_the_newest_code_that_runs_on_a_gpu_is_named_first() -> None:
    text = stand_ins(Sm(89), map(Sm, (70, 80, 86, 90))) or ""
    assert text.startswith("--sm 86 or --sm 80: such machine code runs on 8.9")
    assert stand_ins(Sm(75), [Sm(80)]) is None


@pytest.mark.parametrize("board", [53, 62, 72, 87])
def test_boards_are_promised_nothing(board: int) -> None:
    text = stand_ins(Sm(board), [Sm(board - board % 10)]) or ""
    assert text.endswith("though NVIDIA does not promise it for Jetson boards")


def test_data_types_begin_with_the_first_sm_that_computes_in_them() -> None:
    """CUDA's table of instructions, and the tensor cores of int8 weights' kernels."""
    assert FIRST == {"fp16": 60, "bf16": 80, "int8": 70}
