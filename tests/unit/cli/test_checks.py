from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ftbuild.cli import checks
from testing import ROOT, needs

PASSING = ("ruff", "--version")
RUFF = (("ruff", "format", "--check", "--isolated", "."), ("ruff", "check", "--isolated", "."))


@pytest.mark.parametrize(
    ("source", "failed"),
    [("x  = 1\n", "ruff format --check"), ("import os\n", "ruff check"), ("x = 1\n", None)],
)
def test_each_failed_check_is_named_and_decides_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, failed: str | None
) -> None:
    needs.package("ruff")
    root = tmp_path / "project"
    root.mkdir()
    (root / "module.py").write_text(source)
    assert checks.run(root, tmp_path / "work", tools=RUFF, tests=PASSING) == (1 if failed else 0)
    verdict = capsys.readouterr().out.splitlines()[-1]
    assert verdict.startswith(f"failed: {failed} --isolated ." if failed else "all checks passed")


@pytest.mark.parametrize(
    ("prepared", "line"),
    [("", r"checks: \d+ s"), ("1000", r"checks: \d+ s, after 1000 s for the machine: 10\d\d s")],
)
def test_a_run_says_how_long_it_took(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    prepared: str,
    line: str,
) -> None:
    monkeypatch.setenv(checks.PREPARED, prepared)
    assert checks.run(tmp_path, tmp_path / "work", tools=[PASSING], tests=PASSING) == 0
    assert re.fullmatch(line, capsys.readouterr().out.splitlines()[-2])


def test_failed_tests_fail_the_run_after_the_linters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = ("ruff", "check", "--isolated", "absent.py")
    assert checks.run(tmp_path, tmp_path / "work", tools=[PASSING], tests=failing) == 1
    out = capsys.readouterr().out
    assert "== ruff --version\nruff " in out
    assert out.splitlines()[-1].startswith("failed: ruff check --isolated absent.py (log: ")


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        (("no-such-linter", "."), "no-such-linter is not installed"),
        (("ruff", "check", "no/such/folder/*.py"), "no file matches no/such/folder/*.py"),
    ],
)
def test_a_check_that_cannot_run_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tool: tuple[str, ...], reason: str
) -> None:
    assert checks.run(tmp_path, tmp_path / "work", tools=[tool], tests=PASSING) == 1
    assert reason in capsys.readouterr().out


@pytest.fixture
def few_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load only the plugins that a command line names: all of them take longer than the tests below."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


PYTEST = ("pytest", "-p", "xdist", "--numprocesses=1")
# Fails the first time, as a test does that a busy machine failed.
UNSTEADY = """
from pathlib import Path
def test_unsteady():
    seen = Path(__file__).with_name("seen")
    before = seen.exists()
    seen.touch()
    assert before
def test_other():
    with Path(__file__).with_name("others").open("a") as others:
        others.write(".")
"""


def test_what_fails_beside_others_runs_once_more_alone_and_the_verdict_says_so(
    few_plugins: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_it.py").write_text(UNSTEADY)
    assert checks.run(tmp_path, tmp_path / "work", "test_it.py", tools=[PASSING], tests=PYTEST) == 0
    out = capsys.readouterr().out
    assert "FAILED test_it.py::test_unsteady" in out
    assert "PASSED test_it.py::test_unsteady" in out
    assert out.splitlines()[-1].startswith("all checks passed, some tests only alone (log: ")
    assert (tmp_path / "others").read_text() == "."


@pytest.mark.parametrize(
    "source",
    ["def test_it(): assert False\n", "import no_such_module\n", "def helper(): pass\n"],
    ids=["fails-again", "cannot-be-collected", "no-tests"],
)
def test_tests_that_do_not_pass_alone_fail_the_run(
    few_plugins: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    (tmp_path / "test_it.py").write_text(source)
    assert checks.run(tmp_path, tmp_path / "work", tools=[PASSING], tests=PYTEST) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("failed: pytest ")


def test_every_tool_of_the_check_run_is_a_hook_too() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    entries = [hook["entry"].split()[0] for hook in hooks]
    assert {f".venv/bin/{tool}" for tool, *_ in checks.TOOLS} <= set(entries)
