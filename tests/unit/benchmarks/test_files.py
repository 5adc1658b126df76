"""Files on the command lines of benchmarks: what is wrong with one is told without a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.tools import compile_order
from benchmarks.tools.profile import __main__ as profile
from benchmarks.topics import batching, load, memory, sms

OF = ("--of", "a cell on a GPU")
COMMANDS: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "batching": (batching.main, ()),
    "compile_order": (compile_order.main, ()),
    "load": (load.main, OF),
    "memory": (memory.main, ()),
    "profile": (profile.main, (*OF, "--layers", "2")),
    "sms": (sms.main, ()),
}
DAMAGED = ("", "{", "{}", "[]", '{"answers": [], "memory": [], "refusals": 0, "wrong": []}', "\udce9")


def refused(
    command: str, file: Path, out: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...] = ()
) -> None:
    main, options = COMMANDS[command]
    written = () if command == "compile_order" else ("--out", str(out))
    monkeypatch.setattr(sys, "argv", [command, str(file), *options, *written, *more])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert not out.exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_is_not_there_is_refused(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(command, tmp_path / "absent", tmp_path / "out", monkeypatch)
    assert str(tmp_path / "absent") in capsys.readouterr().err


@pytest.mark.parametrize("content", DAMAGED)
@pytest.mark.parametrize("command", ["batching", "load"])
def test_a_damaged_file_is_refused(
    command: str,
    content: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "damaged.json"
    file.write_text(content, errors="surrogateescape")
    refused(command, file, tmp_path / "out", monkeypatch)
    assert f"{file} is not a " in capsys.readouterr().err


@pytest.mark.parametrize("command", ["compile_order", "memory"])
def test_a_log_of_something_else_is_refused(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "slots.tsv"
    file.write_text("1000\t3500\n")
    refused(command, file, tmp_path / "out", monkeypatch)
    assert "is not a log of slots" in capsys.readouterr().err


def test_a_cell_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "slots.tsv"
    file.write_text("1000\t3500\t1\tsrc/a.cu.o\t2.25\t1048576\n")
    refused("memory", file, tmp_path / "out", monkeypatch, ("--cell", "@key"))
    assert "'@key' is no cell" in capsys.readouterr().err
