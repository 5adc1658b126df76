"""The bodies of answers, by OpenAI's reference. Pure."""

from __future__ import annotations

import base64
import itertools
import json
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic_core import to_json

from ftserve.front.answering import Reason
from ftserve.front.generation import Spelled
from ftserve.front.tensors import Array


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
    rated: Sequence[Spelled] | None = None


class Completions:
    """Answers of /v1/completions."""

    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def choice(self, index: int, answer: Whole) -> dict[str, Any]:
        """Return a choice with a whole answer."""
        rated = self.log_probs(answer.rated)
        return {"index": index, "text": answer.text, "logprobs": rated, "finish_reason": answer.reason}

    def deltas(
        self,
        index: int,
        text: str,
        reason: Reason | None,
        *,
        first: bool,
        rated: Sequence[Spelled] | None = None,
        offset: int = 0,
    ) -> Iterable[dict[str, Any]]:
        """Yield the choices for a piece of an answer, whose tokens begin at `offset` of all text."""
        log_probs = self.log_probs(rated, offset)
        yield {"index": index, "text": text, "logprobs": log_probs, "finish_reason": reason}

    @staticmethod
    def log_probs(rated: Sequence[Spelled] | None, offset: int = 0) -> dict[str, Any] | None:
        """Return the log-probabilities of tokens, column by column; the first one of a text has none."""
        if rated is None:
            return None
        starts = itertools.accumulate((spelling.width for spelling in rated), initial=offset)
        return {
            "tokens": [spelling.text for spelling in rated],
            "token_logprobs": [spelling.log_prob for spelling in rated],
            "top_logprobs": [
                None
                if spelling.log_prob is None
                else _by_text(spelling.text, spelling.log_prob, spelling.top)
                for spelling in rated
            ],
            "text_offset": list(starts)[: len(rated)],
        }


class Chats:
    """Answers of /v1/chat/completions."""

    prefix, kind, chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def choice(self, index: int, answer: Whole) -> dict[str, Any]:
        """Return a choice with a whole answer."""
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        rated = self.log_probs(answer.rated)
        return {"index": index, "message": message, "logprobs": rated, "finish_reason": answer.reason}

    def deltas(
        self,
        index: int,
        text: str,
        reason: Reason | None,
        *,
        first: bool,
        rated: Sequence[Spelled] | None = None,
        offset: int = 0,
    ) -> Iterable[dict[str, Any]]:
        """Yield the choices for a piece of an answer; the first one has the role."""
        if first:
            yield _delta(index, {"role": "assistant", "content": ""})
        if text or rated:
            yield {**_delta(index, {"content": text}), "logprobs": self.log_probs(rated)}
        if reason:
            yield _delta(index, {}, reason)

    @staticmethod
    def log_probs(rated: Sequence[Spelled] | None) -> dict[str, Any] | None:
        """Return the log-probabilities of tokens, one after the other."""
        if rated is None:
            return None
        content = [
            {
                **_rate(spelling.text, spelling.log_prob),
                "top_logprobs": [_rate(*best) for best in spelling.top],
            }
            for spelling in rated
        ]
        return {"content": content, "refusal": None}


def _rate(text: str, log_prob: float | None) -> dict[str, Any]:
    # A part of a character has no bytes that a text could tell.
    known = None if "\N{REPLACEMENT CHARACTER}" in text else list(text.encode())
    return {"token": text, "logprob": log_prob, "bytes": known}


def _by_text(text: str, log_prob: float, top: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the log-probabilities by the texts of tokens; of tokens with one text the better one counts."""
    by_text: dict[str, float] = {}
    for name, value in ((text, log_prob), *top):
        by_text[name] = max(value, by_text.get(name, value))
    return by_text


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
        """Return one event of a stream; all have `usage` where the client requested it (`counted`)."""
        counts = {"usage": usage.as_dict() if usage else None} if counted else {}
        return {**self._head(self.form.chunk_kind), "choices": list(choices), **counts}

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"{self.form.prefix}-{self.id}",
            "object": kind,
            "created": self.created,
            "model": self.model,
        }


def _delta(index: int, delta: dict[str, str], reason: Reason | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}


def model(name: str, created: int, context: int | None) -> dict[str, Any]:
    """Return the description of a model; `context` is the context length, if known."""
    described = {"id": name, "object": "model", "created": created, "owned_by": "ftbuild"}
    return described if context is None else {**described, "max_model_len": context}


class Stream:
    """The server-sent events of a stream, as bytes; `counted`: with `usage`, where the client requested it.

    All are ASCII: some readers take U+0085, U+2028 and others for the end of a line, and so of an event.
    """

    def __init__(self, envelope: Envelope, *, counted: bool) -> None:
        self._envelope = envelope
        self._counted = counted
        # What stands before and after the text of a piece, which is all that differs between most events.
        self._around: dict[int, tuple[str, str]] = {}

    def piece(
        self,
        index: int,
        text: str,
        reason: Reason | None,
        *,
        first: bool,
        rated: Sequence[Spelled] | None = None,
        offset: int = 0,
    ) -> bytes:
        """Return the events of a piece of the answer `index`, with the ratings of its tokens if there are."""
        if not first and reason is None and rated is None:
            before, after = self._around.get(index) or self._split(index)
            return f"{before}{json.encoder.encode_basestring_ascii(text)}{after}".encode("ascii")
        choices = self._envelope.form.deltas(index, text, reason, first=first, rated=rated, offset=offset)
        return b"".join(event(self._envelope.chunk([each], counted=self._counted)) for each in choices)

    def usage(self, usage: Usage) -> bytes:
        """Return the last event, with the counted tokens; nothing where they are not requested."""
        return event(self._envelope.chunk([], usage, counted=True)) if self._counted else b""

    def _split(self, index: int) -> tuple[str, str]:
        mark = "\N{REPLACEMENT CHARACTER}"
        (choice,) = self._envelope.form.deltas(index, mark, None, first=False)
        whole = event(self._envelope.chunk([choice], counted=self._counted)).decode()
        # The name of the model comes before, and may have the mark.
        before, _, after = whole.rpartition(json.dumps(mark))
        self._around[index] = before, after
        return before, after


DONE = b"data: [DONE]\n\n"


def event(content: dict[str, Any]) -> bytes:
    """Return one server-sent event."""
    return f"data: {json.dumps(content, separators=(',', ':'))}\n\n".encode("ascii")


def embeddings(name: str, vectors: Sequence[Array], tokens: int, encoding: str) -> Iterator[bytes]:
    """Yield the parts of the JSON with the vectors of inputs of so many tokens.

    base64 is of little-endian float32. Each part has one vector: all as numbers take ten times the memory.
    """
    yield b'{"object":"list","data":['
    for number, vector in enumerate(vectors):
        yield b"," if number else b""
        yield b'{"object":"embedding","index":%d,"embedding":%b}' % (number, _encoded(vector, encoding))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    yield b'],"model":%b,"usage":%b}' % (json.dumps(name).encode(), json.dumps(usage).encode())


def _encoded(vector: Array, encoding: str) -> bytes:
    if encoding == "base64":
        return b'"%b"' % base64.b64encode(vector.astype("<f4").tobytes())
    # NaN and infinities are not JSON.
    return to_json(np.nan_to_num(vector).tolist())
