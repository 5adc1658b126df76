"""OpenAI's sampling parameters as inputs of the FasterTransformer backend. Pure."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass

from ftserve.front.failures import unsupported

# Seeds of 22.03 have 31 bits, of later releases 64 (config.pbtxt, random_seed).
_SEED_BITS = {"INT32": 31, "UINT64": 63}


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen, in OpenAI's words; `top_k` and `repetition_penalty` are not OpenAI's.

    `temperature` 0, `top_p` 0 and `top_k` 1 each mean the best token. `top_k` 0: all tokens.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None

    @property
    def greedy(self) -> bool:
        """Whether the best token is always taken."""
        return self.temperature == 0 or self.top_p == 0 or self.top_k == 1

    def inputs(self, known: Collection[str], seed_type: str, number: int = 0) -> dict[str, float]:
        """Return the inputs of one request; Failure (400) where a wish needs an input that is not `known`.

        `number` counts the answers to one prompt, whose seeds differ.
        """
        if self.frequency_penalty:
            raise unsupported("frequency_penalty", "the model's backend has none; presence_penalty may do")
        tensors: dict[str, float] = {}
        if self.presence_penalty:
            tensors["presence_penalty"] = self.presence_penalty
        if self.repetition_penalty != 1:
            if tensors:
                raise unsupported("repetition_penalty", "not together with presence_penalty")
            tensors["repetition_penalty"] = self.repetition_penalty
        if self.greedy:
            # The backend's way to say so; with a temperature of 0 it would divide by almost nothing.
            tensors["runtime_top_k"] = 1
        else:
            tensors |= {"runtime_top_k": self.top_k, "runtime_top_p": self.top_p}
            tensors |= {"temperature": self.temperature} if self.temperature != 1 else {}
            bits = _SEED_BITS.get(seed_type, 31)
            seed = secrets.randbits(bits) if self.seed is None else self.seed + number
            tensors["random_seed"] = seed % 2**bits
        for name in tensors:
            if name not in known:
                raise unsupported(name.removeprefix("runtime_"), "this model has no such input")
        return tensors
