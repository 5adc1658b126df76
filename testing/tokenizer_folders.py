"""Random tokenizers as checkpoints have them, of every class that the families use; files may contradict."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# What texts hold, and files call tokens.
TOKENS = (
    "<a>", "<b>", "<a><b>", "a b", "<|endoftext|>", "</s>", "<s>", "<pad>", "  ", "\n\n", "def", "[X]", "Ab",
    "<extra_id_0>", "<unk>", "[MASK]",
)  # fmt: skip
# Tokens without an attribute of their own. Kept apart: transformers mixes up those that have both
# (v4.46.3 tokenization_utils_base.py:2419, added_tokens_map[str(token)]).
MORE = ("<m1>", "<m2>", "<pad>x")
TEXTS = (
    "a b", "<m1> <m2><pad>xa", "  a<a><b> b", "<|endoftext|> def nt\n\nAb", "x</s>y<s>", "[X] [MASK]a",
    "<extra_id_0> a", "Ab \u00c4b \u00e9 \u6771", "<pad><unk>  <a> ", "def  end\n",
)  # fmt: skip
ATTRIBUTES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
_PRINTABLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_SIGNS = {
    **{byte: chr(byte) for byte in _PRINTABLE},
    **{byte: chr(256 + number) for number, byte in enumerate(_OTHERS)},
}
Json = dict[str, Any]
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def write(rng: random.Random, folder: Path) -> str:
    """Write a tokenizer and the files beside it; return the model_type of its checkpoint."""
    folder.mkdir(parents=True)
    settings: Json = {}
    model, vocabulary = rng.choice(KINDS)(rng, folder, settings)
    _write_added(rng, folder, settings, vocabulary)
    if rng.random() < 0.5:
        settings |= _specials(rng, typed=True)
    if rng.random() < 0.5:
        (folder / "special_tokens_map.json").write_text(json.dumps(_specials(rng, typed=False)))
    if rng.random() < 0.1:
        settings["split_special_tokens"] = True
    if settings or rng.random() < 0.5:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"model_type": model}))
    return model


def _pair(rng: random.Random, folder: Path, settings: Json) -> tuple[str, Mapping[str, int]]:
    """vocab.json and merges.txt."""
    vocabulary, merges = _bytes(rng)
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    lines = [f"{first} {second}\n" for first, second in merges]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(lines))
    model = rng.choice(("gpt2", "gptj", "opt", "codegen"))
    if rng.random() < 0.4:
        settings["tokenizer_class"] = rng.choice(("GPT2Tokenizer", "CodeGenTokenizer", "GPT2TokenizerFast"))
    is_codegen = settings.get("tokenizer_class", "Code" if model == "codegen" else "").startswith("Code")
    if rng.random() < 0.3 and not is_codegen:
        settings["add_bos_token"] = rng.random() < 0.7
    _maybe(rng, settings, "add_prefix_space")
    return model, vocabulary


def _byte_level(*models: str, kind: str | None = None) -> Callable[..., tuple[str, Mapping[str, int]]]:
    """A tokenizer.json of bytes, for one of the `models`; `kind` is the class that it names."""

    def made(rng: random.Random, folder: Path, settings: Json) -> tuple[str, Mapping[str, int]]:
        vocabulary, merges = _bytes(rng)
        level = {**BYTE_LEVEL, "add_prefix_space": rng.random() < 0.3}
        model = {"type": "BPE", "vocab": vocabulary, "merges": [" ".join(pair) for pair in merges]}
        if kind:
            settings["tokenizer_class"] = kind
        else:
            _maybe(rng, settings, "add_prefix_space")
        _whole(rng, folder, model, pre_tokenizer=level, decoder=level)
        return rng.choice(models), vocabulary

    return made


def _llama(rng: random.Random, folder: Path, settings: Json) -> tuple[str, Mapping[str, int]]:
    """Pieces of SentencePiece, as of LLaMA."""
    pieces = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "\u2581",
        "a",
        "b",
        "\u2581a",
    ]
    vocabulary = {piece: number for number, piece in enumerate([*pieces, "<pad>"])}
    model = {
        "type": "BPE", "vocab": vocabulary, "merges": ["\u2581 a"], "unk_token": "<unk>", "fuse_unk": True,
        "byte_fallback": True,
    }  # fmt: skip
    steps = [
        {"type": "Prepend", "prepend": "\u2581"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
    ]
    _maybe(rng, settings, "add_bos_token")
    _maybe(rng, settings, "add_eos_token")
    _whole(rng, folder, model, normalizer={"type": "Sequence", "normalizers": steps})
    return "llama", vocabulary


def _t5(rng: random.Random, folder: Path, settings: Json) -> tuple[str, Mapping[str, int]]:
    """Unigram, as of T5."""
    signs = "\u2581abdefnt <>|s/"
    pieces: list[list[Any]] = [["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0]]
    pieces += [[sign, -2.0 - number] for number, sign in enumerate(signs)]
    if rng.random() < 0.5:
        pieces += [[f"<extra_id_{number}>", -20.0] for number in range(100)]
    if rng.random() < 0.3:
        settings["extra_ids"] = rng.choice((0, 3, 100))
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    model = {"type": "Unigram", "unk_id": 2, "vocab": pieces, "byte_fallback": False}
    _whole(rng, folder, model, pre_tokenizer=metaspace, decoder=metaspace)
    return "t5", {piece: number for number, (piece, _) in enumerate(pieces)}


def _bert(rng: random.Random, folder: Path, settings: Json) -> tuple[str, Mapping[str, int]]:
    """WordPiece, as of BERT."""
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *"abdefntAB<>|/s",
        *(f"##{c}" for c in "abdefntAB/s"),
    ]
    vocabulary = {word: number for number, word in enumerate(words)}
    model = {
        "type": "WordPiece", "vocab": vocabulary, "unk_token": "[UNK]", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    }  # fmt: skip
    normalizer = {
        "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
        "strip_accents": rng.choice((None, True)), "lowercase": rng.random() < 0.5,
    }  # fmt: skip
    _maybe(rng, settings, "do_lower_case")
    _maybe(rng, settings, "tokenize_chinese_chars")
    _maybe(rng, settings, "strip_accents")
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    _whole(
        rng, folder, model, normalizer=normalizer, pre_tokenizer={"type": "BertPreTokenizer"}, decoder=decoder
    )
    return "bert", vocabulary


KINDS = (
    _pair, _pair, _byte_level("gpt2", "gptj", "opt", "codegen"), _byte_level("gpt_neox", "mpt"),
    _byte_level("bloom"), _byte_level("llama", kind="PreTrainedTokenizerFast"), _llama, _t5, _bert,
)  # fmt: skip


def _bytes(rng: random.Random) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return a vocabulary of all bytes and some pairs, and the merges that make these."""
    vocabulary = {_SIGNS[byte]: byte for byte in range(256)}
    merges: list[tuple[str, str]] = []
    for _ in range(rng.randint(0, 25)):
        first, second = (_SIGNS[ord(rng.choice("abdefnt <>|s/"))] for _ in range(2))
        if merges and rng.random() < 0.3:
            first = "".join(rng.choice(merges))
        if first + second not in vocabulary:
            merges.append((first, second))
            vocabulary[first + second] = len(vocabulary)
    for token in TOKENS:
        if rng.random() < 0.25 and token not in vocabulary:
            vocabulary[token] = len(vocabulary)
    return vocabulary, merges


