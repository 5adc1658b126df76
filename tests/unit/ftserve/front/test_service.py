"""The service without a server: keys, limits, errors, start and end. It runs as a process of its own."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from testing import ROOT, bytelevel, needs
from testing.front import NAME, Front, front

KEY, OTHER = "0123456789abcdef" * 2, "fedcba9876543210" * 2
# Nobody listens there.
NOWHERE = "127.0.0.1:9"


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("front")
    (folder / "keys").write_text(f"{OTHER}\n\n")
    options = ("--api-key-file", str(folder / "keys"), "--max-bytes", "2000")
    tokenizer = bytelevel.write(folder / "tokenizer")
    with front(NOWHERE, tokenizer, folder / "log", *options, FTBUILD_OPENAI_API_KEY=KEY) as found:
        yield found


def raw(found: Front, sent: bytes, *, seconds: float = 20) -> bytes:
    """Return what comes for some bytes until the connection ends, or for so many seconds."""
    host, port = found.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=seconds) as connection:
        answered = b""
        with contextlib.suppress(ConnectionError, TimeoutError):
            connection.sendall(sent)
            while part := connection.recv(65536):
                answered += part
    return answered


def post(found: Front, body: bytes, **headers: str) -> requests.Response:
    sent = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}", **headers}
    return requests.post(f"{found.url}/v1/completions", data=body, headers=sent, timeout=60)


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer x", f"Basic {KEY}", f"Bearer {KEY[:-1]}", f"Bearer {KEY}x"]
)
def test_without_its_key_nothing_is_answered(asked: Front, authorization: str) -> None:
    for path in ("/v1/models", "/v1/nothing", "/"):
        refused = requests.get(asked.url + path, headers={"Authorization": authorization}, timeout=60)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")


@pytest.mark.parametrize("key", [KEY, OTHER])
def test_keys_come_from_the_environment_and_from_a_file(asked: Front, key: str) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    found = requests.get(f"{asked.url}/v1/models", headers=headers, timeout=60)
    assert [model["id"] for model in found.json()["data"]] == [NAME]


def test_without_a_server_an_answer_is_a_503(asked: Front) -> None:
    body = json.dumps({"model": NAME, "prompt": "a"}).encode()
    refused = post(asked, body)
    assert (refused.status_code, refused.json()["error"]["type"]) == (503, "server_error")
    assert requests.get(f"{asked.url}/health", timeout=60).status_code == 503


@pytest.mark.parametrize("chunked", [False, True])
def test_a_request_that_is_too_large_is_refused(asked: Front, chunked: bool) -> None:
    body = json.dumps({"model": NAME, "prompt": "a" * 3000}).encode()
    with requests.Session() as session:
        sent = iter([body[:1500], body[1500:]]) if chunked else body
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
        refused = session.post(f"{asked.url}/v1/completions", data=sent, headers=headers, timeout=30)
    assert (refused.status_code, refused.json()["error"]["code"]) == (413, "request_too_large")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"\xff", b'{"model": "tiny"}', b'{"model": 5, "prompt": "a"}', b"[" * 1500],
)
def test_a_malformed_body_is_a_400(asked: Front, body: bytes) -> None:
    refused = post(asked, body)
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")


def test_a_body_of_another_type_is_named(asked: Front) -> None:
    refused = post(asked, b'{"model": "tiny", "prompt": "a"}', **{"Content-Type": "text/plain"})
    assert "Content-Type: application/json" in refused.json()["error"]["message"]


@pytest.mark.parametrize("coding", ["gzip", "br", "identity, deflate", "aws-chunked"])
def test_a_compressed_body_is_a_415_that_says_what_is_read(asked: Front, coding: str) -> None:
    body = gzip.compress(b'{"model": "tiny", "prompt": "a"}')
    refused = post(asked, body, **{"Content-Encoding": coding})
    assert (refused.status_code, refused.headers["Accept-Encoding"]) == (415, "identity")
    assert refused.json()["error"]["type"] == "invalid_request_error"
    assert "uncompressed" in refused.json()["error"]["message"]


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"gzip\r\nTransfer-Encoding: chunked"])
def test_a_body_that_is_compressed_for_its_way_is_a_501(asked: Front, coding: bytes) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    head += b"Authorization: Bearer %b\r\nTransfer-Encoding: %b\r\n\r\n" % (KEY.encode(), coding)
    answered = raw(asked, head + b"2\r\n{}\r\n0\r\n\r\n")
    assert answered.startswith(b"HTTP/1.1 501 ")
    assert b"Transfer-Encoding other than chunked" in answered


@pytest.mark.parametrize("coding", ["", "identity", "Identity"])
def test_a_body_that_says_to_be_as_it_is_is_read(asked: Front, coding: str) -> None:
    assert post(asked, b'{"prompt": 5}', **{"Content-Encoding": coding}).json()["error"]["param"] == "prompt"


def test_a_wrong_value_is_named_and_neither_told_nor_logged(asked: Front) -> None:
    refused = post(asked, b'{"model": "tiny", "prompt": "a secret", "temperature": "a secret"}')
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, "temperature")
    assert "secret" not in json.dumps(error) + asked.log.read_text()
    assert KEY not in asked.log.read_text()


def test_a_client_that_sends_half_a_request_holds_up_nobody(asked: Front) -> None:
    host, port = asked.url.removeprefix("http://").split(":")
    halves = [socket.create_connection((host, int(port))) for _ in range(20)]
    fields = ("Host: a", f"Authorization: Bearer {KEY}", "Content-Length: 90")
    head = "\r\n".join(["POST /v1/completions HTTP/1.1", *fields, "", ""])
    for half in halves:
        half.sendall(head.encode() + b"{")
    start = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: post(asked, b"{"), range(4)))
    assert [answer.status_code for answer in answers] == [400] * 4
    assert time.monotonic() - start < 20
    for half in halves:
        half.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tokenizer", "/nowhere"], "no usable tokenizer"),
        (["--api-key-file", "/nowhere/keys"], "cannot be read"),
        (["--api-key-file", "{tmp}/short"], "fewer than 16 characters"),
        (["--api-key-file", "{tmp}/empty"], "has none"),
        (["--port", "x"], "not a whole number"),
        (["--port", "65536"], "not a whole number from 1 to 65535"),
        (["--end-id", "4294967296"], "not a whole number"),
        (["--context", "0"], "not a whole number"),
        (["--triton", "localhost"], "is not HOST:PORT"),
        (["--seconds", "nan"], "not a number of seconds"),
    ],
)
def test_a_wrong_option_ends_with_2_and_a_reason(options: list[str], words: str, tmp_path: Path) -> None:
    needs.package("tokenizers")
    tokenizer = bytelevel.write(tmp_path / "tokenizer")
    (tmp_path / "short").write_text("abc\n")
    (tmp_path / "empty").write_text("\n")
    given = [option.format(tmp=tmp_path) for option in options]
    required = ["--triton", NOWHERE, "--name", NAME, "--tokenizer", str(tokenizer)]
    done = subprocess.run(
        [sys.executable, "-m", "ftserve.front", *required, *given],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr


def test_a_refusal_has_the_fields_that_it_must_have(asked: Front) -> None:
    """RFC 9110: 15.5.2 and 15.5.6; and when to come back."""
    headers = {"Authorization": f"Bearer {KEY}"}
    refused = requests.get(f"{asked.url}/v1/models", timeout=60)
    assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
    for method, path in (
        ("GET", "completions"),
        ("POST", "models"),
        ("PUT", "embeddings"),
        ("GET", "engines/a/completions"),
    ):
        refused = requests.request(method, f"{asked.url}/v1/{path}", headers=headers, timeout=60)
        assert refused.status_code == 405
        assert "POST" in refused.headers["Allow"] or "GET" in refused.headers["Allow"]
        assert refused.json()["error"]["type"] == "invalid_request_error"
    away = post(asked, json.dumps({"model": NAME, "prompt": "a"}).encode())
    assert (away.status_code, int(away.headers["Retry-After"]) > 0) == (503, True)


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/v1/completions", "/v1/nothing"])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_nobody_wants_ends_the_connection(asked: Front, path: str, chunked: bool) -> None:
    form = (
        b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n" if chunked else b"Content-Length: 100000000\r\n\r\n{"
    )
    start = time.monotonic()
    answered = raw(asked, b"POST %b HTTP/1.1\r\nHost: a\r\n" % path.encode() + form)
    assert b"connection: close" in answered.lower()
    assert time.monotonic() - start < 10


def test_who_has_no_key_takes_no_place(asked: Front) -> None:
    host, port = asked.url.removeprefix("http://").split(":")
    slow = [socket.create_connection((host, int(port))) for _ in range(300)]
    for number, each in enumerate(slow):
        path = b"/health" if number % 2 else b"/v1/completions"
        each.sendall(b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{" % path)
    assert post(asked, b"{").status_code == 400
    for each in slow:
        each.close()


def test_what_is_only_looked_up_takes_no_place(tmp_path: Path) -> None:
    tokenizer = bytelevel.write(tmp_path / "tokenizer")
    with front(NOWHERE, tokenizer, tmp_path / "log", "--most-requests", "1") as found:
        host, port = found.url.removeprefix("http://").split(":")
        body = json.dumps({"prompt": "a"}).encode()
        head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: requests.get(f"{found.url}/v1/models", timeout=60), range(40)))
        assert {answer.status_code for answer in answers} == {200}
        # Nor does a body that is on its way.
        with socket.create_connection((host, int(port))) as half:
            half.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body[:-1])
            assert found.post("completions", prompt="a").status_code == 503


def test_the_log_has_no_query(asked: Front) -> None:
    requests.get(f"{asked.url}/v1/models?api_key=a-secret-of-somebody", timeout=60)
    log = asked.log.read_text()
    assert "/v1/models" in log
    assert "secret" not in log


def test_old_clients_of_code_completion_are_understood(asked: Front) -> None:
    """No model, or one in the path, several answers with a stream: refused for the server alone."""
    many = {"prompt": "def a", "suffix": "", "max_tokens": 50, "temperature": 0.4, "n": 10, "stop": ["\n#"]}
    headers = {"Authorization": f"Bearer {KEY}"}
    for body in ({**many, "logprobs": 2, "stream": True}, {"prompt": "def a", "max_tokens": 50}):
        for path in (f"engines/{NAME}/completions", "completions"):
            refused = requests.post(f"{asked.url}/v1/{path}", json=body, headers=headers, timeout=60)
            assert refused.status_code == 503, refused.text


def test_without_its_packages_the_front_says_which_it_needs(tmp_path: Path) -> None:
    bare = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = [{str(ROOT)!r}]\n"
            "from ftserve.front.__main__ import main\n"
            "sys.exit(main(['--triton', 'a:1', '--tokenizer', 'b', '--name', 'c']))"]  # fmt: skip
    done = subprocess.run(bare, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "Traceback" in done.stderr) == (4, False), done.stderr
    assert "starlette" in done.stderr
    assert "pip install ftserve/front" in done.stderr


@pytest.mark.parametrize("template", ["{% break %}", "{% if %}"])
def test_a_template_that_is_none_ends_the_start_with_2(template: str, tmp_path: Path) -> None:
    tokenizer = bytelevel.write(tmp_path / "tokenizer")
    (tokenizer / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    done = subprocess.run(
        [sys.executable, "-m", "ftserve.front", "--triton", NOWHERE, "--name", NAME,
         "--tokenizer", str(tokenizer)],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert "the chat template is broken" in done.stderr
