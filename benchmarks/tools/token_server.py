"""A gRPC server that stands in for Triton with a GPT: the next token of every stream in each tick.

`python -m benchmarks.tools.token_server PORT SECONDS`. It computes nothing, and a token takes it some
microseconds, so that the front before it never waits for it. Frames of data go past h2.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from google.protobuf import text_format
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, RequestReceived, StreamReset
from h2.settings import SettingCodes
from tritonclient.grpc import model_config_pb2, service_pb2

_LETTER = ord("z")
_CONFIG = """
name: "fastertransformer" backend: "fastertransformer"
model_transaction_policy { decoupled: True }
input { name: "input_ids" data_type: TYPE_UINT32 }
input { name: "input_lengths" data_type: TYPE_UINT32 }
input { name: "request_output_len" data_type: TYPE_UINT32 }
input { name: "runtime_top_k" data_type: TYPE_UINT32 optional: true }
output { name: "output_ids" data_type: TYPE_UINT32 dims: [ -1, -1 ] }
output { name: "sequence_length" data_type: TYPE_UINT32 dims: [ -1 ] }
"""
# What is asked once is answered so; the version is that of the base `open`.
_ANSWERS = {
    "ServerMetadata": service_pb2.ServerMetadataResponse(name="triton", version="2.51.0"),
    "ModelReady": service_pb2.ModelReadyResponse(ready=True),
    "ModelConfig": service_pb2.ModelConfigResponse(
        config=text_format.Parse(_CONFIG, model_config_pb2.ModelConfig())
    ),
}
_PREFIX = struct.Struct(">BI")
_HEAD = [(":status", "200"), ("content-type", "application/grpc")]
_TAIL = [("grpc-status", "0")]


class TokenServer(asyncio.Protocol):
    """A connection of one client."""

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._methods: dict[int, str] = {}
        self._received: dict[int, bytes] = {}
        self._answers: dict[int, Iterator[bytes]] = {}

    def connection_made(self, transport: Any) -> None:
        """Greet, and begin to tick."""
        self._transport: asyncio.Transport = transport
        self._loop = asyncio.get_running_loop()
        self._h2.initiate_connection()
        self._h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1 << 24})
        self._flush()
        self._next = self._loop.time()
        self._tick()

    def data_received(self, data: bytes) -> None:
        """Take requests."""
        for event in self._h2.receive_data(data):
            self._take(event)
        self._flush()

    def _take(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            fields: dict[Any, Any] = dict(event.headers or ())
            self._methods[event.stream_id or 0] = str(fields[":path"]).rpartition("/")[2]
        elif isinstance(event, DataReceived):
            number = event.stream_id or 0
            self._h2.acknowledge_received_data(event.flow_controlled_length or 0, number)
            whole = self._received.get(number, b"") + (event.data or b"")
            self._received[number] = whole
            if len(whole) >= _PREFIX.size and len(whole) == _PREFIX.size + _PREFIX.unpack_from(whole)[1]:
                self._answer(number, self._methods.pop(number), self._received.pop(number)[_PREFIX.size :])
        elif isinstance(event, StreamReset):
            self._answers.pop(event.stream_id or 0, None)

    def _answer(self, number: int, method: str, request: bytes) -> None:
        self._h2.send_headers(number, _HEAD)
        if method == "ModelStreamInfer":
            self._answers[number] = tokens(service_pb2.ModelInferRequest.FromString(request))
            return
        content = _ANSWERS[method].SerializeToString()
        self._h2.send_data(number, _PREFIX.pack(0, len(content)) + content)
        self._h2.send_headers(number, _TAIL, end_stream=True)

    def _tick(self) -> None:
        frames = []
        for number, messages in list(self._answers.items()):
            if message := next(messages, b""):
                # RFC 9113, 6.1: length in 24 bits, type 0, no flags, the stream; then gRPC's message.
                frames.append((_PREFIX.size + len(message)).to_bytes(3, "big") + bytes(2))
                frames.append(number.to_bytes(4, "big") + _PREFIX.pack(0, len(message)) + message)
            else:
                del self._answers[number]
                self._h2.send_headers(number, _TAIL, end_stream=True)
        self._transport.write(b"".join(frames))
        self._flush()
        if not self._transport.is_closing():
            self._next = max(self._next + self._pause, self._loop.time())
            self._loop.call_at(self._next, self._tick)

    def _flush(self) -> None:
        self._transport.write(self._h2.data_to_send())


def tokens(request: Any) -> Iterator[bytes]:
    """Yield messages as FasterTransformer's: each holds the prompt and all tokens, filled up."""
    contents = zip(request.inputs, request.raw_input_contents, strict=True)
    inputs = {tensor.name: np.frombuffer(raw, np.uint32) for tensor, raw in contents}
    prompt, length = inputs["input_ids"], int(inputs["request_output_len"][0])
    ids = np.concatenate([prompt, np.full(length, _LETTER, np.uint32)])
    whole = _message(ids).SerializeToString()
    for number in range(len(prompt) + 1, len(prompt) + length + 1):
        # The number of tokens stands at the end.
        yield whole[:-4] + number.to_bytes(4, "little")


def _message(ids: Any) -> Any:
    response = service_pb2.ModelInferResponse(model_name="fastertransformer")
    for name, values in (("output_ids", ids[None, None]), ("sequence_length", np.zeros((1, 1), np.uint32))):
        response.outputs.add(name=name, datatype="UINT32", shape=values.shape)
        response.raw_output_contents.append(values.tobytes())
    return service_pb2.ModelStreamInferResponse(infer_response=response)


async def serve(port: int, pause: float) -> None:
    """Serve until the process ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: TokenServer(pause), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
