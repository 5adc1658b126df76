"""The release workflow: its notes come from the changelog, its actions are the pinned ones."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ftbuild.ci import actions
from testing import ROOT

CHANGELOG = """\
# Changelog

## Unreleased

- later

## 1.2.3 - 2026-12-01

### Fixed

- a thing

## 1.2.2 - 2026-11-01

- older
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "release_notes.py", tmp_path / ".ci")
    (tmp_path / "ftbuild").mkdir()
    (tmp_path / "ftbuild" / "__init__.py").write_text('"""Package."""\n\n__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


def notes(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = checkout / ".ci" / "release_notes.py"
    return subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True)


def test_the_notes_are_the_section_of_the_version(checkout: Path) -> None:
    done = notes(checkout, "v1.2.3")
    assert (done.returncode, done.stdout) == (0, "### Fixed\n\n- a thing\n")


@pytest.mark.parametrize("tag", ["v1.2.2", "1.2.3", "v1.2.30", ""])
def test_a_tag_of_another_version_is_refused(checkout: Path, tag: str) -> None:
    done = notes(checkout, tag)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"the tag is v1.2.3, not {tag}" in done.stderr


@pytest.mark.parametrize(
    "heading", ["## 1.2.3, unreleased", "## 1.2.4 - 2026-12-01", "## 1.2.3 - 2026-12-01\n\n## 1"]
)
def test_a_version_without_a_dated_section_is_refused(checkout: Path, heading: str) -> None:
    (checkout / "CHANGELOG.md").write_text(CHANGELOG.replace("## 1.2.3 - 2026-12-01", heading))
    done = notes(checkout, "v1.2.3")
    assert (done.returncode, done.stdout) == (2, "")
    assert "CHANGELOG.md has no section `## 1.2.3 - YYYY-MM-DD`" in done.stderr


def test_this_version_has_a_section() -> None:
    from ftbuild import __version__

    assert any(
        line.startswith("## ") and __version__ in line
        for line in (ROOT / "CHANGELOG.md").read_text().splitlines()
    )


def test_its_actions_are_those_of_the_rendered_workflows() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"].values()
    used = {step["uses"] for job in jobs for step in job["steps"] if "uses" in step}
    assert used == {actions.CHECKOUT}
    assert text.count(f"{actions.CHECKOUT}  # {actions.VERSIONS[actions.CHECKOUT]}\n") == len(jobs)
