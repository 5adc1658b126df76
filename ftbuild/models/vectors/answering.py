"""What the Python models around an encoder share as models of Triton: requests in, responses out."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import triton_python_backend_utils as pb_utils

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


class Answering(ABC):
    """A model that answers each request by itself, from the tensors that it `takes`."""

    name: str
    takes: Sequence[str]

    def initialize(self, args: Mapping[str, str]) -> None:
        """Read the parameters of config.pbtxt and the data types of its outputs."""
        config = json.loads(args["model_config"])
        self._types = {
            output["name"]: pb_utils.triton_string_to_numpy(output["data_type"])
            for output in config["output"]
        }
        self.start({name: value["string_value"] for name, value in config["parameters"].items()})

    @abstractmethod
    def start(self, parameters: Mapping[str, str]) -> None:
        """Get ready to answer."""

    @abstractmethod
    def answer(self, *arrays: Array) -> Mapping[str, Array]:
        """Return every output for the arrays that the model takes; ValueError for those that it refuses."""

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Return one response for each request; an error of one stays in its response."""
        return [self._response(request) for request in requests]

    def _response(self, request: Any) -> Any:
        try:
            arrays = [pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in self.takes]
            outputs = self.answer(*arrays)
        except ValueError as wrong:
            return pb_utils.InferenceResponse([], _refused(f"{self.name}: {wrong}"))
        except Exception as wrong:
            return pb_utils.InferenceResponse([], pb_utils.TritonError(f"{self.name}: {wrong}"))
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, array.astype(self._types[name])) for name, array in outputs.items()]
        )


def _refused(message: str) -> Any:
    """Return the error for a client's mistake, where the server has one for that."""
    code = getattr(pb_utils.TritonError, "INVALID_ARG", None)
    return pb_utils.TritonError(message) if code is None else pb_utils.TritonError(message, code)
