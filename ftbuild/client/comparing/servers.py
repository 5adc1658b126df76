"""Servers that can be compared, by their addresses."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ftbuild.client.comparing.answers import Answer, Choices
from ftbuild.client.comparing.openai import OpenAIServer
from ftbuild.client.comparing.prompts import Prompt
from ftbuild.client.comparing.triton import TritonServer
from ftbuild.client.connection import ANSWER_SECONDS
from ftbuild.config.families import ModelsConfig
from ftbuild.errors import ConfigError, FtbuildError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_OPENAI = re.compile(r"https?://[^/]+/.+")


@dataclass(frozen=True)
class Address:
    """Where a server is.

    `host:port` is Triton's gRPC endpoint, `http://host:port` its HTTP endpoint; a URL with a path, which
    OpenAI's clients call the base URL, is a server with OpenAI's API. `model` is what it calls the model, if
    not as usual; `key` its API key. An answer may take `seconds`.
    """

    url: str
    model: str | None = None
    key: str | None = None
    seconds: float = ANSWER_SECONDS


class Server(Protocol):
    """A server that answers prompts greedily."""

    @property
    def title(self) -> str:
        """Where and what it is."""

    def answer(self, prompt: Prompt, length: int) -> Answer:
        """Return up to `length` tokens; raise Refused, or Unanswered when there is no server any more."""

    def choices(self, prompt: Prompt, answer: Answer, step: int) -> Choices:
        """Return the best tokens at a place of its answer, as far as it returns them; Unanswered as above."""

    def close(self) -> None:
        """End the connection."""


@contextlib.contextmanager
def connected(
    addresses: Mapping[str, Address], models: ModelsConfig, tokenizer: Tokenizer | None
) -> Iterator[dict[str, Server]]:
    """Connect to servers by name; errors as `connect`, which also say the name. Ends the connections."""
    with contextlib.ExitStack() as stack:
        servers: dict[str, Server] = {}
        for name, address in addresses.items():
            try:
                servers[name] = connect(address, models, tokenizer)
            except FtbuildError as wrong:
                wrong.what = f"--{name}: {wrong.what}"
                raise
            stack.callback(servers[name].close)
        yield servers


def connect(address: Address, models: ModelsConfig, tokenizer: Tokenizer | None) -> Server:
    """Return the server at an address, after querying what it serves.

    Raises ConfigError for what is not an address, and for a model that does not generate; Refused when the
    server does not say.
    """
    if _OPENAI.fullmatch(address.url):
        return OpenAIServer(address.url, address.model, address.key, tokenizer, address.seconds)
    if address.key is not None:
        raise ConfigError(
            "an API key for Triton, which has none",
            where=address.url,
            hint="an address of OpenAI's API ends with its path, for instance http://host:8000/v1",
        )
    return TritonServer(address.url, address.model, models, address.seconds)
