"""Clients that leave: what the front does to the call, by the version of the server."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from testing import bytelevel, newer_server
from testing.front import NAME, Front, front

LONG = 40


def until(what: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not what() and time.monotonic() < deadline:
        time.sleep(0.02)
    return what()


def leave(found: Front, *, streamed: bool) -> None:
    body = {"model": NAME, "prompt": "a", "max_tokens": LONG, "temperature": 0, "stream": streamed}
    if streamed:
        with requests.post(f"{found.url}/v1/completions", json=body, stream=True, timeout=30) as half:
            assert b"z" in next(half.iter_lines())
    else:
        with pytest.raises(requests.Timeout):
            requests.post(f"{found.url}/v1/completions", json=body, timeout=0.5)


@pytest.mark.parametrize(("decoupled", "streamed"), [(True, True), (True, False), (False, False)])
def test_the_call_of_a_client_that_leaves_is_cancelled(
    decoupled: bool, streamed: bool, tmp_path: Path
) -> None:
    tokenizer = bytelevel.write(tmp_path / "tokenizer")
    with (
        newer_server.serve("2.59.0", decoupled=decoupled) as (server, address),
        front(address, tokenizer, tmp_path / "log") as found,
    ):
        leave(found, streamed=streamed)
        assert until(lambda: server.cancelled == 1)
        # Whole answers are not cancelled, nor are the others.
        assert found.post("completions", prompt="a", max_tokens=2, temperature=0).status_code == 200
        assert until(lambda: server.finished == 1)
    assert server.cancelled == 1


def test_a_stop_sequence_cancels_the_rest(tmp_path: Path) -> None:
    tokenizer = bytelevel.write(tmp_path / "tokenizer")
    with (
        newer_server.serve("2.70.0", decoupled=True) as (server, address),
        front(address, tokenizer, tmp_path / "log") as found,
    ):
        body: dict[str, object] = {"prompt": "a", "max_tokens": LONG, "temperature": 0, "stop": "zzz"}
        said = found.post("completions", **body).json()
        assert (said["choices"][0]["text"], said["usage"]["completion_tokens"]) == ("", 3)
        assert until(lambda: server.cancelled == 1)


def test_no_call_is_cancelled_where_that_could_end_the_server(tmp_path: Path) -> None:
    tokenizer = bytelevel.write(tmp_path / "tokenizer")
    with (
        newer_server.serve("2.58.0", decoupled=True) as (server, address),
        front(address, tokenizer, tmp_path / "log") as found,
    ):
        leave(found, streamed=True)
        leave(found, streamed=False)
    # Nor when the front itself ends: it waits for them.
    assert (server.finished, server.cancelled) == (2, 0)


def test_an_answer_that_takes_too_long_is_a_504(tmp_path: Path) -> None:
    tokenizer = bytelevel.write(tmp_path / "tokenizer")
    with (
        newer_server.serve("2.59.0", decoupled=False) as (server, address),
        front(address, tokenizer, tmp_path / "log", "--seconds", "0.3") as found,
    ):
        late = found.post("completions", prompt="a", max_tokens=LONG, temperature=0)
        assert (late.status_code, late.json()["error"]["code"]) == (504, "timeout")
        assert until(lambda: server.cancelled == 1)
