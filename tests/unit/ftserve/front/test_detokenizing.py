"""Pieces of text: whole characters, no stop sequence, and together the same as the whole."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftserve.front.detokenizing import Detokenizer, Remembering, StopFinder
from testing import bytelevel, needs


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tokenizer whose tokens are bytes, so that most characters have several."""
    library = needs.package("tokenizers")
    folder = bytelevel.write(tmp_path_factory.mktemp("tokenizer"))
    return library.Tokenizer.from_file(str(folder / "tokenizer.json"))


class SentencePiece:
    """Decodes as such tokenizers do: a blank before each word but the first."""

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(f"w{number}" for number in ids)


def pieces(decoder: Any, tokens: Sequence[int], prompt: Sequence[int] = ()) -> list[str]:
    made = Detokenizer(decoder, prompt)
    return [*[made.push([token]) for token in tokens], made.finish()]


def test_a_character_of_several_tokens_comes_once_and_whole(tokenizer: Any) -> None:
    assert pieces(tokenizer, "a€😀".encode()) == ["a", "", "", "€", "", "", "", "😀", ""]


def test_an_incomplete_character_is_told_at_the_end(tokenizer: Any) -> None:
    assert pieces(tokenizer, "ab€".encode()[:-1]) == ["a", "b", "", "", "\ufffd"]


@given(content=st.binary(max_size=30), prompt=st.text(max_size=8))
def test_pieces_together_are_the_text_of_the_answer(tokenizer: Any, content: bytes, prompt: str) -> None:
    assert "".join(pieces(tokenizer, content, prompt.encode())) == content.decode(errors="replace")


def test_a_blank_before_the_first_word_is_kept() -> None:
    assert pieces(SentencePiece(), [7, 8], prompt=[1, 2]) == [" w7", " w8", ""]
    assert pieces(SentencePiece(), [7, 8]) == ["w7", " w8", ""]


@given(
    parts=st.lists(st.text("ab|", max_size=4), max_size=12),
    stops=st.lists(st.text("ab|", min_size=1, max_size=4), max_size=3),
)
def test_a_text_ends_before_its_first_stop_sequence_however_it_is_cut(
    parts: list[str], stops: list[str]
) -> None:
    finder = StopFinder(stops)
    out = ""
    for part in parts:
        if finder.has_match:
            break
        out += finder.push(part)
        # Nothing that a stop sequence might begin with is told too early.
        assert not any(stop in out for stop in stops)
    whole = "".join(parts)
    found = [place for stop in stops if (place := whole.find(stop)) >= 0]
    assert finder.has_match == bool(found)
    if found:
        assert finder.push("more") == ""
        assert whole.startswith(out)
    else:
        assert out + finder.finish() == whole


def test_the_first_of_several_stop_sequences_counts() -> None:
    finder = StopFinder(["c d", "bc"])
    assert (finder.push("ab"), finder.push("bc d"), finder.has_match) == ("a", "b", True)


class Counting(SentencePiece):
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def decode(self, ids: Sequence[int]) -> str:
        self.asked += 1
        return super().decode(ids)


def test_texts_of_single_tokens_are_asked_for_once() -> None:
    counting = Counting()
    decoder = Remembering(counting)
    assert [decoder.decode([7]), decoder.decode([8]), decoder.decode([7])] == ["w7", "w8", "w7"]
    assert counting.asked == 2
    assert [decoder.decode([7, 8]), decoder.decode([7, 8]), decoder.decode([])] == ["w7 w8", "w7 w8", ""]
    assert counting.asked == 5


def test_tokens_without_a_text_are_not_remembered() -> None:
    class Nothing:
        def decode(self, ids: Sequence[int]) -> str:
            return ""

    decoder = Remembering(Nothing())
    for token in range(1000):
        assert decoder.decode([token]) == decoder.after([1], token) == ""
    assert not decoder._single
    assert not decoder._after


@pytest.mark.parametrize("text", ["", "\ufffd"])
def test_a_model_that_makes_nothing_readable_costs_no_more_with_each_token(text: str) -> None:
    class Unreadable:
        most = 0

        def decode(self, ids: Sequence[int]) -> str:
            self.most = max(self.most, len(ids))
            return text * len(ids)

    decoder = Unreadable()
    assert "".join(pieces(decoder, range(1000))) == text * 1000
    assert decoder.most < 50


