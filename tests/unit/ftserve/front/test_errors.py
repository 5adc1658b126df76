"""Errors of the server, in whole answers and in streams: their statuses, and what fits without a limit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
import requests

from testing import bytelevel, newer_server
from testing.front import Front, front
from testing.newer_server import NewerServer

TEMPLATE = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}a:"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Front, NewerServer]]:
    folder = tmp_path_factory.mktemp("front")
    tokenizer = bytelevel.write(folder / "tokenizer")
    (tokenizer / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    with (
        newer_server.serve("2.51.0", decoupled=True) as (server, address),
        front(address, tokenizer, folder / "log") as found,
    ):
        server.pause = 0.001
        yield found, server


@pytest.fixture
def server(pair: tuple[Front, NewerServer]) -> Iterator[NewerServer]:
    yield pair[1]
    pair[1].error, pair[1].error_after, pair[1].status, pair[1].most = "", 0, None, None


def ask(pair: tuple[Front, NewerServer], path: str, **body: object) -> requests.Response:
    """Ask for the best tokens, the only ones that this server can be asked for."""
    return pair[0].post(path, **{"temperature": 0, **body})


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("message", "status", "expected"),
    [
        ("Server is stopping, scheduler for model has stopped accepting new inference requests", None, 503),
        ("Exceeds maximum queue size", None, 503),
        ("Exceeds maximum queue size", grpc.StatusCode.UNAVAILABLE, 503),
        ("FasterTransformer execute failure: CUDA error", None, 500),
        ("FasterTransformer execute failure: CUDA error", grpc.StatusCode.INTERNAL, 500),
        ("temperature[0] is 7, which is not in the range [0, 1]", None, 400),
        ("input_ids has 9 tokens in a row, and the model takes 4", grpc.StatusCode.INVALID_ARGUMENT, 400),
    ],
)
def test_an_error_has_its_status_with_a_stream_and_without(
    pair: tuple[Front, NewerServer],
    server: NewerServer,
    message: str,
    status: grpc.StatusCode | None,
    expected: int,
    streamed: bool,
) -> None:
    server.error, server.status = message, status
    refused = ask(pair, "completions", prompt="a", max_tokens=3, stream=streamed)
    assert refused.status_code == expected, refused.text
    assert ("Retry-After" in refused.headers) == (expected == 503)
    kind = "invalid_request_error" if expected == 400 else "server_error"
    assert refused.json()["error"]["type"] == kind


def test_an_error_in_the_middle_of_a_stream_is_its_last_event(
    pair: tuple[Front, NewerServer], server: NewerServer
) -> None:
    server.error, server.error_after = "Server not ready", 2
    lines = ask(pair, "completions", prompt="a", max_tokens=9, stream=True).text.split("\n\n")
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line]
    assert "".join(event["choices"][0]["text"] for event in events[:-1]) in ("z", "zz")
    assert events[-1]["error"]["code"] == "server_unavailable"


@pytest.mark.parametrize("streamed", [False, True])
def test_without_a_limit_an_answer_is_what_the_server_has_room_for(
    pair: tuple[Front, NewerServer], server: NewerServer, streamed: bool
) -> None:
    server.most = 12
    said = ask(pair, "chat/completions", messages=[{"role": "user", "content": "Hi"}], stream=streamed)
    assert said.status_code == 200, said.text
    assert said.text.count("z") == (12 - len("u:Hi;a:") if not streamed else said.text.count("z"))
    # A limit that a client sets is not changed.
    refused = ask(pair, "completions", prompt="Hi", max_tokens=99, stream=streamed)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")


def test_several_answers_are_streamed_at_once(pair: tuple[Front, NewerServer], server: NewerServer) -> None:
    options = {"include_usage": True}
    said = ask(
        pair,
        "completions",
        prompt=["a", "bc"],
        n=2,
        max_tokens=5,
        stream=True,
        stream_options=options,
        temperature=0,
    )
    lines = said.text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    texts = dict.fromkeys(range(4), "")
    for event in events[:-1]:
        texts[event["choices"][0]["index"]] += event["choices"][0]["text"]
    assert texts == dict.fromkeys(range(4), "zzzzz")
    assert events[-1]["usage"] == {"prompt_tokens": 3, "completion_tokens": 20, "total_tokens": 23}


def test_a_conversation_goes_on_with_the_message_that_was_the_answer(
    pair: tuple[Front, NewerServer], server: NewerServer
) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    said = ask(pair, "chat/completions", messages=messages, max_tokens=3).json()["choices"][0]["message"]
    more: dict[str, Any] = {
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
        "reasoning": "",
    }
    for message in (said, {**said, **more}):
        again = [*messages, message, {"role": "user", "content": "more"}]
        assert ask(pair, "chat/completions", messages=again, max_tokens=3).status_code == 200
    refused = ask(pair, "chat/completions", messages=[{**said, "refusal": "no"}])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "messages.0.refusal")


@pytest.mark.parametrize("model", ["tiny", None])
def test_the_oldest_paths_name_the_model(
    pair: tuple[Front, NewerServer], server: NewerServer, model: str | None
) -> None:
    url = pair[0].url
    said = requests.post(
        f"{url}/v1/engines/tiny/completions", json={"prompt": "a", "n": 2, "temperature": 0}, timeout=60
    )
    assert [choice["index"] for choice in said.json()["choices"]] == [0, 1]
    unnamed = requests.post(
        f"{url}/v1/completions", json={"prompt": "a", "model": model, "temperature": 0}, timeout=60
    )
    assert unnamed.json()["model"] == "tiny"
    other = requests.post(f"{url}/v1/engines/other/completions", json={"prompt": "a"}, timeout=60)
    assert (other.status_code, other.json()["error"]["code"]) == (404, "model_not_found")
