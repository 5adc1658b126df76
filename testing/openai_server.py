"""A small server with OpenAI's completions, whose model is a function: stands in for vLLM and its kind."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from testing.bytelevel import END
from testing.tokens import running

# The log-probabilities of the next tokens, by token, best first.
Model = Callable[[Sequence[int]], Mapping[int, float]]


@dataclass
class Completions:
    """What the server does. `tells`: ids as vLLM, "texts" of tokens with log-probabilities, or "text" alone.

    `refuses`: prompts of these token ids get 400; after `dies_after` answers, connections are closed.
    `whole` replaces the bytes of every completion. `wanted_key`: others get 401.
    """

    model: Model
    tells: str = "ids"
    refuses: Sequence[Sequence[int]] = ()
    dies_after: int | None = None
    whole: bytes | None = None
    wanted_key: str = ""
    longest: int = 10**6
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)

    def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request's body."""
        tokens: list[int] = []
        best = []
        while len(tokens) < min(body["max_tokens"], self.longest) and END not in tokens:
            rated = self.model([*body["prompt"], *tokens])
            tokens.append(max(rated, key=lambda token: rated[token]))
            best.append(rated)
        ended = END in tokens
        choice: dict[str, Any] = {
            "index": 0,
            "text": text(tokens),
            "finish_reason": "stop" if ended else "length",
        }
        if self.tells == "ids":
            named = [{f"token_id:{token}": value for token, value in each.items()} for each in best]
            choice |= {"token_ids": tokens, "logprobs": {"tokens": [f"token_id:{t}" for t in tokens]}}
            choice["logprobs"]["top_logprobs"] = named
        elif self.tells == "texts":
            rated_texts = [{text([token]): value for token, value in each.items()} for each in best]
            written = [text([token]) for token in tokens if token != END]
            choice["logprobs"] = {"tokens": written, "top_logprobs": rated_texts[: len(written)]}
        return {"id": "x", "object": "text_completion", "choices": [choice]}


def text(tokens: Sequence[int]) -> str:
    return bytes(token for token in tokens if token < 256).decode(errors="replace")


def letters(prompt: Sequence[int]) -> dict[int, float]:
    """Continue with the alphabet's next letter, z with the end."""
    last = prompt[-1]
    following = END if last == ord("z") else last + 1
    return {following: math.log(0.9), ord("!"): math.log(0.05), ord("?"): math.log(0.01)}


@contextmanager
def serving(completions: Completions) -> Iterator[Completions]:
    """Serve on a port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.give(200, {"object": "list", "data": [{"id": "tiny"}]} if self.path == "/v1/models" else {})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            wants = {"return_token_ids", "return_tokens_as_token_ids", "logprobs"} & body.keys()
            allowed = {"ids": wants, "texts": {"logprobs"}, "text": set()}[completions.tells]
            key = completions.wanted_key
            if completions.dies_after is not None and len(completions.asked) >= completions.dies_after:
                self.close_connection = True
            elif key and self.headers.get("Authorization") != f"Bearer {key}":
                self.give(401, {"error": {"message": "no key"}})
            elif wants - allowed or list(body["prompt"]) in [list(each) for each in completions.refuses]:
                self.give(400, {"error": {"message": "not supported"}})
            else:
                completions.asked.append(body)
                self.give(200, completions.complete(body))

        def give(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            if status == 200 and self.command == "POST" and completions.whole is not None:
                body = completions.whole
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    completions.url = f"http://127.0.0.1:{http.server_port}/v1"
    with running(http):
        yield completions
