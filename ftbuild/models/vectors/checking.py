"""Triton model `checking`: token ids as they are, if the encoder behind it can take them.

Parameters in config.pbtxt: `vocabulary`, the number of known tokens, and `longest`, the maximum of a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import vectors
from answering import Answering

if TYPE_CHECKING:
    from answering import Array


class TritonPythonModel(Answering):  # type: ignore[misc]
    """The class that Triton's Python backend looks for."""

    name = "checking"
    takes = ("input_ids", "input_lengths")

    def start(self, parameters: Mapping[str, str]) -> None:
        """Note the limits."""
        self._vocabulary, self._longest = int(parameters["vocabulary"]), int(parameters["longest"])

    def answer(self, ids: Array, lengths: Array) -> Mapping[str, Array]:
        """Return ids [batch, longest] and lengths [batch, 1] as they came."""
        vectors.require_texts(ids, lengths, self._vocabulary, self._longest)
        return {"input_ids": ids, "sequence_length": lengths.reshape(-1, 1)}
