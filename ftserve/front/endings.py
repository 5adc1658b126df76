"""Which tokens end an answer, and which must not come in it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ftserve.front.detokenizing import Decoder
from ftserve.front.failures import unsupported
from ftserve.front.tensors import BAD_WORDS, NEVER_BANNED, Facts


def special(words: Sequence[Sequence[int]], decoder: Decoder) -> list[int]:
    """Return those of the stop words that are tokens without a text: no text of an answer ever has them."""
    return [word[0] for word in words if not decoder.decode(word)]


def banned(
    facts: Facts, end_id: int | None, ends: Collection[int], *, endless: bool, least: int
) -> list[int]:
    """Return the tokens that must not come at all; Failure (400) where those to ban cannot be banned.

    `endless`: no end of the model's own may come; `least`: nor any of `ends` before so many tokens.
    """
    own = {end_id} - {None}
    for name, tokens in (
        ("ignore_eos", own if endless else None),
        ("min_tokens", own | {*ends} if least else None),
    ):
        if tokens is None:
            continue
        if end_id is None:
            raise unsupported(name, "this service does not know which token ends an answer: --end-id")
        if BAD_WORDS not in facts.inputs:
            raise unsupported(name, f"this model has no input {BAD_WORDS}")
        if NEVER_BANNED in tokens:
            raise unsupported(
                name, f"an answer ends with the token {NEVER_BANNED}, which the backend never bans"
            )
    if least and not facts.repeats_prompt:
        raise unsupported("min_tokens", "an encoder-decoder cannot continue the beginning of an answer")
    return [end_id] if endless and end_id is not None else []


def to_end(tokens: list[int], ends: Collection[int], free: int) -> list[int]:
    """Return the tokens up to the first that ends the answer, which none of the `free` first ones does."""
    at = next((at for at, token in enumerate(tokens) if token in ends and at >= free), len(tokens))
    return tokens[: at + 1]
