"""How the commands of a run end: by themselves, when they are asked to, or killed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from ftbuild.errors import BuildError, HostError, Interrupted
from ftbuild.nightly import artifacts, commands
from ftbuild.nightly.commands import Command
from ftbuild.nightly.record import State, outcome
from ftbuild.nightly.request import NightlyOptions

TASKS = """
import os
from signal import SIG_DFL, signal as default
from invoke import task

@task
def build(context, signal=0, code=0):
    print("compiling", flush=True)
    if signal:
        if signal != 9:
            default(signal, SIG_DFL)
        os.kill(os.getpid(), signal)
    raise SystemExit(code)
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tasks.py").write_text(TASKS)
    monkeypatch.setattr(commands, "ROOT", tmp_path)
    return tmp_path / "logs" / "build.log"


@pytest.mark.parametrize("code", [0, BuildError.exit_code])
def test_a_command_that_ends_by_itself_has_its_code(code: int, log: Path) -> None:
    assert Command("build", ["--code", str(code)]).stream(log, lambda line: None) == code
    assert log.read_text() == "compiling\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_was_asked_to_end_is_interrupted(number: int, log: Path) -> None:
    assert Command("build", ["--signal", str(int(number))]).stream(log, print) == Interrupted.exit_code


@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGKILL, "Killed"), (signal.SIGSEGV, "Segmentation fault"), (signal.SIGRTMIN + 1, "Real-time")],
)
def test_a_command_that_was_killed_is_a_fault_of_the_machine(number: int, name: str, log: Path) -> None:
    """As out of memory: nobody asked for it, and the run must not look like one that somebody ended."""
    code = Command("build", ["--signal", str(int(number))]).stream(log, lambda line: None)
    assert code == HostError.exit_code
    assert outcome(code)[0] is State.ERROR
    why = artifacts.message(log)
    assert why.startswith(f"invoke build was ended by signal {int(number)} ({name}")
    assert ("memory" in why) == (number == signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_audit_that_was_killed_says_so(number: int, log: Path) -> None:
    """Not the last thing that it said."""
    log.parent.mkdir()
    with pytest.raises(HostError, match=f"invoke build was ended by signal {int(number)}"):
        Command("build", ["--signal", str(int(number))]).answer(log)


@pytest.mark.parametrize(
    ("options", "written"),
    [
        (NightlyOptions(attest=True), ["--attest"]),
        (NightlyOptions(force=True), ["--force"]),
        (NightlyOptions(allow_unsmoked=True), ["--allow-unsmoked"]),
        (NightlyOptions(allow_shared_cache=True), ["--allow-shared-cache"]),
        (NightlyOptions(allow_dirty=True), ["--allow-dirty"]),
        (NightlyOptions(publish_objects=True), ["--objects"]),
        (NightlyOptions(sign_key="k"), ["--sign-key", "k"]),
        (NightlyOptions(sign_log=False), ["--no-sign-log"]),
    ],
)
def test_what_a_night_allows_is_an_option_of_its_publications(
    options: NightlyOptions, written: list[str]
) -> None:
    assert options.of_publications() == written
