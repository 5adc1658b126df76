"""Values that fp16 cannot hold: a server that computes in fp16 gets no weights that have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ftbuild.errors import ConfigError
from ftbuild.models import repository
from ftbuild.models.repository import RepositoryOptions
from testing import bytelevel
from tests.unit.models.test_repository import GPTJ, TEMPLATES, converted


def order(tmp_path: Path, beyond: object, dtype: str, weights: str) -> RepositoryOptions:
    made = converted(tmp_path / "weights", "gptj", GPTJ)
    record = {"family": "gptj", **({} if beyond is None else {"beyond_fp16": beyond})}
    (tmp_path / "weights" / "conversion.json").write_text(json.dumps(record))
    tokenizer = bytelevel.write(tmp_path / "tokenizer", {"<|endoftext|>": 50256})
    place = made if weights == "the folder of one count" else made.parent
    return RepositoryOptions("gptj", place, tmp_path / "models", dtype=dtype, tokenizer=tokenizer)


@pytest.mark.parametrize("weights", ["the folder of one count", "the folder above"])
def test_no_repository_in_fp16_is_made_of_values_that_fp16_cannot_hold(weights: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        repository.make(TEMPLATES, order(tmp_path, ["model.wte.bin", "model.wpe.bin"], "fp16", weights))
    assert caught.value.what == "model.wte.bin and 1 more has values that are infinite in fp16"
    assert caught.value.hint == "--dtype bf16 or fp32"
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("beyond", "dtype"),
    [(["model.wte.bin"], "bf16"), (["model.wte.bin"], "fp32"), (None, "fp16"), ([], "fp16")],
)
def test_other_types_hold_them_and_other_weights_have_none(
    beyond: object, dtype: str, tmp_path: Path
) -> None:
    assert repository.make(TEMPLATES, order(tmp_path, beyond, dtype, "the folder above")).models
