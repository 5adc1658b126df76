"""What messages tell to do next is about the configuration that the command was given."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

import tasks
from ftbuild.cli import hints
from ftbuild.cli.command import Command
from ftbuild.cli.options import ROOT
from ftbuild.doctor import machine
from ftbuild.errors import PinError
from ftbuild.text import results
from ftbuild.text.results import CheckResult, State
from testing import forked

COMMANDS = [member for members in tasks.namespace.groups.values() for member in members]
CONFIGURED = {
    name: member
    for member in COMMANDS
    if any(option.name == "config" for option in member.signature.options)
    for name in (member.path, member.typed)
}
SAMPLE = ROOT / "buildcfg" / "sample"


def next_of(told: str) -> str:
    return next(line for line in told.splitlines() if line.startswith("  next:")).removeprefix("  next:  ")


@pytest.fixture
def unlocked(tmp_path: Path) -> Path:
    """A configuration beside nothing, whose lock has lost everything."""
    folder = tmp_path / "their configuration"
    folder.mkdir()
    for file in SAMPLE.glob("*.yaml"):
        (folder / file.name).write_text(file.read_text().replace("../../", f"{ROOT}/"))
    (folder / "sources.lock.yaml").write_text("sources: {}\n")
    return folder


def test_a_build_without_pins_tells_to_lock_its_own_configuration(
    unlocked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build = CONFIGURED["build"]
    with pytest.raises(SystemExit) as ended:
        build(None, config=unlocked, triton=["22.12"], sm=["90"], dry_run=True)
    assert ended.value.code == 5
    words = shlex.split(next_of(capsys.readouterr().err))
    assert words == ["invoke", "lock", "--config", str(unlocked)]


CHECK = CheckResult("lock", State.WARN, "old", "invoke lock; invoke audit says more")


@pytest.mark.parametrize("member", [m for m in COMMANDS if m.path in CONFIGURED], ids=lambda m: m.path)
def test_every_command_tells_of_the_configuration_in_tables_records_and_failures(
    member: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever shows a hint: a table of checks, what doctor writes for programs, a failure of one of several
    cells that is reported while the others go on, and the one that ends the command."""

    def told(**values: object) -> int:
        print(results.render([CHECK]))
        print(machine.render([CHECK], "json"))
        print(f"[22.12-sm80] failed: {PinError('no pin', hint='invoke lock')}", file=sys.stderr)
        raise PinError("no pin", hint="invoke lock")

    monkeypatch.setattr(member, "function", told)
    monkeypatch.setattr(type(member.signature), "arguments", lambda signature, values: {})
    for given, option in ({"config": Path("my config")}, " --config 'my config'"), ({}, ""):
        with pytest.raises(SystemExit) as ended:
            member(None, **given)
        assert ended.value.code == 5
        shown = capsys.readouterr()
        both = f"invoke lock{option}; invoke audit{option} says more"
        assert (shown.out.count(both), shown.out.count("invoke ")) == (2, 4)
        assert shown.err.count(f"  next:  invoke lock{option}\n") == 2
        # What is no hint is printed as it is.
        assert shown.err.count("failed: no pin") == 1


def test_doctor_tells_how_its_own_configuration_is_built_without_internet(unlocked: Path) -> None:
    sources = unlocked / "sources.yaml"
    sources.write_text(sources.read_text().replace(".sample-upstream", "nowhere"))
    done = forked.invoke("doctor", "--config", str(unlocked))
    assert f"invoke build --config {shlex.quote(str(unlocked))} --sources FILE" in " ".join(
        done.stdout.split()
    )


@pytest.mark.parametrize("name", sorted(CONFIGURED))
def test_every_command_that_takes_a_configuration_is_told_of_with_it(name: str) -> None:
    folder = Path("my config")
    told = hints.of(f"invoke {name}, and read what it says", folder)
    assert told == f"invoke {name} --config 'my config', and read what it says"


@pytest.mark.parametrize(
    "hint",
    [
        *(f"invoke {member.path}" for member in COMMANDS if member.path not in CONFIGURED),
        "invoke --help build lists its options",
        "leave out --config to resume it, or invoke nightly",
        "docker login keeps them",
    ],
)
def test_other_hints_stay_as_they_are(hint: str) -> None:
    assert hints.of(hint, Path("other")) == hint


def test_a_command_of_the_default_configuration_names_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        CONFIGURED["matrix"](None, triton=["99.99"])
    assert "--config" not in capsys.readouterr().err


def test_every_command_knows_whether_it_takes_a_configuration() -> None:
    assert {*CONFIGURED} > {"lock", "build", "audit", "audit.pins", "nightly"}
    assert all(re.fullmatch(r"[a-z][a-z0-9.-]*[a-z0-9]", name) for name in CONFIGURED)
    assert all(isinstance(member, Command) for member in COMMANDS)
