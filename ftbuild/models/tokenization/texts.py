"""Text to token ids and back, with the tokenizer of a Hugging Face checkpoint."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

if TYPE_CHECKING or __package__:
    from . import declared
else:  # beside a model.py, in a repository
    import declared

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

# A row of word offsets is filled up with it, a row of word tokens with the other
# (BE v1.4 all_models/gpt/preprocessing/1/word_list.py).
_NO_WORD, _NO_TOKEN = -1, 0


def load(folder: Path) -> Tokenizer:
    """Load a checkpoint's tokenizer as transformers does: tokenizer.json, or vocab.json and merges.txt.

    Raises ValueError, or what the library raises, for files that are none, or contradict each other.
    """
    declaration = declared.read(folder)
    whole = (folder / declared.TOKENIZER).is_file()
    if refused := declaration.obstacle(whole):
        raise ValueError(refused)
    tokenizer = Tokenizer.from_file(str(folder / declared.TOKENIZER)) if whole else _byte_level(folder)
    # Training may have left lengths in the file; prompts are neither cut nor padded to them.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    named = {token.content for token in declaration.added.values()}

    def has(token: str) -> bool:
        return token in named or tokenizer.token_to_id(token) is not None

    around = declaration.around(whole, has)
    for verb, tokens in zip(("begin", "end"), around or ()):  # noqa: B905 (Python 3.8)
        if lacking := [token for token in tokens if not has(token)]:
            raise ValueError(
                f"{declared.CONFIG} lets prompts {verb} with {lacking[0]!r}, which is not a token"
            )
    there = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    tokenizer.add_tokens([_added(token) for token in declaration.to_add(there)])
    if not whole:
        _require_ids(tokenizer, declaration)
    tokenizer.encode_special_tokens = declaration.flag("split_special_tokens")
    if around is not None:
        tokenizer.post_processor = _template(tokenizer, *around)
    _follow(tokenizer, declaration, whole)
    return tokenizer


def _byte_level(folder: Path) -> Tokenizer:
    """Return GPT-2's tokenizer (transformers v4.46.3 tokenization_gpt2.py, convert_slow_tokenizer.py).

    Whether a text begins with a blank is for `_follow`.
    """
    vocabulary = declared.read_object(folder / declared.VOCABULARY)
    # The first line is a header, and the last one ends with a line break.
    lines = (folder / declared.MERGES).read_text(encoding="utf-8").split("\n")[1:-1]
    tokenizer = Tokenizer(models.BPE(vocabulary, [tuple(line.split()) for line in lines]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _require_ids(tokenizer: Tokenizer, declaration: declared.Declared) -> None:
    """Raise ValueError when an added token has another id than its file says: each got the next free one."""
    for number, token in declaration.added.items():
        if (actual := tokenizer.token_to_id(token.content)) != number:
            raise ValueError(
                f"the added token {token.content!r} should have the id {number}, but got {actual}"
            )


def _added(token: declared.Token) -> AddedToken:
    flags = {name: getattr(token, name) for name in ("single_word", "lstrip", "rstrip", "special")}
    normalized = not token.special if token.plain else token.normalized
    return AddedToken(token.content, normalized=normalized, **flags)


def _follow(tokenizer: Tokenizer, declaration: declared.Declared, whole: bool) -> None:
    """Do what the class of transformers does to the tokenizer that it has loaded."""
    kind, prefix = declaration.kind or ("" if whole else declared.GPT2), declaration.flag("add_prefix_space")
    split = tokenizer.pre_tokenizer
    if kind in declared.PREFIXES and isinstance(split, pre_tokenizers.ByteLevel):
        split.add_prefix_space = prefix
    elif kind == declared.BLOOM and prefix:
        _set_prefix(tokenizer)
    elif kind in declared.BERT:
        _normalize(tokenizer, declaration)


def _template(tokenizer: Tokenizer, first: Sequence[str], last: Sequence[str]) -> Any:
    """Return what puts tokens in front of a text, and behind it."""
    special = [(text, tokenizer.token_to_id(text)) for text in dict.fromkeys([*first, *last])]
    single = [*first, "$A", *last]
    return processors.TemplateProcessing(single=single, pair=[*single, "$B"], special_tokens=special)


def _set_prefix(tokenizer: Tokenizer) -> None:
    """Let texts begin with a blank, wherever the file says whether they do."""
    content = json.loads(tokenizer.to_str())
    for part in ("pre_tokenizer", "decoder"):
        steps = [content[part] or {}]
        for step in steps:
            steps += [*step.get("pretokenizers", []), *step.get("decoders", [])]
            if "add_prefix_space" in step:
                step["add_prefix_space"] = True
    changed = Tokenizer.from_str(json.dumps(content))
    tokenizer.pre_tokenizer, tokenizer.decoder = changed.pre_tokenizer, changed.decoder


def _normalize(tokenizer: Tokenizer, declaration: declared.Declared) -> None:
    """Lower letters as the options say, whatever the file does (tokenization_bert_fast.py)."""
    normalizer = tokenizer.normalizer
    if isinstance(normalizer, normalizers.BertNormalizer):
        normalizer.lowercase = declaration.flag("do_lower_case", True)
        normalizer.strip_accents = declaration.options.get("strip_accents")
        normalizer.handle_chinese_chars = declaration.flag("tokenize_chinese_chars", True)


def prompts(tokenizer: Tokenizer, rows: Array, padding: int) -> tuple[Array, Array]:
    """Return token ids [batch, longest] and lengths [batch, 1] of the texts [batch, 1].

    Raises ValueError for a text without tokens, which the models cannot continue.
    """
    encoded = [tokenizer.encode(_text(row[0])).ids for row in rows]
    empty = [number for number, ids in enumerate(encoded, start=1) if not ids]
    if empty:
        raise ValueError(f"row {empty[0]} has no tokens")
    return _filled(encoded, padding), np.array([[len(ids)] for ids in encoded])


def words(tokenizer: Tokenizer, rows: Array) -> Array:
    """Return word lists [batch, 2, n]: the tokens of all words of a row, and where each word ends.

    `rows` are [batch, k] lines of comma-separated words, quoted as in CSV; blanks belong to the words. None
    gets special tokens: LLaMA's tokenizer puts one before each text, T5's one behind it.
    """
    listed = [[tokenizer.encode(word, add_special_tokens=False).ids for word in _words(row)] for row in rows]
    tokens = [[token for word in row for token in word] for row in listed]
    ends = [np.cumsum([len(word) for word in row if word], dtype=int).tolist() for row in listed]
    width = max([1, *map(len, tokens)])
    return np.stack([_filled(tokens, _NO_TOKEN, width), _filled(ends, _NO_WORD, width)], axis=1)


def answers(tokenizer: Tokenizer, tokens: Array, lengths: Array | None) -> Array:
    """Return the texts [batch * beams] of the token ids [batch, beams, n], without special tokens.

    `lengths` [batch, beams] count the valid tokens; padding follows them. None: all count.
    """
    rows = tokens.reshape(-1, tokens.shape[-1]).tolist()
    ends = [len(row) for row in rows] if lengths is None else lengths.reshape(-1).tolist()
    texts = [tokenizer.decode(row[: ends[number]]).encode() for number, row in enumerate(rows)]
    return np.array(texts, dtype=object)


def _words(row: Iterable[Any]) -> list[str]:
    return [word for line in row for word in next(csv.reader([_text(line)]), [])]


def _text(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def _filled(rows: Sequence[Sequence[int]], fill: int, width: int = 0) -> Array:
    width = max([width, *map(len, rows)])
    return np.array([[*row, *[fill] * (width - len(row))] for row in rows])
