"""The HTTP application: OpenAI's paths, each from a request's body to an answer's."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope

from ftserve import front
from ftserve.front import bodies, cors, formats, limits
from ftserve.front.answering import Piece, Prepared
from ftserve.front.failures import Failure, too_long, unavailable
from ftserve.front.formats import Chats, Completions, Envelope, Stream, Usage, Whole
from ftserve.front.generation import COMPLETION_TOKENS, Model, Rates, Spelled
from ftserve.front.guard import Answering, Guard, header
from ftserve.front.leaving import Events, Parts, unless_gone
from ftserve.front.metrics import Metrics
from ftserve.front.places import Bodies, Places
from ftserve.front.requests import (
    Chat,
    Completion,
    Detokenize,
    Embeddings,
    Generation,
    OldCompletion,
    Tokenize,
)
from ftserve.front.settings import Settings
from ftserve.front.together import end, together
from ftserve.front.triton import Server
from ftserve.front.workers import Workers

B = TypeVar("B", bound=BaseModel)


def make(settings: Settings) -> ASGIApp:
    """Return the application; it connects when it starts."""
    counting = Metrics(settings.name)
    service = Service(settings, counting)
    created = int(time.time())
    places, held = Places(settings.max_requests), Bodies(settings.max_bytes)

    async def health(request: Request) -> Response:
        if not await service.ready():
            raise unavailable("the Triton server does not serve the model")
        return JSONResponse({"status": "ok"})

    async def models(request: Request) -> Response:
        entry = formats.model(settings.name, created, await service.context_length())
        return JSONResponse({"object": "list", "data": [entry]})

    async def described(request: Request) -> Response:
        name = settings.named(request.path_params["name"])
        return JSONResponse(formats.model(name, created, await service.context_length()))

    async def tokenizer(request: Request) -> Response:
        # Clients that look for an end token find that there is none.
        return JSONResponse({"eos_token": None, **settings.special})

    def post(path: str, form: type[B], answer: Callable[[Receive, str, B], Awaitable[ASGIApp]]) -> Route:
        async def answered(scope: Scope, receive: Receive, content: bytes) -> ASGIApp:
            body = bodies.read(form, header(scope, b"content-type").decode("latin-1"), content)
            # In the path by the oldest form of the API, else in the body; there is one.
            name = settings.named(scope.get("path_params", {}).get("name") or getattr(body, "model", None))
            return await answer(receive, name, body)

        return Route(path, Answering(answered, places, held, settings.max_bytes), methods=["POST"])

    @asynccontextmanager
    async def running(_: Any) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.close()

    routes = Router(
        [
            Route("/health", health),
            Route("/version", version),
            Route("/tokenizer_info", tokenizer),
            Route("/metrics", counting.text),
            post("/tokenize", Tokenize, service.tokenize),
            post("/detokenize", Detokenize, service.detokenize),
            Route("/v1/models", models),
            Route("/v1/models/{name:path}", described),
            post("/v1/completions", Completion, service.complete),
            post("/v1/engines/{name:path}/completions", OldCompletion, service.complete),
            post("/v1/chat/completions", Chat, service.chat),
            post("/v1/embeddings", Embeddings, service.embed),
        ],
        redirect_slashes=False,
        lifespan=running,
    )
    return cors.allowing(settings.origins, Guard(routes, settings.keys, counting))


async def version(request: Request) -> Response:
    """Return the version of the front."""
    return JSONResponse({"version": front.__version__})


@dataclass(frozen=True)
class AnswerRequest:
    """A request for an answer, what its text begins with, and which of its tokens are rated."""

    request: Prepared
    prefix: str = ""
    rates: Rates | None = None


class _Ratings:
    """The ratings of the tokens of an answer, piece by piece, or of all at once."""

    def __init__(self, model: Model, answer: AnswerRequest) -> None:
        prompt = [int(token) for token in answer.request.ask.prompt]
        self._model = model
        self._rates = answer.rates
        echoed = answer.rates is not None and answer.rates.prompt
        # What has been rated, where it begins with the prompt, and the text of that.
        self._row = [] if echoed else prompt
        self._first = prompt if echoed else []
        self._text = model.text_after(self._row if answer.request.repeats_prompt else ())
        self._offset = 0

    async def next(self, ids: Sequence[int]) -> tuple[list[Spelled] | None, int]:
        """Return the ratings of the tokens that a piece is of, and where in the text they begin.

        The first ones are those of the prompt, where these are requested, too.
        """
        if self._rates is None:
            return None, 0
        start, offset = len(self._row), self._offset
        self._row = [*self._row, *self._first, *ids]
        self._first = []
        rated = await self._model.rated(self._row, start, self._rates.top, self._text)
        self._offset += sum(spelling.width for spelling in rated)
        return rated, offset


class Service:
    """A model behind OpenAI's paths."""

    def __init__(self, settings: Settings, counting: Metrics) -> None:
        self._settings = settings
        self._counting = counting

    async def start(self) -> None:
        """Connect to the server; needs a running event loop, and so does all that follows."""
        settings = self._settings
        self._server = Server(
            settings.triton,
            settings.triton_model,
            seconds=settings.seconds,
            max_calls=settings.max_requests,
            cancels=settings.cancels,
        )
        self._workers = Workers(settings.folder)
        self._model = Model(
            self._server, self._workers, settings.tokenizer, settings.end_id, settings.context
        )
        await self._workers.start()

    async def close(self) -> None:
        """End the connection, and the processes."""
        await self._server.close()
        await self._workers.close()

    async def ready(self) -> bool:
        """Return whether the server serves the model."""
        return await self._server.ready()

    async def complete(self, receive: Receive, name: str, body: Completion) -> ASGIApp:
        """Return the answers to prompts."""
        wish = body.wish("prompt", body.max_tokens, COMPLETION_TOKENS)
        prompts: Any = body.prompts
        preparing = (self._model.of_texts if isinstance(prompts[0], str) else self._model.of_rows)(
            prompts, wish
        )
        return await self._answered(receive, Envelope(Completions(), name), body, preparing)

    async def chat(self, receive: Receive, name: str, body: Chat) -> ASGIApp:
        """Return the answers to a conversation."""
        self._require_template(name)
        messages = [message.for_template() for message in body.messages]
        wish = body.wish("messages", body.longest)
        preparing = self._model.of_messages(messages, wish)
        return await self._answered(receive, Envelope(Chats(), name), body, preparing)

    async def embed(self, receive: Receive, name: str, body: Embeddings) -> ASGIApp:
        """Return the vectors of inputs."""
        vectors, tokens = await unless_gone(receive, self._model.vectors(body.inputs))
        return Parts(formats.embeddings(name, vectors, tokens, body.encoding_format))

    async def tokenize(self, receive: Receive, name: str, body: Tokenize) -> ASGIApp:
        """Return the token ids of a text, or of a conversation by the template."""
        if body.messages is not None:
            self._require_template(name)
            messages = [message.for_template() for message in body.messages]
            asking = self._workers.conversation(messages, limit=limits.MAX_TOKENS)
        else:
            special = body.add_special_tokens is not False
            texts, limit = [body.prompt or ""], limits.MAX_TOKENS
            asking = self._workers.texts(texts, "prompt", special=special, limit=limit)
        encoding = await unless_gone(receive, asking)
        if max(encoding.lengths, default=0) > limits.MAX_TOKENS:
            raise too_long(f"more than {limits.MAX_TOKENS} tokens", "prompt")
        tokens = [int(token) for row in encoding.rows for token in row]
        context = await self.context_length()
        known = {"count": len(tokens), "max_model_len": context, "tokens": tokens}
        if body.return_token_strs:
            known["token_strs"] = list(map(self._settings.tokenizer.id_to_token, tokens))
        return JSONResponse(known)

    async def detokenize(self, receive: Receive, name: str, body: Detokenize) -> ASGIApp:
        """Return the text of token ids."""
        return JSONResponse({"prompt": await asyncio.to_thread(self._model.text, body.tokens)})

    async def context_length(self) -> int | None:
        """Return the context length; None where it, or the server, is unknown."""
        try:
            return await self._model.context_length()
        except Failure:
            return self._settings.context

    def _require_template(self, name: str) -> None:
        if not self._settings.has_template:
            raise Failure(
                400,
                f"{name} has no chat template; use /v1/completions",
                param="messages",
                code="no_chat_template",
            )

    async def _answered(
        self,
        receive: Receive,
        envelope: Envelope,
        body: Generation,
        preparing: Coroutine[Any, Any, list[Prepared]],
    ) -> ASGIApp:
        """Return the answers to a request, whole or as a stream; Gone when the client no longer waits."""
        prepared = await unless_gone(receive, preparing)
        tokens = sum(len(item.ask.prompt) for item in prepared)
        requests = [
            replace(await self._model.another(item, body.sampling, number) if number else item, index=index)
            for index, (item, number) in enumerate(itertools.product(prepared, range(body.choices)))
        ]
        rates, prefixes = body.rates, self._echoes(body, prepared)
        if rates:
            await self._model.require_ratings(
                requests, rates, any_token=rates.prompt or not body.sampling.greedy
            )
        answers = [
            AnswerRequest(item, prefixes[index // body.choices], rates) for index, item in enumerate(requests)
        ]
        if not body.streams:
            whole = await unless_gone(receive, together(map(self._whole, answers)))
            self._counting.add_tokens(tokens, sum(item.tokens for item in whole))
            return JSONResponse(envelope.whole(whole, tokens))
        counted = bool(body.stream_options and body.stream_options.include_usage)
        events = self._events(Stream(envelope, counted=counted), answers, tokens)
        # The status shows what the server refuses.
        first = await unless_gone(receive, anext(events))
        return Events(first, events)

    def _echoes(self, body: Generation, prepared: Sequence[Prepared]) -> list[str]:
        """Return what the texts of answers to each prompt begin with."""
        if not isinstance(body, Completion) or not body.echoes:
            return [""] * len(prepared)
        prompts: Any = body.prompts
        return [each if isinstance(each, str) else self._model.text(each) for each in prompts]

    async def _whole(self, answer: AnswerRequest) -> Whole:
        pieces = [piece async for piece in self._model.pieces(answer.request)]
        last = pieces[-1]
        assert last.reason is not None
        rated = None
        if answer.rates is not None:
            rated, _ = await _Ratings(self._model, answer).next([i for piece in pieces for i in piece.ids])
        text = answer.prefix + "".join(piece.text for piece in pieces)
        return Whole(text, last.tokens, last.reason, rated)

    async def _events(
        self, stream: Stream, answers: Sequence[AnswerRequest], prompt: int
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events of a stream; an error in the middle of it is one, too."""
        counts: dict[int, int] = {}
        requests = [answer.request for answer in answers]
        pieces = self._pieces(requests) if len(answers) > 1 else self._model.pieces(requests[0])
        plain = not any(answer.rates or answer.prefix for answer in answers)
        # Of a plain stream, as most are, nothing is prepared: its prompt may be long.
        ratings = [] if plain else [_Ratings(self._model, answer) for answer in answers]
        async with aclosing(pieces):
            try:
                async for index, text, tokens, reason, ids in pieces:
                    first = index not in counts
                    if plain:
                        counts[index] = tokens
                        yield stream.piece(index, text, reason, first=first)
                        continue
                    text = (answers[index].prefix if first else "") + text
                    rated, offset = await ratings[index].next(ids)
                    counts[index] = tokens
                    yield stream.piece(index, text, reason, first=first, rated=rated, offset=offset)
            except Failure as failed:
                if not counts:
                    raise
                yield formats.event(failed.body())
                return
            finally:
                self._counting.add_tokens(prompt, sum(counts.values()))
        yield stream.usage(Usage(prompt, sum(counts.values()))) + formats.DONE

    async def _pieces(self, requests: Sequence[Prepared]) -> AsyncGenerator[Piece, None]:
        """Yield the pieces of several answers as they come."""
        # One of each at most waits, so that a client that reads slowly slows all down.
        waiting: asyncio.Queue[Piece | Exception | None] = asyncio.Queue(len(requests))

        async def put(request: Prepared) -> None:
            try:
                async with aclosing(self._model.pieces(request)) as pieces:
                    async for piece in pieces:
                        await waiting.put(piece)
                await waiting.put(None)
            except Exception as failed:
                await waiting.put(failed)

        tasks = [asyncio.create_task(put(request)) for request in requests]
        try:
            left = len(tasks)
            while left:
                piece_or_error = await waiting.get()
                if isinstance(piece_or_error, Exception):
                    raise piece_or_error
                if piece_or_error is None:
                    left -= 1
                else:
                    yield piece_or_error
        finally:
            await end(tasks)
