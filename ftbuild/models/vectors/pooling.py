"""Triton model `pooling`: the states of an encoder's last layer to one vector.

Parameters in config.pbtxt: `pooling`, mean or cls, and `normalized`, 0 or 1.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import triton_python_backend_utils as pb_utils
import vectors


class TritonPythonModel:
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Note how to pool."""
        parameters = json.loads(args["model_config"])["parameters"]
        self._pooling = parameters["pooling"]["string_value"]
        self._normalized = parameters["normalized"]["string_value"] == "1"

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Return one response for each request; an error of one stays in its response."""
        return [self._response(request) for request in requests]

    def _response(self, request: Any) -> Any:
        try:
            states = pb_utils.get_input_tensor_by_name(request, "output_hidden_state").as_numpy()
            lengths = pb_utils.get_input_tensor_by_name(request, "sequence_lengths").as_numpy().reshape(-1)
            found = vectors.pooled(states, lengths, self._pooling, self._normalized)
        except Exception as wrong:
            return pb_utils.InferenceResponse([], pb_utils.TritonError(f"pooling: {wrong}"))
        return pb_utils.InferenceResponse([pb_utils.Tensor("embeddings", found)])
