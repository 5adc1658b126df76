"""What a tokenizer's files say, without its library: the ids that it gives, what surrounds a text."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ftbuild.errors import ConfigError
from ftbuild.models import contradictions, tokenizer
from testing import needs, tokenizer_folders

from .test_fit import SMALL, SPECIAL, around, whole, write

# Beside SMALL: LLaMA's class puts a beginning there, whatever tokenizer.json has.
LLAMA = {"tokenizer_class": "LlamaTokenizerFast"}
NUMBERS = {str(number): number for number in range(10)}


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


@pytest.mark.parametrize("kind", ["BertProcessing", "RobertaProcessing"])
def test_what_the_older_processors_put_around_a_text_is_found(kind: str, tmp_path: Path) -> None:
    older = {"type": kind, "sep": ["</s>", 10], "cls": ["<s>", 11]}
    after_others = {"type": "Sequence", "processors": [tokenizer_folders.BYTE_LEVEL, older]}
    for processor in (older, after_others):
        folder = write(tmp_path / "tokenizer", tokenizer=whole(SMALL, SPECIAL, post_processor=processor))
        found = tokenizer.read(folder)
        assert (found.begins, found.ends) == ([11], [10])


@pytest.mark.parametrize("pair", [None, 10, "<s>", ["<s>"], ["<s>", "10"], ["<s>", True], ["<s>", 10, 11]])
def test_a_processor_without_an_id_puts_no_token_of_the_tokenizer_there(pair: object) -> None:
    content = {"post_processor": {"type": "BertProcessing", "sep": pair, "cls": ["<s>", 11]}}
    assert tokenizer.template(content) == ([11], [-1])


def test_parts_in_sequences_are_found_in_their_order() -> None:
    def sequence(name: str, *parts: Mapping[str, Any]) -> dict[str, Any]:
        return {"type": "Sequence", name: list(parts)}

    found = tokenizer.steps(
        sequence(
            "normalizers",
            {"type": "NFC"},
            sequence("pretokenizers", {"type": "WhitespaceSplit"}, {"type": "Metaspace"}),
            sequence("processors", {"type": "ByteLevel"}),
        )
    )
    assert [step["type"] for step in found] == [
        "Sequence", "NFC", "Sequence", "Sequence", "WhitespaceSplit", "Metaspace", "ByteLevel",
    ]  # fmt: skip
    assert tokenizer.steps(None) == []


def test_a_class_puts_its_default_around_a_text_only_if_the_tokenizer_has_it(tmp_path: Path) -> None:
    beginning = {"<s>": 10}
    added = write(tmp_path / "added", tokenizer=whole(NUMBERS, beginning), tokenizer_config=LLAMA)
    assert tokenizer.read(added).begins == [10]
    # transformers reads no added_tokens.json where tokenizer_config.json has the tokens.
    unread = write(
        tmp_path / "unread",
        tokenizer=whole(NUMBERS, {}, post_processor=around({"7": 7}, {})),
        tokenizer_config={**LLAMA, "added_tokens_decoder": {}},
        added_tokens=beginning,
    )
    assert tokenizer.read(unread).begins == [7]


@pytest.mark.parametrize("attribute", ["bos_token", "eos_token"])
def test_a_class_that_has_to_put_a_token_there_needs_one(attribute: str, tmp_path: Path) -> None:
    settings = {**LLAMA, f"add_{attribute}": True, attribute: None}
    folder = write(tmp_path / "tokenizer", tokenizer=whole(SMALL, SPECIAL), tokenizer_config=settings)
    with pytest.raises(ConfigError) as refused:
        tokenizer.read(folder)
    assert refused.value.what == (
        f"not a tokenizer: tokenizer_config.json puts a {attribute} around each text, but there is none"
    )
    assert refused.value.where == str(folder / "tokenizer_config.json")


def test_pieces_are_numbered_in_their_order_and_are_texts(tmp_path: Path) -> None:
    def vocabulary(*pieces: object) -> Mapping[str, int]:
        folder = write(tmp_path / "tokenizer", tokenizer={"model": {"type": "Unigram", "vocab": pieces}})
        return tokenizer.read(folder).vocabulary

    assert vocabulary(["<pad>", 0.0], ["a", -1.0]) == {"<pad>": 0, "a": 1}
    for piece in ([], "a", None, [5, -1.0]):
        with pytest.raises(ConfigError, match="not a tokenizer: a piece is not text"):
            vocabulary(["<pad>", 0.0], piece)


def test_a_server_refuses_an_added_token_with_another_id_than_its_file_says(tmp_path: Path) -> None:
    needs.package("tokenizers")
    from ftbuild.models.tokenization import texts

    (tmp_path / "vocab.json").write_text(json.dumps(NUMBERS))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    (tmp_path / "added_tokens.json").write_text('{"<a>": 10, "<b>": 12}')
    with pytest.raises(ValueError, match="the added token '<b>' should have the id 12, but got 11"):
        texts.load(tmp_path)
