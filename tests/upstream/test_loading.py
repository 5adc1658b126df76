"""The files that FasterTransformer reads, as models.yaml has them and as its own loaders name them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ftbuild.config.families import LoadedPart
from ftbuild.config.schema import Config
from ftbuild.models import loading

# Part of a family -> the classes that load it, below src/fastertransformer/models.
CLASSES = {
    ("gpt", 0): ["multi_gpu_gpt/ParallelGptWeight", "multi_gpu_gpt/ParallelGptDecoderLayerWeight"],
    ("gptj", 0): ["gptj/GptJWeight", "gptj/GptJDecoderLayerWeight"],
    ("gptneox", 0): ["gptneox/GptNeoXWeight", "gptneox/GptNeoXDecoderLayerWeight"],
    ("t5", 0): ["t5/T5EncoderWeight", "t5/T5EncoderLayerWeight", "t5/T5AdapterWeight"],
    ("t5", 1): ["t5/T5DecodingWeight", "t5/T5DecoderLayerWeight", "t5/T5AdapterWeight"],
    ("t5-encoder", 0): ["t5/T5EncoderWeight", "t5/T5EncoderLayerWeight", "t5/T5AdapterWeight"],
    ("bert", 0): ["bert/BertWeight", "bert/BertLayerWeight"],
}
# Functions that name files: loadModel and what it calls; BERT's names are in a constructor.
_NAMING = re.compile(r"^[^\n]*::(?:loadModel|loadBiases|BertLayerWeight)\(.*?^}", re.MULTILINE | re.DOTALL)
_LITERAL = re.compile(r'"([^"\n\\%]*)"')


def literals(folder: Path, name: str) -> set[str]:
    """The pieces of file names in the loading functions of a class; none where there is no such class."""
    file = folder / "src/fastertransformer/models" / f"{name}.cc"
    if not file.is_file():
        return set()
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", file.read_text(), flags=re.DOTALL)
    bodies = "".join(re.sub(r"FT_LOG[^;]*;", "", body) for body in _NAMING.findall(text))
    found = {piece.strip("/") for piece in _LITERAL.findall(bodies)}
    return {
        piece for piece in found if re.search(r"\.[a-zA-Z]|[a-zA-Z]\.", piece) and "config.ini" not in piece
    }


def described(part: LoadedPart) -> set[str]:
    tables = [loading.read_files(part), part.more, *(other.files for other in part.instead)]
    tables += part.prompts.files.values() if part.prompts else []
    return {pattern for table in tables for pattern in table}


def pieces(pattern: str) -> Iterator[str]:
    """What a pattern has between its counters."""
    yield from (piece for piece in re.split(r"{\w+}", pattern) if piece not in ("", ".bin"))


@pytest.mark.parametrize("release", ["22.03", "22.07", "22.12"])
@pytest.mark.parametrize(("family", "number"), CLASSES)
def test_every_name_that_a_loader_has_is_described(
    family: str, number: int, release: str, config: Config, tree: Callable[[str], Path]
) -> None:
    found = config.models.families[family].loading
    assert found
    names = " ".join(described(found.parts[number]))
    for one in CLASSES[family, number]:
        for piece in literals(tree(release), one):
            assert piece.strip(".") in names, f"{one}: {piece}"


@pytest.mark.parametrize(("family", "number"), CLASSES)
def test_every_name_that_is_described_is_a_loader_s(
    family: str, number: int, config: Config, tree: Callable[[str], Path]
) -> None:
    found = config.models.families[family].loading
    assert found
    part = found.parts[number]
    known = set().union(*(literals(tree("22.12"), one) for one in CLASSES[family, number]))
    assert len(known) > 10
    whole = {a + b for a in {"", *known} for b in known}
    looked_up = config.models.families[family].vectors
    for pattern in described(part) - set(looked_up.files if looked_up else ()):
        for piece in pieces(pattern):
            assert any(piece.strip(".") in one for one in whole), pattern
