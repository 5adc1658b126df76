"""Triton model `pooling`: the states of an encoder's last layer to one vector.

Parameters in config.pbtxt: `pooling`, mean or cls, and `normalized`, 0 or 1.
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

    name = "pooling"
    takes = ("output_hidden_state", "input_lengths")

    def start(self, parameters: Mapping[str, str]) -> None:
        """Note how to pool."""
        self._pooling, self._normalized = parameters["pooling"], parameters["normalized"] == "1"

    def answer(self, states: Array, lengths: Array) -> Mapping[str, Array]:
        """Return a vector [batch, hidden] for the states [batch, longest, hidden] of each row."""
        return {"embeddings": vectors.pooled(states, lengths.reshape(-1), self._pooling, self._normalized)}
