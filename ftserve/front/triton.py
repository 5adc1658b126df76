"""The Triton server behind the service: what its model is, and answers to requests, over gRPC.

When no client waits for an answer any longer, its call is cancelled where the server survives that
(calls.py): it drops what is still in a queue, and notifies the backend about the rest.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import grpc
import numpy as np
from google.protobuf.json_format import MessageToDict
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import np_to_triton_dtype

from ftserve.front import calls, responses, statuses, tensors
from ftserve.front.calls import Calls, Latest
from ftserve.front.failures import SERVER, Failure, broken
from ftserve.front.pace import Pace
from ftserve.front.responses import Reader
from ftserve.front.statuses import Overloaded
from ftserve.front.streams import Streams
from ftserve.front.tensors import Array, Ask, Facts

NewTokens = Callable[[], Awaitable[list[int] | None]]
_ASK_SECONDS = 10
_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
# Else a server says nothing where an answer has ended with its last token.
_FINAL = "triton_enable_empty_final_response"
# Servers from 2.49 on end a stream with the status of the error, which its message alone does not tell.
_STATUS = (("triton_grpc_error", "true"),)
# Answers without a client may take so long until the connection is closed, which ends them.
_DRAIN_SECONDS = 20


class Server:
    """A connection to the gRPC endpoint `address`, and its model of token ids."""

    def __init__(
        self, address: str, model: str, *, seconds: float, max_calls: int, cancels: bool | None = None
    ) -> None:
        """`seconds` is how long one answer may take, `max_calls` are computed at once.

        `cancels` says whether calls are cancelled; None: as the server's version allows. Nothing is asked
        yet; needs a running event loop.
        """
        # A lost server is looked for again within seconds, not within gRPC's two minutes.
        options = [("grpc.max_reconnect_backoff_ms", 2000), ("grpc.max_receive_message_length", -1)]
        self._channel = grpc.aio.insecure_channel(address, options=options)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._streams = Streams(address, _STREAM, _STATUS)
        self._model = model
        self._seconds = seconds
        self._facts: Facts | None = None
        self._cancel_option, self._cancels = cancels, bool(cancels)
        self._calls = Calls(max_calls)
        self._pace = Pace()

    async def facts(self) -> Facts:
        """Return what the model is; Failure (503) while the server does not say."""
        if self._facts is None:
            request = service_pb2.ModelConfigRequest(name=self._model)
            with _failures():
                answer = await self._stub.ModelConfig(request, timeout=_ASK_SECONDS)
                server = await self._stub.ServerMetadata(
                    service_pb2.ServerMetadataRequest(), timeout=_ASK_SECONDS
                )
            if self._cancel_option is None:
                self._cancels = calls.survives_cancelling(server.version)
            answered_facts = tensors.facts(MessageToDict(answer.config, preserving_proto_field_name=True))
            if not (answered_facts.generates or answered_facts.embeds):
                raise Failure(500, "the served model takes no token ids", kind=SERVER)
            self._facts = answered_facts
        return self._facts

    async def ready(self) -> bool:
        """Return whether the server serves the model."""
        request = service_pb2.ModelReadyRequest(name=self._model)
        try:
            return bool((await self._stub.ModelReady(request, timeout=_ASK_SECONDS)).ready)
        except grpc.RpcError:
            return False

    @contextlib.asynccontextmanager
    async def answer(self, ask: Ask) -> AsyncGenerator[NewTokens, None]:
        """Ask for an answer; leave the context when no more of it is wanted.

        It is given what follows: new tokens whenever there are some, all at once if the model cannot
        stream, and None at the end. Failure as the server's.
        """
        model = await self.facts()
        request = _message(self._model, tensors.request(model, ask))
        answer = tensors.Answer(model, ask)
        async with self._started(request, streams=model.decoupled) as call:

            async def new_tokens() -> list[int] | None:
                # The server may close the stream later, with the longest answer of a batch.
                if call.whole or (outputs := await call.next()) is None:
                    call.whole = True
                    return None
                tokens = answer.new_tokens(outputs)
                call.whole = answer.whole
                return tokens

            yield new_tokens

    async def outputs(self, ask: Ask) -> responses.Outputs:
        """Return the last outputs for a request, the tokens of prompt and answer among them."""
        model = await self.facts()
        request = _message(self._model, tensors.request(model, ask))
        last: responses.Outputs = {}
        async with self._started(request, streams=model.decoupled) as call:
            while (outputs := await call.next()) is not None:
                last = outputs
            call.whole = True
        return last

    async def vectors(self, rows: Sequence[Sequence[int] | Array]) -> Array:
        """Return the embeddings [rows, hidden] of rows of token ids, at most as many as `Facts.max_rows`."""
        request = _message(self._model, tensors.vector_request(await self.facts(), rows))
        async with self._started(request, streams=False) as call:
            outputs = await call.next()
            call.whole = True
        rows_of_vectors = np.asarray((outputs or {}).get(tensors.VECTORS, ()))
        if rows_of_vectors.size == 0 or rows_of_vectors.size % len(rows):
            raise broken()
        return rows_of_vectors.reshape(len(rows), -1)

    async def close(self) -> None:
        """End the connection, once the answers that are being computed have come, or it takes too long."""
        await self._calls.finished(_DRAIN_SECONDS)
        self._streams.close()
        await self._channel.close()

    @contextlib.asynccontextmanager
    async def _started(self, request: Any, *, streams: bool) -> AsyncGenerator[Latest, None]:
        """Ask the server, and break the call off if its answer is not whole at the end of the context.

        Raises Failure where it fails or takes too long, (429) for one call more than there may be.
        """
        latest, start = self._calls.begin(Reader().read if streams else responses.outputs), time.monotonic()
        try:
            call = await self._call(request, latest, streams=streams)
        except BaseException:
            latest.end(None)
            raise
        try:
            with latest.within(self._seconds):
                yield latest
            if latest.whole:
                self._pace.add(time.monotonic() - start)
        except Overloaded as full:
            raise Overloaded(full.message, self._pace.retry_seconds()) from full
        except Failure as failed:
            if failed.status == 503:
                # Another server may come back in its place.
                self._facts = None
            raise
        finally:
            if self._cancels and not latest.whole:
                call.cancel()

    async def _call(self, request: Any, latest: Latest, *, streams: bool) -> Any:
        if not streams:
            call = self._stub.ModelInfer(request)
            self._calls.fill(latest, call)
            return call
        request.parameters[_FINAL].bool_param = True
        return await self._streams.start(request.SerializeToString(), latest.put, latest.end)


def _message(model: str, arrays: Mapping[str, Array]) -> Any:
    request = service_pb2.ModelInferRequest(model_name=model)
    for name, array in arrays.items():
        data_type = np_to_triton_dtype(array.dtype)
        request.inputs.add(name=name, datatype=data_type, shape=list(array.shape))
        request.raw_input_contents.append(np.ascontiguousarray(array).tobytes())
    return request


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """Turn gRPC's errors into errors of this package."""
    try:
        yield
    except grpc.RpcError as failed:
        raise statuses.of_server(failed.code(), failed.details() or "") from failed
