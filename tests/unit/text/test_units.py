"""Numbers with their units, for people."""

from __future__ import annotations

import re

from ftbuild.text import units
from testing import ROOT


def test_one_gpu_is_no_plural() -> None:
    assert [units.gpus(count) for count in (0, 1, 2)] == ["0 GPUs", "1 GPU", "2 GPUs"]


def test_no_message_is_for_one_gpus() -> None:
    sources = [file for folder in ("ftbuild", "ftserve") for file in (ROOT / folder).rglob("*.py")]
    found = {str(file): re.findall(r"for \{(?!counts)[^}]*\} GPUs", file.read_text()) for file in sources}
    assert sources
    assert {name for name, wrong in found.items() if wrong} == set()
