"""Which families and shapes have weights of int8, and what is said of the others."""

from __future__ import annotations

import pytest

from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.models import int8


def test_a_family_without_int8_is_refused_with_those_that_have_it(config: Config) -> None:
    with pytest.raises(ConfigError) as refused:
        int8.required(config.models, "t5")
    assert refused.value.what == (
        "t5 has no int8 weights: FasterTransformer quantizes those of its GPT alone"
    )
    assert refused.value.hint == "leave out --int8; families with int8 weights: gpt, opt, bloom, mpt"
    for name in ("gpt", "opt", "bloom", "mpt"):
        assert int8.required(config.models, name) == config.models.families[name].int8


@pytest.mark.parametrize(
    ("gpus", "whole", "said"),
    [
        (1, 96, "its hidden size 96 is not a multiple of 64"),
        (2, 192, "its hidden size 192, 96 on each of 2 GPUs, is not a multiple of 64"),
        (2, 65, "its hidden size 65, 32.5 on each of 2 GPUs, is not a multiple of 64"),
    ],
)
def test_the_share_of_a_gpu_must_be_whole_blocks(gpus: int, whole: int, said: str, config: Config) -> None:
    rules = int8.required(config.models, "gpt")
    assert list(int8.obstacles(rules, {"hidden": whole, "inner": 256}, gpus)) == [said]
    assert list(int8.obstacles(rules, {"hidden": 64 * gpus, "inner": 256}, gpus)) == []
