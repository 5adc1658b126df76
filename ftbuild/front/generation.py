"""From a prompt to the pieces of its answer: tokens, limits, stop sequences, reasons to finish."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from ftbuild.front import limits
from ftbuild.front.detokenizing import BEFORE, Detokenizer, Remembering, StopFinder
from ftbuild.front.failures import Failure, too_long
from ftbuild.front.sampling import Sampling
from ftbuild.front.statuses import TooLong
from ftbuild.front.tensors import STOP_WORDS, Array, Ask, Facts
from ftbuild.front.triton import NewTokens, Server
from ftbuild.front.workers import Workers

# OpenAI's default for completions; a conversation gets what the model can give.
COMPLETION_TOKENS = 16
# Where neither the model nor an option sets a limit.
_UNLIMITED_TOKENS = 1024
# Texts whose vectors are computed at once.
_ROWS = 32
Reason = Literal["stop", "length"]


class Piece(NamedTuple):
    """A piece of the answer `number`, the number of tokens so far, and at the end the reason for it."""

    number: int
    text: str
    tokens: int
    reason: Reason | None = None


@dataclass(frozen=True)
class Prepared:
    """A request for the answer `index` that the model may be asked for, and the sequences that end it.

    `fits`: its length is what should fit, as the client named none.
    """

    ask: Ask
    stops: Sequence[str]
    repeats_prompt: bool
    fits: bool = False
    index: int = 0


@dataclass(frozen=True)
class Wish:
    """What a client wishes of an answer, besides the prompt, whose name in the request is `param`.

    `longest` is the most tokens of it; without it an answer has `default`, or less where less fits, and as
    many as fit where that is None, too.
    """

    param: str
    longest: int | None
    sampling: Sampling
    stops: Sequence[str]
    default: int | None = None


class Model:
    """A served model with its tokenizer (of the library tokenizers)."""

    def __init__(
        self, server: Server, workers: Workers, tokenizer: Any, end_id: int | None, context: int | None
    ) -> None:
        """`context` is the most tokens of prompt and answer together, None where the server decides it.

        `tokenizer` makes text of tokens; tokens of text are the work of `workers`.
        """
        self._server = server
        self._workers = workers
        self._decoder = Remembering(tokenizer)
        self._end_id = end_id
        self._context = context

    async def of_texts(self, prompts: Sequence[str], wish: Wish) -> list[Prepared]:
        """Return the requests for answers to texts; Failure as `of_rows`."""
        facts = await self._generating()
        most = self._most(facts)
        found = await self._workers.texts(prompts, wish.param, stops=wish.stops, most=most)
        self._require_room(found.lengths, most, wish.param)
        return [self._prepared(facts, row, wish, found.words) for row in found.rows]

    async def of_messages(self, messages: Sequence[Mapping[str, str]], wish: Wish) -> list[Prepared]:
        """Return the request for the answer to a conversation; Failure as `of_texts`."""
        facts = await self._generating()
        most = self._most(facts)
        found = await self._workers.conversation(messages, stops=wish.stops, most=most)
        self._require_room(found.lengths, most, wish.param)
        return [self._prepared(facts, row, wish, found.words) for row in found.rows]

    async def of_rows(self, rows: Sequence[Sequence[int]], wish: Wish) -> list[Prepared]:
        """Return the requests for answers to rows of token ids.

        Raises Failure (400) when the model cannot honour the wish, (503) when it is not there.
        """
        facts = await self._generating()
        self._require_room(list(map(len, rows)), self._most(facts), wish.param)
        words = (await self._workers.texts([], wish.param, stops=wish.stops)).words if wish.stops else []
        return [self._prepared(facts, row, wish, words) for row in rows]

    async def vectors(self, inputs: Sequence[str] | Sequence[Sequence[int]]) -> tuple[list[Array], int]:
        """Return a vector of each text or row of token ids, in their order, and the number of their tokens.

        Raises Failure (400) when the model makes none, or an input has no token or too many.
        """
        facts = await self._server.facts()
        if not facts.embeds:
            raise Failure(
                400, "the model generates text and has no embeddings", param="model", code="unsupported_model"
            )
        rows: Sequence[Sequence[int] | Array] = inputs  # type: ignore[assignment]
        most = min(self._context or limits.MOST_TOKENS, limits.MOST_TOKENS)
        if isinstance(inputs[0], str):
            found = await self._workers.texts(inputs, "input", most=most)  # type: ignore[arg-type]
            lengths, rows = found.lengths, found.rows
        else:
            lengths = list(map(len, rows))
        if not all(lengths):
            raise Failure(400, "input: a text without tokens", param="input")
        if max(lengths) > most:
            raise too_long(
                f"{max(lengths)} tokens of an input are more than the {most} of the model's context", "input"
            )
        # Texts of like length are computed together, as all of a request are padded to the longest.
        order = sorted(range(len(rows)), key=lambda number: lengths[number])
        size = min(facts.most_rows, _ROWS)
        vectors: dict[int, Array] = {}
        for start in range(0, len(order), size):
            part = order[start : start + size]
            made = await self._server.vectors([rows[number] for number in part])
            vectors |= dict(zip(part, made, strict=True))
        return [vectors[number] for number in range(len(rows))], sum(lengths)

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
        async with contextlib.AsyncExitStack() as call:
            ask, new_tokens, tokens = await self._begun(request, call)
            index, before = request.index, ask.prompt[-BEFORE:] if request.repeats_prompt else ()
            text = Detokenizer(self._decoder, [int(token) for token in before])
            finder = StopFinder(request.stops) if request.stops else None
            seen, ended = 0, False
            while tokens is not None:
                ended = bool(tokens) and tokens[-1] == ask.end_id
                if finder is None:
                    seen += len(tokens)
                    out = text.push(tokens[:-1] if ended else tokens)
                else:
                    out = ""
                    for token in tokens[:-1] if ended else tokens:
                        seen += 1
                        out += finder.push(text.push([token]))
                        if finder.found:
                            yield Piece(index, out, seen, "stop")
                            return
                    seen += ended
                if out:
                    yield Piece(index, out, seen)
                tokens = await new_tokens()
        out = text.finish()
        if finder is not None:
            out = finder.push(out)
            out += "" if finder.found else finder.finish()
        # The server ends an answer early for its end or for a stop sequence alone.
        early = ended or (finder is not None and finder.found) or seen < ask.length
        yield Piece(index, out, seen, "stop" if early else "length")

    async def _begun(
        self, request: Prepared, call: contextlib.AsyncExitStack
    ) -> tuple[Ask, NewTokens, list[int] | None]:
        """Ask the server; return what it was asked for, and its first tokens."""
        ask = request.ask
        new_tokens = await call.enter_async_context(self._server.answer(ask))
        try:
            return ask, new_tokens, await new_tokens()
        except TooLong as refused:
            # The server knows positions that this service has not been told of.
            room = refused.room
            if not request.fits or not room or not 0 < room < ask.length:
                raise
        await call.aclose()
        return await self._begun(replace(request, ask=replace(ask, length=room), fits=False), call)

    async def _generating(self) -> Facts:
        facts = await self._server.facts()
        if not facts.generates:
            raise Failure(
                400, "the model makes vectors and generates no text", param="model", code="unsupported_model"
            )
        return facts

    def _most(self, facts: Facts) -> int:
        """Return the most tokens of a prompt, which with one token of an answer fills all room."""
        known = [most - 1 for most in (self._context, facts.batch_tokens) if most is not None]
        return max(min([*known, limits.MOST_TOKENS]), 0)

    def _require_room(self, lengths: Sequence[int], most: int, param: str) -> None:
        longest = max(lengths, default=0)
        if longest > most:
            raise too_long(
                f"{longest} tokens of the prompt and 1 of the answer are more than the {most + 1} of the "
                "model's context",
                param,
            )

    def _prepared(
        self, facts: Facts, prompt: Sequence[int] | Array, wish: Wish, words: Sequence[Sequence[int]]
    ) -> Prepared:
        if not len(prompt):
            raise Failure(400, f"{wish.param}: no token to continue", param=wish.param)
        length = self._length(facts, len(prompt), wish)
        options = wish.sampling.inputs(facts.inputs, facts.seed_type)
        ask = Ask(prompt, length, self._end_id, options, words if STOP_WORDS in facts.inputs else ())
        return Prepared(ask, wish.stops, facts.repeats_prompt, fits=wish.longest is None)

    def _length(self, facts: Facts, prompt: int, wish: Wish) -> int:
        """Return the most tokens of an answer to a prompt of so many tokens."""
        rooms = []
        if self._context is not None:
            # The positions of an encoder are not those of its decoder.
            rooms.append(self._context - (prompt if facts.repeats_prompt else 0))
        if facts.batch_tokens is not None:
            rooms.append(facts.batch_tokens - prompt)
        room = min(rooms, default=None)
        if room is not None and room < (wish.longest or 1):
            raise too_long(
                f"{prompt} tokens of the prompt and {wish.longest or 1} of the answer are more than the "
                f"{room + prompt} of the model's context",
                wish.param,
            )
        if facts.longest_answer is not None and (wish.longest or 1) > facts.longest_answer:
            raise Failure(
                400,
                f"max_tokens: this server generates at most {facts.longest_answer} tokens",
                param="max_tokens",
            )
        if wish.longest is not None:
            return wish.longest
        known = [each for each in (room, facts.longest_answer) if each is not None]
        return min(*known, wish.default or known[0]) if known else wish.default or _UNLIMITED_TOKENS
