"""Rules of patched sources: what a patch changes is compiled, what is made of Triton's is deleted."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatch
from itertools import takewhile
from pathlib import Path

import pytest

from ftbuild.config.schema import Config
from ftbuild.sources import fetch
from ftbuild.sources.patches import series

RELEASES = ("22.03", "22.07", "22.12")
COMPILED = re.compile(r"^\+\+\+ b/(\S+\.(?:cc|cpp|cu))$", re.MULTILINE)


def is_compiled(tree: Path, file: Path) -> bool:
    """Whether a CMakeLists.txt of the file's folder, or above it, names it or takes what is called so."""
    for folder in takewhile(tree.parent.__ne__, (tree / file).parents):
        lists = folder / "CMakeLists.txt"
        text = lists.read_text() if lists.is_file() else ""
        taken = " ".join(re.findall(r"file\s*\(GLOB\w*\s([^)]*)\)", text)).split()
        if re.search(rf"\b{re.escape(file.name)}\b", text) or any(
            fnmatch(file.name, pattern.rpartition("/")[2]) for pattern in taken if "*" in pattern
        ):
            return True
    return False


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", ["ft", "backend"])
def test_what_a_patch_changes_is_compiled(
    config: Config, cache: Path, tree: Callable[..., Path], release: str, name: str
) -> None:
    """FasterTransformer 5.3 has two copies of a file, of which it compiles one."""
    patched, version = tree(release, name), config.version(release, name)
    for entry in series.applicable(series.read_series(config)[name], version):
        for file in map(Path, COMPILED.findall(fetch.entry_diff(config, entry, cache).decode())):
            if (patched / file).exists():
                assert is_compiled(patched, file), (entry.name, str(file))


@pytest.mark.parametrize("release", ["22.07", "22.12"])
def test_factories_of_responses_are_deleted(tree: Callable[..., Path], release: str) -> None:
    """Each holds its model, which is not unloaded before."""
    for file in (tree(release, "backend") / "src").iterdir():
        text = file.read_text() if file.is_file() else ""
        made, deleted = (text.count(f"TRITONBACKEND_ResponseFactory{end}(") for end in ("New", "Delete"))
        assert made == deleted, file.name
