"""Clients that leave: what the front does to the call, by the version of the server."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from testing import bytelevel, newer_server
from testing.front import NAME, Front, front
from testing.newer_server import NewerServer
from testing.waiting import until

# Tokens: enough for a client to leave in the middle, whatever the load of the machine.
LONG = 400


def leave(found: Front, server: NewerServer, *, streamed: bool, tokens: int = LONG) -> None:
    """Ask, and close the connection once the server computes the answer."""
    body = {"model": NAME, "prompt": "a", "max_tokens": tokens, "temperature": 0, "stream": streamed}
    begun = server.begun
    connection = http.client.HTTPConnection(urlsplit(found.url).netloc, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    if streamed:
        assert b"z" in connection.getresponse().readline()
    assert until(lambda: server.begun == begun + 1)
    connection.close()


@pytest.mark.parametrize(("decoupled", "streamed"), [(True, True), (True, False), (False, False)])
def test_the_call_of_a_client_that_leaves_is_cancelled(
    decoupled: bool, streamed: bool, tmp_path: Path
) -> None:
    tokenizer = bytelevel.write(tmp_path / "tokenizer")
    with (
        newer_server.serve("2.70.0", decoupled=decoupled) as (server, address),
        front(address, tokenizer, tmp_path / "log") as found,
    ):
        leave(found, server, streamed=streamed)
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
        newer_server.serve("2.69.0", decoupled=True) as (server, address),
        front(address, tokenizer, tmp_path / "log") as found,
    ):
        leave(found, server, streamed=True, tokens=40)
        leave(found, server, streamed=False, tokens=40)
    # Nor when the front itself ends: it waits for them.
    assert (server.finished, server.cancelled) == (2, 0)


@pytest.mark.parametrize(("version", "told", "cancelled"), [("2.70.0", "no", 0), ("2.60.0", "yes", 1)])
def test_whether_calls_are_cancelled_can_be_told(
    version: str, told: str, cancelled: int, tmp_path: Path
) -> None:
    """As deployments do, which know the patches of the server's image."""
    tokenizer = bytelevel.write(tmp_path / "tokenizer")
    with (
        newer_server.serve(version, decoupled=True) as (server, address),
        front(address, tokenizer, tmp_path / "log", "--cancel-calls", told) as found,
    ):
        leave(found, server, streamed=True, tokens=40)
        assert until(lambda: server.cancelled + server.finished == 1)
    assert server.cancelled == cancelled


def test_an_answer_that_takes_too_long_is_a_504(tmp_path: Path) -> None:
    tokenizer = bytelevel.write(tmp_path / "tokenizer")
    with (
        newer_server.serve("2.70.0", decoupled=False) as (server, address),
        front(address, tokenizer, tmp_path / "log", "--seconds", "2") as found,
    ):
        late = found.post("completions", prompt="a", max_tokens=LONG, temperature=0)
        assert (late.status_code, late.json()["error"]["code"]) == (504, "timeout")
        assert until(lambda: server.cancelled == 1)
