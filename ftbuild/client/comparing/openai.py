"""A server with OpenAI's API, as one of two servers that are compared.

It is asked for completions of token ids, which leaves no doubt about the prompt. Answers are token ids where
the server tells them (vLLM's return_token_ids, or token_id:N as the text of a token), else its text by the
tokenizer on this machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, Field

from ftbuild.client.comparing.answers import Answer, Choices
from ftbuild.client.comparing.prompts import Prompt
from ftbuild.client.connection import Refused, Unanswered
from ftbuild.errors import ConfigError
from ftbuild.host.redaction import redact
from ftbuild.text import bounded_json, terminal

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_BYTES = 64 * 10**6
MAX_VALUES = 2 * 10**6
# What OpenAI's own API takes at most.
_BEST = 5
# Wishes of a request, most telling first; a server that refuses one gets the next.
_WISHES: Sequence[Mapping[str, Any]] = (
    {"logprobs": _BEST, "return_token_ids": True, "return_tokens_as_token_ids": True},
    {"logprobs": _BEST},
    {},
)
_HINTS = {
    401: "its API key is in the environment variable FTBUILD_OLD_API_KEY or FTBUILD_NEW_API_KEY",
    404: "the address ends where OpenAI's paths begin, for instance http://host:8000/v1",
}
# Token ids are below it, as in every tokenizer.
_IDS = 2**31
M = TypeVar("M", bound=BaseModel)
_TOKEN_ID = re.compile(r"token_id:([0-9]{1,10})")
_TOKENIZER_HINT = "--tokenizer DIR, the folder of the checkpoint"


_Id = Annotated[int, Field(strict=True, ge=0, lt=_IDS)]


class _LogProbs(BaseModel):
    tokens: list[str] | None = None
    top_logprobs: list[dict[str, float | None] | None] | None = None


class _Choice(BaseModel):
    text: str
    finish_reason: str | None = None
    token_ids: list[_Id] | None = None
    logprobs: _LogProbs | None = None


class _Completion(BaseModel):
    choices: list[_Choice]


class _Model(BaseModel):
    id: str


class _Models(BaseModel):
    data: list[_Model]


class OpenAIServer:
    """A connection to one; see `servers.Server`."""

    def __init__(
        self, url: str, model: str | None, key: str | None, tokenizer: Tokenizer | None, seconds: float
    ) -> None:
        """`url` ends where OpenAI's paths begin, as in http://host:8000/v1; `model`: None for its first."""
        import requests

        self._url = url.rstrip("/")
        self._tokenizer = tokenizer
        self._seconds = seconds
        self._wishes = list(_WISHES)
        self._http = requests.Session()
        if key:
            self._http.headers["Authorization"] = f"Bearer {key}"
        self._model = model or self._first_model()

    @property
    def title(self) -> str:
        """Where and what it is."""
        return f"{redact(self._url)}, OpenAI's API, model {terminal.printable(self._model)}"

    def answer(self, prompt: Prompt, length: int) -> Answer:
        """Return up to `length` greedy tokens; raise Refused, Unanswered, ConfigError without a tokenizer."""
        choice = self._completion(prompt, length)
        written = choice.logprobs or _LogProbs()
        tokens = self._tokens(choice, written)
        best = [self._choices(each or {}) for each in written.top_logprobs or ()]
        ended = choice.finish_reason == "stop"
        # With the token that ended it, where the server tells token ids (vLLM's, also without its text).
        has_tokens = choice.token_ids is not None or bool(written.tokens)
        if ended and has_tokens and len(tokens) <= length and self._is_end(tokens):
            return Answer(tuple(tokens[:-1]), True, tokens[-1], tuple(best))
        return Answer(tuple(tokens[:length]), ended, None, tuple(best))

    def choices(self, prompt: Prompt, answer: Answer, step: int) -> Choices:
        """Return the best tokens at a place; they came with the answer."""
        return answer.choices[step] if step < len(answer.choices) else {}

    def close(self) -> None:
        """End the connection."""
        self._http.close()

    def _first_model(self) -> str:
        names = [each.id for each in self._checked(_Models, "GET", "models", None).data]
        if not names:
            raise ConfigError("the server serves no model", where=self._url)
        return names[0]

    def _completion(self, prompt: Prompt, length: int) -> _Choice:
        body = {
            "model": self._model,
            "prompt": list(prompt.tokens),
            "max_tokens": length,
            "temperature": 0,
        }
        while True:
            try:
                answer = self._checked(_Completion, "POST", "completions", {**body, **self._wishes[0]})
                break
            except _Unwanted as refused:
                if len(self._wishes) == 1:
                    raise Refused(refused.what, where=refused.where, hint=refused.hint) from refused
                self._wishes.pop(0)
        if not answer.choices:
            raise Refused("the answer has no choices", where=self._url)
        return answer.choices[0]

    def _tokens(self, choice: _Choice, written: _LogProbs) -> list[int]:
        if choice.token_ids is not None:
            return choice.token_ids
        named = [_numbered(each) for each in written.tokens or ()]
        numbers = [each for each in named if each is not None]
        if named and len(numbers) == len(named):
            return numbers
        if self._tokenizer is None:
            raise ConfigError(
                "the server returns text only, without token ids",
                where=self._url,
                hint=_TOKENIZER_HINT,
            )
        ids = [self._id(each) for each in written.tokens or ()]
        known = [each for each in ids if each is not None]
        if ids and len(known) == len(ids) and self._tokenizer.decode(known) == choice.text:
            return known
        return list(self._tokenizer.encode(choice.text, add_special_tokens=False).ids)

    def _is_end(self, tokens: Sequence[int]) -> bool:
        """Return whether the last token has no text of its own, as the one that ends an answer."""
        if not tokens:
            return False
        return self._tokenizer is None or not self._tokenizer.decode([tokens[-1]])

    def _choices(self, best: Mapping[str, float | None]) -> dict[int, float]:
        choices = {}
        for text, value in best.items():
            token = self._id(text)
            if token is not None and value is not None:
                choices[token] = value
        return choices

    def _id(self, text: str) -> int | None:
        """Return the token of a text, None where it is unknown, or several."""
        if (number := _numbered(text)) is not None or self._tokenizer is None:
            return number
        known: int | None = self._tokenizer.token_to_id(text)
        if known is not None:
            return known
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids[0] if len(ids) == 1 else None

    def _checked(self, kind: type[M], method: str, path: str, body: Any) -> M:
        """Return an answer as a model; Unanswered without one, _Unwanted for 400 and 422, else Refused."""
        import requests

        url = f"{self._url}/{path}"
        try:
            with self._http.request(method, url, json=body, timeout=self._seconds, stream=True) as answer:
                content = b""
                for piece in answer.iter_content(1 << 16):
                    content += piece
                    if len(content) > MAX_BYTES:
                        raise Refused(f"the answer has more than {MAX_BYTES / 1e6:g} MB", where=url)
        except (requests.RequestException, OSError) as broken:
            raise Unanswered(f"no answer: {terminal.printable(str(broken))[:300]}", where=url) from broken
        if answer.status_code != 200:
            excerpt = terminal.printable(content[:300].decode(errors="replace"))
            kind_of = _Unwanted if answer.status_code in (400, 422) else Refused
            raise kind_of(
                f"answered {answer.status_code}: {excerpt}", where=url, hint=_HINTS.get(answer.status_code)
            )
        try:
            return bounded_json.model(kind, content, MAX_VALUES)
        except bounded_json.Unfit as wrong:
            raise Refused(f"not an answer of OpenAI's API: {wrong}", where=url, hint=_HINTS[404]) from wrong


def _numbered(text: str) -> int | None:
    """Return the number in token_id:N."""
    match = _TOKEN_ID.fullmatch(text)
    return int(match[1]) if match and int(match[1]) < _IDS else None


class _Unwanted(Refused):
    """The server does not take this request (400, 422)."""
