"""What transformers made of random tokenizers, recorded, and what ours makes of them."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ftbuild.errors import ConfigError
from ftbuild.models import fit
from testing import tokenizer_folders

SEED, FOLDERS = 37, 200
RECORDED = Path(__file__).parent.parent / "tests/unit/models/transformers_answers.json"
# For each text its ids with and without what surrounds a text, and the former as a text again.
Answers = list[list[Any]]


def write(folder: Path, number: int) -> str:
    """Write a tokenizer; return the model_type of its checkpoint."""
    return tokenizer_folders.write(random.Random(SEED + number), folder)


def ours(folder: Path, model: str) -> tuple[Answers | None, list[str]]:
    """Return what our tokenizer makes of the texts, and warnings; None, and the reason, where it refuses."""
    from ftbuild.models.tokenization import texts

    try:
        warned = fit.check(folder, fit.Model(model, 0, None, None, "config.ini"))
    except ConfigError as refused:
        return None, [refused.what]
    loaded = texts.load(folder)
    found = [
        [
            ids := loaded.encode(text).ids,
            loaded.encode(text, add_special_tokens=False).ids,
            loaded.decode(ids),
        ]
        for text in tokenizer_folders.TEXTS
    ]
    return found, list(warned)


def recorded() -> Mapping[str, Any]:
    """Return, by the number of a folder, what transformers answered and what we say of the folder."""
    found: Mapping[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def record(answers: Mapping[str, Answers | None], said: Mapping[str, list[str]]) -> None:
    """Write the answers down, a line a folder, when FTBUILD_RECORD is set."""
    if os.environ.get("FTBUILD_RECORD"):
        lines = [
            f"{json.dumps(name)}: {json.dumps({'answers': answers[name], 'said': said[name]})}"
            for name in sorted(said)
        ]
        RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
