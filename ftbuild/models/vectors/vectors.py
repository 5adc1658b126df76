"""What comes before and after the layers of an encoder: checks and embeddings, and one vector of many."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

STORED = {"fp32": np.float32, "fp16": np.float16}
MEAN, FIRST = "mean", "cls"
# transformers' torch.nn.functional.normalize: a vector shorter than this keeps its length.
_SHORTEST = 1e-12


class Embeddings:
    """Embeddings of token ids: rows of the tables of words, positions and types, added and normalized.

    As in transformers v4.46.3 modeling_bert.py, BertEmbeddings, computed in fp32; all tokens are of type 0.
    """

    def __init__(self, folder: Path, parameters: Mapping[str, str]) -> None:
        """Open the tables in `folder`: `parameters` name them, their number type and what is added."""
        hidden = int(parameters["hidden"])
        stored = STORED[parameters["stored_as"]]

        def table(name: str) -> Array:
            # Rows are read when a token needs them, and shared by all instances.
            return np.memmap(folder / parameters[name], stored, "r").reshape(-1, hidden)

        self._words, self._positions = table("words"), table("positions")
        self._first_type, self._scale, self._shift = (
            table(name)[0].astype(np.float32) for name in ("types", "scale", "shift")
        )
        self._epsilon = np.float32(parameters["epsilon"])
        self._longest = min(len(self._positions), int(parameters.get("longest", len(self._positions))))

    def __call__(self, ids: Array, lengths: Array) -> Array:
        """Return [batch, longest, hidden] for token ids [batch, longest] and lengths [batch].

        Raises ValueError for a token, a length or a number of tokens that the model does not know.
        """
        require_texts(ids, lengths, len(self._words), self._longest)
        summed = self._words[ids].astype(np.float32)
        summed += self._positions[: ids.shape[1]].astype(np.float32) + self._first_type
        centred = summed - summed.mean(-1, keepdims=True)
        variance = np.square(centred).mean(-1, keepdims=True)
        normed: Array = centred / np.sqrt(variance + self._epsilon) * self._scale + self._shift
        return normed


def require_texts(ids: Array, lengths: Array, vocabulary: int, longest: int) -> None:
    """Raise ValueError unless these are texts: token ids [batch, tokens] below `vocabulary`, and lengths.

    A row has at most `longest` tokens, its padding among them, which are looked up and computed as well.
    """
    if not ids.size:
        raise ValueError("there is no text")
    if lengths.size != len(ids):
        raise ValueError(f"there are {lengths.size} lengths of {len(ids)} texts")
    _require_lengths(lengths, ids.shape[1])
    if ids.shape[1] > longest:
        raise ValueError(f"{ids.shape[1]} tokens in a row, and the model takes {longest}")
    _require_range("a token", ids, 0, vocabulary - 1)


def pooled(states: Array, lengths: Array, pooling: str, normalized: bool) -> Array:
    """Return one vector [batch, hidden] for the states [batch, longest, hidden] of each row's tokens.

    `pooling` is MEAN, of the first `lengths` [batch] states, or FIRST, the state of the first token. What is
    behind a length may be any number. A vector that is `normalized` has the length 1.
    """
    _require_lengths(lengths, states.shape[1])
    rows = states.astype(np.float32)
    if pooling == FIRST:
        vectors = rows[:, 0]
    else:
        vectors = np.stack([row[:length].mean(0) for row, length in zip(rows, lengths.tolist())])  # noqa: B905 (Python 3.8)
    if normalized:
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), _SHORTEST)
    return np.ascontiguousarray(vectors, np.float32)


def _require_lengths(lengths: Array, longest: int) -> None:
    _require_range("a length", lengths, 1, longest)


def _require_range(what: str, numbers: Array, low: int, high: int) -> None:
    if numbers.size and not low <= numbers.min() <= numbers.max() <= high:
        wrong = numbers.min() if numbers.min() < low else numbers.max()
        raise ValueError(f"{what} is {wrong}, which is not in the range [{low}, {high}]")
