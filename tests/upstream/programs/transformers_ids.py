"""Tokenizes texts with transformers: python transformers_ids.py FOLDER TEXTS.json ANSWERS.json.

For each folder in FOLDER the answers have, for each text, its ids with and without what the tokenizer puts
around it, and the former as a text again; null for a folder that transformers does not load.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import transformers

transformers.logging.set_verbosity_error()


def answers(folder: Path, texts: list[str]) -> list[Any] | None:
    """Return what transformers makes of the texts."""
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    except Exception:
        return None
    found = []
    for text in texts:
        whole, bare = (tokenizer(text, add_special_tokens=special)["input_ids"] for special in (True, False))
        decoded = tokenizer.decode(whole, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        found.append([whole, bare, decoded])
    return found


def main(folders: str, texts: str, out: str) -> None:
    """Write the answers."""
    asked = json.loads(Path(texts).read_text(encoding="utf-8"))
    found = {folder.name: answers(folder, asked) for folder in sorted(Path(folders).iterdir())}
    Path(out).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
