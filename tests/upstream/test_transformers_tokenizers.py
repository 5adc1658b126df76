"""Ours and transformers' tokenizer of the same random files: the same ids and texts, or a refusal."""

from __future__ import annotations

import json
import random
from pathlib import Path

from ftbuild.errors import ConfigError
from ftbuild.models import fit, tokenizer
from testing import needs, tokenizer_folders

from .conversions import TorchWorker

PROGRAM = Path(__file__).parent / "programs" / "transformers_ids.py"
SEED, FOLDERS = 37, 200


def test_a_tokenizer_makes_the_tokens_of_transformers_or_is_refused(
    worker: TorchWorker, tmp_path: Path
) -> None:
    needs.package("tokenizers")
    from ftbuild.models.tokenization import texts

    folders = tmp_path / "folders"
    models = {
        f"{n:03}": tokenizer_folders.write(random.Random(SEED + n), folders / f"{n:03}")
        for n in range(FOLDERS)
    }
    asked = tmp_path / "texts.json"
    asked.write_text(json.dumps(tokenizer_folders.TEXTS))
    worker("run", "", str(PROGRAM), str(folders), str(asked), str(tmp_path / "answers.json"))
    wanted = json.loads((tmp_path / "answers.json").read_text())
    right, refused, silent = 0, 0, []
    for name, model in models.items():
        folder = folders / name
        try:
            warned = fit.check(folder, fit.Model(model, 0, None, None, "config.ini"))
        except ConfigError:
            refused += 1
            continue
        if wanted[name] is None:
            continue
        loaded = texts.load(folder)
        found = [
            [
                ids := loaded.encode(text).ids,
                loaded.encode(text, add_special_tokens=False).ids,
                loaded.decode(ids),
            ]
            for text in tokenizer_folders.TEXTS
        ]
        assert found == wanted[name], name
        right += 1
        moved = [
            claim
            for claim in tokenizer.read(folder).claims
            if loaded.token_to_id(claim.token) != claim.number
        ]
        silent += [
            name
            for claim in moved
            if not any(str(claim.number) in sentence or "left out" in sentence for sentence in warned)
        ]
    assert not silent
    assert right > FOLDERS / 2
    assert refused < FOLDERS / 3
