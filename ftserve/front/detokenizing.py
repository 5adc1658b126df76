"""Texts of answers that grow token by token: whole characters only, and nothing of a stop sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

# What a decoder writes for bytes that are no character, or not yet a whole one.
_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
# Tokens of the prompt before the answer that decide how its first ones are written: a decoder of
# SentencePiece takes the blank from the first piece, and only from that one.
BEFORE = 6
# How often an incomplete character waits for its next token, as one of four bytes does three times, and
# tokens without a text that are remembered. A model that makes nothing else would cost ever more with each.
_LONGEST_WAIT = 16


class Decoder(Protocol):
    """What this module needs of a tokenizer."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the tokens, without special ones."""


class Remembering:
    """A decoder that keeps the texts of single tokens, for which it is asked before each new token."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._single: dict[int, str] = {}
        # By the token, and whether there is text before it.
        self._after: dict[tuple[int, bool], str] = {}

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the tokens, without special ones."""
        if len(ids) != 1:
            return self._decoder.decode(ids)
        (only,) = ids
        text = self._single.get(only)
        if text is None:
            text = self._decoder.decode(ids)
            # Others than tokens of the vocabulary have none, and there is no end of those.
            if text:
                self._single[only] = text
        return text

    def after(self, before: Sequence[int], token: int) -> str:
        """Return the text of a token behind others: a decoder of SentencePiece keeps its blank there."""
        start = self.decode(before)
        key = token, bool(start)
        text = self._after.get(key)
        if text is None:
            alone = self.decode([token])
            text = self._decoder.decode([*before, token])[len(start) :]
            # A part of a character has none behind the part before it.
            text = text if text.endswith(alone) else alone
            if text:
                self._after[key] = text
        return text


class Detokenizer:
    """The text of an answer, piece by piece; a character whose bytes are in several tokens stays whole.

    Tokens are decoded together with those before them, since their text depends on these. What ends with an
    incomplete character waits for the next token.
    """

    def __init__(self, decoder: Decoder, prompt: Sequence[int] = ()) -> None:
        self._decoder = decoder
        self._tokens = list(prompt[-BEFORE:])
        # The text up to `_done` has been given out; decoding starts at `_from`.
        self._from, self._done = 0, len(self._tokens)
        self._waits = 0

    def push(self, tokens: Sequence[int]) -> str:
        """Return the text that these tokens complete."""
        self._tokens += tokens
        text = self._new()
        if text.endswith(_INCOMPLETE):
            self._waits += 1
            if self._waits < _LONGEST_WAIT:
                return ""
        self._waits = 0
        if text:
            self._from = self._done
        elif self._done - self._from > _LONGEST_WAIT:
            del self._tokens[self._done :]
        # How a token begins depends on those before it that have a text: special ones have none.
        self._done = len(self._tokens)
        return text

    def finish(self) -> str:
        """Return the rest of an answer that has ended, an incomplete character as U+FFFD."""
        text = self._new()
        self._done = len(self._tokens)
        return text

    def _new(self) -> str:
        if self._done == len(self._tokens):
            return ""
        before = self._decoder.decode(self._tokens[self._from : self._done])
        return self._decoder.decode(self._tokens[self._from :])[len(before) :]


class StopFinder:
    """A filter that ends a text before the first of some stop sequences.

    What may be the beginning of one is held back until it is known. A special token has no text; a sequence
    that names one is looked for in the text with such names, and these are never given out.
    """

    def __init__(self, stops: Sequence[str], special: Mapping[int, str] | None = None) -> None:
        """`special` are the names of the tokens without a text."""
        self._names = special or {}
        naming = [stop for stop in stops if any(name in stop for name in self._names.values())]
        self._stops = [stop for stop in stops if stop and stop not in naming]
        self._named = _NamedText(naming) if naming else None
        # What is held back, and how much has been given out.
        self._held, self._out = "", 0
        self.has_match = False

    def push(self, text: str, token: int | None = None) -> str:
        """Return what can be given out with a token and its text, nothing once there is a match."""
        if self.has_match:
            return ""
        self._held += text
        places = [place for stop in self._stops if (place := self._held.find(stop)) >= 0]
        cut = len(self._held) - _beginning(self._stops, self._held)
        if self._named is not None:
            match, first = self._named.push(text, "" if token is None else self._names.get(token, ""))
            places += [] if match is None else [match - self._out]
            cut = min(cut, first - self._out)
        if places:
            self.has_match = True
            cut = min(places)
        out, self._held = self._held[:cut], "" if places else self._held[cut:]
        self._out += cut
        return out

    def finish(self) -> str:
        """Return what was held back, at the end of the answer."""
        out, self._held = self._held, ""
        return out


class _NamedText:
    """The end of a text with the names of its special tokens, in which some stop sequences are looked for."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._text = ""
        # The place of its beginning in the text without names, and where in it those are.
        self._start = 0
        self._names: list[tuple[int, int]] = []

    def push(self, text: str, name: str) -> tuple[int | None, int]:
        """Return the place of the first sequence, None without one, and that of what may become one.

        Both are places in the text without names.
        """
        self._text += text + name
        if name:
            self._names.append((len(self._text) - len(name), len(self._text)))
        places = [place for stop in self._stops if (place := self._text.find(stop)) >= 0]
        needed = len(self._text) - _beginning(self._stops, self._text)
        match, first = self._place(min(places)) if places else None, self._place(needed)
        self._text, self._start = self._text[needed:], first
        self._names = [(max(a - needed, 0), b - needed) for a, b in self._names if b > needed]
        return match, first

    def _place(self, at: int) -> int:
        return self._start + at - sum(min(last, at) - first for first, last in self._names if first < at)


def _beginning(stops: Sequence[str], text: str) -> int:
    """Return the length of the longest end of a text with which a stop sequence begins."""
    longest = min(max(map(len, stops), default=1) - 1, len(text))
    return next(
        (size for size in range(longest, 0, -1) if any(stop.startswith(text[-size:]) for stop in stops)),
        0,
    )
