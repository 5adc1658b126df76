"""An option that would do nothing is refused, whichever command it is of."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

import tasks
from ftbuild.build.run import BuildOptions
from ftbuild.cli.arguments import Option
from ftbuild.cli.command import Command
from ftbuild.client.acceptance.options import AcceptanceOptions
from ftbuild.errors import ConfigError
from ftserve.deployment import Options
from ftserve.front_options import FrontOptions
from testing import sources

COMMANDS = [member for members in tasks.namespace.groups.values() for member in members]
NEEDS = [(m, name, others) for m in COMMANDS for name, others in m.idle.needs.items()]
BESIDE = [(m, name, other) for m in COMMANDS for name, others in m.idle.beside.items() for other in others]

# Values of a command's options, as the rooms take them.
OPTIONS = (BuildOptions, AcceptanceOptions, Options, FrontOptions)


def another(option: Option) -> Any:
    """A value that is not the option's default."""
    if option.repeatable:
        return ["x"]
    if option.kind is bool:
        return not option.default
    return next((choice for choice in option.choices if choice != option.default), option.kind("7"))


def refuse(member: Command, *names: str) -> None:
    options = {option.name: option for option in member.signature.options}
    values = {name: option.default for name, option in options.items()}
    member.idle.refuse(member.signature, values | {name: another(options[name]) for name in names})


@pytest.mark.parametrize("member", COMMANDS, ids=lambda member: member.path)
def test_defaults_alone_are_never_refused(member: Command) -> None:
    refuse(member)


@pytest.mark.parametrize(("member", "name", "others"), NEEDS, ids=str)
def test_an_option_is_refused_without_what_it_needs(
    member: Command, name: str, others: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match="does nothing without --"):
        refuse(member, name)
    for other in others:
        refuse(member, name, other)


@pytest.mark.parametrize(("member", "name", "other"), BESIDE, ids=str)
def test_an_option_is_refused_beside_what_takes_its_effect(member: Command, name: str, other: str) -> None:
    needed = member.idle.needs.get(name, ())[:1]
    with pytest.raises(ConfigError, match="does nothing beside --"):
        refuse(member, name, other, *needed)


def test_the_format_of_a_dry_run_is_refused_without_one(capsys: pytest.CaptureFixture[str]) -> None:
    build = next(member for member in COMMANDS if member.path == "build")
    with pytest.raises(SystemExit) as ended:
        build(None, format="json")
    assert ended.value.code == 2
    assert "--format does nothing without --dry-run" in capsys.readouterr().err


def test_the_rules_are_about_options_of_the_command() -> None:
    for member in COMMANDS:
        named = {option.name for option in member.signature.options}
        rules = {**member.idle.needs, **member.idle.beside}
        assert {*rules, *(other for others in rules.values() for other in others)} <= named, member.path


@pytest.mark.parametrize("kind", OPTIONS, ids=lambda kind: kind.__qualname__)
def test_what_a_command_is_given_is_read_somewhere(kind: type[Any]) -> None:
    text = "\n".join(file.read_text() for file in sources())
    read = {*re.findall(r"\b(?:options|asked)\.(\w+)", text)}
    assert {field.name for field in dataclasses.fields(kind)} - read == set()
