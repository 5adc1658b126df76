"""A Hugging Face tokenizer whose tokens 0 to 255 are the bytes, as in the sample stack's models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

END = 257
SPECIAL = {"<|startoftext|>": 256, "<|endoftext|>": END}
# Printable characters of Latin-1 stand for themselves, the other bytes for the characters after U+00FF
# (transformers, GPT-2's bytes_to_unicode).
_PRINTABLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}


def write(folder: Path, special: Mapping[str, int] = SPECIAL) -> Path:
    """Write tokenizer.json into `folder`, with the truncation that careless training leaves."""
    folder.mkdir(exist_ok=True)
    others = [byte for byte in range(256) if byte not in _PRINTABLE]
    vocabulary = {chr(byte): byte for byte in _PRINTABLE}
    vocabulary |= {chr(256 + number): byte for number, byte in enumerate(others)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    content = {
        "version": "1.0",
        "truncation": {"max_length": 2, "stride": 0, "strategy": "LongestFirst", "direction": "Right"},
        "padding": None,
        "added_tokens": [{"id": token, "content": text, **flags} for text, token in special.items()],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {**vocabulary, **special}, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder
