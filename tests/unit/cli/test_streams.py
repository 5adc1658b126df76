"""Standard output and error that cannot be written: one rule for every command, for help and for lists.

Lost output is a failure, lost messages are none. Readers who leave are in test_commands.py.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

import pytest
from invoke.program import Program

import tasks
from ftbuild.cli.command import Command
from testing import ROOT

COMMANDS = [member for members in tasks.namespace.groups.values() for member in members]
SAID = "error: the disk is full to which a file or the output of this command is written\n"
# Whatever Invoke shows by itself.
SHOWN = [
    [],
    ["--list"],
    ["--list", "serve"],
    ["--list", "--list-format", "json"],
    ["--list", "--list-format", "nested"],
    ["--help"],
    ["--version"],
    ["--print-completion-script", "bash"],
]
PROGRAM = "import sys; from ftbuild.cli.start import program; sys.exit(program.run())"


def invoke(words: list[str], redirected: str) -> subprocess.CompletedProcess[str]:
    """Run `invoke` as bootstrap leaves it, in a shell."""
    line = f'"$0" -c "$1" "${{@:2}}" {redirected}'
    argv = ["bash", "-c", line, sys.executable, PROGRAM, "--search-root", str(ROOT), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_a_full_disk_fails_whatever_invoke_shows(words: list[str]) -> None:
    done = invoke(words, ">/dev/full")
    assert done.returncode == 4
    assert done.stderr.startswith(SAID)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_a_reader_who_has_left_changes_nothing_of_what_invoke_shows(words: list[str]) -> None:
    done = invoke(words, "> >(true); code=$?; wait; exit $code")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [["build", "--help"], ["--help", "build"]], ids=" ".join)
def test_a_full_disk_fails_help_of_the_script_of_pip_too(words: list[str]) -> None:
    line = '"$0" -m invoke "$@" >/dev/full'
    argv = ["bash", "-c", line, sys.executable, *words]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "Traceback" in done.stderr) == (4, False)


@pytest.mark.parametrize("redirected", ["2>/dev/full", ">/dev/null 2>/dev/full", "2>&-"])
@pytest.mark.parametrize(
    ("words", "code"),
    [(["matrix", "--triton", "99.99"], 2), (["no-such-word"], 2), (["dev.schema"], 0), (["--list"], 0)],
)
def test_messages_that_cannot_be_written_change_no_exit_code(
    words: list[str], code: int, redirected: str
) -> None:
    assert invoke(words, redirected).returncode == code


def test_output_is_lost_also_where_nobody_can_be_told() -> None:
    assert invoke(["dev.schema"], ">/dev/full 2>/dev/full").returncode == 4


@pytest.mark.parametrize("member", COMMANDS, ids=lambda member: member.path)
def test_a_full_disk_fails_the_help_and_the_output_of_every_command(
    member: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def spoke(**values: object) -> int:
        print("one line")
        return 0

    monkeypatch.setattr(member, "function", spoke)
    monkeypatch.setattr(type(member.signature), "arguments", lambda signature, values: {})
    asked = functools.partial(Program(namespace=tasks.namespace).run, ["invoke", "--help", member.typed])
    for run in (asked, functools.partial(member, None)):
        with Path("/dev/full").open("w") as full, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", full)
            with pytest.raises(SystemExit) as ended:
                run()
        assert ended.value.code == 4
        assert capsys.readouterr().err.startswith(SAID)
