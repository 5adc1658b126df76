"""A gRPC server that says to be a Triton of some version, answers slowly and counts cancelled calls.

It stands in for servers whose calls may be cancelled (2.70 and later), which no image for tests has, and for
errors that no model of the sample stack has.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

from testing.grpc_service import listening

PAUSE_SECONDS = 0.05
LETTER = ord("z")
_INPUTS = ("input_ids", "input_lengths", "request_output_len", "runtime_top_k")
_CONFIG = """
name: "fastertransformer" backend: "fastertransformer"
output { name: "output_ids" data_type: TYPE_UINT32 dims: [ -1, -1 ] }
output { name: "sequence_length" data_type: TYPE_UINT32 dims: [ -1 ] }
parameters { key: "max_output_len" value { string_value: "2048" } }
"""


class NewerServer(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """The service: it counts the calls begun, and how they ended.

    `cancelled` are those whose client did not wait for the end, `described` counts who asked
    what the model is. With an `error` each request gets it after as many tokens as `error_after`: as the
    message of a stream, or as a `status`. More than `most` tokens of prompt and answer are refused in the
    backend's words.
    """

    def __init__(self, version: str, *, decoupled: bool) -> None:
        self.version = version
        self.decoupled = decoupled
        self.error = ""
        self.error_after = 0
        self.status: grpc.StatusCode | None = None
        self.most: int | None = None
        self.pause = PAUSE_SECONDS
        self.begun = self.cancelled = self.finished = self.described = 0

    def ServerMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802 (names of the protocol)
        """Say the version."""
        return service_pb2.ServerMetadataResponse(name="triton", version=self.version)

    def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Say that the model is there."""
        return service_pb2.ModelReadyResponse(ready=True)

    def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Describe a GPT."""
        self.described += 1
        config = text_format.Parse(_CONFIG, model_config_pb2.ModelConfig())
        config.model_transaction_policy.decoupled = self.decoupled
        for name in _INPUTS:
            data_type = model_config_pb2.DataType.TYPE_UINT32
            config.input.add(name=name, data_type=data_type, optional=name == "runtime_top_k")
        return service_pb2.ModelConfigResponse(config=config)

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Answer at once."""
        if self.error and self.status is not None:
            context.abort(self.status, self.error)
        *_, last = self._responses(request, context)
        return last

    def ModelStreamInfer(self, requests: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        """Answer token by token."""
        for request in requests:
            for number, response in enumerate(self._responses(request, context)):
                if self.error and number == self.error_after:
                    if self.status is not None:
                        context.abort(self.status, self.error)
                    yield service_pb2.ModelStreamInferResponse(error_message=self.error)
                    return
                yield service_pb2.ModelStreamInferResponse(infer_response=response)

    def _responses(self, request: Any, context: Any) -> Iterator[Any]:
        contents = zip(request.inputs, request.raw_input_contents, strict=True)
        inputs = {tensor.name: np.frombuffer(raw, np.uint32) for tensor, raw in contents}
        prompt, length = inputs["input_ids"].tolist(), int(inputs["request_output_len"][0])
        if self.most is not None and len(prompt) + length > self.most:
            room = f"is {length}, which is not in the range [0, {self.most - len(prompt)}]"
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"request_output_len[0] {room}")
        done = False

        def ended() -> None:
            self.finished += done
            self.cancelled += not done

        context.add_callback(ended)
        self.begun += 1
        for number in range(1, length + 1):
            if not context.is_active():
                return
            done = number == length
            time.sleep(self.pause)
            yield _response([*prompt, *[LETTER] * number, *[0] * (length - number)], len(prompt) + number)


def _response(ids: list[int], length: int) -> Any:
    response = service_pb2.ModelInferResponse(model_name="fastertransformer")
    for name, shape, values in (("output_ids", [1, 1, len(ids)], ids), ("sequence_length", [1, 1], [length])):
        response.outputs.add(name=name, datatype="UINT32", shape=shape)
        response.raw_output_contents.append(np.array(values, np.uint32).tobytes())
    return response


@contextmanager
def serve(version: str, *, decoupled: bool) -> Iterator[tuple[NewerServer, str]]:
    """Run the server on a free port of 127.0.0.1; yield it with its address."""
    service = NewerServer(version, decoupled=decoupled)
    with listening(service, threads=16) as address:
        yield service, address
