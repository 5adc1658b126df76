"""A tokenizer that does not fit a model: refused where answers would be wrong, else a warning names both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ftbuild.errors import ConfigError
from ftbuild.models import fit
from ftbuild.models.fit import Model
from testing.tokenizer_folders import BYTE_LEVEL

Files = Mapping[str, Any]
FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
# Of the public checkpoints of each family: rows of the table, tokens of the tokenizer, start and end token.
PUBLIC = {
    "GPT-2": ("gpt", 50257, 50257, 50256, 50256),
    "OPT": ("gpt", 50272, 50265, 2, 2),
    "BLOOM": ("gpt", 250880, 250680, 1, 2),
    "MPT": ("gpt", 50432, 50254, 0, 0),
    "GPT-J": ("gptj", 50400, 50257, 50256, 50256),
    "CodeGen": ("gptj", 51200, 50295, 50256, 50256),
    "GPT-NeoX": ("gptneox", 50432, 50277, 0, 0),
    "Pythia 12B": ("gptneox", 50688, 50277, 0, 0),
    "LLaMA": ("gptneox", 32000, 32000, 1, 2),
    "DeepSeek": ("gptneox", 102400, 100015, 100000, 100001),
    "T5": ("t5", 32128, 32100, 0, 1),
    "mT5": ("t5", 250112, 250100, 0, 1),
    "BERT": ("bert", 30522, 30522, None, None),
}


def write(folder: Path, **files: Any) -> Path:
    """Write JSON files; `tokenizer` is tokenizer.json, and so on."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def whole(vocabulary: Mapping[str, int], added: Mapping[str, int], **parts: Any) -> dict[str, Any]:
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": [{"id": number, "content": text, **FLAGS} for text, number in added.items()],
        "pre_tokenizer": BYTE_LEVEL, "post_processor": None, "decoder": BYTE_LEVEL, **parts,
        "model": {"type": "BPE", "vocab": dict(vocabulary), "merges": []},
    }  # fmt: skip


def around(first: Mapping[str, int], last: Mapping[str, int]) -> dict[str, Any]:
    special = [[{"SpecialToken": {"id": text, "type_id": 0}} for text in side] for side in (first, last)]
    known = {
        text: {"id": text, "ids": [number], "tokens": [text]} for text, number in {**first, **last}.items()
    }
    single = [*special[0], {"Sequence": {"id": "A", "type_id": 0}}, *special[1]]
    return {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": known}


# A small tokenizer: 0 to 9, then an end and a beginning.
SMALL = {**{str(number): number for number in range(10)}, "</s>": 10, "<s>": 11}
SPECIAL = {"</s>": 10, "<s>": 11}
MODEL = Model("gpt", 12, 11, 10, "config.ini")
NAMED = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "bos_token": "<s>"}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_checkpoints_give_no_warning(name: str, tmp_path: Path) -> None:
    family, rows, tokens, start, end = PUBLIC[name]
    special = {"<end>": end or 0} if start == end else {"<start>": start or 0, "<end>": end or 1}
    vocabulary = {**special, "last": tokens - 1} if tokens - 1 not in special.values() else special
    begin = "<start>" if "<start>" in special else "<end>"
    named = {"eos_token": "<end>", "pad_token" if family == "t5" else "bos_token": begin}
    template = around({begin: special[begin]} if family == "bert" else {}, {"<end>": special["<end>"]})
    folder = write(
        tmp_path / "checkpoint",
        tokenizer=whole(vocabulary, special, post_processor=template if family in ("t5", "bert") else None),
        tokenizer_config={"tokenizer_class": "PreTrainedTokenizerFast", **named},
        generation_config={"eos_token_id": end, "decoder_start_token_id": start},
    )
    assert fit.check(folder, Model(family, rows, start, end, "config.ini")) == ()


