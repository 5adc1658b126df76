from __future__ import annotations

from pathlib import Path

import pytest

from ftbuild.cli import development

RUFF = (("ruff", "format", "--check", "--isolated", "."), ("ruff", "check", "--isolated", "."))


@pytest.mark.parametrize(
    ("source", "failed"),
    [("x  = 1\n", "ruff format --check"), ("import os\n", "ruff check"), ("x = 1\n", None)],
)
def test_each_failed_check_is_named_and_decides_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, failed: str | None
) -> None:
    pytest.importorskip("ruff", reason="needs ruff (extra dev)")
    root = tmp_path / "project"
    root.mkdir()
    (root / "module.py").write_text(source)
    assert development.run(root, tmp_path / "work", tools=RUFF) == (1 if failed else 0)
    verdict = capsys.readouterr().out.splitlines()[-1]
    assert verdict.startswith(f"failed: {failed} --isolated ." if failed else "all checks passed")
