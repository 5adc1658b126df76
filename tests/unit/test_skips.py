"""Skips: what `./bootstrap test` installs is no reason for one, and every run ends with a list of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testing import ROOT, needs

TESTS = """\
import pytest
from testing import needs

@pytest.mark.parametrize("number", range(3))
def test_program(number):
    needs.program("no-such-program", "its-package")

def test_package():
    needs.package("no_such_package")

def test_gpu():
    pytest.skip("needs a GPU")

def test_good():
    assert needs.program("sh").endswith("/sh")
    assert needs.package("json").dumps([]) == "[]"
"""


def run(folder: Path, required: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_some.py").write_text(TESTS)
    alone = {"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment = {**os.environ, needs.VARIABLE: required, **alone}
    command = [sys.executable, "-m", "pytest", "-p", "testing.skips", "-p", "no:cacheprovider", *options, "."]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "--numprocesses=1")], ids=["alone", "parallel"])
def test_a_run_ends_with_its_skips_by_reason(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = run(tmp_path, "engine", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    _, _, summary = done.stdout.partition(" 5 tests did not run here ")
    lines = [line for line in summary.splitlines()[1:] if line][:3]
    assert lines[0].startswith("    3  needs no-such-program (Debian: its-package;")
    assert {line[:7] for line in lines[1:]} == {"    1  "}
    assert "    1  needs a GPU  [test_some.py]" in lines


def test_what_bootstrap_has_installed_is_no_reason_to_skip(tmp_path: Path) -> None:
    done = run(tmp_path, "engine no-such-program python-packages")
    assert done.returncode == 1
    assert "4 failed, 1 passed, 1 skipped" in done.stdout
    assert "FTBUILD_REQUIRE says that no-such-program is here" in done.stdout


@pytest.mark.parametrize("required", ["", "no-such-program-2 no-such"])
def test_names_are_whole_words(monkeypatch: pytest.MonkeyPatch, required: str) -> None:
    monkeypatch.setenv(needs.VARIABLE, required)
    with pytest.raises(pytest.skip.Exception):
        needs.program("no-such-program")


def test_every_program_that_bootstrap_installs_for_tests_is_one_that_a_test_needs() -> None:
    script = (
        f"source {ROOT}/bootstrap; can_install() {{ true; }}; has_for_tests() {{ true; }}; find_test_packages"
    )
    printed = subprocess.run(
        ["bash", "-c", f'{script}; echo "${{REQUIRED[*]}}"'], capture_output=True, text=True, check=True
    ).stdout.split()
    sources = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("testing/*.py")]
    text = "\n".join(source.read_text() for source in sources)
    assert len(printed) > 3
    assert [name for name in printed if f'"{name}"' not in text] == []


def test_only_one_module_decides_about_packages_and_programs_that_bootstrap_installs() -> None:
    own = {Path(needs.__file__), Path(__file__)}
    for source in {*ROOT.glob("tests/**/*.py"), *ROOT.glob("testing/*.py")} - own:
        assert "importorskip" not in source.read_text(), f"{source}: needs.package"
