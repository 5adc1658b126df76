"""Requests and answers of the model of token ids, as tensors of one row. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
ANSWER, ANSWER_LENGTH = "output_ids", "sequence_length"
# Of a model that makes vectors (ftbuild/models/vector_models.py).
VECTORS, LENGTHS = "embeddings", "input_lengths"
STOP_WORDS, BAD_WORDS, END_ID, START_ID = "stop_words_list", "bad_words_list", "end_id", "start_id"
# Of an answer, the sum of its tokens' log-probabilities among all tokens; and the wish for it.
LOG_PROB, WITH_LOG_PROB = "cum_log_probs", "is_return_log_probs"
# The token that the backend bans never (FT v5.3 ban_bad_words.cu:80). Of GPT-NeoX it is the end.
NEVER_BANNED = 0
# Values that leave an answer as it is, for inputs that a model of 22.03 must have.
_NEUTRAL: Mapping[str, float] = {
    "runtime_top_k": 1,
    "runtime_top_p": 0.0,
    "beam_search_diversity_rate": 0.0,
    "temperature": 1.0,
    "len_penalty": 1.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "random_seed": 0,
    "is_return_log_probs": False,
    "beam_width": 1,
}
# Triton's data types by numpy's names.
_TYPES = {
    "UINT32": np.uint32,
    "INT32": np.int32,
    "UINT64": np.uint64,
    "INT64": np.int64,
    "FP32": np.float32,
    "BOOL": np.bool_,
}


@dataclass(frozen=True)
class Facts:
    """A served model by its config.pbtxt: data types of its inputs, those a request must have, outputs.

    `decoupled`: it answers token by token. `longest_answer` is its limit of one answer in tokens, if it has
    one. Encoder-decoder models (T5) name their lengths otherwise and do not repeat the prompt. `max_rows`
    are computed in one request, and so are `batch_tokens` of prompt and answer. `vocabulary` is the number of
    tokens that the model rates, where its repository says so.
    """

    inputs: Mapping[str, str]
    required: frozenset[str]
    outputs: frozenset[str]
    decoupled: bool
    longest_answer: int | None = None
    max_rows: int = 1
    batch_tokens: int | None = None
    vocabulary: int | None = None

    @property
    def embeds(self) -> bool:
        """Whether this is a model of token ids that returns embeddings."""
        return {"input_ids", LENGTHS} == set(self.inputs) and VECTORS in self.outputs

    @property
    def repeats_prompt(self) -> bool:
        """Whether an answer begins with the prompt."""
        return "input_lengths" in self.inputs

    @property
    def generates(self) -> bool:
        """Whether this is a model of token ids that answers with token ids."""
        lengths = {"input_lengths", "request_output_len"}, {"sequence_length", "max_output_len"}
        return {"input_ids"} < set(self.inputs) and any(names <= set(self.inputs) for names in lengths)

    @property
    def seed_type(self) -> str:
        """The data type of seeds."""
        return self.inputs.get("random_seed", "")


@dataclass(frozen=True)
class Ask:
    """One prompt to continue by at most `length` tokens, up to `end_id`.

    `options` are inputs of one value, `stops` words by which the server itself may end the answer, `bans`
    tokens that are not in it.
    """

    prompt: Sequence[int] | Array
    length: int
    end_id: int | None
    options: Mapping[str, float] = field(default_factory=dict)
    stops: Sequence[Sequence[int]] = ()
    bans: Sequence[int] | Array = ()


def facts(config: Mapping[str, Any]) -> Facts:
    """Read the JSON form of a ModelConfig."""
    parameters = config.get("parameters", {})

    def number(name: str) -> int | None:
        written = parameters.get(name, {}).get("string_value", "")
        return int(written) if written.isdecimal() and written.isascii() and len(written) < 11 else None

    return Facts(
        inputs={t["name"]: t["data_type"].removeprefix("TYPE_") for t in config["input"]},
        required=frozenset(t["name"] for t in config["input"] if not t.get("optional")),
        outputs=frozenset(t["name"] for t in config["output"]),
        decoupled=bool(config.get("model_transaction_policy", {}).get("decoupled")),
        longest_answer=number("max_output_len"),
        max_rows=max(int(config.get("max_batch_size", 0)), 1),
        batch_tokens=number("max_batch_tokens"),
        vocabulary=number("vocab_size"),
    )


def request(model: Facts, ask: Ask) -> dict[str, Array]:
    """Return the tensors of one request."""
    lengths = ("input_lengths", "request_output_len")
    of_prompt, of_answer = lengths if model.repeats_prompt else ("sequence_length", "max_output_len")
    values: dict[str, Any] = {name: [value] for name, value in _NEUTRAL.items() if name in model.required}
    if ask.end_id is not None:
        values |= {name: [ask.end_id] for name in (END_ID, START_ID) if name in model.required}
        values |= {END_ID: [ask.end_id]} if END_ID in model.inputs else {}
    if ask.stops and STOP_WORDS in model.inputs:
        values[STOP_WORDS] = _words(ask.stops)
    if len(ask.bans):
        values[BAD_WORDS] = [ask.bans, np.arange(1, len(ask.bans) + 1)]
    values |= {name: [value] for name, value in ask.options.items()}
    values |= {"input_ids": ask.prompt, of_prompt: [len(ask.prompt)], of_answer: [ask.length]}
    return {name: np.asarray(value, _TYPES[model.inputs[name]])[None] for name, value in values.items()}


def vector_request(model: Facts, rows: Sequence[Sequence[int] | Array]) -> dict[str, Array]:
    """Return the tensors that ask for a vector of each row of token ids."""
    ids: Array = np.zeros((len(rows), max(map(len, rows))), _TYPES[model.inputs["input_ids"]])
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
    lengths: Array = np.array([[len(row)] for row in rows], _TYPES[model.inputs[LENGTHS]])
    return {"input_ids": ids, LENGTHS: lengths}


class Answer:
    """The tokens of an answer as they come: to its length, to `end_id`, to the limit."""

    def __init__(self, model: Facts, ask: Ask) -> None:
        self._end_id = ask.end_id
        # Where the next token is in a row, and where the answer ends at most.
        self._next = len(ask.prompt) if model.repeats_prompt else 0
        self._limit = self._next + ask.length
        self.whole = False

    def new_tokens(self, outputs: Mapping[str, memoryview]) -> list[int]:
        """Return the tokens that are new in a response, which holds all of them."""
        row, lengths = outputs[ANSWER], outputs.get(ANSWER_LENGTH)
        tokens: list[int] = row[self._next : min(lengths[0] if lengths else len(row), self._limit)].tolist()
        if self._end_id in tokens:
            tokens = tokens[: tokens.index(self._end_id) + 1]
            self.whole = True
        self._next += len(tokens)
        self.whole = self.whole or self._next == self._limit
        return tokens


def _words(words: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return [2, n]: the tokens of all words, and the end of each word, filled up with -1."""
    flat = [token for word in words for token in word]
    ends = np.cumsum([len(word) for word in words]).tolist()
    return [flat, [*ends, *[-1] * (len(flat) - len(ends))]]
