"""Text to token ids and back, with the tokenizer of a Hugging Face checkpoint."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

TOKENIZER = "tokenizer.json"
VOCABULARY, MERGES, ADDED = "vocab.json", "merges.txt", "added_tokens.json"
CONFIG = "tokenizer_config.json"
# GPT-2's only special token; vocab.json has it, but does not mark it (transformers, GPT2Tokenizer).
END_OF_TEXT = "<|endoftext|>"
# A row of word offsets is filled up with it, a row of word tokens with the other
# (BE v1.4 all_models/gpt/preprocessing/1/word_list.py).
_NO_WORD, _NO_TOKEN = -1, 0


def load(folder: Path) -> Tokenizer:
    """Load the tokenizer of a checkpoint: tokenizer.json, or GPT-2's older vocab.json and merges.txt."""
    if (folder / TOKENIZER).is_file():
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        # Training may have left lengths in the file; prompts are neither cut nor padded to them.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer
    tokenizer = Tokenizer(models.BPE.from_file(str(folder / VOCABULARY), str(folder / MERGES)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if tokenizer.token_to_id(END_OF_TEXT) is not None:
        tokenizer.add_special_tokens([END_OF_TEXT])
    if (folder / ADDED).is_file():
        # In the order of their ids, as each gets the next free one.
        added = json.loads((folder / ADDED).read_text(encoding="utf-8"))
        tokenizer.add_tokens([AddedToken(token, normalized=False) for token in sorted(added, key=added.get)])
    _begin(tokenizer, folder)
    return tokenizer


def _begin(tokenizer: Tokenizer, folder: Path) -> None:
    """Let prompts begin with a token where tokenizer_config.json says so, as OPT's does."""
    file = folder / CONFIG
    config = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if not isinstance(config, dict) or config.get("add_bos_token") is not True:
        return
    token = config.get("bos_token")
    token = token.get("content") if isinstance(token, dict) else token
    if not isinstance(token, str) or (number := tokenizer.token_to_id(token)) is None:
        raise ValueError(f"{CONFIG} lets prompts begin with {token!r}, which is no token")
    tokenizer.add_special_tokens([token])
    template = processors.TemplateProcessing(
        single=[token, "$A"], pair=[token, "$A", "$B"], special_tokens=[(token, number)]
    )
    tokenizer.post_processor = template


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
