"""An answer as it comes: from a valid request to pieces of text, whichever of its ends comes first."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from ftserve.front import endings
from ftserve.front.detokenizing import BEFORE, Decoder, Detokenizer, StopFinder
from ftserve.front.statuses import TooLong
from ftserve.front.tensors import Ask
from ftserve.front.triton import NewTokens, Server

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


async def pieces(
    server: Server, decoder: Decoder, special: Mapping[int, str], request: Prepared
) -> AsyncGenerator[Piece, None]:
    """Yield the pieces of one answer; the last one, maybe empty, has the reason. Close it to stop early.

    The pieces are the same whether or not the model streams. `special` are the names of tokens that
    `decoder` gives no text.
    """
    ask, index = request.ask, request.index
    if not ask.length:
        yield Piece(index, "", 0, "length")
        return
    async with contextlib.AsyncExitStack() as call:
        begun = _Begun(server, request, call)
        tokens = await begun.next()
        before = ask.prompt[-BEFORE:] if request.repeats_prompt else ()
        text = Detokenizer(decoder, [int(token) for token in before])
        finder = StopFinder(request.stops, special) if request.stops else None
        seen, ended, ids, last = 0, False, [], None
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
                    out += finder.push(new, token) if seen > request.min_tokens else new
                    if finder.has_match:
                        ids = ids[: len(ids) - len(tokens) + at + 1]
                        yield Piece(index, out, seen, "stop", ids)
                        return
                seen += ended
            if out:
                yield Piece(index, out, seen, None, ids)
                ids = []
            last = tokens[-1] if ended else None
            tokens = None if ended else await begun.next()
    out = text.finish()
    if finder is not None:
        out = finder.push(out, last)
        out += "" if finder.has_match else finder.finish()
    # The server ends an answer early for its end or for a stop sequence alone.
    early = ended or (finder is not None and finder.has_match) or seen < begun.length
    yield Piece(index, out, seen, "stop" if early else "length", ids)


@dataclass
class _Begun:
    """The calls that an answer takes: one, or two where nothing may end its first tokens."""

    server: Server
    request: Prepared
    call: contextlib.AsyncExitStack
    _new_tokens: NewTokens | None = None
    _ids: list[int] = field(default_factory=list)
    # Whether no call follows the one that is under way.
    _last: bool = False

    def __post_init__(self) -> None:
        # The maximum of tokens, which the server may lower.
        self.length = self.request.ask.length

    async def next(self) -> list[int] | None:
        """Return new tokens, None at the end; Failure as the server's."""
        tokens = await (self._begin() if self._new_tokens is None else self._new_tokens())
        if tokens is None and not self._last:
            tokens = await self._rest()
        if self.request.min_tokens:
            self._ids += tokens or ()
        return tokens

    async def _begin(self) -> list[int] | None:
        ask, ends = self.request.ask, self.request.ends
        if not self.request.min_tokens:
            self._last = True
            return await self._fitting(ask)
        bans = {*ask.bans, *ends, *([] if ask.end_id is None else [ask.end_id])}
        return await self._call_server(
            replace(ask, length=self.request.min_tokens, bans=sorted(bans), stops=())
        )

    async def _rest(self) -> list[int] | None:
        """Return the first tokens of what follows those that nothing could end."""
        self._last, ask = True, self.request.ask
        if (left := ask.length - len(self._ids)) <= 0:
            return None
        rest = replace(ask, prompt=[*map(int, ask.prompt), *self._ids], length=left)
        try:
            return await self._fitting(rest)
        except TooLong as refused:
            if not self.request.fits or (refused.room or 0) > 0:
                raise
            # The tokens that were to come at least have filled all room.
            self.length = len(self._ids)
            return None

    async def _fitting(self, ask: Ask) -> list[int] | None:
        """Return the first tokens of an answer, which is shorter where the server has less room for it."""
        try:
            return await self._call_server(ask)
        except TooLong as refused:
            # The server knows a limit of positions that this service does not know.
            room = refused.room
            if not self.request.fits or not room or not 0 < room < ask.length:
                raise
        await self.call.aclose()
        self.length += room - ask.length
        return await self._call_server(replace(ask, length=room))

    async def _call_server(self, ask: Ask) -> list[int] | None:
        self._new_tokens = await self.call.enter_async_context(self.server.answer(ask))
        return await self._new_tokens()
