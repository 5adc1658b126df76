from __future__ import annotations

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


def test_every_tool_of_the_check_run_is_a_hook_too() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    entries = [hook["entry"].split()[0] for hook in hooks]
    assert {f".venv/bin/{tool}" for tool, *_ in checks.TOOLS} <= set(entries)
