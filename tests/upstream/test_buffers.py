"""Buffers of the models that the backend serves, in the patched sources."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftbuild.config.schema import Config
from ftbuild.sources import fetch, patched
from ftbuild.sources.patches import series

from .conftest import Need

CODE = "src/fastertransformer"
# What the families of models.yaml are made of.
SERVED = (
    "layers",
    "layers/*_search_layers",
    "layers/attention_layers",
    "layers/sampling_layers",
    *(
        f"{room}/{model}"
        for room in ("models", "triton_backend")
        for model in ("gptj", "gptneox", "multi_gpu_gpt", "t5")
    ),
)
# No model that is served has layers in int8 or for Longformer.
OTHERS = ("INT8", "Longformer")
ALLOCATED_AGAIN = re.compile(r"\breMalloc\(\s*(\w+)(?:\[\w+\])?,")


@pytest.mark.parametrize("release", ["22.03", "22.07", "22.12"])
def test_a_buffer_that_is_allocated_again_begins_as_a_null_pointer(
    config: Config, cache: Path, need: Need, tmp_path: Path, release: str
) -> None:
    """Else it begins with what the heap holds: after a reload, with the address of another model's buffer."""
    components = [name for name in config.sources.releases[release] if name in series.read_series(config)]
    need(*components)
    trees = {name: tmp_path / name for name in components}
    for name, tree in trees.items():
        fetch.export(config, release, name, cache, tree)
    patched.apply(config, release, trees, cache, print)
    members = list(allocated_again(trees["ft"] / CODE))
    assert len(members) > 50, "the patterns still match"
    assert [(file, name) for file, name, set_ in members if not set_] == []


def test_a_buffer_that_grows_does_not_keep_its_old_address(
    config: Config, cache: Path, need: Need, tmp_path: Path
) -> None:
    """In 5.0 a freed pointer keeps its value, which reMalloc takes for a buffer of whoever has it by now."""
    need("ft")
    fetch.export(config, "22.03", "ft", cache, tmp_path / "ft")
    code = tmp_path / "ft" / CODE
    assert sum(len(list(freed_before_they_grow(file))) for file in served_sources(code)) == 5
    patched.apply(config, "22.03", {"ft": tmp_path / "ft"}, cache, print)
    assert [each for file in served_sources(code) for each in freed_before_they_grow(file)] == []


def served_sources(code: Path) -> list[Path]:
    return [source for folder in SERVED for source in sorted(code.glob(f"{folder}/*.c[cu]"))]


def freed_before_they_grow(source: Path) -> Iterator[str]:
    """Yield the functions, called before buffers are allocated again by reMalloc, that free them."""
    text = source.read_text()
    if not re.search(r"^    allocateBuffer\(\w", text, re.M):
        return
    for name, body in re.findall(r"::(isValid\w+)\(size_t \w+\)\n\{(.*?)\n\}", text, re.S):
        called = re.search(rf"^    (?:FT_CHECK\()?{name}\(", text, re.M)
        if called and "freeBuffer();" in body:
            yield f"{source.name}: {name}"


def allocated_again(code: Path) -> Iterator[tuple[str, str, bool]]:
    """Yield each pointer that reMalloc gets: its header, its name, whether it is set where it is declared."""
    for folder in SERVED:
        for source in sorted(code.glob(f"{folder}/*.c[cu]")):
            header = source.with_suffix(".h")
            if not header.is_file() or source.stem.startswith(OTHERS) or source.stem.endswith(OTHERS):
                continue
            text = header.read_text()
            for name in sorted(set(ALLOCATED_AGAIN.findall(source.read_text()))):
                if declared := re.search(rf"\*\s*{name}(?:\[\w+\])?\s*([;=])", text):
                    yield str(header.relative_to(code)), name, declared[1] == "="
