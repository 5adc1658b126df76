"""Our pre- and postprocessing make the tokens, word lists and texts that upstream's make of the same files.

GPT-J's are not compared, as they download a tokenizer (all_models/gptj/preprocessing/1/model.py:56).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ftbuild.client.acceptance.end_to_end import TEXTS
from ftbuild.config.schema import Config
from ftbuild.sources import fetch
from testing import needs

from .conftest import Need

RELEASE = "22.12"
# What upstream's end_to_end_test.py sends, and what tells a careful reader of CSV from a careless one.
WORDS = ("Hawks, Hawks", "", 'month,"a, b"," \n"', " the,The")
ENCODER = "utils.gpt_token_encoder"
WORD_LIST = "word_list"


@pytest.fixture(scope="module")
def all_models(config: Config, cache: Path, need: Need, tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("backend")
    folder = tmp_path_factory.mktemp("upstream") / "backend"
    fetch.export(config, RELEASE, "backend", cache, folder, report=print)
    return folder / "all_models"


@pytest.fixture(params=["gpt", "gptneox"])
def version(
    request: pytest.FixtureRequest, all_models: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The version folder of a family's preprocessing, whose modules can be imported."""
    needs.package("tokenizers")
    needs.package("regex")
    folder = all_models / request.param / "preprocessing" / "1"
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in (ENCODER, "utils", WORD_LIST):
        sys.modules.pop(name, None)


@pytest.fixture
def ours(version: Path, tmp_path: Path) -> tuple[ModuleType, Any]:
    """Our module, and the tokenizer from upstream's files under the names that a checkpoint gives them."""
    from ftbuild.models.tokenization import declared, texts

    names = {
        "gpt2-vocab.json": declared.VOCABULARY,
        "gpt2-merges.txt": declared.MERGES,
        "20B_tokenizer.json": declared.TOKENIZER,
    }
    for theirs, name in names.items():
        if (version / theirs).exists():
            (tmp_path / name).write_bytes((version / theirs).read_bytes())
    return texts, texts.load(tmp_path)


def tokenizer_of_upstream(version: Path) -> Any:
    if "gptneox" in version.parts:
        return importlib.import_module(WORD_LIST).get_tokenizer()
    encoder = importlib.import_module(ENCODER)
    return encoder.get_encoder(str(version / "gpt2-vocab.json"), str(version / "gpt2-merges.txt"))


def rows(lines: tuple[str, ...]) -> np.ndarray[Any, Any]:
    return np.array([[line.encode()] for line in lines], object)


def test_prompts_become_the_same_tokens_and_tokens_the_same_text(
    version: Path, ours: tuple[ModuleType, Any]
) -> None:
    texts, tokenizer = ours
    theirs = tokenizer_of_upstream(version)
    encode = theirs.tokenize if hasattr(theirs, "tokenize") else theirs.encode
    decode = theirs.detokenize if hasattr(theirs, "detokenize") else theirs.decode
    ids, lengths = texts.prompts(tokenizer, rows(TEXTS), 0)
    for line, row, (length,) in zip(TEXTS, ids.tolist(), lengths.tolist(), strict=True):
        assert row[:length] == encode(line)
        answer = texts.answers(tokenizer, np.array([[row[:length]]]), None)[0].decode()
        assert answer == decode(row[:length]) == line


def test_words_become_the_same_lists(version: Path, ours: tuple[ModuleType, Any]) -> None:
    texts, tokenizer = ours
    module = importlib.import_module(WORD_LIST)
    wanted = module.to_word_list_format(rows(WORDS))
    np.testing.assert_array_equal(texts.words(tokenizer, rows(WORDS)), wanted)
