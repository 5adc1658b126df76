"""Triton model `embedding`: token ids to what the layers of an encoder begin with.

Parameters in config.pbtxt: the names of the tables, which lie in the folder `tables` beside this file, their
number type, and what the norm needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import vectors
from answering import Answering

if TYPE_CHECKING:
    from answering import Array


class TritonPythonModel(Answering):  # type: ignore[misc]
    """The class that Triton's Python backend looks for."""

    name = "embedding"
    takes = ("input_ids", "input_lengths")

    def start(self, parameters: Mapping[str, str]) -> None:
        """Open the tables."""
        self._embeddings = vectors.Embeddings(Path(__file__).parent / "tables", parameters)

    def answer(self, ids: Array, lengths: Array) -> Mapping[str, Array]:
        """Return states [batch, longest, hidden] for ids [batch, longest], and the lengths [batch, 1]."""
        return {
            "input_hidden_state": self._embeddings(ids, lengths.reshape(-1)),
            "sequence_lengths": lengths.reshape(-1, 1),
        }
