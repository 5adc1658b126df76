"""What the files of a Hugging Face tokenizer declare, read as transformers reads them; needs Python alone.

The rules are those of transformers v4.46.3: AutoTokenizer (models/auto/tokenization_auto.py) chooses the
class, tokenization_utils_base.py, _from_pretrained, which file counts, and the class what no file says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

TOKENIZER = "tokenizer.json"
VOCABULARY, MERGES = "vocab.json", "merges.txt"
ADDED, SPECIAL, CONFIG = "added_tokens.json", "special_tokens_map.json", "tokenizer_config.json"
MODEL = "config.json"
# The order in which transformers adds special tokens (SPECIAL_TOKENS_ATTRIBUTES).
ATTRIBUTES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
MORE = "additional_special_tokens"
DECODER = "added_tokens_decoder"

GPT2, CODEGEN, NEOX = "GPT2Tokenizer", "CodeGenTokenizer", "GPTNeoXTokenizer"
BLOOM, LLAMA, T5, MT5 = "BloomTokenizer", "LlamaTokenizer", "T5Tokenizer", "MT5Tokenizer"
BERT = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")
# Those that vocab.json and merges.txt are enough for.
BYTE_LEVEL = (GPT2, CODEGEN)
# Those that begin and end texts by their own options, whatever tokenizer.json has (update_post_processor).
TEMPLATES: Mapping[str, bool] = {LLAMA: True, NEOX: False}  # and whether add_bos_token is true by default
# Those that set whether a text begins with a blank, whatever tokenizer.json has.
PREFIXES = (GPT2, CODEGEN, NEOX)
# Those that take tokenizer.json as it is, but for added and special tokens.
AS_IT_IS = ("PreTrainedTokenizer", "XLMRobertaTokenizer", "AlbertTokenizer", BLOOM, T5, MT5)
# Those that rebuild the tokenizer from a sentencepiece model with add_prefix_space.
FROM_PIECES = (LLAMA, T5, MT5)
KNOWN = frozenset((*BYTE_LEVEL, *TEMPLATES, *AS_IT_IS, *BERT))
# model_type of config.json -> class, where tokenizer_config.json names none (TOKENIZER_MAPPING_NAMES).
CLASSES: Mapping[str, str] = {
    "gpt2": GPT2, "gptj": GPT2, "opt": GPT2, "codegen": CODEGEN, "gpt_neox": NEOX, "mpt": NEOX,
    "bloom": BLOOM, "llama": LLAMA, "t5": T5, "mt5": MT5, "bert": BERT[0],
}  # fmt: skip
_END = dict.fromkeys(("unk_token", "bos_token", "eos_token"), "<|endoftext|>")
_BRACKETS = {
    "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}  # fmt: skip
_T5 = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
# Special tokens that a class names where no file does.
_NAMED: Mapping[str, Mapping[str, str]] = {
    GPT2: _END, CODEGEN: _END, NEOX: _END, T5: _T5, MT5: _T5, **dict.fromkeys(BERT, _BRACKETS),
    BLOOM: {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"},
    LLAMA: {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
}  # fmt: skip
# Attributes whose texts the tokenizers made of vocab.json wrap, and whether as special (their __init__).
_WRAPPED, _WRAPPED_SPECIAL = (
    ("bos_token", "eos_token", "unk_token", "pad_token"),
    {GPT2: False, CODEGEN: True},
)
_EXTRA, _MAX_EXTRA = "<extra_id_", 1000


@dataclass(frozen=True)
class Token:
    """A token that is cut out of a text before the rest is tokenized; the flags are the library's.

    `plain` is one of which only the text is known: it changes no flag of a token that is there.
    """

    content: str
    special: bool = False
    normalized: bool = True
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    plain: bool = False


@dataclass(frozen=True)
class Declared:
    """What a folder's files say of its tokenizer.

    `kind` is the class that transformers would take, without `Fast`, None when no file says it. `added` are
    the tokens beside the vocabulary, by the ids that the files give them. `special` are the special tokens by
    attribute, `more` those without one, `sources` the file that names an attribute, where it is no default.
    """

    kind: str | None
    options: Mapping[str, Any]
    added: Mapping[int, Token]
    special: Mapping[str, Token]
    more: Sequence[Token]
    sources: Mapping[str, str]

    def to_add(self, there: Iterable[str] = ()) -> list[Token]:
        """Return the tokens that transformers adds, in order, to a tokenizer that has those `there` added."""
        tokens = [token for _, token in sorted(self.added.items())]
        known = {*there, *(token.content for token in tokens)}
        specials: dict[str, Token] = {}
        for token in self.special.values():
            specials.setdefault(token.content, token)
        more = [token for token in self.more if token.content not in specials]
        for token in (*specials.values(), *more):
            if not (token.plain and token.content in known):
                tokens.append(token)
        names = {*specials, *(token.content for token in more)}
        return [replace(token, special=token.special or token.content in names) for token in tokens]

    def text(self, attribute: str) -> str | None:
        """Return the text of a special token, None where there is none."""
        return self.special[attribute].content if attribute in self.special else None

    def around(self, whole: bool, has: Callable[[str], bool]) -> tuple[list[str], list[str]] | None:
        """Return the tokens that the class puts in front of a text and behind it; None: tokenizer.json does.

        So it does, too, where the class would put a token there that no file names and that the tokenizer has
        not (`has`). Raises ValueError where there is none to put there.
        """
        if self.kind not in TEMPLATES and (whole or not self.flag("add_bos_token")):
            return None
        begins = self.flag("add_bos_token", TEMPLATES.get(self.kind or "", False))
        ends = self.kind in TEMPLATES and self.flag("add_eos_token")
        first = self._listed("bos_token", begins)
        is_default = not {"add_bos_token", "bos_token"} & {*self.options, *self.sources}
        if whole and is_default and not all(map(has, first)):
            return None
        return first, self._listed("eos_token", ends)

    def _listed(self, attribute: str, listed: bool) -> list[str]:
        text = self.text(attribute)
        if listed and text is None:
            raise ValueError(f"{CONFIG} puts a {attribute} around each text, but there is none")
        return [text] if listed and text is not None else []

    def obstacle(self, whole: bool) -> str | None:
        """Return why no tokenizer can be made of the files, if so; `whole`: tokenizer.json is among them."""
        if not whole and self.kind not in (None, *BYTE_LEVEL):
            return (
                f"how a {self.kind} reads {VOCABULARY} and {MERGES} is not known here: {TOKENIZER} is needed"
            )
        if self.kind == CODEGEN and self.flag("add_bos_token"):
            return f"transformers loads no {CODEGEN} with add_bos_token, which {CONFIG} has"
        return None

    def flag(self, name: str, default: bool = False) -> bool:
        """Return an option of tokenizer_config.json that is true or false."""
        value = self.options.get(name)
        return default if value is None else bool(value)


def read(folder: Path) -> Declared:
    """Read what the files in `folder` declare; ValueError for one that is malformed."""
    options = read_object(folder / CONFIG)
    whole = (folder / TOKENIZER).is_file()
    kind = _kind(folder, options)
    written = {name: options[name] for name in (*ATTRIBUTES, MORE) if name in options}
    sources = dict.fromkeys(written, CONFIG)
    if DECODER in options:
        added = {int(number): _token(entry) for number, entry in _items(options[DECODER], DECODER)}
        forms = {token.content: token for token in added.values()}
    else:
        for name, content in read_object(folder / SPECIAL).items():
            if name in (*ATTRIBUTES, MORE):
                written[name] = _merged(written.get(MORE), content) if name == MORE else _forced(content)
                sources[name] = SPECIAL
        names = {token.content for value in written.values() for token in _named(value)}
        added = {
            number: Token(text, special=text in names, normalized=text not in names)
            for text, number in read_object(folder / ADDED).items()
        }
        held = [(entry["id"], _token(entry)) for entry in _held(folder)]
        added.update(held)
        forms = {token.content: token for _, token in held}
    base = kind or ("" if whole else GPT2)
    special = {}
    for name, value in {**_NAMED.get(base, {}), **written}.items():
        for token in _listed(value) if name != MORE else ():
            form = forms.get(token.content, token) if name in written else token
            special[name] = form if whole or not form.plain else _wrapped(base, name, form)
    ordered = {name: special[name] for name in ATTRIBUTES if name in special}
    more = _listed(written.get(MORE)) + _extra(base, options, written.get(MORE))
    return Declared(kind, options, added, ordered, more, sources)


def read_object(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file, an empty one where there is no such file; ValueError for another."""
    content = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if not isinstance(content, dict):
        raise ValueError(f"{file.name} is not a JSON object")
    return content


