"""From a prompt to the pieces of its answer: tokens, limits, stop sequences, reasons to finish."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from ftserve.front import endings, limits
from ftserve.front.detokenizing import BEFORE, Detokenizer, Remembering, StopFinder
from ftserve.front.failures import Failure, too_long
from ftserve.front.rating import Rater, require_ratings
from ftserve.front.sampling import Sampling
from ftserve.front.statuses import TooLong
from ftserve.front.tensors import STOP_WORDS, Array, Ask, Facts
from ftserve.front.triton import NewTokens, Server
from ftserve.front.workers import Workers

# OpenAI's default for completions; a conversation gets what the model can give.
COMPLETION_TOKENS = 16
# Where neither the model nor an option sets a limit.
_UNLIMITED_TOKENS = 1024
# Texts whose vectors are computed at once.
_ROWS = 32
Reason = Literal["stop", "length"]


class Piece(NamedTuple):
    """A piece of the answer `number`, the number of tokens so far, and at the end the reason for it.

    `ids` are the tokens that were made since the piece before.
    """

    number: int
    text: str
    tokens: int
    reason: Reason | None = None
    ids: Sequence[int] = ()


@dataclass(frozen=True)
class Prepared:
    """A valid request for the answer `index`, and the texts that end it.

    `fits`: its length is what should fit, as the client named none. `ends` are tokens that end it, too;
    before `min_tokens` nothing does.
    """

    ask: Ask
    stops: Sequence[str]
    repeats_prompt: bool
    fits: bool = False
    index: int = 0
    ends: frozenset[int] = frozenset()
    min_tokens: int = 0


@dataclass(frozen=True)
class Wish:
    """The options of an answer; `param` is the name of the prompt in the request.

    `longest` is its maximum of tokens; without it an answer has `default`, or less where less fits, and as
    many as fit where that is None, too. It ends with a token of `ends` as well, not before `min_tokens`,
    and by its length alone if it is `endless`.
    """

    param: str
    longest: int | None
    sampling: Sampling
    stops: Sequence[str]
    default: int | None = None
    ends: Sequence[int] = ()
    min_tokens: int = 0
    endless: bool = False


@dataclass(frozen=True)
class Rates:
    """Which tokens a client wants rated, by the name of its parameter: those of the prompt as well if so.

    `top` is how many of the best tokens are listed beside each.
    """

    param: str
    top: int
    prompt: bool = False


class Spelled(NamedTuple):
    """A token as text, its log-probability, and the best tokens at its place with their log-probabilities."""

    text: str
    log_prob: float | None
    top: tuple[tuple[str, float], ...] = ()


class Model:
    """A served model with its tokenizer (of the library tokenizers)."""

    def __init__(
        self, server: Server, workers: Workers, tokenizer: Any, end_id: int | None, context: int | None
    ) -> None:
        """`context` is the context length, None where the server decides it.

        `tokenizer` makes text of tokens; tokens of text are the work of `workers`.
        """
        self._server = server
        self._workers = workers
        self._tokenizer = tokenizer
        self._decoder = Remembering(tokenizer)
        self._rater = Rater(server, end_id)
        self._end_id = end_id
        self._context = context

    async def of_texts(self, prompts: Sequence[str], wish: Wish) -> list[Prepared]:
        """Return the requests for answers to texts; Failure as `of_rows`."""
        facts = await self._generating()
        limit = self._max_prompt(facts)
        encoding = await self._workers.texts(prompts, wish.param, stops=wish.stops, limit=limit)
        self._require_room(encoding.lengths, limit, wish.param)
        return [self._prepared(facts, row, wish, encoding.words) for row in encoding.rows]

    async def of_messages(self, messages: Sequence[Mapping[str, str]], wish: Wish) -> list[Prepared]:
        """Return the request for the answer to a conversation; Failure as `of_texts`."""
        facts = await self._generating()
        limit = self._max_prompt(facts)
        encoding = await self._workers.conversation(messages, stops=wish.stops, limit=limit)
        self._require_room(encoding.lengths, limit, wish.param)
        return [self._prepared(facts, row, wish, encoding.words) for row in encoding.rows]

    async def of_rows(self, rows: Sequence[Sequence[int]], wish: Wish) -> list[Prepared]:
        """Return the requests for answers to rows of token ids.

        Raises Failure (400) when the model cannot honour the wish, (503) when it is not there.
        """
        facts = await self._generating()
        self._require_room(list(map(len, rows)), self._max_prompt(facts), wish.param)
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
        limit = min(self._context or limits.MAX_TOKENS, limits.MAX_TOKENS)
        if isinstance(inputs[0], str):
            encoding = await self._workers.texts(inputs, "input", limit=limit)  # type: ignore[arg-type]
            lengths, rows = encoding.lengths, encoding.rows
        else:
            lengths = list(map(len, rows))
        if not all(lengths):
            raise Failure(400, "input: a text without tokens", param="input")
        if max(lengths) > limit:
            raise too_long(
                f"{max(lengths)} tokens of an input exceed the model's context length of {limit}", "input"
            )
        # Texts of similar length form a batch, as all of a request are padded to the longest.
        order = sorted(range(len(rows)), key=lambda number: lengths[number])
        size = min(facts.max_rows, _ROWS)
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
        if not request.ask.length:
            yield Piece(request.index, "", 0, "length")
            return
        async with contextlib.AsyncExitStack() as call:
            ask, new_tokens, tokens = await self._begun(request, call)
            index, before = request.index, ask.prompt[-BEFORE:] if request.repeats_prompt else ()
            text = Detokenizer(self._decoder, [int(token) for token in before])
            finder = StopFinder(request.stops) if request.stops else None
            seen, ended, ids = 0, False, []
            while tokens is not None:
                if request.ends:
                    tokens = endings.to_end(tokens, request.ends, request.min_tokens - seen)
                ended = bool(tokens) and (tokens[-1] == ask.end_id or tokens[-1] in request.ends)
                ids += tokens
                if finder is None:
                    seen += len(tokens)
                    out = text.push(tokens[:-1] if ended else tokens)
                else:
                    out = ""
                    for at, token in enumerate(tokens[:-1] if ended else tokens):
                        seen += 1
                        new = text.push([token])
                        out += finder.push(new) if seen > request.min_tokens else new
                        if finder.has_match:
                            ids = ids[: len(ids) - len(tokens) + at + 1]
                            yield Piece(index, out, seen, "stop", ids)
                            return
                    seen += ended
                if out:
                    yield Piece(index, out, seen, None, ids)
                    ids = []
                tokens = None if ended else await new_tokens()
        out = text.finish()
        if finder is not None:
            out = finder.push(out)
            out += "" if finder.has_match else finder.finish()
        # The server ends an answer early for its end or for a stop sequence alone.
        early = ended or (finder is not None and finder.has_match) or seen < ask.length
        yield Piece(index, out, seen, "stop" if early else "length", ids)

    async def require_ratings(self, requests: Sequence[Prepared], rates: Rates, *, any_token: bool) -> None:
        """Raise Failure (400) unless tokens of answers, and of prompts if requested, can be rated."""
        require_ratings(await self._server.facts(), rates.param, any_token=any_token)
        rated = sum(
            (len(request.ask.prompt) if rates.prompt else 0) + request.ask.length for request in requests
        )
        if rated > limits.MAX_RATED:
            raise Failure(
                400,
                f"{rates.param}: {rated} tokens to rate, and at most {limits.MAX_RATED} in a request",
                param=rates.param,
            )

    async def rated(self, row: Sequence[int] | Array, start: int, top: int) -> list[Spelled]:
        """Return the log-probabilities of the tokens of a row from `start` on; Failure as the server's."""
        spelled = []
        for place, rating in enumerate(await self._rater.rated(row, start, top), start):
            before = [int(token) for token in row[max(place - BEFORE, 0) : place]]
            best = tuple((self._text_of(token, before), log_prob) for token, log_prob in rating.top)
            spelled.append(Spelled(self._text_of(rating.token, before), rating.log_prob, best))
        return spelled

    def text(self, row: Sequence[int] | Array) -> str:
        """Return the text of a row of token ids, without special ones."""
        return self._decoder.decode([int(token) for token in row])

    def _text_of(self, token: int, before: Sequence[int]) -> str:
        """Return the text of one token, by its name if it is a special one, or none of the tokenizer's."""
        text = self._decoder.after(before, token)
        return text or self._tokenizer.id_to_token(token) or f"token_id:{token}"

    async def context_length(self) -> int | None:
        """Return the context length, None where it is unknown; Failure (503)."""
        known = [
            limit for limit in (self._context, (await self._server.facts()).batch_tokens) if limit is not None
        ]
        return min(known, default=None)

    async def _begun(
        self, request: Prepared, call: contextlib.AsyncExitStack
    ) -> tuple[Ask, NewTokens, list[int] | None]:
        """Ask the server; return the request, and its first tokens."""
        if request.min_tokens:
            return await self._begun_without_end(request, call)
        ask = request.ask
        new_tokens = await call.enter_async_context(self._server.answer(ask))
        try:
            return ask, new_tokens, await new_tokens()
        except TooLong as refused:
            # The server knows a limit of positions that this service does not know.
            room = refused.room
            if not request.fits or not room or not 0 < room < ask.length:
                raise
        await call.aclose()
        return await self._begun(replace(request, ask=replace(ask, length=room), fits=False), call)

    async def _begun_without_end(
        self, request: Prepared, call: contextlib.AsyncExitStack
    ) -> tuple[Ask, NewTokens, list[int] | None]:
        """Ask for the minimum of tokens first, none of which may be an end, and then for the rest."""
        ask = request.ask
        ends = {*ask.bans, *request.ends, *([] if ask.end_id is None else [ask.end_id])}
        beginning = replace(ask, length=request.min_tokens, bans=sorted(ends), stops=())
        new_tokens = await call.enter_async_context(self._server.answer(beginning))
        first = await new_tokens()
        ids = list(first or ())
        follows = False

        async def next_tokens() -> list[int] | None:
            nonlocal new_tokens, follows
            tokens = await new_tokens()
            if tokens is not None or follows:
                ids.extend(tokens or ())
                return tokens
            follows, left = True, ask.length - len(ids)
            if not left:
                return None
            rest = replace(ask, prompt=[*map(int, ask.prompt), *ids], length=left)
            new_tokens = await call.enter_async_context(self._server.answer(rest))
            return await new_tokens()

        return ask, next_tokens, first

    async def _generating(self) -> Facts:
        facts = await self._server.facts()
        if not facts.generates:
            raise Failure(
                400,
                "the model returns embeddings and generates no text",
                param="model",
                code="unsupported_model",
            )
        return facts

    def _max_prompt(self, facts: Facts) -> int:
        """Return the maximum tokens of a prompt, which with one token of an answer fill the context."""
        known = [limit - 1 for limit in (self._context, facts.batch_tokens) if limit is not None]
        return max(min([*known, limits.MAX_TOKENS]), 0)

    def _require_room(self, lengths: Sequence[int], limit: int, param: str) -> None:
        longest = max(lengths, default=0)
        if longest > limit:
            raise too_long(
                f"{longest} tokens of the prompt and 1 of the answer are more than the {limit + 1} of the "
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
        # What the model does not have does not come, and the server would refuse the request.
        words = [word for word in words if facts.vocabulary is None or max(word) < facts.vocabulary]
        ends = frozenset((*wish.ends, *endings.special(words, self._decoder)))
        words = [*words, *([token] for token in wish.ends)] if STOP_WORDS in facts.inputs else ()
        bans = endings.banned(facts, self._end_id, ends, endless=wish.endless, least=wish.min_tokens)
        ask = Ask(prompt, length, self._end_id, options, words, bans)
        min_tokens = min(wish.min_tokens, length)
        return Prepared(
            ask,
            wish.stops,
            facts.repeats_prompt,
            fits=wish.longest is None,
            ends=ends,
            min_tokens=min_tokens,
        )

    def _length(self, facts: Facts, prompt: int, wish: Wish) -> int:
        """Return the maximum tokens of an answer to a prompt of so many tokens."""
        length = 1 if wish.longest is None else wish.longest
        rooms = []
        if self._context is not None:
            # The positions of an encoder are not those of its decoder.
            rooms.append(self._context - (prompt if facts.repeats_prompt else 0))
        if facts.batch_tokens is not None:
            rooms.append(facts.batch_tokens - prompt)
        room = min(rooms, default=None)
        if room is not None and room < length:
            raise too_long(
                f"{prompt} tokens of the prompt and {length} of the answer are more than the "
                f"{room + prompt} of the model's context",
                wish.param,
            )
        if facts.longest_answer is not None and length > facts.longest_answer:
            raise Failure(
                400,
                f"max_tokens: this server generates at most {facts.longest_answer} tokens",
                param="max_tokens",
            )
        if wish.longest is not None:
            return wish.longest
        known = [each for each in (room, facts.longest_answer) if each is not None]
        return min(*known, wish.default or known[0]) if known else wish.default or _UNLIMITED_TOKENS
