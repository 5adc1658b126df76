"""Settings of the service: its options, and what they name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ftserve.front.failures import Failure

LOOPBACK, PORT = "127.0.0.1", 8003
MODEL = "fastertransformer"
MAX_BYTES, MAX_REQUESTS = 1 << 20, 256
# Longer than the backend itself lets a request take by default (600, max_request_seconds).
SECONDS = 660.0


@dataclass(frozen=True)
class Settings:
    """What the service needs to answer.

    `triton` is `host:port` of the gRPC endpoint, `triton_model` its model of token ids, `name` what clients
    call it. `folder` has the tokenizer, and a chat template if `has_template`. `context` is the most tokens
    of prompt and answer, None where only the server knows it. `seconds` is how long an answer may take.
    `keys` are bearer tokens; none: no authentication. `origins` are those of web pages that may call it.
    `special` are the texts of special tokens by their roles, as in tokenizer_config.json. `cancels`: the
    calls of clients that leave are cancelled; None: as the server's version allows.
    """

    triton: str
    triton_model: str
    name: str
    folder: Path
    tokenizer: Any
    has_template: bool = False
    end_id: int | None = None
    context: int | None = None
    keys: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    special: Mapping[str, str] = field(default_factory=dict)
    max_bytes: int = MAX_BYTES
    max_requests: int = MAX_REQUESTS
    seconds: float = SECONDS
    cancels: bool | None = None

    def named(self, name: str | None) -> str:
        """Return the model's name, which a client need not say; Failure (404) when it means another one."""
        if name is not None and name != self.name:
            raise Failure(404, f"there is no model {name[:100]}", param="model", code="model_not_found")
        return self.name


@dataclass(frozen=True)
class Text:
    """What the folder of a tokenizer holds."""

    tokenizer: Any
    has_template: bool
    end_id: int | None
    special: Mapping[str, str]


def read_text(folder: Path, end_id: int | None) -> Text:
    """Load the tokenizer, and try the chat template; ConfigError when one of them cannot be used.

    Without `end_id` an answer ends with the tokenizer's own end, if it names one.
    """
    from ftserve.front import chat, texts, workers

    # In a process with limits: only what loads there is loaded here.
    has_template = workers.has_template(folder)
    tokenizer = texts.load(folder)
    if end_id is None and (named := chat.end_token(folder)):
        end_id = tokenizer.token_to_id(named)
    return Text(tokenizer, has_template, end_id, chat.special_tokens(folder))