def _kind(folder: Path, options: Mapping[str, Any]) -> str | None:
    named = options.get("tokenizer_class")
    if named is None:
        model = read_object(folder / MODEL)
        named = model.get("tokenizer_class") or CLASSES.get(str(model.get("model_type")))
    if not isinstance(named, str):
        return None
    return named[: -len("Fast")] if named.endswith("Fast") else named


def _held(folder: Path) -> list[dict[str, Any]]:
    """Return the added tokens of tokenizer.json."""
    tokens = read_object(folder / TOKENIZER).get("added_tokens") or []
    if not isinstance(tokens, list) or not all(isinstance(entry, dict) and "id" in entry for entry in tokens):
        raise ValueError(f"{TOKENIZER}: added_tokens is not a list of tokens")
    return tokens


def _token(entry: object, special: bool | None = None) -> Token:
    """Return a token that a file describes, or gives as a text; ValueError for anything else."""
    if isinstance(entry, str):
        return Token(entry, plain=True)
    content = entry.get("content") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(content, str):
        raise ValueError(f"{str(entry)[:100]!r} is not a token")
    flags = {name: bool(entry.get(name)) for name in ("single_word", "lstrip", "rstrip")}
    is_special = bool(entry.get("special")) if special is None else special
    return Token(content, is_special, bool(entry.get("normalized", not is_special)), **flags)


