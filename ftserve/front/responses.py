"""The tensors in a server's responses, of which those to one call differ in their values alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from tritonclient.grpc import service_pb2

from ftserve.front import statuses, tensors

# The letters of `struct` by Triton's names of types.
_Letter = Literal["i", "I", "f"]
_TYPES: Mapping[str, _Letter] = {"INT32": "i", "UINT32": "I", "FP32": "f"}
_WANTED = frozenset({tensors.ANSWER, tensors.ANSWER_LENGTH, tensors.LOG_PROB, tensors.VECTORS})
# memoryview of ints or floats.
Outputs = dict[str, Any]


def outputs(response: Any) -> Outputs:
    """Return the values of those tensors of a ModelInferResponse that the front asks for."""
    return {
        tensor.name: memoryview(content).cast(_TYPES[tensor.datatype])
        for tensor, content in zip(response.outputs, response.raw_output_contents, strict=True)
        if tensor.name in _WANTED
    }


class Reader:
    """Reads the messages of one stream.

    It parses the first one, and notes where tensors are in it. A message of the same size with the same bytes
    around them has them in the same places; so a token costs no more than a comparison.
    """

    def __init__(self) -> None:
        self._size = 0
        # Places, and the bytes there.
        self._around: list[tuple[int, bytes]] = []
        self._tensors: list[tuple[str, int, int, _Letter]] = []

    def read(self, message: bytes) -> Outputs | None:
        """Return the tensors of a ModelStreamInferResponse; None where there are none, as in a server's last.

        Raises Failure where it is an error.
        """
        if len(message) == self._size and all(message.startswith(part, at) for at, part in self._around):
            whole = memoryview(message)
            return {name: whole[start:end].cast(kind) for name, start, end, kind in self._tensors}
        parsed = service_pb2.ModelStreamInferResponse.FromString(message)
        if parsed.error_message:
            raise statuses.of_message(parsed.error_message)
        if not parsed.infer_response.raw_output_contents:
            return None
        self._note(message, parsed.infer_response)
        return outputs(parsed.infer_response)

    def _note(self, message: bytes, response: Any) -> None:
        """Note where the tensors are: their field is the last one of a message (grpc_service.proto)."""
        self._size, self._around, self._tensors = 0, [], []
        end = len(message)
        for tensor, content in reversed([*zip(response.outputs, response.raw_output_contents, strict=True)]):
            start = end - len(content)
            if message[start:end] != content:
                return
            if tensor.name in _WANTED:
                self._tensors.append((tensor.name, start, end, _TYPES[tensor.datatype]))
            # Before it: a byte with the number of the field, and the length, seven bits in each byte.
            end = start - 1 - max(1, -(-len(content).bit_length() // 7))
            self._around.append((end, message[end:start]))
        self._around.append((0, message[:end]))
        self._size = len(message)