def _whole(rng: random.Random, folder: Path, model: Json, **parts: Json) -> None:
    """Write tokenizer.json, maybe with added tokens, and with a token behind each text."""
    held = model["vocab"]
    known = held if isinstance(held, dict) else {piece: number for number, (piece, _) in enumerate(held)}
    added, free = [], len(known)
    for token in rng.sample(TOKENS, 3) if rng.random() < 0.8 else ():
        number = known.get(token, free)
        free += number == free
        if rng.random() < 0.05:
            number += 1
        added.append({"id": number, **_described(rng, token), "special": rng.random() < 0.5})
    added.sort(key=lambda entry: entry["id"])
    last = next((token for token in ("</s>", "<|endoftext|>") if token in known), None)
    processor = None
    if last and rng.random() < 0.5:
        processor = {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": last, "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {last: {"id": last, "ids": [known[last]], "tokens": [last]}},
        }
    cut = {"max_length": 3, "stride": 0, "strategy": "LongestFirst", "direction": "Right"}
    content = {
        "version": "1.0", "truncation": cut if rng.random() < 0.5 else None, "padding": None,
        "added_tokens": added, "normalizer": None, "pre_tokenizer": None, "post_processor": processor,
        "decoder": None, **parts, "model": model,
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(content))


def _write_added(rng: random.Random, folder: Path, settings: Json, vocabulary: Mapping[str, int]) -> None:
    """Name tokens with ids in added_tokens.json or tokenizer_config.json, now and then in both, and wrong."""
    known = dict(vocabulary)
    whole = folder / "tokenizer.json"
    if whole.exists():
        known |= {entry["content"]: entry["id"] for entry in json.loads(whole.read_text())["added_tokens"]}
    free, ids = max(known.values()) + 1, {}
    for token in rng.sample(TOKENS, 4):
        if token not in known:
            ids[token] = free
            free += 1 if rng.random() < 0.95 else 2
        elif rng.random() < 0.5:
            ids[token] = known[token] if rng.random() < 0.95 else free
    place = rng.choice(("nowhere", "file", "settings", "both"))
    if place in ("file", "both"):
        (folder / "added_tokens.json").write_text(json.dumps(ids))
    if place in ("settings", "both"):
        settings["added_tokens_decoder"] = {
            str(number): {**_described(rng, token), "special": rng.random() < 0.5}
            for token, number in ids.items()
        }


def _specials(rng: random.Random, *, typed: bool) -> Json:
    """Return special tokens as texts and as objects, `typed` as in tokenizer_config.json."""

    def token(text: str) -> Any:
        if rng.random() < 0.5:
            return text
        return {**_described(rng, text), **({"__type": "AddedToken"} if typed else {})}

    found: Json = {name: token(rng.choice(TOKENS)) for name in ATTRIBUTES if rng.random() < 0.35}
    if typed and rng.random() < 0.1:
        found[rng.choice(ATTRIBUTES)] = None
    if rng.random() < 0.3:
        found["additional_special_tokens"] = [token(text) for text in rng.sample(MORE, 2)]
    return found


def _described(rng: random.Random, text: str) -> Json:
    likely = {"single_word": 0.15, "lstrip": 0.25, "rstrip": 0.25, "normalized": 0.5}
    return {"content": text, **{flag: rng.random() < chance for flag, chance in likely.items()}}


def _maybe(rng: random.Random, settings: Json, option: str) -> None:
    if rng.random() < 0.5:
        settings[option] = rng.random() < 0.5
