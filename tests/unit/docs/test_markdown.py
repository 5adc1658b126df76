"""The documentation as it is read in the repository: links between its files and to their headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from testing import ROOT

FILES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
    ROOT / "ftserve" / "README.md",
    ROOT / "sample" / "README.md",
]
CODE = re.compile(r"^```.*?^```|^ {4}.*?$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(file: Path) -> str:
    return CODE.sub("", file.read_text())


def anchors(file: Path) -> set[str]:
    """The anchors of a file's headings, as GitHub and GitLab make them."""
    found = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", file.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def broken(file: Path) -> Iterator[str]:
    for link in LINK.findall(prose(file)):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, fragment = unquote(link).partition("#")
        target = (file.parent / path).resolve() if path else file
        if not target.exists() or (fragment and target.suffix == ".md" and fragment not in anchors(target)):
            yield link


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_link_leads_somewhere(file: Path) -> None:
    assert list(broken(file)) == []


def test_a_link_without_target_is_found(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text(
        "# One two\n[x](b.md) [x](#one-two) [x](a.md#no) [x](https://example.org/b.md) `[x](c.md)`\n"
    )
    assert list(broken(file)) == ["b.md", "a.md#no"]


def test_no_line_of_the_readme_is_long() -> None:
    """It is read in terminals too; tables and their rows are not wrapped."""
    lines = (ROOT / "README.md").read_text().splitlines()
    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []


# Folders whose files the pages name in code.
FOLDERS = (
    "ftbuild|ftserve|buildcfg|dockerfiles|patches|sample|testing|benchmarks|docs|"
    "tests/(?:unit|engine|upstream|gpu)"
)
PATH = re.compile(rf"(?:{FOLDERS})/[\w./-]+")


# These name what existed at their time.
HISTORY = (ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "log.md")


@pytest.mark.parametrize(
    "file", [file for file in FILES if file not in HISTORY], ids=lambda file: str(file.relative_to(ROOT))
)
def test_every_file_that_is_named_in_code_exists(file: Path) -> None:
    named = [word for code in re.findall(r"`([^`\n]+)`", file.read_text()) for word in code.split()]
    paths = {word for word in named if PATH.fullmatch(word)}
    # `patches/ft/0310` is the beginning of a name.
    assert [path for path in paths if not [*ROOT.glob(f"{path.rstrip('/')}*")]] == []
