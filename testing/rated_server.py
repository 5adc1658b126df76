"""A gRPC server whose model is a function from tokens to logits, with what FasterTransformer makes of them.

It takes one row, greedily or by beams of one step, with banned words and a temperature, and tells the sum of
the log-probabilities among all tokens. It stands in for models that the sample stack does not have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

from testing.grpc_service import listening

Logits = Callable[[Sequence[int]], "Sequence[float] | np.ndarray[Any, Any]"]
_TYPES = {"UINT32": np.uint32, "INT32": np.int32, "FP32": np.float32, "BOOL": np.bool_}
_INPUTS = {
    "input_ids": "UINT32", "input_lengths": "UINT32", "request_output_len": "UINT32",
    "runtime_top_k": "UINT32", "beam_width": "UINT32", "temperature": "FP32",
    "is_return_log_probs": "BOOL", "bad_words_list": "INT32", "end_id": "UINT32",
}  # fmt: skip
_CONFIG = """
name: "fastertransformer" backend: "fastertransformer"
output { name: "output_ids" data_type: TYPE_UINT32 dims: [ -1, -1 ] }
output { name: "sequence_length" data_type: TYPE_UINT32 dims: [ -1 ] }
output { name: "cum_log_probs" data_type: TYPE_FP32 dims: [ -1 ] }
"""


class RatedServer(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """The service, for a model of so many tokens; its repository says so unless `told` is false."""

    def __init__(self, model: Logits, vocabulary: int, *, told: bool = True) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self._told = told
        self.asked = 0

    def ServerMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802 (names of the protocol)
        """Say a version."""
        return service_pb2.ServerMetadataResponse(name="triton", version="2.51.0")

    def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Say that the model is there."""
        return service_pb2.ModelReadyResponse(ready=True)

    def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Describe the model."""
        config = text_format.Parse(_CONFIG, model_config_pb2.ModelConfig())
        for name, kind in _INPUTS.items():
            data_type = getattr(model_config_pb2.DataType, f"TYPE_{kind}")
            config.input.add(name=name, data_type=data_type, optional=name not in list(_INPUTS)[:3])
        if self._told:
            config.parameters["vocab_size"].string_value = str(self._vocabulary)
        return service_pb2.ModelConfigResponse(config=config)

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Answer a row."""
        self.asked += 1
        inputs: dict[str, Any] = {
            tensor.name: np.frombuffer(raw, _TYPES[tensor.datatype])
            for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True)
        }
        prompt, length = inputs["input_ids"].tolist(), int(inputs["request_output_len"][0])
        banned = inputs.get("bad_words_list", np.array([], np.int32))
        banned = banned[: len(banned) // 2]
        width = int(inputs.get("beam_width", [1])[0])
        heat = float(inputs.get("temperature", [1.0])[0])
        rows, sums = [list(prompt) for _ in range(width)], [0.0] * width
        for _ in range(length):
            # FT v5.3 ban_bad_words.cu:80 leaves token 0, and sampling_penalty_kernels.cu:86 adds 1e-6.
            logits = np.array(self._model(rows[0]), np.float32)
            logits[banned[banned > 0]] = -np.inf
            logits /= np.float32(heat + 1e-6) if heat != 1 else 1
            rates = logits - logits.max()
            rates = rates - math.log(float(np.exp(rates.astype(np.float64)).sum()))
            best = np.argsort(-rates, kind="stable")[:width]
            for beam, token in enumerate(best):
                rows[beam].append(int(token))
                sums[beam] += float(rates[token])
        return _response(rows, len(prompt) + length, sums)


def _response(rows: list[list[int]], length: int, sums: list[float]) -> Any:
    response = service_pb2.ModelInferResponse(model_name="fastertransformer")
    lengths = np.full(len(rows), length, np.uint32)
    for name, array in (
        ("output_ids", np.array(rows, np.uint32)),
        ("sequence_length", lengths),
        ("cum_log_probs", np.array(sums, np.float32)),
    ):
        kind = "FP32" if array.dtype == np.float32 else "UINT32"
        response.outputs.add(name=name, datatype=kind, shape=[1, *array.shape])
        response.raw_output_contents.append(array.tobytes())
    return response


@contextmanager
def serve(model: Logits, vocabulary: int, *, told: bool = True) -> Iterator[tuple[RatedServer, str]]:
    """Run the server on a free port of 127.0.0.1; yield it with its address."""
    service = RatedServer(model, vocabulary, told=told)
    # One model is asked by one thread at a time.
    with listening(service, threads=1) as address:
        yield service, address
