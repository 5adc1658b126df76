"""Ours and transformers' tokenizer of the same random files, without transformers: its answers are recorded.

`FTBUILD_RECORD=1 python -m pytest tests/upstream/test_transformers_tokenizers.py` asks it again and writes
them down, with what we say of each folder.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from testing import needs, tokenizer_answers


@pytest.mark.parametrize("part", range(10))
def test_a_tokenizer_makes_the_tokens_that_transformers_made_or_is_refused(part: int, tmp_path: Path) -> None:
    needs.package("tokenizers")
    recorded = tokenizer_answers.recorded()
    for name in sorted(recorded)[part::10]:
        model = tokenizer_answers.write(tmp_path / name, int(name))
        answers, said = tokenizer_answers.ours(tmp_path / name, model)
        assert said == recorded[name]["said"], name
        if answers is not None and recorded[name]["answers"] is not None:
            assert answers == recorded[name]["answers"], name
