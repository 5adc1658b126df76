"""`min_tokens` without `max_tokens`: the least is kept, or refused by name, whoever knows what fits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from testing import bytelevel
from testing.front import Front, front
from testing.grpc_service import listening
from testing.rated_server import RatedServer

# Tokens of prompt and answer that the server takes, and those of the prompt "Hi".
MOST, PROMPT = 20, 2
VOCABULARY = bytelevel.END + 1
_Z = [float(token == ord("z")) for token in range(VOCABULARY)]


class LimitedServer(RatedServer):
    """A server that alone knows its positions: it refuses more in the backend's words."""

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802 (names of the protocol)
        sizes = {
            tensor.name: np.frombuffer(raw, np.uint32)
            for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True)
            if tensor.datatype == "UINT32"
        }
        length, room = int(sizes["request_output_len"][0]), MOST - int(sizes["input_lengths"][0])
        if length > room:
            words = f"request_output_len[0] is {length}, which is not in the range [0, {room}]"
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, words)
        return super().ModelInfer(request, context)


@contextmanager
def asking(folder: Path, *options: str) -> Iterator[Front]:
    """A front with a chat template, before a server that says nothing but z, and takes MOST tokens."""
    tokenizer = bytelevel.write(folder / "tokenizer")
    described = {"eos_token": "<|endoftext|>", "chat_template": "{{ messages[0].content }}"}
    (tokenizer / "tokenizer_config.json").write_text(json.dumps(described))
    with (
        listening(LimitedServer(lambda _: _Z, VOCABULARY), threads=1) as address,
        front(address, tokenizer, folder / "log", *options) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with asking(tmp_path_factory.mktemp("limited")) as found:
        yield found


def chat(asked: Front, **wishes: object) -> Any:
    messages = [{"role": "user", "content": "Hi"}]
    return asked.post("chat/completions", messages=messages, temperature=0, **wishes)


@pytest.mark.parametrize("least", [0, 1, 3, MOST - PROMPT - 1, MOST - PROMPT])
def test_an_answer_has_its_least_tokens_and_as_many_as_the_server_takes(asked: Front, least: int) -> None:
    said = chat(asked, min_tokens=least)
    assert said.status_code == 200, said.text
    choice, tokens = said.json()["choices"][0], said.json()["usage"]["completion_tokens"]
    assert (choice["message"]["content"], tokens) == ("z" * (MOST - PROMPT), MOST - PROMPT)
    assert choice["finish_reason"] == "length"


def test_a_stream_that_has_begun_ends_where_the_server_has_no_more_room(asked: Front) -> None:
    lines = chat(asked, min_tokens=3, stream=True).text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    choices = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines[:-2]]
    assert "".join(choice["delta"].get("content", "") for choice in choices) == "z" * (MOST - PROMPT)
    assert choices[-1]["finish_reason"] == "length"


def test_more_least_tokens_than_the_server_takes_are_too_many(asked: Front) -> None:
    refused = chat(asked, min_tokens=MOST - PROMPT + 1)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")


def test_a_length_that_a_client_names_is_not_cut(asked: Front) -> None:
    refused = chat(asked, min_tokens=3, max_tokens=MOST)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")


def test_more_least_tokens_than_the_default_of_completions_are_named(asked: Front) -> None:
    said = asked.post("completions", prompt="Hi", temperature=0, min_tokens=16)
    assert said.json()["usage"]["completion_tokens"] == 16
    refused = asked.post("completions", prompt="Hi", temperature=0, min_tokens=17)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "min_tokens")
    assert "the 16 tokens of an answer without max_tokens" in refused.json()["error"]["message"]


def test_more_least_tokens_than_the_context_has_are_too_many(tmp_path: Path) -> None:
    with asking(tmp_path, "--context", "10") as asked:
        assert chat(asked, min_tokens=8).json()["usage"]["completion_tokens"] == 8
        refused = chat(asked, min_tokens=9)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
