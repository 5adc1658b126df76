"""`--help`, wherever it stands on a command line: help is all that happens."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from invoke.program import Program

import tasks
from ftbuild.cli.command import Command
from testing import ROOT, forked

COMMANDS = [member for members in tasks.namespace.groups.values() for member in members]
# For a value that an option takes; `matrix` and `serve` are commands, too.
VALUES = {bool: None, int: "1", float: "1"}


def given(member: Command) -> list[str]:
    """All options of a command, each with a value that could be a command's name."""
    words = []
    for option in member.signature.options:
        value = option.choices[0] if option.choices else VALUES.get(option.kind, "matrix")
        words += [option.flag, *filter(None, [value])]
    return words


LINES: dict[str, Callable[[Command], list[str]]] = {
    "before": lambda member: ["--help", member.typed],
    "alone": lambda member: [member.typed, "--help"],
    "short": lambda member: [member.typed, "-h"],
    "last of all options": lambda member: [member.typed, *given(member), "--help"],
    "first of all options": lambda member: [member.typed, "--help", *given(member)],
    "before the command and its options": lambda member: ["--help", member.typed, *given(member)],
    "for a value": lambda member: [
        member.typed,
        *[option.flag for option in member.signature.options if option.kind is not bool][:1],
        "--help",
    ],
    "beside what does not exist": lambda member: [member.typed, "--no-such-option", "word", "--help"],
    "twice": lambda member: ["--help", member.typed, "--help"],
    "after another command": lambda member: ["dev.schema", member.typed, "--help"],
    "after a separator": lambda member: [member.typed, "--", "--help"],
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
@pytest.mark.parametrize("member", COMMANDS, ids=lambda member: member.path)
def test_help_anywhere_means_help_and_has_no_effect(
    member: Command,
    line: Callable[[Command], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def ran(*arguments: object, **values: object) -> None:
        raise AssertionError(f"{line(member)} ran a command")

    monkeypatch.setattr(Command, "__call__", ran)
    with pytest.raises(SystemExit) as ended:
        Program(namespace=tasks.namespace).run(["invoke", *line(member)])
    shown = capsys.readouterr()
    assert (ended.value.code, shown.err) == (0, "")
    assert shown.out.startswith(f"Usage: invoke [--core-opts] {member.typed} ")


def test_no_command_is_asked_for_by_a_value_that_is_called_like_one() -> None:
    done = forked.invoke("serve.sif", "--out", "build", "-h")
    assert done.returncode == 0, done.stderr
    assert "serve.sif [--options]" in done.stdout


@pytest.mark.parametrize("arguments", [["serve.sif", "--help"], ["bundle", "--output", "--help"]])
def test_help_writes_nothing(arguments: list[str], tmp_path: Path) -> None:
    done = forked.invoke(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_help_for_what_is_no_command_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        Program(namespace=tasks.namespace).run(["invoke", "biuld", "--help"])
    assert ended.value.code == 2
    assert "did you mean build or rebuild?" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["build", "--help"], ["test", "-h"]])
def test_bootstrap_prepares_nothing_for_help(arguments: list[str], tmp_path: Path) -> None:
    script = tmp_path / "bootstrap"
    script.write_bytes((ROOT / "bootstrap").read_bytes())
    script.chmod(0o755)
    done = subprocess.run([str(script), *arguments], capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 0, done.stderr
    assert "./bootstrap demo" in done.stdout
    assert list(tmp_path.iterdir()) == [script]


@pytest.mark.parametrize(
    "words",
    [["-T", "x", "matrix"], ["matrix", "-T", "x"], ["--list-depth", "x", "--list"],
     ["--list-format", "x", "--list"], ["matrix", "-f"]],
    ids=" ".join,
)  # fmt: skip
def test_a_wrong_value_of_an_option_of_invokes_own_is_a_mistake(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        Program(namespace=tasks.namespace).run(["invoke", *words])
    shown = capsys.readouterr()
    assert (ended.value.code, shown.out) == (2, "")
    assert shown.err.startswith("error: ")
    assert "<Argument" not in shown.err
