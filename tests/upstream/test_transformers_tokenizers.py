"""Ours and transformers' tokenizer of the same random files: the same ids and texts, or a refusal."""

from __future__ import annotations

import json
from pathlib import Path

from ftbuild.models import tokenizer
from testing import needs, tokenizer_answers, tokenizer_folders
from testing.tokenizer_answers import FOLDERS

from .conversions import TorchWorker

PROGRAM = Path(__file__).parent / "programs" / "transformers_ids.py"


def test_a_tokenizer_makes_the_tokens_of_transformers_or_is_refused(
    worker: TorchWorker, tmp_path: Path
) -> None:
    needs.package("tokenizers")
    from ftbuild.models.tokenization import texts

    folders = tmp_path / "folders"
    models = {f"{n:03}": tokenizer_answers.write(folders / f"{n:03}", n) for n in range(FOLDERS)}
    asked = tmp_path / "texts.json"
    asked.write_text(json.dumps(tokenizer_folders.TEXTS))
    worker("run", "", str(PROGRAM), str(folders), str(asked), str(tmp_path / "answers.json"))
    wanted = json.loads((tmp_path / "answers.json").read_text())
    right, refused, silent, said = 0, 0, [], {}
    for name, model in models.items():
        folder = folders / name
        found, said[name] = tokenizer_answers.ours(folder, model)
        if found is None:
            refused += 1
            continue
        if wanted[name] is None:
            continue
        assert found == wanted[name], name
        right += 1
        loaded = texts.load(folder)
        moved = [
            claim
            for claim in tokenizer.read(folder).claims
            if loaded.token_to_id(claim.token) != claim.number
        ]
        silent += [
            name
            for claim in moved
            if not any(str(claim.number) in sentence or "left out" in sentence for sentence in said[name])
        ]
    assert not silent
    assert right > FOLDERS / 2
    assert refused < FOLDERS / 3
    tokenizer_answers.record(wanted, said)
