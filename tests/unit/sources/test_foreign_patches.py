"""Patches as others leave them: cut by an editor, beside an editor's own files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ftbuild.config import loader
from ftbuild.errors import PatchError
from ftbuild.host.git import NO_REPOSITORY, git
from ftbuild.sources.patches import hunks, series
from testing import ROOT

CHANGE = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b"
RENAME = "diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g"
MODE = "diff --git a/f b/f\nold mode 100644\nnew mode 100755"


@pytest.fixture
def patches(config_folder: Path) -> Path:
    """The series of ft of a copy of the sample's configuration."""
    shutil.copytree(ROOT / "sample" / "patches", config_folder.parent / "sample" / "patches")
    for file in (ROOT / "buildcfg" / "sample").glob("*.yaml"):
        text = file.read_text().replace("../../sample/patches", "../sample/patches")
        (config_folder / file.name).write_text(text.replace("../../", "../"))
    return config_folder.parent / "sample" / "patches" / "ft"


def refused(config_folder: Path) -> PatchError:
    with pytest.raises(PatchError) as wrong:
        series.read_series(loader.load(config_folder))
    return wrong.value


@pytest.mark.parametrize("diff", [CHANGE, RENAME, MODE, f"{CHANGE}\n{RENAME}"])
def test_a_diff_without_its_last_line_end_is_refused_as_git_refuses_it(diff: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\n")
    (tmp_path / "cut").write_text(diff)
    applied = git("apply", "--check", "cut", cwd=tmp_path, env=NO_REPOSITORY, check=False)
    assert applied.code
    flaw = hunks.flaw(diff)
    assert flaw is not None
    assert flaw.line == len(diff.split("\n"))
    assert hunks.flaw(f"{diff}\n") is None


@pytest.mark.parametrize(
    "end", ["\n\\ No newline at end of file", "\n-- \n2.39.5", "\n-- \n2.39.5\n", "\n-- "]
)
def test_a_diff_that_git_takes_without_a_last_line_end_is_taken(end: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\n")
    (tmp_path / "whole").write_text(f"{CHANGE}{end}")
    git("apply", "--check", "whole", cwd=tmp_path, env=NO_REPOSITORY)
    assert hunks.flaw(f"{CHANGE}{end}") is None


def test_a_patch_that_an_editor_has_cut_is_no_conflict_but_malformed(
    patches: Path, config_folder: Path
) -> None:
    entry = patches / "0070-include-array.patch"
    text = entry.read_text().removesuffix("\n")
    entry.write_text(text)
    wrong = refused(config_folder)
    assert wrong.what == "the last line has no line end"
    assert wrong.where == f"{entry}:{len(text.splitlines())}"


@pytest.mark.parametrize(
    "name",
    [
        "0070-include-array.patch~",
        ".0070-include-array.patch.swp",
        "0070-include-array.patch.orig",
        ".DS_Store",
    ],
)
def test_the_advice_for_a_file_that_can_be_no_entry_is_to_remove_it(
    name: str, patches: Path, config_folder: Path
) -> None:
    (patches / name).write_text("left behind")
    wrong = refused(config_folder)
    assert wrong.where == str(patches / name)
    assert "remove it" in str(wrong.hint)
    (patches / name).unlink()
    assert series.read_series(loader.load(config_folder))


def test_the_advice_for_a_file_that_can_be_an_entry_is_to_add_it(patches: Path, config_folder: Path) -> None:
    shutil.copy(patches / "0070-include-array.patch", patches / "0990-more.patch")
    assert refused(config_folder).hint == "add it to series"
