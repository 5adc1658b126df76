"""Triton model `preprocessing`: texts and words to token ids; inputs and outputs as in upstream's model.

Parameters in config.pbtxt: `tokenizer_path`, relative to this file, and `padding_id`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import texts
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer, note which outputs are declared."""
        config = json.loads(args["model_config"])
        parameters = {name: value["string_value"] for name, value in config["parameters"].items()}
        self._tokenizer = texts.load(Path(__file__).parent / parameters["tokenizer_path"])
        self._padding = int(parameters["padding_id"])
        self._types = {
            output["name"]: pb_utils.triton_string_to_numpy(output["data_type"])
            for output in config["output"]
        }

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Return one response for each request; an error of one stays in its response."""
        return [self._response(request) for request in requests]

    def _response(self, request: Any) -> Any:
        try:
            outputs = self._outputs(request)
        except Exception as wrong:
            return pb_utils.InferenceResponse([], pb_utils.TritonError(f"preprocessing: {wrong}"))
        tensors = [
            pb_utils.Tensor(name, array.astype(self._types[name]))
            for name, array in outputs.items()
            if name in self._types
        ]
        return pb_utils.InferenceResponse(tensors)

    def _outputs(self, request: Any) -> dict[str, Any]:
        query = _input(request, "QUERY")
        ids, lengths = texts.prompts(self._tokenizer, query, self._padding)
        return {
            "INPUT_ID": ids,
            "REQUEST_INPUT_LEN": lengths,
            "REQUEST_OUTPUT_LEN": _input(request, "REQUEST_OUTPUT_LEN"),
            "BAD_WORDS_IDS": self._words(request, "BAD_WORDS_DICT", len(query)),
            "STOP_WORDS_IDS": self._words(request, "STOP_WORDS_DICT", len(query)),
        }

    def _words(self, request: Any, name: str, batch: int) -> Any:
        # An ensemble cannot leave a tensor out, so no list is an empty one.
        listed = _input(request, name)
        return texts.words(self._tokenizer, np.full((batch, 1), b"", object) if listed is None else listed)


def _input(request: Any, name: str) -> Any:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy()
