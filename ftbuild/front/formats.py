"""The bodies of answers, by OpenAI's reference. Pure."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ftbuild.front.generation import Reason
from ftbuild.front.tensors import Array


@dataclass(frozen=True)
class Usage:
    """Counted tokens."""

    prompt: int
    completion: int

    def as_dict(self) -> dict[str, int]:
        """Return the JSON form."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
        }


@dataclass(frozen=True)
class Whole:
    """A whole answer."""

    text: str
    tokens: int
    reason: Reason


class Completions:
    """Answers of /v1/completions."""

    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def choice(self, index: int, answer: Whole) -> dict[str, Any]:
        """Return a choice with a whole answer."""
        return {"index": index, "text": answer.text, "logprobs": None, "finish_reason": answer.reason}

    def deltas(self, text: str, reason: Reason | None, *, first: bool) -> Iterable[dict[str, Any]]:
        """Yield the choices that tell a piece of an answer."""
        yield {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}


class Chats:
    """Answers of /v1/chat/completions."""

    prefix, kind, chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def choice(self, index: int, answer: Whole) -> dict[str, Any]:
        """Return a choice with a whole answer."""
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        return {"index": index, "message": message, "logprobs": None, "finish_reason": answer.reason}

    def deltas(self, text: str, reason: Reason | None, *, first: bool) -> Iterable[dict[str, Any]]:
        """Yield the choices that tell a piece of an answer: role, content, reason."""
        if first:
            yield _delta({"role": "assistant", "content": ""})
        if text:
            yield _delta({"content": text})
        if reason:
            yield _delta({}, reason)


@dataclass(frozen=True)
class Envelope:
    """What all parts of the answer to one request share."""

    form: Completions | Chats
    model: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, answers: Sequence[Whole], prompt: int) -> dict[str, Any]:
        """Return the body for whole answers to prompts of so many tokens."""
        choices = [self.form.choice(number, answer) for number, answer in enumerate(answers)]
        usage = Usage(prompt, sum(answer.tokens for answer in answers))
        return {**self._head(self.form.kind), "choices": choices, "usage": usage.as_dict()}

    def chunk(
        self, choices: Sequence[dict[str, Any]], usage: Usage | None = None, *, counted: bool = False
    ) -> dict[str, Any]:
        """Return one event of a stream; all have `usage` where the client wants it `counted`."""
        told = {"usage": usage.as_dict() if usage else None} if counted else {}
        return {**self._head(self.form.chunk_kind), "choices": list(choices), **told}

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"{self.form.prefix}-{self.id}",
            "object": kind,
            "created": self.created,
            "model": self.model,
        }


def _delta(delta: dict[str, str], reason: Reason | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


def model(name: str, created: int) -> dict[str, Any]:
    """Return the description of a model."""
    return {"id": name, "object": "model", "created": created, "owned_by": "ftbuild"}


def embeddings(name: str, vectors: Sequence[Array], tokens: int, encoding: str) -> dict[str, Any]:
    """Return the body with the vectors of inputs of so many tokens; base64 is of little-endian float32."""
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": number, "embedding": _encoded(vector, encoding)}
            for number, vector in enumerate(vectors)
        ],
        "model": name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _encoded(vector: Array, encoding: str) -> str | list[float]:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    numbers: list[float] = vector.tolist()
    return numbers