def _forced(entry: object) -> Token | None:
    """Return a token of special_tokens_map.json, whose objects are special whatever they say."""
    return None if entry is None else _token(entry, special=True)


def _listed(value: object) -> list[Token]:
    values = value if isinstance(value, list) else [value]
    tokens = [each if isinstance(each, Token) else _token(each) for each in values if each is not None]
    return [token for token in tokens if token.content]


def _named(value: object) -> list[Token]:
    """Return those that make a token of added_tokens.json special: no objects of tokenizer_config.json."""
    values = value if isinstance(value, list) else [value]
    return _listed([each for each in values if not isinstance(each, dict)])


def _merged(there: object, more: object) -> list[Any]:
    """Return the tokens of tokenizer_config.json, and those of special_tokens_map.json that are new."""
    merged = list(there) if isinstance(there, list) else []
    for token in (_forced(entry) for entry in (more if isinstance(more, list) else [])):
        if token is not None and (token.content if token.plain else token) not in merged:
            merged.append(token)
    return merged


def _wrapped(kind: str, name: str, token: Token) -> Token:
    if name not in _WRAPPED or kind not in _WRAPPED_SPECIAL:
        return token
    special = _WRAPPED_SPECIAL[kind]
    return Token(token.content, special=special, normalized=not special)


def _extra(kind: str, options: Mapping[str, Any], more: object) -> list[Token]:
    """Return the tokens that T5's class adds to `more`: those that a span of text is replaced by."""
    if kind not in (T5, MT5) or any(_EXTRA in token.content for token in _listed(more)):
        return []
    count = min(int(options.get("extra_ids", 100)), _MAX_EXTRA)
    return [Token(f"{_EXTRA}{number}>", plain=True) for number in range(count)]


def _items(value: object, name: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is not a JSON object")
    return value.items()
