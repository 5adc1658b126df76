"""Files that commands write: where that cannot be, they say so before the work whose result it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from ftbuild.cli.output import require_writable, write
from ftbuild.cli.sources import bundle
from ftbuild.errors import ConfigError
from ftserve.cli.comparing import Measured, compare


@pytest.mark.parametrize(
    ("out", "reason"),
    [("none/report.md", "does not exist"), ("", "is a folder"), ("file/x", "does not exist")],
)
def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path, out: str, reason: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=reason):
        require_writable(tmp_path / out)


def test_a_new_file_and_one_that_is_there_can_be_written(tmp_path: Path) -> None:
    out = tmp_path / "report.md"
    for text in ("first", "second"):
        require_writable(out)
        write(text, out)
        assert out.read_text() == text
    require_writable(None)


def test_servers_are_not_compared_for_a_report_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody listens at these ports: who is asked first decides the message."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("[1, 2]\n")
    with pytest.raises(SystemExit) as end:
        compare("127.0.0.1:1", "127.0.0.1:2", prompts, Measured(), out=tmp_path / "none" / "report.md")
    assert end.value.code == ConfigError.exit_code
    assert "the folder of --out does not exist" in capsys.readouterr().err


def test_sources_are_not_fetched_for_a_bundle_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        bundle(triton=["22.12"], output=tmp_path / "none" / "sources.tar")
    assert end.value.code == ConfigError.exit_code
    assert "the folder of --output does not exist" in capsys.readouterr().err
