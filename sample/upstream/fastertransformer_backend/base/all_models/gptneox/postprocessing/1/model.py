"""Tokens to text: bytes as UTF-8, what is not UTF-8 as \\x..; special tokens are left out."""

import json
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        tokenizer = Path(parameters["tokenizer_path"]["string_value"])
        self.bytes = json.loads(tokenizer.read_text())["start_id"]

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        tokens = pb_utils.get_input_tensor_by_name(request, "TOKENS_BATCH").as_numpy()
        lengths = pb_utils.get_input_tensor_by_name(request, "sequence_length").as_numpy()
        texts = [[self.text(beam[:length]) for beam, length in zip(*row)] for row in zip(tokens, lengths)]
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.array(texts, dtype=object))])

    def text(self, tokens):
        raw = bytes(int(token) for token in tokens if token < self.bytes)
        return raw.decode("utf-8", "backslashreplace")
