"""Requests and answers of the FasterTransformer backend: token ids to tensors and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftbuild.config.families import Tensors

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Tokens = Sequence[int]
ANSWER = "output_ids"
ANSWER_LENGTH = "sequence_length"
LOG_PROB = "cum_log_probs"
STOP_WORDS, BAD_WORDS = "stop_words_list", "bad_words_list"
# A row of word offsets ends with this (BE v1.4 all_models/gpt/preprocessing/1/word_list.py).
_NO_WORD = -1


@dataclass(frozen=True)
class TensorSchema:
    """A family's tensors, with the data types that its config.pbtxt declares (Triton's names)."""

    tensors: Tensors
    inputs: Mapping[str, str]

    def takes(self, name: str) -> bool:
        """Return whether the model declares an input of that name."""
        return name in self.inputs

    def request(
        self,
        prompts: Sequence[Tokens],
        length: int,
        *,
        words: Mapping[str, Sequence[Tokens]] | None = None,
        **options: float,
    ) -> dict[str, Array]:
        """Return tensors that ask for `length` more tokens after each prompt.

        `options` are inputs of one value a row (runtime_top_k=1, ...), `words` lists of words by input.
        """
        longest = max(len(prompt) for prompt in prompts)
        padded = [[*prompt, *[0] * (longest - len(prompt))] for prompt in prompts]
        rows: dict[str, list[Any]] = {
            self.tensors.prompt: padded,
            self.tensors.prompt_length: [[len(prompt)] for prompt in prompts],
            self.tensors.answer_length: [[length]] * len(prompts),
            **{name: [[value]] * len(prompts) for name, value in options.items()},
            **{name: [_words(listed)] * len(prompts) for name, listed in (words or {}).items()},
        }
        return {name: self._array(name, values) for name, values in rows.items()}

    def answers(
        self, outputs: Mapping[str, Array], prompts: Sequence[Tokens], length: int, end_id: int
    ) -> list[list[int]]:
        """Return the best `length` tokens that follow each prompt, up to `end_id` if it comes earlier.

        `output_ids` is [batch, beams, tokens]; the best beam is the first.
        """
        starts = [len(prompt) if self.tensors.repeats_prompt else 0 for prompt in prompts]
        best = (row[0] for row in outputs[ANSWER].tolist())
        return [_ended(row[start : start + length], end_id) for row, start in zip(best, starts, strict=True)]

    def _array(self, name: str, values: list[Any]) -> Array:
        import numpy as np
        from tritonclient.utils import triton_to_np_dtype

        return np.array(values, dtype=triton_to_np_dtype(self.inputs[name]))


def _words(words: Sequence[Tokens]) -> list[list[int]]:
    """Return [2, n]: the tokens of all words in a row, and the end of each word."""
    flat = [token for word in words for token in word]
    ends = [sum(len(word) for word in words[: number + 1]) for number in range(len(words))]
    return [flat, [*ends, *[_NO_WORD] * (len(flat) - len(ends))]]


def _ended(tokens: list[int], end_id: int) -> list[int]:
    return tokens[: tokens.index(end_id) + 1] if end_id in tokens else tokens