def test_a_token_has_the_text_that_it_has_behind_others(tokenizer: Any) -> None:
    decoder = Remembering(SentencePiece())
    assert [decoder.after([], 7), decoder.after([1], 7), decoder.after([2], 7)] == ["w7", " w7", " w7"]
    parts = Remembering(tokenizer)
    euro = list("\u20ac".encode())
    assert [parts.after(euro[:at], token) for at, token in enumerate(euro)] == ["\ufffd"] * 3
    assert parts.after(euro, ord("a")) == "a"


def test_an_answer_that_has_ended_has_no_more_text() -> None:
    counting = Counting()
    made = Detokenizer(counting, list(range(20)))
    assert made.push([30]) == " w30"
    assert (made.finish(), made.finish()) == ("", "")
    # The text of what came before, of few tokens, and that with the new one.
    assert counting.asked == 2


def test_the_text_of_a_token_depends_on_few_before_it() -> None:
    class Longest(SentencePiece):
        most = 0

        def decode(self, ids: Sequence[int]) -> str:
            self.most = max(self.most, len(ids))
            return super().decode(ids)

    decoder = Longest()
    made = Detokenizer(decoder, list(range(100)))
    assert [made.push([token]) for token in (1, 2, 3)] == [" w1", " w2", " w3"]
    assert decoder.most == 7


def test_what_may_begin_a_stop_sequence_is_held_back_and_no_more() -> None:
    finder = StopFinder(["abc", ""])
    assert [finder.push(text) for text in ("xab", "x", "a", "b", "z", "ab")] == [
        "x",
        "abx",
        "",
        "",
        "abz",
        "",
    ]
    assert (finder.has_match, finder.finish(), finder.finish()) == (False, "ab", "")
    none = StopFinder([])
    assert (none.push("abc"), none.has_match, none.finish()) == ("abc", False, "")
    one = StopFinder(["a"])
    assert (one.push("bb"), one.push("ba"), one.has_match, one.finish(), one.push("b")) == (
        "bb",
        "b",
        True,
        "",
        "",
    )


def test_stop_sequences_end_a_text_wherever_they_are_cut() -> None:
    finder = StopFinder(["aa"])
    assert [finder.push("a"), finder.push("b"), finder.push("a")] == ["", "ab", ""]
    assert (finder.push("a"), finder.has_match) == ("", True)


NAMES = {1: "<s>", 2: "</s>"}
SEQUENCES = ["a<s>b", "<s>", "</s>a", "ab", "ba", "s></s>a", "a<s></s>", "<s><s>", "b</s>b"]


def until(parts: Sequence[tuple[str, int]], stops: Sequence[str]) -> tuple[str, bool]:
    """The text before the first stop sequence, of all of it and of all of it with the names in it."""
    text, named, places = "", "", []
    for part, token in parts:
        text += part
        named += part + NAMES.get(token, "")
        places += [*range(len(text) - len(part), len(text)), *[len(text)] * len(NAMES.get(token, ""))]
        found = [
            places[named.find(stop)] if "s>" in stop else text.find(stop)
            for stop in stops
            if stop in (named if "s>" in stop else text)
        ]
        if found:
            return text[: min(found)], True
    return text, False


def test_stop_sequences_with_special_tokens_end_a_text_as_if_all_of_it_were_known() -> None:
    chance = random.Random(5)
    matches = 0
    for _ in range(5000):
        parts = [
            ("".join(chance.choices("ab<s>/", k=chance.choice([0, 1, 1, 2]))), chance.choice([0, 0, 1, 2]))
            for _ in range(8)
        ]
        stops = chance.sample(SEQUENCES, chance.choice([1, 2, 3]))
        finder = StopFinder(stops, NAMES)
        text = ""
        for part, token in parts:
            text += finder.push(part, token)
        text += finder.finish()
        assert (text, finder.has_match) == until(parts, stops), (parts, stops)
        matches += finder.has_match
    assert 1000 < matches < 4000


def test_special_tokens_without_end_take_no_time_that_grows() -> None:
    finder = StopFinder(["a<s>b", "ab"], NAMES)
    assert finder.push("a") == ""
    start = time.process_time()
    for _ in range(20_000):
        finder.push("", 1)
    assert time.process_time() - start < 10
    assert finder.push("b", 0) == ""
    assert finder.has_match
