"""Commands in the documentation: each exists, with its options and values that these take."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from invoke.exceptions import Exit, ParseError
from invoke.parser import Parser

import tasks
from testing import ROOT, forked
from tests.unit.docs.test_markdown import FILES

LINE = re.compile(r"^ {4}(?:\./bootstrap|\./invoke|invoke) (\S.*)$", re.MULTILINE)
INLINE = re.compile(r"`(?:\./bootstrap|\./invoke|invoke) ([^`]+)`")
CONTEXTS = tasks.namespace.to_contexts()
# Stand-ins for what a reader puts in, and Invoke's own options.
NOT_COMMANDS = re.compile(r"ARGUMENTS|COMMAND|--list|--help|\.\.\.")


def commands(text: str) -> Iterator[str]:
    """The arguments of every invoke in a page, without comments and what comes after a pipe."""
    for line in (*LINE.findall(text), *INLINE.findall(" ".join(text.split()))):
        command = re.split(r"\s#|\s[|>]\s", line)[0].strip().rstrip(";")
        if not NOT_COMMANDS.search(command):
            yield command


def wrong(command: str) -> str | None:
    """What the parser says against a command line; None when it takes it.

    It copies all commands that it is given, hence gets those alone whose names stand in the line.
    """
    words = shlex.split(command)
    named = [each for each in CONTEXTS if {each.name, *each.aliases} & {*words}]
    try:
        Parser(contexts=named).parse_argv(words)
    except (ParseError, Exit) as complaint:
        return str(complaint)
    return None


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_command_exists_with_its_options(file: Path) -> None:
    faults = {command: wrong(command) for command in commands(file.read_text())}
    # Prose names commands without the options that they need.
    assert [fault for fault in faults.items() if fault[1] and "did not receive" not in fault[1]] == []


def test_the_readme_shows_commands() -> None:
    assert len(set(commands((ROOT / "README.md").read_text()))) > 10


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_the_plans_that_a_page_shows_can_be_made(page: str) -> None:
    found = set(commands((ROOT / page).read_text()))
    plans = [command for command in found if command.startswith("matrix") or "--dry-run" in command]
    assert plans
    environment = {**os.environ, "DOCKER_HOST": "unix:///nowhere"}
    for plan in plans:
        done = forked.invoke(*shlex.split(plan), env=environment)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command",
    ["compile", "build --smm 80", "build --jobs many", "compose --model-repo m/", "matrix --format xml"],
)
def test_a_command_that_does_not_exist_is_found(command: str) -> None:
    assert wrong(command)
