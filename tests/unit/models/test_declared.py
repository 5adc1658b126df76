"""What the files of a tokenizer declare: its class, and its special tokens, as transformers reads them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ftbuild.models.tokenization import declared
from ftbuild.models.tokenization.declared import Token

from .test_fit import write

T5 = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
GPT2 = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
BRACKETS = {
    "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}  # fmt: skip
LLAMA = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


@pytest.mark.parametrize(
    ("model", "kind", "special"),
    [
        ("gpt2", "GPT2Tokenizer", GPT2),
        ("gptj", "GPT2Tokenizer", GPT2),
        ("opt", "GPT2Tokenizer", GPT2),
        ("codegen", "CodeGenTokenizer", GPT2),
        ("gpt_neox", "GPTNeoXTokenizer", GPT2),
        ("mpt", "GPTNeoXTokenizer", GPT2),
        ("bloom", "BloomTokenizer", {**LLAMA, "pad_token": "<pad>"}),
        ("llama", "LlamaTokenizer", LLAMA),
        ("t5", "T5Tokenizer", T5),
        ("mt5", "MT5Tokenizer", T5),
        ("bert", "BertTokenizer", BRACKETS),
        ("mamba", None, {}),
    ],
)
def test_a_checkpoint_that_names_no_class_has_that_of_its_model(
    model: str, kind: str | None, special: dict[str, str], tmp_path: Path
) -> None:
    found = declared.read(write(tmp_path / "in", config={"model_type": model}, tokenizer={}))
    assert found.kind == kind
    assert {name: found.text(name) for name in found.special} == special
    assert found.sources == {}


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({"tokenizer_config": []}, "tokenizer_config.json is not a JSON object"),
        ({"special_tokens_map": []}, "special_tokens_map.json is not a JSON object"),
        ({"added_tokens": ["<a>"]}, "added_tokens.json is not a JSON object"),
        (
            {"tokenizer_config": {"added_tokens_decoder": ["<a>"]}},
            "added_tokens_decoder is not a JSON object",
        ),
        ({"tokenizer_config": {"bos_token": 5}}, "'5' is not a token"),
        ({"special_tokens_map": {"bos_token": {"content": 5}}}, "\"{'content': 5}\" is not a token"),
        (
            {"tokenizer": {"added_tokens": {"<a>": 5}}},
            "tokenizer.json: added_tokens is not a list of tokens",
        ),
        (
            {"tokenizer": {"added_tokens": ["<a>"]}},
            "tokenizer.json: added_tokens is not a list of tokens",
        ),
        (
            {"tokenizer": {"added_tokens": [{"content": "<a>"}]}},
            "tokenizer.json: added_tokens is not a list of tokens",
        ),
    ],
)
def test_malformed_files_are_refused_by_name(files: dict[str, Any], what: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(what)}$"):
        declared.read(write(tmp_path / "in", **files))


def test_tokens_have_the_flags_that_their_file_gives_them(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "in",
        tokenizer={},
        tokenizer_config={
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": {"content": "<s>", "special": True, "lstrip": True},
            "eos_token": {"content": "</s>"},
            "unk_token": "<unk>",
            "pad_token": "",
            "sep_token": {"content": "<sep>", "special": True, "normalized": True, "rstrip": True},
            "mask_token": {"content": "<mask>", "single_word": True, "normalized": False},
        },
        # Its tokens are special whatever it says.
        special_tokens_map={"cls_token": {"content": "<cls>", "special": False}, "sep_token": None},
    )
    found = declared.read(folder)
    assert found.special == {
        "bos_token": Token("<s>", special=True, normalized=False, lstrip=True),
        "eos_token": Token("</s>"),
        "unk_token": Token("<unk>", plain=True),
        "cls_token": Token("<cls>", special=True, normalized=False),
        "mask_token": Token("<mask>", normalized=False, single_word=True),
    }
    assert found.sources["cls_token"] == "special_tokens_map.json"
    assert found.sources["bos_token"] == "tokenizer_config.json"


@pytest.mark.parametrize(
    ("kind", "wrapped"),
    [("GPT2Tokenizer", Token("<s>")), ("CodeGenTokenizer", Token("<s>", special=True, normalized=False))],
)
def test_a_class_gives_flags_to_the_texts_that_it_makes_a_tokenizer_of(
    kind: str, wrapped: Token, tmp_path: Path
) -> None:
    settings = {"tokenizer_class": kind, "bos_token": "<s>", "mask_token": "<mask>"}
    found = declared.read(write(tmp_path / "pair", tokenizer_config=settings))
    assert (found.special["bos_token"], found.special["mask_token"]) == (wrapped, Token("<mask>", plain=True))
    found = declared.read(write(tmp_path / "whole", tokenizer_config=settings, tokenizer={}))
    assert found.special["bos_token"] == Token("<s>", plain=True)


def test_more_special_tokens_are_those_of_both_files_each_once(tmp_path: Path) -> None:
    described = {"content": "<c>", "lstrip": True}
    folder = write(
        tmp_path / "in",
        tokenizer={},
        tokenizer_config={"additional_special_tokens": ["<a>", "<b>"]},
        special_tokens_map={
            "additional_special_tokens": ["<b>", None, described, described, "<d>"],
            "eos_token": "</s>",
        },
    )
    found = declared.read(folder)
    assert found.more == [
        Token("<a>", plain=True),
        Token("<b>", plain=True),
        Token("<c>", special=True, normalized=False, lstrip=True),
        Token("<d>", plain=True),
    ]
    assert found.special == {"eos_token": Token("</s>", plain=True)}


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({}, 100),
        ({"extra_ids": 2}, 2),
        ({"extra_ids": 5000}, 1000),
        ({"additional_special_tokens": ["<extra_id_0>"]}, 1),
    ],
)
@pytest.mark.parametrize("kind", ["T5Tokenizer", "MT5Tokenizer"])
def test_t5_has_tokens_that_stand_for_left_out_text(
    kind: str, settings: dict[str, Any], count: int, tmp_path: Path
) -> None:
    folder = write(tmp_path / "in", tokenizer={}, tokenizer_config={"tokenizer_class": kind, **settings})
    assert declared.read(folder).more == [
        Token(f"<extra_id_{number}>", plain=True) for number in range(count)
    ]
