"""What bootstrap does before and beside installing: its own checks, and the script that it leaves."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from testing import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    shutil.copy(ROOT / "bootstrap", folder)
    return folder


@pytest.mark.parametrize("name", ["~/x", "~", "~nobody/x"])
def test_a_work_folder_that_begins_with_a_tilde_is_refused_and_not_made(checkout: Path, name: str) -> None:
    done = subprocess.run(
        [str(checkout / "bootstrap"), "matrix"],
        env={**os.environ, "FTBUILD_WORK": name},
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == (
        f"error: FTBUILD_WORK begins with ~, which only a shell replaces: {name}\n"
        "  next:  write the whole path of the folder\n"
    )
    assert list(checkout.iterdir()) == [checkout / "bootstrap"]


def test_the_script_of_pip_begins_with_our_rules_afterwards(checkout: Path) -> None:
    folder = checkout / ".venv" / "bin"
    folder.mkdir(parents=True)
    made = "#!python\nimport sys\nfrom invoke.main import program\nsys.exit(program.run())\n"
    for name in ("invoke", "inv"):
        (folder / name).write_text(made)
    for _ in range(2):
        subprocess.run(["bash", "-c", ". ./bootstrap; begin_with_ours"], cwd=checkout, check=True)
        for name in ("invoke", "inv"):
            ours = made.replace("invoke.main", "ftbuild.cli.start")
            assert (folder / name).read_text() == ours