REFUSED: Mapping[str, tuple[Files, Model, str]] = {
    "a token beyond the table": (
        {"tokenizer": whole(SMALL, SPECIAL)},
        Model("gpt", 11, 1, 10, "config.ini"),
        "tokens up to 11, the weights have 11",
    ),
    "an end beyond the table": (
        {"tokenizer": whole(SMALL, SPECIAL)},
        Model("gpt", 12, 1, 12, "config.ini"),
        "end token is 12 in config.ini",
    ),
    "a start beyond the table": (
        {"tokenizer": whole(SMALL, SPECIAL)},
        Model("gpt", 12, 13, 10, "config.ini"),
        "start token is 13 in config.ini",
    ),
    "a token around a text beyond the table": (
        {"tokenizer": whole(SMALL, SPECIAL, post_processor=around({}, {"</s>": 99}))},
        MODEL,
        "puts the token 99 around",
    ),
    "two tokens with one id": (
        {"tokenizer": whole({**SMALL, "a": 3}, SPECIAL)},
        MODEL,
        "'3' and 'a' have the same id, 3",
    ),
    "an added token with the id of another": (
        {"tokenizer": whole({"a": 0, "b": 2}, {"<x>": 2})},
        MODEL,
        "'b' and '<x>' have the same id, 2",
    ),
    "a gap in added_tokens.json": (
        {"vocab": SMALL, "added_tokens": {"<x>": 12, "<y>": 14}},
        Model("gpt", 20, 1, 10, "c"),
        "gives '<y>' the id 14, and it would get 13",
    ),
    "a gap in front of added_tokens.json": (
        {"vocab": SMALL, "added_tokens": {"<x>": 13}},
        Model("gpt", 20, 1, 10, "c"),
        "gives '<x>' the id 13, and it would get 12",
    ),
    "a gap in vocab.json behind which a token is added": (
        {"vocab": {"a": 0, "b": 5}, "added_tokens": {"<x>": 6}},
        Model("gpt", 20, 1, 5, "c"),
        "gives '<x>' the id 6, and it would get 2",
    ),
    "another id for a token of vocab.json": (
        {"vocab": SMALL, "added_tokens": {"</s>": 12}},
        Model("gpt", 20, 1, 10, "c"),
        "gives '</s>' the id 12, and it would get 10",
    ),
    "two tokens of added_tokens.json with one id": (
        {"vocab": SMALL, "added_tokens": {"<x>": 12, "<y>": 12}},
        Model("gpt", 20, 1, 10, "c"),
        "gives the id 12 to several tokens, '<x>' among them",
    ),
    "a gap in added_tokens_decoder": (
        {
            "tokenizer": whole(SMALL, SPECIAL),
            "tokenizer_config": {"added_tokens_decoder": {"14": {"content": "<x>"}}},
        },
        Model("gpt", 20, 1, 10, "c"),
        "gives '<x>' the id 14, and it would get 12",
    ),
    "a beginning that is no token": (
        {"vocab": SMALL, "tokenizer_config": {"add_bos_token": True, "bos_token": "<t>"}},
        MODEL,
        "puts '<t>' around a text",
    ),
    "LLaMA's class without the beginning that it is told": (
        {
            "tokenizer": whole({"a": 0}, {}),
            "tokenizer_config": {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True},
        },
        Model("gptneox", 12, 1, 0, "c"),
        "puts '<s>' around a text",
    ),
    "a tokenizer that is made of pieces anew, otherwise": (
        {
            "tokenizer": whole(SMALL, SPECIAL, normalizer={"type": "Prepend", "prepend": "_"}),
            "tokenizer_config": {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": False},
        },
        MODEL,
        "add_prefix_space false, and tokenizer.json begins texts with a blank",
    ),
    "a tokenizer whose pieces begin no text with a blank": (
        {
            "tokenizer": whole(
                SMALL, SPECIAL, pre_tokenizer={"type": "Metaspace", "prepend_scheme": "never"}
            ),
            "tokenizer_config": {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": True},
        },
        MODEL,
        "add_prefix_space true, and tokenizer.json begins no text with a blank",
    ),
    "a tokenizer whose pieces begin with a blank by default": (
        {
            "tokenizer": whole(SMALL, SPECIAL, pre_tokenizer={"type": "Metaspace"}),
            "tokenizer_config": {"tokenizer_class": "T5Tokenizer", "add_prefix_space": False},
        },
        MODEL,
        "add_prefix_space false, and tokenizer.json begins texts with a blank",
    ),
    "CodeGen with a beginning": (
        {
            "tokenizer": whole(SMALL, SPECIAL),
            "tokenizer_config": {"tokenizer_class": "CodeGenTokenizer", "add_bos_token": True},
        },
        MODEL,
        "transformers loads no CodeGenTokenizer with add_bos_token",
    ),
}
WARNED: Mapping[str, tuple[Files, Model, tuple[str, ...]]] = {
    "LLaMA's class without its beginning": (
        {"tokenizer": whole({"a": 0, "b": 1}, {"b": 1}), "config": {"model_type": "llama"}},
        Model("gptneox", 12, None, 1, "config.ini"),
        ("LlamaTokenizer puts '<s>' in front of every text, which is not a token of tokenizer.json",),
    ),
    "another end in the tokenizer": (
        {"tokenizer": whole(SMALL, SPECIAL), "tokenizer_config": {**NAMED, "eos_token": "<s>"}},
        MODEL,
        ("config.ini ends answers at token 10 ('</s>')", "eos_token of tokenizer_config.json is 11 ('<s>')"),
    ),
    "another end in special_tokens_map.json": (
        {"tokenizer": whole(SMALL, SPECIAL), "special_tokens_map": {"eos_token": {"content": "<s>"}}},
        MODEL,
        ("token 10 ('</s>')", "eos_token of special_tokens_map.json is 11 ('<s>')"),
    ),
    "another end by the class": (
        {"tokenizer": whole({**SMALL, "<|endoftext|>": 12}, SPECIAL), "config": {"model_type": "gpt2"}},
        Model("gpt", 13, None, 10, "config.ini"),
        ("token 10 ('</s>')", "GPT2Tokenizer by default is 12 ('<|endoftext|>')"),
    ),
    "an end that is a word": (
        {"tokenizer": whole(SMALL, SPECIAL)},
        Model("gpt", 12, None, 7, "config.ini"),
        ("answers at token 7 ('7')", "no special token"),
    ),
    "an end that no token has": (
        {"tokenizer": whole(SMALL, SPECIAL)},
        Model("gpt", 40, None, 30, "config.ini"),
        ("token 30 (no token of it)",),
    ),
    "another end of generation_config.json": (
        {
            "tokenizer": whole(SMALL, SPECIAL),
            "tokenizer_config": NAMED,
            "generation_config": {"eos_token_id": 3},
        },
        MODEL,
        (
            "token 10 ('</s>')",
            "generation_config.json (eos_token_id) at 3 ('3')",
            "the server takes the former",
        ),
    ),
    "several ends of generation_config.json": (
        {
            "tokenizer": whole(SMALL, SPECIAL),
            "tokenizer_config": NAMED,
            "generation_config": {"eos_token_id": [10, 9]},
        },
        MODEL,
        (
            "generation_config.json ends answers at 10 ('</s>') or 9 ('9')",
            "config.ini at 10 alone",
            "stop words",
        ),
    ),
    "another end of config.json": (
        {"tokenizer": whole(SMALL, SPECIAL), "tokenizer_config": NAMED, "config": {"eos_token_id": 2}},
        MODEL,
        ("config.ini ends answers at token 10", "config.json (eos_token_id) at 2 ('2')"),
    ),
    "another start": (
        {"tokenizer": whole(SMALL, SPECIAL), "tokenizer_config": NAMED},
        Model("gpt", 12, 4, 10, "config.ini"),
        ("config.ini has the start token 4 ('4')", "bos_token of tokenizer_config.json is 11 ('<s>')"),
    ),
    "T5's start that is not its padding": (
        {
            "tokenizer": whole(SMALL, SPECIAL, post_processor=around({}, {"</s>": 10})),
            "tokenizer_config": {**NAMED, "pad_token": "0"},
        },
        Model("t5", 12, 5, 10, "config.ini"),
        ("start token 5 ('5')", "pad_token of tokenizer_config.json is 0 ('0')"),
    ),
    "T5's start of generation_config.json": (
        {
            "tokenizer": whole(SMALL, SPECIAL, post_processor=around({}, {"</s>": 10})),
            "tokenizer_config": NAMED,
            "generation_config": {"decoder_start_token_id": 1},
        },
        Model("t5", 12, 0, 10, "config.ini"),
        ("config.ini begins answers at token 0 ('0')", "(decoder_start_token_id) at 1 ('1')"),
    ),
    "T5 without its end": (
        {"tokenizer": whole(SMALL, SPECIAL), "tokenizer_config": NAMED},
        Model("t5", 12, None, 10, "config.ini"),
        ("t5 was trained with a token behind every text",),
    ),
    "BERT without [CLS]": (
        {"tokenizer": whole(SMALL, SPECIAL), "tokenizer_config": NAMED},
        Model("bert", 12, None, None, "config.ini"),
        ("bert was trained with a token in front of every text",),
    ),
    "a tokenizer that is much smaller": (
        {"tokenizer": whole(SMALL, SPECIAL), "tokenizer_config": NAMED},
        Model("gpt", 250880, 11, 10, "config.ini"),
        ("the weights have 250880 tokens, the tokenizer 12",),
    ),
    "an id of added_tokens.json that tokenizer.json decides": (
        {"tokenizer": whole(SMALL, SPECIAL), "tokenizer_config": NAMED, "added_tokens": {"</s>": 7}},
        MODEL,
        ("added_tokens.json gives '</s>' the id 7, tokenizer.json 10: transformers takes the latter",),
    ),
    "an id of added_tokens_decoder that tokenizer.json decides": (
        {
            "tokenizer": whole(SMALL, SPECIAL),
            "tokenizer_config": {
                **NAMED,
                "added_tokens_decoder": {"7": {"content": "</s>", "special": True}},
            },
        },
        MODEL,
        ("tokenizer_config.json gives '</s>' the id 7, tokenizer.json 10",),
    ),
    "added_tokens.json beside added_tokens_decoder": (
        {
            "tokenizer": whole(SMALL, SPECIAL),
            "added_tokens": {"<x>": 12},
            "tokenizer_config": {**NAMED, "added_tokens_decoder": {}},
        },
        MODEL,
        ("added_tokens.json has the token '<x>', tokenizer_config.json has not: it is left out",),
    ),
    "a gap in tokenizer.json": (
        {"tokenizer": whole(SMALL, {**SPECIAL, "<x>": 15}), "tokenizer_config": NAMED},
        Model("gpt", 20, 11, 10, "config.ini"),
        ("tokenizer.json gives '<x>' the id 15, the library, which numbers tokens in order, 12",),
    ),
    "another id around a text": (
        {
            "tokenizer": whole(SMALL, SPECIAL, post_processor=around({}, {"</s>": 3})),
            "tokenizer_config": NAMED,
        },
        MODEL,
        ("has '</s>' as 10, and puts it around a text as [3]",),
    ),
    "a special token that is not there": (
        {"tokenizer": whole(SMALL, SPECIAL), "tokenizer_config": {**NAMED, "pad_token": "[PAD]"}},
        MODEL,
        ("tokenizer_config.json names '[PAD]' as pad_token, which is not in the vocabulary", "the id 12"),
    ),
    "a beginning that GPT-2's class does not add": (
        {
            "tokenizer": whole(SMALL, SPECIAL),
            "tokenizer_config": {**NAMED, "tokenizer_class": "GPT2Tokenizer", "add_bos_token": True},
        },
        MODEL,
        ("has add_bos_token true, tokenizer.json puts nothing in front of a text",),
    ),
    "a beginning that LLaMA's class adds": (
        {
            "tokenizer": whole(SMALL, SPECIAL),
            "tokenizer_config": {**NAMED, "tokenizer_class": "LlamaTokenizer"},
        },
        MODEL,
        ("puts nothing in front of a text, LlamaTokenizer with add_bos_token true 11 ('<s>')",),
    ),
    "a blank that GPT-2's class takes": (
        {
            "tokenizer": whole(SMALL, SPECIAL, pre_tokenizer={**BYTE_LEVEL, "add_prefix_space": True}),
            "tokenizer_config": {**NAMED, "tokenizer_class": "GPT2Tokenizer"},
        },
        MODEL,
        ("tokenizer.json has add_prefix_space true, GPT2Tokenizer by default add_prefix_space false",),
    ),
    "small letters that BERT's class makes": (
        {
            "tokenizer": whole(SMALL, SPECIAL, normalizer={"type": "BertNormalizer", "lowercase": False}),
            "tokenizer_config": {**NAMED, "tokenizer_class": "BertTokenizer", "do_lower_case": True},
        },
        MODEL,
        ("tokenizer.json has lowercase false, tokenizer_config.json do_lower_case true",),
    ),
    "a class that is not known": (
        {
            "tokenizer": whole(SMALL, SPECIAL),
            "tokenizer_config": {**NAMED, "tokenizer_class": "OtherTokenizer"},
        },
        MODEL,
        ("with its class OtherTokenizer, which may change it",),
    ),
    "code of a checkpoint": (
        {
            "tokenizer": whole(SMALL, SPECIAL),
            "tokenizer_config": {**NAMED, "auto_map": {"AutoTokenizer": ["a.B", None]}},
        },
        MODEL,
        ("names code of its own, which never runs here",),
    ),
}


def written(folder: Path, files: Files) -> Path:
    write(folder, **files)
    if "vocab" in files:
        (folder / "merges.txt").write_text("#version: 0.2\n")
    return folder


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_make_wrong_answers_is_refused(case: str, tmp_path: Path) -> None:
    files, model, what = REFUSED[case]
    with pytest.raises(ConfigError) as refused:
        fit.check(written(tmp_path / "tokenizer", files), model)
    assert what in refused.value.what
    assert refused.value.hint
    (only,) = fit.complaints(tmp_path / "tokenizer", model)
    assert what in only


@pytest.mark.parametrize("case", WARNED)
def test_where_transformers_takes_a_side_a_warning_names_both(case: str, tmp_path: Path) -> None:
    files, model, parts = WARNED[case]
    warnings = fit.check(written(tmp_path / "tokenizer", files), model)
    assert [one for one in warnings if all(part in one for part in parts)], warnings


@pytest.mark.parametrize(
    ("parts", "prefix"),
    [
        ({"normalizer": {"type": "Prepend", "prepend": "_"}}, True),
        ({"pre_tokenizer": {"type": "Metaspace"}}, True),
        ({"pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "first"}}, True),
        ({"pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "never"}}, False),
        ({"normalizer": {"type": "Replace", "content": "_"}}, False),
    ],
)
def test_a_blank_in_front_of_texts_is_where_both_files_have_it(
    parts: Mapping[str, Any], prefix: bool, tmp_path: Path
) -> None:
    template = around({"<s>": 11}, {})
    folder = write(
        tmp_path / "tokenizer",
        tokenizer=whole(SMALL, SPECIAL, post_processor=template, **parts),
        tokenizer_config={**NAMED, "tokenizer_class": "LlamaTokenizer", "add_prefix_space": prefix},
    )
    assert fit.check(folder, MODEL) == ()


BOTH = around({"<s>": 11}, {"</s>": 10})
T5_FILES = {"tokenizer": whole(SMALL, SPECIAL, post_processor=around({}, {"</s>": 10}))}
END = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}
UNSPECIAL = {
    **whole(SMALL, SPECIAL),
    "added_tokens": [{"id": 10, "content": "</s>", **FLAGS, "special": False}],
}
SAID: Mapping[str, tuple[Files, Model, tuple[str, ...]]] = {
    "padding of 127 rows": ({"tokenizer": whole(SMALL, SPECIAL)}, Model("gpt", 139, None, 10, "c"), ()),
    "padding of 128 rows": (
        {"tokenizer": whole(SMALL, SPECIAL)},
        Model("gpt", 140, None, 10, "c"),
        ("the weights have 140 tokens, the tokenizer 12: does it belong to another model?",),
    ),
    "no tokens at all": (
        {"tokenizer": whole({}, {})},
        Model("gpt", 140, None, None, "c"),
        ("the weights have 140 tokens, the tokenizer 0: does it belong to another model?",),
    ),
    "T5 with its end": (T5_FILES, Model("t5", 12, None, 10, "c"), ()),
    "a T5 encoder with its end": (T5_FILES, Model("t5-encoder", 12, None, None, "c"), ()),
    "a T5 encoder without its end": (
        {"tokenizer": whole(SMALL, SPECIAL)},
        Model("t5-encoder", 12, None, None, "c"),
        (
            "t5-encoder was trained with a token behind every text; this tokenizer adds none, and neither "
            "does transformers",
        ),
    ),
    "BERT with both": (
        {"tokenizer": whole(SMALL, SPECIAL, post_processor=BOTH)},
        Model("bert", 12, None, None, "c"),
        (),
    ),
    "BERT with neither": (
        {"tokenizer": whole(SMALL, SPECIAL)},
        Model("bert", 12, None, None, "c"),
        tuple(
            f"bert was trained with a token {place} every text; this tokenizer adds none, and neither does "
            "transformers"
            for place in ("in front of", "behind")
        ),
    ),
    "T5's start that is not its padding": (
        {**T5_FILES, "tokenizer_config": {**NAMED, "pad_token": "0"}},
        Model("t5", 12, 5, 10, "config.ini"),
        (
            "config.ini has the start token 5 ('5'), the pad_token of tokenizer_config.json is 0 ('0'): "
            "answers begin with the former",
        ),
    ),
    "another start": (
        {"tokenizer": whole(SMALL, SPECIAL), "tokenizer_config": NAMED},
        Model("gpt", 12, 4, 10, "config.ini"),
        (
            "config.ini has the start token 4 ('4'), the bos_token of tokenizer_config.json is 11 ('<s>'): "
            "prompts begin with what the tokenizer puts there, whatever the former is",
        ),
    ),
    "another start than the one that no file names": (
        {"tokenizer": whole(SMALL, SPECIAL), "config": {"model_type": "bloom"}},
        Model("gpt", 12, 4, 10, "config.ini"),
        (),
    ),
    "another end by the class": (
        {"tokenizer": whole(SMALL, SPECIAL), "config": {"model_type": "bloom"}},
        Model("gpt", 12, None, 7, "config.ini"),
        (
            "config.ini ends answers at token 7 ('7'), the eos_token of BloomTokenizer by default is "
            "10 ('</s>'): the former is used, as by transformers; answers may stop early, or too late",
        ),
    ),
    "ends that are no ids": (
        {
            "tokenizer": whole(SMALL, SPECIAL), "tokenizer_config": END,
            "generation_config": {"eos_token_id": [10, None, "9", True]},
        },
        Model("gpt", 12, None, 10, "config.ini"),
        (),
    ),
    "an end that config.json alone has": (
        {
            "tokenizer": whole(SMALL, SPECIAL), "tokenizer_config": END,
            "generation_config": {"eos_token_id": None}, "config": {"eos_token_id": 2},
        },
        Model("gpt", 12, None, 10, "config.ini"),
        (
            "config.ini ends answers at token 10 ('</s>'), config.json (eos_token_id) at 2 ('2'): the server "
            "takes the former, transformers the latter",
        ),
    ),
    "an end that tokenizer.json has as special": (
        {"tokenizer": whole(SMALL, SPECIAL)}, Model("gpt", 12, None, 10, "config.ini"), (),
    ),
    "an end that tokenizer.json alone has as special": (
        {"tokenizer": whole(SMALL, SPECIAL), "tokenizer_config": {"added_tokens_decoder": {}}},
        Model("gpt", 12, None, 10, "config.ini"),
        (),
    ),
    "an end that tokenizer_config.json has as special": (
        {
            "tokenizer": UNSPECIAL,
            "tokenizer_config": {"added_tokens_decoder": {"10": {"content": "</s>", "special": True}}},
        },
        Model("gpt", 12, None, 10, "config.ini"),
        (),
    ),
    "an end that is added, and not special": (
        {
            "tokenizer": UNSPECIAL,
            "tokenizer_config": {"added_tokens_decoder": {"10": {"content": "</s>", "special": False}}},
        },
        Model("gpt", 12, None, 10, "config.ini"),
        (
            "config.ini ends answers at token 10 ('</s>'), which is no special token of the tokenizer: they "
            "may stop early, or too late",
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SAID)
def test_what_is_said_is_said_in_full_and_nothing_else(case: str, tmp_path: Path) -> None:
    files, model, warnings = SAID[case]
    assert fit.check(written(tmp_path / "tokenizer", files), model) == warnings


def test_a_link_out_of_the_folder_is_not_followed_for_the_end_of_answers(tmp_path: Path) -> None:
    folder = write(tmp_path / "tokenizer", tokenizer=whole(SMALL, SPECIAL), tokenizer_config=NAMED)
    other = write(tmp_path / "other", generation_config={"eos_token_id": 3})
    (folder / fit.GENERATION).symlink_to(other / fit.GENERATION)
    with pytest.raises(ConfigError, match="leads out of"):
        fit.check(folder, MODEL)


def test_a_checkpoint_has_the_tokens_of_its_config_json() -> None:
    facts = {"vocabulary": 12, "start": 11, "end": 10, "layers": 2}
    assert fit.of_checkpoint("gpt", facts) == Model("gpt", 12, 11, 10, "config.json")
    assert fit.of_checkpoint("bert", {"vocabulary": 12}) == Model("bert", 12, None, None, "config.json")


def test_nothing_is_said_of_files_that_agree(tmp_path: Path) -> None:
    files = {
        "tokenizer": whole(SMALL, SPECIAL), "tokenizer_config": NAMED, "added_tokens": SPECIAL,
        "special_tokens_map": {"eos_token": "</s>"}, "generation_config": {"eos_token_id": [10]},
        "config": {"eos_token_id": 10},
    }  # fmt: skip
    assert fit.check(written(tmp_path / "tokenizer", files), MODEL) == ()
