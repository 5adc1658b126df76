"""Requests for vectors and their answers: token ids to tensors and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ftbuild.client.tensors import Tokens
from ftbuild.models.vector_models import ANSWER, IDS, LENGTHS

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


def request(prompts: Sequence[Tokens]) -> dict[str, Array]:
    """Return tensors that ask for a vector of each text's token ids; shorter ones are padded."""
    import numpy as np

    longest = max(len(prompt) for prompt in prompts)
    return {
        IDS: np.array([[*prompt, *[0] * (longest - len(prompt))] for prompt in prompts], np.uint32),
        LENGTHS: np.array([[len(prompt)] for prompt in prompts], np.uint32),
    }


def answer(outputs: Mapping[str, Array]) -> Array:
    """Return the vectors, [batch, hidden]."""
    return outputs[ANSWER]
