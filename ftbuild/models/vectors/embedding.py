"""Triton model `embedding`: token ids to what the layers of an encoder begin with.

Parameters in config.pbtxt: the names of the tables, which lie in the folder `tables` beside this file, their
number type, and what the norm needs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
import vectors


class TritonPythonModel:
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Open the tables, note which data type the next model takes."""
        config = json.loads(args["model_config"])
        parameters = {name: value["string_value"] for name, value in config["parameters"].items()}
        self._embeddings = vectors.Embeddings(Path(__file__).parent / "tables", parameters)
        types = {output["name"]: output["data_type"] for output in config["output"]}
        self._type = pb_utils.triton_string_to_numpy(types["input_hidden_state"])

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Return one response for each request; an error of one stays in its response."""
        return [self._response(request) for request in requests]

    def _response(self, request: Any) -> Any:
        try:
            ids = pb_utils.get_input_tensor_by_name(request, "input_ids").as_numpy()
            lengths = pb_utils.get_input_tensor_by_name(request, "input_lengths").as_numpy().reshape(-1)
            found = self._embeddings(ids, lengths)
        except ValueError as wrong:
            return pb_utils.InferenceResponse([], _refused(f"embedding: {wrong}"))
        except Exception as wrong:
            return pb_utils.InferenceResponse([], pb_utils.TritonError(f"embedding: {wrong}"))
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("input_hidden_state", found.astype(self._type)),
                pb_utils.Tensor("sequence_lengths", lengths.astype(np.int32).reshape(-1, 1)),
            ]
        )


def _refused(message: str) -> Any:
    """Return the error that tells a client of its own mistake, where the server has one for that."""
    code = getattr(pb_utils.TritonError, "INVALID_ARG", None)
    return pb_utils.TritonError(message) if code is None else pb_utils.TritonError(message, code)
