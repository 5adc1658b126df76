"""From a prompt to the request for its answer: tokens, limits, what ends it; and ratings, and vectors."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ftserve.front import answering, endings, limits
from ftserve.front.answering import Piece, Prepared
from ftserve.front.detokenizing import BEFORE, Detokenizer, Remembering
from ftserve.front.failures import Failure, too_long
from ftserve.front.rating import Rater, require_ratings
from ftserve.front.sampling import Sampling
from ftserve.front.tensors import STOP_WORDS, Array, Ask, Facts
from ftserve.front.triton import Server
from ftserve.front.workers import Workers

# OpenAI's default for completions; a conversation gets what the model can give.
COMPLETION_TOKENS = 16
# Where neither the model nor an option sets a limit.
_UNLIMITED_TOKENS = 1024
# Texts whose vectors are computed at once.
_ROWS = 32


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

    @property
    def first(self) -> int:
        """1, as an answer has at least one token, or 0 where only the prompt is rated."""
        return 0 if self.longest == 0 else 1


@dataclass(frozen=True)
class Rates:
    """Which tokens a client wants rated, by the name of its parameter: those of the prompt as well if so.

    `top` is how many of the best tokens are listed beside each.
    """

    param: str
    top: int
    prompt: bool = False


class Spelled(NamedTuple):
    """A token as text, its log-probability, and the best tokens at its place with their log-probabilities.

    `width` counts the characters that the text grows by with it: none for a special token, nor for the
    beginning of a character.
    """

    text: str
    log_prob: float | None
    top: tuple[tuple[str, float], ...] = ()
    width: int = 0


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
        added = tokenizer.get_added_tokens_decoder()
        self._special = {number: token.content for number, token in added.items() if token.special}
        self._rater = Rater(server, end_id)
        self._end_id = end_id
        self._context = context

    async def of_texts(self, prompts: Sequence[str], wish: Wish) -> list[Prepared]:
        """Return the requests for answers to texts; Failure as `of_rows`."""
        facts = await self._generating()
        limit = self._max_prompt(facts, wish)
        encoding = await self._workers.texts(prompts, wish.param, stops=wish.stops, limit=limit)
        self._require_room(encoding.lengths, limit, wish)
        return [self._prepared(facts, row, wish, encoding.words) for row in encoding.rows]

    async def of_messages(self, messages: Sequence[Mapping[str, str]], wish: Wish) -> list[Prepared]:
        """Return the request for the answer to a conversation; Failure as `of_texts`."""
        facts = await self._generating()
        limit = self._max_prompt(facts, wish)
        encoding = await self._workers.conversation(messages, stops=wish.stops, limit=limit)
        self._require_room(encoding.lengths, limit, wish)
        return [self._prepared(facts, row, wish, encoding.words) for row in encoding.rows]

    async def of_rows(self, rows: Sequence[Sequence[int]], wish: Wish) -> list[Prepared]:
        """Return the requests for answers to rows of token ids.

        Raises Failure (400) when the model cannot honour the wish, (503) when it is not there.
        """
        facts = await self._generating()
        self._require_room(list(map(len, rows)), self._max_prompt(facts, wish), wish)
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

    def pieces(self, request: Prepared) -> AsyncGenerator[Piece, None]:
        """Yield the pieces of one answer, as `answering.pieces`."""
        return answering.pieces(self._server, self._decoder, self._special, request)

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

    def text_after(self, before: Sequence[int]) -> Detokenizer:
        """Return the text of an answer that follows some tokens, to be pushed token by token."""
        return Detokenizer(self._decoder, before)

    async def rated(
        self, row: Sequence[int] | Array, start: int, top: int, text: Detokenizer
    ) -> list[Spelled]:
        """Return the log-probabilities of the tokens of a row from `start` on, which the `text` grows by.

        Failure as the server's.
        """
        spelled = []
        for place, rating in enumerate(await self._rater.rated(row, start, top), start):
            before = [int(token) for token in row[max(place - BEFORE, 0) : place]]
            best = tuple((self._text_of(token, before), log_prob) for token, log_prob in rating.top)
            width = len(text.push([rating.token]))
            spelled.append(Spelled(self._text_of(rating.token, before), rating.log_prob, best, width))
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

    def _max_prompt(self, facts: Facts, wish: Wish) -> int:
        """Return the maximum tokens of a prompt, which fill the context with the first one of its answer."""
        known = [limit - wish.first for limit in (self._context, facts.batch_tokens) if limit is not None]
        return max(min([*known, limits.MAX_TOKENS]), 0)

    def _require_room(self, lengths: Sequence[int], limit: int, wish: Wish) -> None:
        longest = max(lengths, default=0)
        if longest > limit:
            raise too_long(
                f"{longest} tokens of the prompt and {wish.first} of the answer are more than the "
                f"{limit + wish.first} of the model's context",
                wish.param,
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
        return Prepared(
            ask,
            wish.stops,
            facts.repeats_prompt,
            fits=wish.longest is None,
            ends=ends,
            min_tokens=wish.min_tokens,
        )

    def _length(self, facts: Facts, prompt: int, wish: Wish) -> int:
        """Return the maximum tokens of an answer to a prompt of so many tokens."""
        length = max(wish.min_tokens, 1) if wish.longest is None else wish.longest
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
            name = "max_tokens" if wish.longest is not None else "min_tokens"
            raise Failure(
                400, f"{name}: this server generates at most {facts.longest_answer} tokens", param=name
            )
        if wish.longest is not None:
            return wish.longest
        known = [each for each in (room, facts.longest_answer) if each is not None]
        return min(
            [*known, *([wish.default] if wish.default else [])], default=max(_UNLIMITED_TOKENS, length)
        )
