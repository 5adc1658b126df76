"""Tables on a terminal: as wide as it is, with states in colours; a pipe gets neither."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable

import pytest

from ftbuild.cli import streams
from ftbuild.nightly.record import State as CellState
from ftbuild.nightly.report import wording
from ftbuild.text import results, screen, tables
from ftbuild.text.results import CheckResult, State

FOUND = [
    CheckResult(
        "git", State.FAIL, "2.20", "install git 2.30 or later: older ones cannot fetch by commit at all"
    ),
    CheckResult("disk", State.OK, "200 GB free of " + "a very long explanation " * 6),
    CheckResult(
        "gpu",
        State.WARN,
        "none: https://registry.example.com/a/path/that/is/longer/than/the/column/of/a/table",
    ),
    CheckResult("engine", State.SKIP),
]


Shown = Callable[[Callable[[], str]], str]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """What a terminal gets of a text that is made while it is there."""

    def run(made: Callable[[], str]) -> str:
        terminal = Terminal()
        monkeypatch.setattr(sys, "stdout", terminal)
        streams.prepare()
        screen.show(made())
        return terminal.getvalue()

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return run


@pytest.mark.parametrize("columns", [80, 120])
def test_a_table_fits_the_terminal(columns: int, shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    lines = shown(lambda: results.render(FOUND)).splitlines()
    assert max(map(len, lines)) <= columns
    path = FOUND[2].detail.split()[1]
    assert path in "".join(re.sub(r"^(warn +gpu)? +", "", line) for line in lines)
    words = " ".join(" ".join(lines).split())
    assert "a very long explanation a very long explanation" in words
    assert "-> install git 2.30 or later" in words


def test_a_pipe_gets_the_whole_line_and_no_colours(capsys: pytest.CaptureFixture[str]) -> None:
    screen.show(results.render(FOUND))
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert f"disk     {FOUND[1].detail}".rstrip() in shown


def test_states_have_colours(shown: Shown) -> None:
    text = shown(lambda: results.render(FOUND))
    assert "\x1b[1;31mfail\x1b[0m" in text
    assert "\x1b[33mwarn\x1b[0m" in text
    assert "\x1b[32mok\x1b[0m" in text


def test_a_word_in_a_sentence_is_no_state(shown: Shown) -> None:
    assert shown(lambda: "it did not fail, all is ok") == "it did not fail, all is ok\n"


@pytest.mark.parametrize("variable", [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_who_wants_no_colours_gets_none(
    variable: tuple[str, str], shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(*variable)
    assert "\x1b" not in shown(lambda: results.render(FOUND))


def test_texts_of_others_bring_no_codes(shown: Shown) -> None:
    evil = "fail  \x1b]0;owned\x07\x1b[2Jname\x9b31m"
    assert shown(lambda: evil) == "\x1b[1;31mfail\x1b[0m  name\n"


def test_failures_come_last_next_to_the_counts() -> None:
    lines = results.render(FOUND).splitlines()
    states = [found[1] for line in lines if (found := re.match("(fail|warn|ok|skip) ", line))]
    assert states == ["ok", "skip", "warn", "fail"]
    assert lines[-1] == "failed: 1, warnings: 1, skipped: 1"


def test_every_state_of_a_cell_and_a_check_has_a_colour() -> None:
    words = [wording.look(state).word for state in CellState]
    for word in [*words, *(state.value for state in State)]:
        assert "\x1b[" in screen.coloured(f"22.12-sm80  {word}  0:12")


def test_a_table_is_as_wide_as_asked_where_it_can_be() -> None:
    rows = [("22.12-sm80", "one two three four five six seven eight"), ("a", "nine")]
    text = tables.render(("Cell", "Why"), rows, width=30)
    assert max(map(len, text.splitlines())) <= 30
    assert tables.render(("Cell", "Why"), rows).splitlines()[2].endswith("six seven eight")
