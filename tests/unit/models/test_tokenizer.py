"""What a tokenizer's files say, without its library: the ids that it gives, what surrounds a text."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ftbuild.errors import ConfigError
from ftbuild.models import contradictions, tokenizer
from testing import needs, tokenizer_folders


@pytest.mark.parametrize("seed", range(60))
def test_ids_and_what_surrounds_a_text_are_those_of_the_library(seed: int, tmp_path: Path) -> None:
    needs.package("tokenizers")
    from ftbuild.models.tokenization import texts

    tokenizer_folders.write(random.Random(seed), tmp_path / "tokenizer")
    found = tokenizer.read(tmp_path / "tokenizer")
    try:
        loaded = texts.load(tmp_path / "tokenizer")
    except ValueError:
        with pytest.raises(ConfigError):
            contradictions.require_none(found)
        return
    assert dict(found.ids) == loaded.get_vocab()
    ids, bare = (loaded.encode("a b", add_special_tokens=special).ids for special in (True, False))
    assert ids == [*found.begins, *bare, *found.ends]


def test_the_files_that_decide_are_taken_and_no_others(tmp_path: Path) -> None:
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    for name in (
        "tokenizer.json",
        "vocab.json",
        "merges.txt",
        "config.json",
        "special_tokens_map.json",
        "notes",
    ):
        (folder / name).write_text("{}")
    assert [file.name for file in tokenizer.files(folder)] == [
        "tokenizer.json", "special_tokens_map.json", "config.json",
    ]  # fmt: skip
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    assert "config.json" not in [file.name for file in tokenizer.files(folder)]
    (folder / "tokenizer.json").unlink()
    assert [file.name for file in tokenizer.files(folder)][:2] == ["vocab.json", "merges.txt"]


@pytest.mark.parametrize("kind", ["Qwen2Tokenizer", "RobertaTokenizer", "GPTNeoXTokenizer"])
def test_vocab_json_of_a_class_that_reads_it_in_another_way_is_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    (tmp_path / "tokenizer_config.json").write_text(f'{{"tokenizer_class": "{kind}"}}')
    with pytest.raises(ConfigError, match=f"how a {kind} reads vocab.json") as refused:
        tokenizer.read(tmp_path)
    assert "save_pretrained" in (refused.value.hint or "")
