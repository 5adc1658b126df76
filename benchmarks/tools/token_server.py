"""A gRPC server that stands in for Triton with a GPT: the next token of every stream in each tick.

`python -m benchmarks.tools.token_server PORT SECONDS`; it computes nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import numpy as np
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

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


class TokenServer(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """The service."""

    def __init__(self, pause: float) -> None:
        self._pause = pause

    async def ServerMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802 (names of the protocol)
        """Say the version of the base `open`."""
        return service_pb2.ServerMetadataResponse(name="triton", version="2.51.0")

    async def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Say that the model is there."""
        return service_pb2.ModelReadyResponse(ready=True)

    async def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Describe a GPT that streams."""
        return service_pb2.ModelConfigResponse(
            config=text_format.Parse(_CONFIG, model_config_pb2.ModelConfig())
        )

    async def ModelStreamInfer(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Answer as FasterTransformer does: each message holds the prompt and all tokens, filled up."""
        async for request in requests:
            contents = zip(request.inputs, request.raw_input_contents, strict=True)
            inputs = {tensor.name: np.frombuffer(raw, np.uint32) for tensor, raw in contents}
            prompt, length = inputs["input_ids"], int(inputs["request_output_len"][0])
            ids = np.concatenate([prompt, np.full(length, _LETTER, np.uint32)])
            loop = asyncio.get_running_loop()
            start = loop.time()
            for number in range(1, length + 1):
                await asyncio.sleep(max(start + number * self._pause - loop.time(), 0))
                yield service_pb2.ModelStreamInferResponse(
                    infer_response=_response(ids, len(prompt) + number)
                )


def _response(ids: Any, length: int) -> Any:
    response = service_pb2.ModelInferResponse(model_name="fastertransformer")
    for name, values in (
        ("output_ids", ids[None, None]),
        ("sequence_length", np.array([[length]], np.uint32)),
    ):
        response.outputs.add(name=name, datatype="UINT32", shape=values.shape)
        response.raw_output_contents.append(values.tobytes())
    return response


async def serve(port: int, pause: float) -> None:
    """Serve until the process ends."""
    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(TokenServer(pause), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
