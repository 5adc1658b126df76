"""The HTTP application: OpenAI's paths, each from a request's body to an answer's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from ftbuild.front import formats
from ftbuild.front.failures import Failure, unavailable, unsupported
from ftbuild.front.formats import Chats, Completions, Envelope, Usage, Whole
from ftbuild.front.generation import COMPLETION_TOKENS, Model, Piece, Prepared
from ftbuild.front.guard import Guard
from ftbuild.front.leaving import Events, unless_gone
from ftbuild.front.requests import Chat, Completion, Embeddings, Generation
from ftbuild.front.settings import Settings
from ftbuild.front.triton import Server


def make(settings: Settings) -> FastAPI:
    """Return the application; it connects when it starts."""

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        server = Server(
            settings.triton,
            settings.triton_model,
            seconds=settings.seconds,
            most=settings.most_requests,
        )
        app.state.server = server
        app.state.service = Service(settings, server)
        yield
        await server.close()

    # The pages that describe an application load scripts from elsewhere.
    app = FastAPI(lifespan=running, openapi_url=None)
    app.add_middleware(
        Guard,
        keys=settings.keys,
        most_bytes=settings.most_bytes,
        most_requests=settings.most_requests,
    )
    app.add_exception_handler(Failure, _failed)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _refused)
    created = int(time.time())

    @app.get("/health")
    async def health() -> dict[str, str]:
        if not await app.state.server.ready():
            raise unavailable("the Triton server does not serve the model")
        return {"status": "ok"}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [formats.model(settings.name, created)]}

    @app.get("/v1/models/{name:path}")
    async def described(name: str) -> dict[str, Any]:
        settings.require(name)
        return formats.model(name, created)

    @app.post("/v1/completions")
    async def completions(body: Completion, request: Request) -> Response:
        service: Service = app.state.service
        return await service.answered(request, Completions(), body, service.of_prompts(body))

    @app.post("/v1/chat/completions")
    async def chat(body: Chat, request: Request) -> Response:
        service: Service = app.state.service
        return await service.answered(request, Chats(), body, service.of_messages(body))

    @app.post("/v1/embeddings")
    async def embeddings(body: Embeddings, request: Request) -> Response:
        service: Service = app.state.service
        return JSONResponse(await unless_gone(request.receive, service.vectors(body)))

    return app


class Service:
    """A model behind OpenAI's paths."""

    def __init__(self, settings: Settings, server: Server) -> None:
        self._settings = settings
        self._model = Model(server, settings.tokenizer, settings.end_id, settings.context)

    async def of_prompts(self, body: Completion) -> list[Prepared]:
        """Return what to ask for each prompt of a completion."""
        self._settings.require(body.model)
        longest = body.max_tokens or COMPLETION_TOKENS
        return [
            await self._model.prepared(
                await self._model.encoded(prompt, "prompt") if isinstance(prompt, str) else prompt,
                longest,
                body.sampling,
                body.stops,
                param="prompt",
            )
            for prompt in body.prompts
        ]

    async def of_messages(self, body: Chat) -> list[Prepared]:
        """Return what to ask for a conversation."""
        self._settings.require(body.model)
        if self._settings.template is None:
            raise Failure(
                400,
                f"{body.model} has no chat template; use /v1/completions",
                param="messages",
                code="no_chat_template",
            )
        messages = [message.for_template() for message in body.messages]
        text = await asyncio.to_thread(self._settings.template.render, messages)
        # The template has the special tokens already.
        tokens = await self._model.encoded(text, "messages", special=False)
        return [await self._model.prepared(tokens, body.longest, body.sampling, body.stops, param="messages")]

    async def vectors(self, body: Embeddings) -> dict[str, Any]:
        """Return the body with the vector of each input."""
        self._settings.require(body.model)
        rows = [
            await self._model.encoded(each, "input") if isinstance(each, str) else each
            for each in body.inputs
        ]
        found = await self._model.vectors(rows)
        return formats.embeddings(body.model, found, sum(map(len, rows)), body.encoding_format)

    async def answered(
        self, request: Request, form: Completions | Chats, body: Generation, preparing: Any
    ) -> Response:
        """Return the answer to a request, whole or as a stream; Gone when the client no longer waits."""
        prepared: list[Prepared] = await unless_gone(request.receive, preparing)
        envelope = Envelope(form, body.model)
        if not body.streams:
            return JSONResponse(await unless_gone(request.receive, self._whole(envelope, body, prepared)))
        if len(prepared) > 1 or body.choices > 1:
            raise unsupported("stream", "one answer at a time: one prompt, and n=1")
        events = self._events(envelope, body, prepared[0])
        # What the server refuses is told by the status.
        first = await unless_gone(request.receive, _first(events))
        return Events(_with(first, events))

    async def _whole(
        self, envelope: Envelope, body: Generation, prepared: Sequence[Prepared]
    ) -> dict[str, Any]:
        asked = [
            await self._model.another(one, body.sampling, number) if number else one
            for one in prepared
            for number in range(body.choices)
        ]
        return envelope.whole(await _together(map(self._one, asked)), _tokens(prepared))

    async def _one(self, request: Prepared) -> Whole:
        pieces = [piece async for piece in self._model.pieces(request)]
        last = pieces[-1]
        assert last.reason is not None
        return Whole("".join(piece.text for piece in pieces), last.tokens, last.reason)

    async def _events(
        self, envelope: Envelope, body: Generation, request: Prepared
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the events of a stream; an error in the middle of it is one, too."""
        last: Piece | None = None
        counted = bool(body.stream_options and body.stream_options.include_usage)
        async with aclosing(self._model.pieces(request)) as pieces:
            try:
                async for piece in pieces:
                    for choice in envelope.form.deltas(piece.text, piece.reason, first=last is None):
                        yield envelope.chunk([choice], counted=counted)
                    last = piece
            except Failure as failed:
                if last is None:
                    raise
                yield failed.body()
                return
        if last and counted:
            yield envelope.chunk([], Usage(_tokens([request]), last.tokens), counted=True)


async def _together(work: Iterable[Coroutine[Any, Any, Whole]]) -> list[Whole]:
    """Return all results; the first failure ends the others."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _tokens(prepared: Sequence[Prepared]) -> int:
    return sum(len(one.ask.prompt) for one in prepared)


async def _first(events: AsyncGenerator[dict[str, Any], None]) -> dict[str, Any]:
    return await anext(events)


async def _with(
    first: dict[str, Any], others: AsyncGenerator[dict[str, Any], None]
) -> AsyncGenerator[dict[str, Any], None]:
    async with aclosing(others) as rest:
        yield first
        async for event in rest:
            yield event


async def _failed(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, Failure)
    return JSONResponse(failure.body(), failure.status)


async def _malformed(request: Request, wrong: Exception) -> Response:
    """Name the first thing that is wrong, without its value."""
    assert isinstance(wrong, RequestValidationError)
    error = wrong.errors()[0]
    place = [str(part) for part in error["loc"] if part != "body"]
    if error["type"] == "json_invalid":
        failure = Failure(400, "the body is not valid JSON")
    elif error["type"] == "extra_forbidden":
        name = ".".join(place)
        failure = Failure(
            400,
            f"unknown argument: {name[:100]}",
            param=name[:100],
            code="unknown_parameter",
        )
    elif not place:
        failure = Failure(400, "the body must be a JSON object, sent as Content-Type: application/json")
    else:
        name = ".".join(place)
        failure = Failure(400, f"{name[:100]}: {error['msg']}", param=place[0][:100])
    return await _failed(request, failure)


async def _refused(request: Request, refused: Exception) -> Response:
    assert isinstance(refused, HTTPException)
    if refused.status_code == 404:
        failure = Failure(404, f"no such path: {request.method} {request.url.path[:200]}", code="unknown_url")
    else:
        failure = Failure(refused.status_code, str(refused.detail))
    return await _failed(request, failure)
