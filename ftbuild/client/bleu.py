"""BLEU scores of translations: files of sentences, and the score (sacrebleu)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild.errors import ConfigError
from ftbuild.host import reading

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# The prompt of T5's training (Raffel et al. 2020, appendix D); upstream's test sends the same
# (BE v1.4 tools/t5_utils/t5_end_to_end_test.py:84).
PREFIX = "translate English to German: "
_WORD = "\u2581"
_END = "</s>"
# A million sentences.
_MAX_BYTES = 10**8
_INSTALL = "pip install ftbuild[client]"


def sentences(file: Path) -> list[str]:
    """Return the lines of a file as plain text; ConfigError when it cannot be read.

    Upstream's test.en and test.de (tools/t5_utils) hold sentencepiece's pieces, words beginning with U+2581.
    """
    try:
        text = reading.read_bytes(file, max_bytes=_MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as broken:
        raise ConfigError("not UTF-8 text", where=str(file), hint="save the file as UTF-8") from broken
    return [_plain(line) for line in text.splitlines()]


def pairs(source: Path, target: Path) -> tuple[list[str], list[str]]:
    """Return sentences and their translations; ConfigError unless there are as many, and any."""
    texts = sentences(source), sentences(target)
    if not texts[0] or len(texts[0]) != len(texts[1]):
        raise ConfigError(
            f"{len(texts[0])} sentences and {len(texts[1])} translations", where=f"{source}, {target}"
        )
    return texts


def tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer of a checkpoint; ConfigError when the folder or the library lacks it."""
    from ftbuild.models import tokenizer as read_tokenizer
    from ftbuild.models import untrusted

    read_tokenizer.read(folder)
    try:
        from ftbuild.models.tokenization import texts
    except ImportError as missing:
        raise ConfigError(f"needs the Python package {missing.name}", hint=_INSTALL) from missing
    try:
        return texts.load(folder)
    except Exception as broken:  # the library has no exception of its own
        raise ConfigError(f"not a tokenizer: {untrusted.sentence(broken)}", where=str(folder)) from broken


def bleu(translations: Sequence[str], references: Sequence[str]) -> float:
    """Return the corpus BLEU, 0 to 100, by sacrebleu's default tokenizer."""
    try:
        from sacrebleu import corpus_bleu
    except ImportError as missing:
        raise ConfigError("BLEU needs the Python package sacrebleu", hint=_INSTALL) from missing
    return float(corpus_bleu(list(translations), [list(references)], force=True).score)


def _plain(line: str) -> str:
    line = line.strip().removesuffix(_END)
    return "".join(line.split()).replace(_WORD, " ").strip() if _WORD in line else line.strip()
