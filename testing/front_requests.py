"""Requests to the OpenAI front from seeds: right ones, spoilt ones, and what only an attacker sends.

    FTBUILD_FUZZ=10 python -m pytest -s tests/unit/ftserve/front/test_mutations.py

tries random seeds for ten minutes, and says the seed of what goes wrong.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from typing import Any

from testing import mutations
from testing.front import NAME
from testing.hostile import http_requests
from testing.hostile.http_requests import Attempt

_GENERATION: Mapping[str, Any] = {
    "max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "n": 1, "stream": False, "stop": ["zz", "y"],
    "seed": 1, "presence_penalty": 0.0, "frequency_penalty": 0, "user": "u", "logit_bias": {},
    "top_k": 1, "min_p": 0,
    "stream_options": None, "ignore_eos": False, "repetition_penalty": 1.0, "best_of": 1, "min_tokens": 2,
    "stop_token_ids": [90, 5], "logprobs": 1, "echo": True,
}  # fmt: skip
_COMPLETION = {"model": NAME, "prompt": "ab", "echo": False, "logprobs": None, "suffix": None}
_CHAT = {
    "model": NAME,
    "messages": [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}], "name": "x"},
        {"role": "assistant", "content": "ho", "tool_calls": None},
        {"role": "user", "content": "ha"},
    ],
    "tools": None, "response_format": {"type": "text"}, "logprobs": False, "max_completion_tokens": 2,
}  # fmt: skip
_PROMPTS: tuple[Any, ...] = ("", "a", ["a", "b"], [97, 98], [[97], [98, 99]], "\ud800", "é" * 50, "\x00", [])
_BODIES: Mapping[str, Mapping[str, Any]] = {
    "/v1/completions": _COMPLETION,
    f"/v1/engines/{NAME}/completions": _COMPLETION,
    "/v1/chat/completions": _CHAT,
    "/v1/embeddings": {"model": NAME, "input": "a", "encoding_format": "base64", "dimensions": None},
    "/tokenize": {"model": NAME, "prompt": "ab", "add_special_tokens": True},
    "/detokenize": {"model": NAME, "tokens": [97, 98]},
}
# Their bodies have none of what is asked of an answer.
_PLAIN = ("/v1/embeddings", "/tokenize", "/detokenize")
_JSON = "application/json"
_PATHS = (
    *_BODIES, "/v1/models", f"/v1/models/{NAME}", "/health", "/", "/v1", "/v1/completions/", "/v1/x",
    "/metrics", "/version", "/tokenizer_info",
)  # fmt: skip
# Where requests to a Triton go, for those of its kinds that are about HTTP, not about JSON.
_TARGET = re.compile(rb"/v2[^ ]*")
_OF_HTTP = (
    "headers", "numbers in headers", "chunks", "compression", "methods and paths", "depth and numbers",
    "several on a connection", "garbage", "gone before the answer",
)  # fmt: skip


def attempt(seed: int) -> Attempt:
    """Make the request of a seed."""
    rng = random.Random(seed)
    kind = rng.choices(tuple(KINDS), [weight for weight, _ in KINDS.values()])[0]
    return KINDS[kind][1](seed, rng)


def right(path: str = "/v1/completions", **changed: Any) -> Attempt:
    """Return a request that is answered by 200."""
    body = json.dumps({**_BODIES[path], "max_tokens": 2, "temperature": 0, **changed}).encode()
    return Attempt(0, "right", _message(path, body))


def _content(rng: random.Random) -> tuple[str, dict[str, Any]]:
    path = rng.choice(tuple(_BODIES))
    content = dict(_BODIES[path])
    if path not in _PLAIN:
        names = rng.sample(tuple(_GENERATION), rng.choice((1, 3, 6)))
        content |= {"max_tokens": 3, **{name: _GENERATION[name] for name in names}}
        # All that the model knows, which has no inputs for chance.
        content["temperature"] = 0 if rng.random() < 0.9 else _GENERATION["temperature"]
        content["stream"] = rng.random() < 0.3
    if "prompt" in content:
        content["prompt"] = rng.choice(_PROMPTS)
    if "input" in content:
        content["input"] = rng.choice(_PROMPTS)
    return path, content


def _message(path: str, body: bytes, content_type: str = _JSON) -> list[bytes]:
    headers = [("Connection", "close"), ("Content-Type", content_type)]
    return [http_requests.message("POST", path, headers, body)]


def _right(seed: int, rng: random.Random) -> Attempt:
    path, content = _content(rng)
    content_type = rng.choice((*[_JSON] * 8, f"{_JSON}; charset=utf-8", "text/plain", "", "x" * 3000))
    return Attempt(seed, "right", _message(path, json.dumps(content).encode(), content_type))


def _parameters(seed: int, rng: random.Random) -> Attempt:
    path, content = _content(rng)
    body = json.dumps(mutations.data(rng, content)).encode("utf-8", "surrogatepass")
    return Attempt(seed, "parameters", _message(path, body))


def _text(seed: int, rng: random.Random) -> Attempt:
    """JSON with bytes changed, lines lost, or that is none."""
    path, content = _content(rng)
    return Attempt(seed, "text", _message(path, mutations.raw(rng, json.dumps(content))))


def _great(seed: int, rng: random.Random) -> Attempt:
    """Values of a size that only an attacker sends, in the place of any other."""
    path, content = _content(rng)
    many = rng.choice((1000, 50_000, 200_000))
    value: Any = rng.choice((
        "a" * many, "🙂" * (many // 4), ["a"] * many, [[1]] * (many // 4), [{}] * (many // 4), 10**4000,
        {str(number): number for number in range(many // 8)}, [97] * many, mutations.nested(900),
        "{{" * (many // 2), " " * many, ["zz" * 30] * 100, "\u0301" * (many // 2), -(10**300), 1e308,
    ))  # fmt: skip
    holder: Any = content
    key: Any = rng.choice(tuple(content))
    if isinstance(content.get("messages"), list) and rng.random() < 0.5:
        content["messages"] = [dict(each) for each in content["messages"]]
        holder, key = content["messages"][1], rng.choice(("role", "content", "name", "x"))
    holder[key] = value
    return Attempt(seed, "great values", _message(path, json.dumps(content).encode()))


def _http(seed: int, rng: random.Random) -> Attempt:
    made = http_requests.attempt(rng.getrandbits(48), _OF_HTTP)
    path = rng.choice(_PATHS).encode()
    parts = [_TARGET.sub(path, part) if len(part) < 100_000 else part for part in made.parts]
    parts[0] = parts[0].replace(b"\r\n", b"\r\nContent-Type: application/json\r\n", 1)
    return Attempt(seed, made.kind, parts, made.end)


KINDS: Mapping[str, tuple[int, Callable[[int, random.Random], Attempt]]] = {
    "right": (3, _right),
    "parameters": (6, _parameters),
    "text": (2, _text),
    "great values": (2, _great),
    "http": (4, _http),
}
