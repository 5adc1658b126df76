"""Triton model `postprocessing`: token ids to texts; inputs and outputs as in upstream's model.

Parameter in config.pbtxt: `tokenizer_path`, relative to this file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import texts
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer."""
        parameters = json.loads(args["model_config"])["parameters"]
        self._tokenizer = texts.load(Path(__file__).parent / parameters["tokenizer_path"]["string_value"])

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Return one response for each request; an error of one stays in its response."""
        return [self._response(request) for request in requests]

    def _response(self, request: Any) -> Any:
        try:
            tokens = pb_utils.get_input_tensor_by_name(request, "TOKENS_BATCH").as_numpy()
            lengths = pb_utils.get_input_tensor_by_name(request, "sequence_length")
            answers = texts.answers(self._tokenizer, tokens, None if lengths is None else lengths.as_numpy())
        except Exception as wrong:
            return pb_utils.InferenceResponse([], pb_utils.TritonError(f"postprocessing: {wrong}"))
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", answers)])
