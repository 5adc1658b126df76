"""Text to tokens: one token per byte."""

import json
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        tokenizer = Path(parameters["tokenizer_path"]["string_value"])
        self.end_id = json.loads(tokenizer.read_text())["end_id"]

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        query = pb_utils.get_input_tensor_by_name(request, "QUERY").as_numpy()
        texts = [row[0] for row in query]
        if not all(texts):
            return pb_utils.InferenceResponse([], pb_utils.TritonError("QUERY: an empty prompt"))
        lengths = np.array([[len(text)] for text in texts], dtype=np.uint32)
        ids = np.full((len(texts), lengths.max()), self.end_id, dtype=np.uint32)
        for row, text in zip(ids, texts):
            row[: len(text)] = list(text)
        output_len = pb_utils.get_input_tensor_by_name(request, "REQUEST_OUTPUT_LEN")
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("INPUT_ID", ids),
                pb_utils.Tensor("REQUEST_INPUT_LEN", lengths),
                pb_utils.Tensor("REQUEST_OUTPUT_LEN", output_len.as_numpy()),
            ]
        )
