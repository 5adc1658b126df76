"""What is said of a checkpoint whose configuration is not known here, or is that of no usual model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ftbuild.config.schema import Config
from ftbuild.models import conversion, obstacles
from ftbuild.models.conversion import ConversionRequest
from testing.model_files import CHECKPOINTS, HEADER, safetensors


@pytest.mark.parametrize(("count", "more"), [(1, ""), (8, ""), (9, " and 1 more"), (12, " and 4 more")])
def test_unknown_keys_are_shown_as_far_as_a_message_holds_them(
    count: int, more: str, config: Config, tmp_path: Path
) -> None:
    odd = {f"odd_{number:02}": number for number in range(count)}
    (tmp_path / "config.json").write_text(json.dumps({**CHECKPOINTS["gpt"], **odd}))
    (tmp_path / "model.safetensors").write_bytes(safetensors(json.dumps(HEADER).encode()))
    request = ConversionRequest("gpt", tmp_path, tmp_path / "out")
    _, source = conversion.convertible(config, "22.12", replace(request, ignored=tuple(odd)))
    shown = ", ".join(f"odd_{number:02} = {number}" for number in range(min(count, 8)))
    assert conversion.reasons_against(config, "22.12", request, source) == [
        "config.json has keys that may change what is computed, and are not known here: "
        f"{shown}{more} (--ignore-key KEY for one that changes nothing)"
    ]


def test_the_size_of_a_head_is_that_of_a_model_of_one_unless_facts_say_more() -> None:
    assert obstacles.head_size({"hidden": 64}) == 64
    assert obstacles.head_size({"hidden": 64, "heads": 4}) == 16
    assert obstacles.head_size({"hidden": 64, "heads": 4, "head_size": 128}) == 128
    assert obstacles.head_size({}) == 0
