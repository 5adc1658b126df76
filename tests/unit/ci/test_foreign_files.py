"""`invoke dev.ci` beside workflow files of others, and where there are none yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from ftbuild.ci import gitlab
from ftbuild.cli import ci


def ended(capsys: pytest.CaptureFixture[str], out: Path, *, check: bool) -> tuple[object, str]:
    with pytest.raises(SystemExit) as over:
        ci.ci(None, triton=["22.12"], gitlab=True, out=out, check=check)
    return over.value.code, capsys.readouterr().err


def test_a_file_in_another_encoding_is_told_of_and_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = tmp_path / gitlab.PATH
    theirs.write_bytes("# geprüft\n".encode("latin-1"))
    code, told = ended(capsys, tmp_path, check=True)
    assert (code, f"{gitlab.PATH} is out of date" in told) == (2, True)
    code, told = ended(capsys, tmp_path, check=False)
    assert (code, f"{gitlab.PATH} was not written by invoke dev.ci" in told) == (2, True)
    assert theirs.read_bytes() == "# geprüft\n".encode("latin-1")


def test_the_advice_without_any_file_is_to_write_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = ended(capsys, tmp_path, check=True)
    assert (code, "without --check writes them" in told) == (2, True)
    ci.ci(None, triton=["22.12"], gitlab=True, out=tmp_path)
    ci.ci(None, triton=["22.12"], gitlab=True, out=tmp_path, check=True)
    assert "up to date" in capsys.readouterr().out
