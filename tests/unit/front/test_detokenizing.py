"""Pieces of text: whole characters, no stop sequence, and together the same as the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftbuild.front.detokenizing import Detokenizer, StopFinder
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
        if finder.found:
            break
        out += finder.push(part)
        # Nothing that a stop sequence might begin with is told too early.
        assert not any(stop in out for stop in stops)
    whole = "".join(parts)
    found = [place for stop in stops if (place := whole.find(stop)) >= 0]
    assert finder.found == bool(found)
    if found:
        assert finder.push("more") == ""
        assert whole.startswith(out)
    else:
        assert out + finder.finish() == whole


def test_the_first_of_several_stop_sequences_counts() -> None:
    finder = StopFinder(["c d", "bc"])
    assert (finder.push("ab"), finder.push("bc d"), finder.found) == ("a", "b", True)
