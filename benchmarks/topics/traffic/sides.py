"""The sides of the comparison: clients of our server through gRPC, and of whatever speaks OpenAI's protocol.

A side is plain data, since several processes of clients ask it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import TYPE_CHECKING, Any, Protocol

from ftbuild.client.connection import Client
from ftbuild.client.tensors import ANSWER
from ftbuild.errors import SmokeError
from ftbuild.models.config_pbtxt import MODEL

if TYPE_CHECKING:
    from ftbuild.client.connection import Arrays
    from ftbuild.config.families import Tensors

ANSWER_SECONDS = 600.0
LENGTHS = "sequence_length"


@dataclass(frozen=True)
class Answer:
    """The tokens after a prompt, and when the first of them came (of the monotonic clock; None: unknown)."""

    tokens: tuple[int, ...]
    first: float | None = None


class Connection(Protocol):
    """What one client has: it asks one request at a time."""

    def ask(self, prompt: Sequence[int], length: int) -> Answer:
        """Return the `length` tokens after a prompt, chosen greedily; SmokeError if there are others."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


class Side(Protocol):
    """A request. `streamed`: each token comes on its own, so that the time of the first is known."""

    @property
    def streamed(self) -> bool:
        """Return whether each token comes on its own."""
        ...

    def connect(self) -> Connection:
        """Return a new connection."""
        ...


@dataclass(frozen=True)
class Triton:
    """Our server: the gRPC endpoint `address`, the tensors of the model's family, whether it is decoupled.

    `never` is sent as the end token, for a model that would choose its own; None: the model's own.
    """

    address: str
    tensors: Tensors
    streamed: bool = False
    never: int | None = None

    def connect(self) -> Connection:
        """Return a new connection."""
        return _Grpc(self)


class _Grpc:
    def __init__(self, side: Triton) -> None:
        self._side = side
        self._client = Client(side.address, "grpc", seconds=ANSWER_SECONDS)

    def ask(self, prompt: Sequence[int], length: int) -> Answer:
        import numpy as np

        named, prompt_length = self._side.tensors, len(prompt)
        values = {named.prompt_length: prompt_length, named.answer_length: length, "runtime_top_k": 1}
        if self._side.never is not None:
            values["end_id"] = self._side.never
        inputs = {name: np.full((1, 1), value, np.uint32) for name, value in values.items()}
        inputs[named.prompt] = np.array([prompt], np.uint32)
        outputs, first = self._outputs(inputs)
        start = prompt_length if named.repeats_prompt else 0
        # An answer that ends early is as long as the others: its tokens are counted apart.
        until = min(int(outputs[LENGTHS].reshape(-1)[0]), start + length)
        return _whole(outputs[ANSWER].reshape(-1)[start:until].tolist(), length, first)

    def _outputs(self, inputs: Arrays) -> tuple[Arrays, float | None]:
        """Return the last outputs, which hold all tokens, and when the first ones came."""
        if not self._side.streamed:
            return self._client.infer(MODEL, inputs), None
        responses = self._client.stream(MODEL, inputs)
        last = next(responses, None)
        first = time.monotonic()
        for each in responses:
            last = each
        if last is None:
            raise SmokeError("a stream has ended without a response")
        return last, first

    def close(self) -> None:
        self._client.close()


@dataclass(frozen=True)
class Completions:
    """A server of OpenAI's completions at `host:port`, which takes and gives tokens by their numbers.

    vLLM does (`ignore_eos`, `return_token_ids`).
    """

    address: str
    streamed: bool = False
    model: str = "model"

    def connect(self) -> Connection:
        """Return a new connection."""
        return _Http(self)


class _Http:
    def __init__(self, side: Completions) -> None:
        self._side = side
        self._connection = HTTPConnection(side.address, timeout=ANSWER_SECONDS)

    def ask(self, prompt: Sequence[int], length: int) -> Answer:
        body = {
            "model": self._side.model,
            "prompt": list(prompt),
            "max_tokens": length,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
            "stream": self._side.streamed,
        }
        headers = {"Content-Type": "application/json"}
        try:
            self._connection.request("POST", "/v1/completions", json.dumps(body), headers)
            response = self._connection.getresponse()
            if response.status != 200:
                raise SmokeError(f"status {response.status}: {response.read(500).decode('utf-8', 'replace')}")
            return self._read(response, length)
        except (OSError, HTTPException) as broken:
            self._connection.close()
            raise SmokeError(f"no answer: {broken or type(broken).__name__}") from broken

    def _read(self, response: HTTPResponse, length: int) -> Answer:
        if not self._side.streamed:
            return _whole(_tokens(json.loads(response.read())), length, None)
        first, tokens = None, []
        for event in _events(response):
            if new_tokens := _tokens(event):
                first = first or time.monotonic()
                tokens += new_tokens
        return _whole(tokens, length, first)

    def close(self) -> None:
        self._connection.close()


def _events(response: HTTPResponse) -> Iterator[dict[str, Any]]:
    """Yield the events of a stream, and read it to its end, so that the connection can be used again."""
    for line in response:
        content = line.removeprefix(b"data:").strip()
        if content and content != b"[DONE]" and line.startswith(b"data:"):
            yield json.loads(content)


def _tokens(answer: Mapping[str, Any]) -> list[int]:
    """Return the tokens of an answer or an event of one: its last may have none."""
    return [token for choice in answer["choices"] for token in choice.get("token_ids") or ()]


def _whole(tokens: Sequence[int], length: int, first: float | None) -> Answer:
    if len(tokens) != length:
        raise SmokeError(f"an answer has {len(tokens)} tokens, not {length}, which would look fast")
    return Answer(tuple(tokens), first)
