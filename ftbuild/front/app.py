"""The HTTP application: OpenAI's paths, each from a request's body to an answer's."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope

from ftbuild.front import bodies, formats
from ftbuild.front.failures import Failure, unavailable
from ftbuild.front.formats import Chats, Completions, Envelope, Stream, Usage, Whole
from ftbuild.front.generation import COMPLETION_TOKENS, Model, Piece, Prepared, Wish
from ftbuild.front.guard import Answering, Guard, header
from ftbuild.front.leaving import Events, Parts, unless_gone
from ftbuild.front.places import Bodies, Places
from ftbuild.front.requests import Chat, Completion, Embeddings, Generation, OldCompletion
from ftbuild.front.settings import Settings
from ftbuild.front.triton import Server
from ftbuild.front.workers import Workers

B = TypeVar("B", bound=BaseModel)


def make(settings: Settings) -> ASGIApp:
    """Return the application; it connects when it starts."""
    service = Service(settings)
    created = int(time.time())
    places, held = Places(settings.most_requests), Bodies(settings.most_bytes)

    async def health(request: Request) -> Response:
        if not await service.ready():
            raise unavailable("the Triton server does not serve the model")
        return JSONResponse({"status": "ok"})

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [formats.model(settings.name, created)]})

    async def described(request: Request) -> Response:
        name = settings.named(request.path_params["name"])
        return JSONResponse(formats.model(name, created))

    def post(path: str, form: type[B], answer: Callable[[Receive, str, B], Awaitable[ASGIApp]]) -> Route:
        async def answered(scope: Scope, receive: Receive, content: bytes) -> ASGIApp:
            body = bodies.read(form, header(scope, b"content-type").decode("latin-1"), content)
            # In the path by the oldest form of the API, else in the body; there is one.
            name = settings.named(scope.get("path_params", {}).get("name") or getattr(body, "model", None))
            return await answer(receive, name, body)

        return Route(path, Answering(answered, places, held, settings.most_bytes), methods=["POST"])

    @asynccontextmanager
    async def running(_: Any) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.close()

    return Guard(
        Router(
            [
                Route("/health", health),
                Route("/v1/models", models),
                Route("/v1/models/{name:path}", described),
                post("/v1/completions", Completion, service.complete),
                post("/v1/engines/{name:path}/completions", OldCompletion, service.complete),
                post("/v1/chat/completions", Chat, service.chat),
                post("/v1/embeddings", Embeddings, service.embed),
            ],
            redirect_slashes=False,
            lifespan=running,
        ),
        settings.keys,
    )


class Service:
    """A model behind OpenAI's paths."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def start(self) -> None:
        """Connect to the server; needs a running event loop, and so does all that follows."""
        settings = self._settings
        self._server = Server(
            settings.triton,
            settings.triton_model,
            seconds=settings.seconds,
            most=settings.most_requests,
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
        wish = Wish("prompt", body.max_tokens, body.sampling, body.stops, COMPLETION_TOKENS)
        prompts: Any = body.prompts
        preparing = (self._model.of_texts if isinstance(prompts[0], str) else self._model.of_rows)(
            prompts, wish
        )
        return await self._answered(receive, Envelope(Completions(), name), body, preparing)

    async def chat(self, receive: Receive, name: str, body: Chat) -> ASGIApp:
        """Return the answers to a conversation."""
        if not self._settings.has_template:
            raise Failure(
                400,
                f"{name} has no chat template; use /v1/completions",
                param="messages",
                code="no_chat_template",
            )
        messages = [message.for_template() for message in body.messages]
        wish = Wish("messages", body.longest, body.sampling, body.stops)
        preparing = self._model.of_messages(messages, wish)
        return await self._answered(receive, Envelope(Chats(), name), body, preparing)

    async def embed(self, receive: Receive, name: str, body: Embeddings) -> ASGIApp:
        """Return the vectors of inputs."""
        vectors, tokens = await unless_gone(receive, self._model.vectors(body.inputs))
        return Parts(formats.embeddings(name, vectors, tokens, body.encoding_format))

    async def _answered(
        self,
        receive: Receive,
        envelope: Envelope,
        body: Generation,
        preparing: Coroutine[Any, Any, list[Prepared]],
    ) -> ASGIApp:
        """Return the answers to a request, whole or as a stream; Gone when the client no longer waits."""
        prepared = await unless_gone(receive, preparing)
        tokens = sum(len(one.ask.prompt) for one in prepared)
        asked = [
            replace(await self._model.another(one, body.sampling, number) if number else one, index=index)
            for index, (one, number) in enumerate(itertools.product(prepared, range(body.choices)))
        ]
        if not body.streams:
            whole = await unless_gone(receive, _together(map(self._one, asked)))
            return JSONResponse(envelope.whole(whole, tokens))
        counted = bool(body.stream_options and body.stream_options.include_usage)
        events = self._events(Stream(envelope, counted=counted), asked, tokens)
        # What the server refuses is told by the status.
        first = await unless_gone(receive, anext(events))
        return Events(first, events)

    async def _one(self, request: Prepared) -> Whole:
        pieces = [piece async for piece in self._model.pieces(request)]
        last = pieces[-1]
        assert last.reason is not None
        return Whole("".join(piece.text for piece in pieces), last.tokens, last.reason)

    async def _events(
        self, stream: Stream, asked: Sequence[Prepared], prompt: int
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events of a stream; an error in the middle of it is one, too."""
        counts: dict[int, int] = {}
        pieces = self._pieces(asked) if len(asked) > 1 else self._model.pieces(asked[0])
        async with aclosing(pieces):
            try:
                async for index, text, tokens, reason in pieces:
                    first = index not in counts
                    counts[index] = tokens
                    yield stream.piece(index, text, reason, first=first)
            except Failure as failed:
                if not counts:
                    raise
                yield formats.event(failed.body())
                return
        yield stream.usage(Usage(prompt, sum(counts.values()))) + formats.DONE

    async def _pieces(self, asked: Sequence[Prepared]) -> AsyncGenerator[Piece, None]:
        """Yield the pieces of several answers as they come."""
        # One of each at most waits, so that a client that reads slowly slows all down.
        waiting: asyncio.Queue[Piece | Exception | None] = asyncio.Queue(len(asked))

        async def put(request: Prepared) -> None:
            try:
                async with aclosing(self._model.pieces(request)) as pieces:
                    async for piece in pieces:
                        await waiting.put(piece)
                await waiting.put(None)
            except Exception as failed:
                await waiting.put(failed)

        tasks = [asyncio.create_task(put(request)) for request in asked]
        try:
            left = len(tasks)
            while left:
                found = await waiting.get()
                if isinstance(found, Exception):
                    raise found
                if found is None:
                    left -= 1
                else:
                    yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _together(work: Iterable[Coroutine[Any, Any, Whole]]) -> list[Whole]:
    """Return all results; the first failure ends the others."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
