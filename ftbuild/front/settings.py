"""Settings of the service: its options, and what they name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftbuild.errors import ConfigError
from ftbuild.front import chat
from ftbuild.front.chat import ChatTemplate
from ftbuild.front.failures import Failure

LOOPBACK, PORT = "127.0.0.1", 8003
# The variable with an API key: on a command line everybody on the machine could read it.
KEY_VARIABLE = "FTBUILD_OPENAI_API_KEY"
MODEL = "fastertransformer"
MOST_BYTES, MOST_REQUESTS = 1 << 20, 256
# Longer than the backend itself lets a request take by default (600, max_request_seconds).
SECONDS = 660.0
SHORTEST_KEY = 16


@dataclass(frozen=True)
class Settings:
    """What the service needs to answer.

    `triton` is `host:port` of the gRPC endpoint, `triton_model` its model of token ids, `name` what clients
    call it. `context` is the most tokens of prompt and answer, None where only the server knows it. `seconds`
    is how long an answer may take. `keys` are bearer tokens; none: everybody may ask.
    """

    triton: str
    triton_model: str
    name: str
    tokenizer: Any
    template: ChatTemplate | None = None
    end_id: int | None = None
    context: int | None = None
    keys: tuple[str, ...] = ()
    most_bytes: int = MOST_BYTES
    most_requests: int = MOST_REQUESTS
    seconds: float = SECONDS

    def require(self, name: str) -> None:
        """Raise Failure (404) unless a client means this model."""
        if name != self.name:
            raise Failure(404, f"there is no model {name[:100]}", param="model", code="model_not_found")


@dataclass(frozen=True)
class Text:
    """What the folder of a tokenizer holds."""

    tokenizer: Any
    template: ChatTemplate | None
    end_id: int | None


def read_text(folder: Path, end_id: int | None) -> Text:
    """Load tokenizer and chat template; ConfigError when there is no usable tokenizer.

    Without `end_id` an answer ends with the tokenizer's own end, if it names one.
    """
    from ftbuild.models.tokenization import texts

    try:
        tokenizer = texts.load(folder)
    except Exception as broken:  # the library raises Exception itself
        raise ConfigError(
            f"no usable tokenizer: {str(broken)[:200]}",
            where=str(folder),
            hint="--tokenizer: the folder with tokenizer.json, or vocab.json and merges.txt",
        ) from broken
    if end_id is None and (named := chat.end_token(folder)):
        end_id = tokenizer.token_to_id(named)
    return Text(tokenizer, chat.read(folder), end_id)


def read_keys(file: Path | None, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the API keys of a file, one a line, and of the environment; ConfigError for a weak one."""
    keys = [environment[KEY_VARIABLE]] if environment.get(KEY_VARIABLE) else []
    where = KEY_VARIABLE
    if file is not None:
        where = str(file)
        try:
            keys += [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeError) as unreadable:
            raise ConfigError("the file with API keys cannot be read", where=where) from unreadable
        if not keys:
            raise ConfigError("the file with API keys has none", where=where, hint="one key a line")
    if any(len(key) < SHORTEST_KEY or not key.isascii() or not key.isprintable() for key in keys):
        raise ConfigError(
            f"an API key has fewer than {SHORTEST_KEY} characters, or others than ASCII",
            where=where,
            hint="openssl rand -hex 32 makes one",
        )
    return tuple(keys)
