"""From a prompt to the pieces of its answer: tokens, limits, stop sequences, reasons to finish."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ftbuild.front.detokenizing import Detokenizer, StopFinder
from ftbuild.front.failures import Failure
from ftbuild.front.sampling import Sampling
from ftbuild.front.tensors import STOP_WORDS, Array, Ask, Facts
from ftbuild.front.triton import Server

# OpenAI's default for completions; a conversation gets what the model can give.
COMPLETION_TOKENS = 16
# Where neither the model nor an option sets a limit.
_UNLIMITED_TOKENS = 1024
# Texts whose vectors are computed at once.
_ROWS = 32
Reason = Literal["stop", "length"]


@dataclass(frozen=True)
class Piece:
    """A piece of an answer, the number of tokens computed so far, and at the end the reason for it."""

    text: str
    tokens: int
    reason: Reason | None = None


@dataclass(frozen=True)
class Prepared:
    """A request for one answer that the model may be asked for, and the sequences that end it."""

    ask: Ask
    stops: Sequence[str]
    repeats_prompt: bool


class Model:
    """A served model with its tokenizer (of the library tokenizers)."""

    def __init__(self, server: Server, tokenizer: Any, end_id: int | None, context: int | None) -> None:
        """`context` is the most tokens of prompt and answer together, None where the server decides it."""
        self._server = server
        self._tokenizer = tokenizer
        self._end_id = end_id
        self._context = context

    async def encoded(self, text: str, param: str, *, special: bool = True) -> list[int]:
        """Return the tokens of a text, with those that the tokenizer adds if `special`."""
        try:
            # In a thread: a long text would hold up all others.
            encoding = await asyncio.to_thread(self._tokenizer.encode, text, add_special_tokens=special)
        except (TypeError, UnicodeError):
            # JSON can hold half of a surrogate pair.
            raise Failure(400, f"{param}: not valid Unicode", param=param) from None
        ids: list[int] = encoding.ids
        return ids

    async def prepared(
        self,
        prompt: Sequence[int],
        longest: int | None,
        sampling: Sampling,
        stops: Sequence[str],
        *,
        param: str,
    ) -> Prepared:
        """Return a request; Failure (400) when the model cannot honour it, (503) when it is not there.

        `longest` is the most tokens of the answer, None for as many as fit.
        """
        facts = await self._server.facts()
        if not facts.generates:
            raise Failure(
                400, "the model makes vectors and generates no text", param="model", code="unsupported_model"
            )
        if not prompt:
            raise Failure(400, f"{param}: no token to continue", param=param)
        length = self._length(facts, len(prompt), longest, param)
        options = sampling.inputs(facts.inputs, facts.seed_type)
        words = [word for stop in stops if (word := self._word(stop))] if STOP_WORDS in facts.inputs else []
        ask = Ask(prompt, length, self._end_id, options, words)
        return Prepared(ask, stops, facts.repeats_prompt)

    async def vectors(self, rows: Sequence[Sequence[int]]) -> list[Array]:
        """Return a vector of each row of token ids, in their order.

        Raises Failure (400) when the model makes none, or a row has no token or too many.
        """
        facts = await self._server.facts()
        if not facts.embeds:
            raise Failure(
                400, "the model generates text and has no embeddings", param="model", code="unsupported_model"
            )
        for row in rows:
            if not row:
                raise Failure(400, "input: a text without tokens", param="input")
            if self._context is not None and len(row) > self._context:
                raise Failure(
                    400,
                    f"{len(row)} tokens of an input are more than the {self._context} of the model's context",
                    param="input",
                    code="context_length_exceeded",
                )
        # Texts of like length are computed together, as all of a request are padded to the longest.
        order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
        size = min(facts.most_rows, _ROWS)
        found: dict[int, Array] = {}
        for start in range(0, len(order), size):
            part = order[start : start + size]
            vectors = await self._server.vectors([rows[number] for number in part])
            found |= dict(zip(part, vectors, strict=True))
        return [found[number] for number in range(len(rows))]

    async def another(self, first: Prepared, sampling: Sampling, number: int) -> Prepared:
        """Return the request for one more answer to the same prompt, with a seed of its own."""
        facts = await self._server.facts()
        return replace(
            first, ask=replace(first.ask, options=sampling.inputs(facts.inputs, facts.seed_type, number))
        )

    async def pieces(self, request: Prepared) -> AsyncGenerator[Piece, None]:
        """Yield the pieces of one answer; the last one, maybe empty, has the reason. Close it to stop early.

        The pieces are the same whether or not the model streams.
        """
        ask = request.ask
        text = Detokenizer(self._tokenizer, ask.prompt if request.repeats_prompt else ())
        finder = StopFinder(request.stops)
        seen, ended = 0, False
        async with contextlib.aclosing(self._server.answer(ask)) as answers:
            async for tokens in answers:
                out = ""
                for token in tokens[seen:]:
                    seen, ended = seen + 1, token == ask.end_id
                    out += "" if ended else finder.push(text.push([token]))
                    if finder.found:
                        yield Piece(out, seen, "stop")
                        return
                if out:
                    yield Piece(out, seen)
        out = finder.push(text.finish())
        if not finder.found:
            out += finder.finish()
        # The server ends an answer early for its end or for a stop sequence alone.
        early = ended or finder.found or seen < ask.length
        yield Piece(out, seen, "stop" if early else "length")

    def _length(self, facts: Facts, prompt: int, longest: int | None, param: str) -> int:
        if facts.repeats_prompt and self._context is not None:
            room = self._context - prompt
            if room < (longest or 1):
                raise Failure(
                    400,
                    f"{prompt} tokens of the prompt and {longest or 1} of the answer are more than the "
                    f"{self._context} of the model's context",
                    param=param,
                    code="context_length_exceeded",
                )
        else:
            room = _UNLIMITED_TOKENS if facts.longest_answer is None else facts.longest_answer
        if facts.longest_answer is not None and (longest or 1) > facts.longest_answer:
            raise Failure(
                400,
                f"max_tokens: this server generates at most {facts.longest_answer} tokens",
                param="max_tokens",
            )
        return longest or min(room, facts.longest_answer or room)

    def _word(self, stop: str) -> list[int]:
        """Return a stop sequence that is exactly one token, by which the server can end an answer itself.

        More tokens would keep requests from being computed together, and a text can be made of other ones.
        """
        ids: list[int] = self._tokenizer.encode(stop, add_special_tokens=False).ids
        return ids if len(ids) == 1 and self._tokenizer.decode(ids) == stop else []
