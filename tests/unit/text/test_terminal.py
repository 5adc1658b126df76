from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftbuild.text import terminal
from ftbuild.text.terminal import clean


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("\x1b[1;31merror:\x1b[0m x", "error: x"),
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", "ab"),
        ("\x1b]unended\nkept", "\nkept"),
        ("\x1b(Ba\x1b=b\x1b7c\x1b[?25ld\x1b[2 qe", "abcde"),
        ("\x9b31mred", "red"),
        ("50 %\r100 %\r\ndone\n", "50 %\n100 %\ndone\n"),
    ],
)
def test_codes_go_and_text_stays(text: str, wanted: str) -> None:
    assert clean(text) == wanted


@given(st.text(st.characters(exclude_characters="\x1b\x9b\r")))
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("one\ttwo\nthree\n", "one\ttwo\nthree\n"),
        ("\x1b]0;owned\x07\x1b[2Jhere", "here"),
        ("half a code \x1b", "half a code \\x1b"),
        ("\x07\x08\x7f\x9b", "\\x07\\x08\\x7f\\x9b"),
        ("over\rwritten", "over\nwritten"),
        ("turned \u202eround", "turned \\u202eround"),
        ("Grüße, 你好 🎉", "Grüße, 你好 🎉"),
    ],
)
def test_what_a_terminal_acts_on_goes_or_is_escaped(text: str, shown: str) -> None:
    assert terminal.safe(text) == shown
    assert terminal.safe(shown) == shown


def test_words_that_are_no_path_are_cut_with_their_length() -> None:
    path = "/" + "a" * 4095
    assert terminal.readable(f"{path} is there") == f"{path} is there"
    cut = terminal.readable(f"release '{'9' * 5000}' is not in\n  the matrix")
    assert cut == f"release '{'9' * 99}...{'9' * 99}' (5002 characters) is not in\n  the matrix"
