"""The step that installs wheels: these bytes alone, and bytecode without times."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testing import ROOT
from testing.packages import wheel

STEP = ROOT / "dockerfiles" / "steps" / "pip-install.sh"
[(NAME, CONTENT)] = wheel("demo", "1.0").items()


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    (folder / NAME).write_bytes(CONTENT)
    digest = hashlib.sha256(CONTENT).hexdigest()
    (tmp_path / "requirements.txt").write_text(f"demo==1.0 --hash=sha256:{digest}\n")
    return folder


def install(wheels: Path) -> subprocess.CompletedProcess[str]:
    """Run the step with another place for what a build mounts at /wheels."""
    script = STEP.read_text().replace("/wheels", str(wheels))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    folder = wheels.parent
    return subprocess.run(
        ["sh", "-c", script, "pip-install.sh", folder / "requirements.txt", folder / "root"],
        env={"PATH": path, "PIP_CONFIG_FILE": "/dev/null"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_bytecode_refers_to_its_source_by_hash_and_not_by_its_time(wheels: Path) -> None:
    done = install(wheels)
    assert done.returncode == 0, done.stderr
    (compiled,) = (wheels.parent / "root").rglob("*.pyc")
    assert compiled.name.startswith("demo.")
    # PEP 552, the second word: 1 is a hash of the source that nobody compares, 0 its time.
    assert int.from_bytes(compiled.read_bytes()[4:8], "little") == 1


def test_a_wheel_of_other_bytes_is_not_installed(wheels: Path) -> None:
    (wheels / NAME).write_bytes(CONTENT + b"more")
    done = install(wheels)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert not list((wheels.parent / "root").rglob("demo.py"))
