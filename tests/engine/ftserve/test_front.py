"""The OpenAI front on a real server: the sample stack's GPT, asked with OpenAI's own client and with curl."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
import requests

from ftbuild import triton
from ftbuild.client import server_container
from ftbuild.client.server_container import Server
from ftbuild.config import loader
from ftbuild.models import repository
from ftbuild.models.repository import RepositoryOptions
from ftbuild.plan import Plan
from testing import ROOT, bytelevel, needs
from testing.front import END_ID, NAME, PAUSE_MS, Front, front, slow_model
from testing.sample import SAMPLE
from testing.waiting import until

if TYPE_CHECKING:
    import docker
    import openai
    from docker.models.networks import Network
else:
    openai = needs.package("openai")

CONVERTERS = {
    "gpt": "gpt.utils.huggingface_gpt_convert",
    "t5": "t5.utils.huggingface_t5_ckpt_convert",
}
CONTEXT = 128
# A prompt whose greedy answer is nothing but ASCII, found by the reference (`asked`).
LENGTH = 3
TEMPLATE = (
    "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}"
)


@pytest.fixture(scope="module")
def checkpoint(reference: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return converted(reference, tmp_path_factory.mktemp("gpt"), "gpt")


def converted(reference: ModuleType, folder: Path, family: str) -> Path:
    """Write a checkpoint with its tokenizer, a chat template, and weights."""
    reference.write(reference.make(), family, folder)
    bytelevel.write(folder)
    described = {"chat_template": TEMPLATE, "eos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    arguments = ["-i", str(folder), "-o", str(folder / "weights"), "-i_g", "1"]
    command = [sys.executable, "-B", "-m", f"examples.pytorch.{CONVERTERS[family]}", *arguments]
    subprocess.run(command, cwd=ROOT / "sample/upstream/FasterTransformer/base", check=True)
    return folder


def served(
    client: docker.DockerClient,
    built: Plan,
    checkpoint: Path,
    out: Path,
    *,
    streamed: bool,
    family: str = "gpt",
) -> Path:
    found = repository.templates(client, built.tag("sdk"), family)
    weights = checkpoint / "weights"
    families = loader.load(SAMPLE).models
    options = RepositoryOptions(
        family, weights, out, dtype="fp32", bare=True, streamed=streamed, families=families
    )
    return repository.make(found, options).folder


@pytest.fixture(scope="module", params=[True, False], ids=["streams", "answers-at-once"])
def asked(
    request: pytest.FixtureRequest,
    client: docker.DockerClient,
    built: Plan,
    checkpoint: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Front]:
    """The front of a server whose model streams, and of one whose model does not."""
    folder = tmp_path_factory.mktemp("served")
    models = served(client, built, checkpoint, folder / "models", streamed=request.param)
    with (
        server_container.serve(built.tag("runtime"), models) as running,
        front(running.grpc, checkpoint, folder / "log", "--context", str(CONTEXT)) as found,
    ):
        yield found


@pytest.fixture
def client_of(asked: Front) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{asked.url}/v1", api_key="none", max_retries=0) as found:
        yield found


def answer(reference: ModuleType, prompt: str, length: int) -> list[int]:
    tokens: list[int] = reference.greedy(reference.make(), prompt.encode()[-1], length).tokens
    return tokens


def text(tokens: list[int]) -> str:
    return bytes(token for token in tokens if token < 256).decode(errors="replace")


def letter(reference: ModuleType) -> str:
    """A letter whose next tokens are different letters of ASCII."""
    for code in range(ord("A"), ord("z")):
        tokens = answer(reference, chr(code), LENGTH)
        if max(tokens) < 128 and len(set(tokens)) == LENGTH:
            return chr(code)
    raise AssertionError("no letter is followed by tokens of ASCII")


def test_completions_are_the_models_own_tokens(client_of: openai.OpenAI, reference: ModuleType) -> None:
    found = client_of.completions.create(model=NAME, prompt="Hi", max_tokens=9, temperature=0)
    tokens = answer(reference, "Hi", 9)
    assert found.choices[0].text == text(tokens)
    assert found.choices[0].finish_reason == "length"
    assert found.usage is not None
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens) == (2, 9, 11)
    by_ids = client_of.completions.create(model=NAME, prompt=list(b"Hi"), max_tokens=9, temperature=0)
    assert by_ids.choices[0].text == found.choices[0].text


def test_a_stream_has_the_same_text_and_the_counts(client_of: openai.OpenAI, reference: ModuleType) -> None:
    events = list(
        client_of.completions.create(
            model=NAME,
            prompt="Hi",
            max_tokens=9,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert "".join(event.choices[0].text for event in events[:-1]) == text(answer(reference, "Hi", 9))
    assert [event.choices[0].finish_reason for event in events[:-1]][-1] == "length"
    assert events[-1].choices == []
    assert events[-1].usage is not None
    assert events[-1].usage.total_tokens == 11
    assert {event.id for event in events} == {events[0].id}


def test_a_conversation_goes_through_the_checkpoints_template(
    client_of: openai.OpenAI, reference: ModuleType
) -> None:
    messages: Any = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ]
    rendered = "s:be kind;u:Hi;a:"
    found = client_of.chat.completions.create(
        model=NAME, messages=messages, max_completion_tokens=6, temperature=0
    )
    wanted = text(answer(reference, rendered, 6))
    assert found.choices[0].message.role == "assistant"
    assert found.choices[0].message.content == wanted
    assert found.usage is not None
    assert found.usage.prompt_tokens == len(rendered)
    stream = client_of.chat.completions.create(
        model=NAME, messages=messages, max_tokens=6, temperature=0, stream=True
    )
    deltas = [event.choices[0].delta for event in stream]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == wanted


def test_without_a_limit_a_conversation_ends_where_the_context_does(client_of: openai.OpenAI) -> None:
    found = client_of.chat.completions.create(
        model=NAME, messages=[{"role": "user", "content": "Hi"}], temperature=0
    )
    assert found.usage is not None
    finished = found.choices[0].finish_reason
    assert (finished == "length") == (found.usage.total_tokens == CONTEXT)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_stop_sequence_ends_the_answer_and_is_not_in_it(
    client_of: openai.OpenAI, reference: ModuleType, streamed: bool
) -> None:
    prompt = letter(reference)
    tokens = answer(reference, prompt, LENGTH)
    # Of two tokens: none of them ends the answer by itself.
    for stop, count in ((text(tokens[1:3]), 3), (text(tokens[1:2]), 2)):
        asked: Any = {"prompt": prompt, "max_tokens": 20, "temperature": 0, "stop": [stop, "never"]}
        if streamed:
            events = client_of.completions.create(
                model=NAME, stream=True, stream_options={"include_usage": True}, **asked
            )
            *parts, last = list(events)
            said = "".join(part.choices[0].text for part in parts)
            reason, usage = parts[-1].choices[0].finish_reason, last.usage
        else:
            found = client_of.completions.create(model=NAME, **asked)
            said, reason, usage = found.choices[0].text, found.choices[0].finish_reason, found.usage
        assert (said, reason) == (text(tokens[:1]), "stop")
        assert usage is not None
        assert usage.completion_tokens == count


def test_the_end_of_an_answer_is_its_reason(asked: Front, reference: ModuleType) -> None:
    # The token that follows is declared to be the end.
    end = answer(reference, "Hi", 1)[0]
    assert end != END_ID
    found = asked.post("completions", prompt="Hi", max_tokens=9, temperature=0, stop=chr(end)).json()
    assert (found["choices"][0]["text"], found["choices"][0]["finish_reason"]) == ("", "stop")


def test_seeds_repeat_an_answer_and_choices_differ(asked: Front) -> None:
    body: dict[str, object] = {"prompt": "Hi", "max_tokens": 12, "seed": 7, "temperature": 1.5}
    first, again, other = (
        asked.post("completions", **{**body, **more}).json()["choices"][0]["text"]
        for more in ({}, {}, {"seed": 8})
    )
    assert first == again != other
    several = asked.post("completions", **{**body, "n": 3, "prompt": ["Hi", "Ho"]}).json()
    assert [choice["index"] for choice in several["choices"]] == list(range(6))
    assert several["choices"][0]["text"] == first
    assert len({choice["text"] for choice in several["choices"][:3]}) == 3
    assert several["usage"] == {"prompt_tokens": 4, "completion_tokens": 72, "total_tokens": 76}


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("completions", {"model": "other", "prompt": "a"}, 404, "model_not_found"),
        ("completions", {"prompt": "a" * CONTEXT, "max_tokens": 1}, 400, "context_length_exceeded"),
        ("completions", {"prompt": "a", "max_tokens": CONTEXT}, 400, "context_length_exceeded"),
        ("chat/completions", {"messages": [{"role": "user", "content": "a" * CONTEXT}]}, 400,
         "context_length_exceeded"),
        ("completions", {"prompt": "a", "frequency_penalty": 1}, 400, "unsupported_parameter"),
        ("completions", {"prompt": "a", "presence_penalty": 1}, 400, "unsupported_parameter"),
        ("completions", {"prompt": "a", "best_of": 2}, 400, "unsupported_parameter"),
        ("completions", {"prompt": "a", "frobnicate": True}, 400, "unknown_parameter"),
        ("completions", {"prompt": "a", "temperature": 3}, 400, None),
        ("completions", {"prompt": [1, 9999]}, 400, None),
        ("completions", {"prompt": [1, 9999], "stream": True}, 400, None),
        ("completions", {"prompt": ""}, 400, None),
        ("completions", {"prompt": "\ud800"}, 400, None),
        ("embeddings", {"input": "a"}, 400, "unsupported_model"),
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused_in_openais_form(
    asked: Front, path: str, body: dict[str, Any], status: int, code: str | None
) -> None:
    refused = asked.post(path, **body)
    assert refused.status_code == status, refused.text
    error = refused.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["code"]) == ("invalid_request_error", code)
    # The server lives on.
    assert asked.post("completions", prompt="a", max_tokens=1).status_code == 200


def test_openais_client_knows_the_errors(client_of: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client_of.completions.create(model="other", prompt="a")
    with pytest.raises(openai.BadRequestError):
        client_of.embeddings.create(model=NAME, input="a")
    assert [model.id for model in client_of.models.list()] == [NAME]
    assert client_of.models.retrieve(NAME).id == NAME


def test_32_at_once_get_their_own_answers(asked: Front, reference: ModuleType) -> None:
    def ask(number: int) -> tuple[str, str]:
        prompt = chr(ord("A") + number)
        with openai.OpenAI(base_url=f"{asked.url}/v1", api_key="none", max_retries=0) as own:
            if number % 2:
                parts = own.completions.create(
                    model=NAME, prompt=prompt, max_tokens=20, temperature=0, stream=True
                )
                return prompt, "".join(part.choices[0].text for part in parts)
            found = own.completions.create(model=NAME, prompt=prompt, max_tokens=20, temperature=0)
            return prompt, found.choices[0].text

    with ThreadPoolExecutor(32) as pool:
        for prompt, said in pool.map(ask, range(32)):
            assert said == text(answer(reference, prompt, 20)), prompt


def test_curl_reads_answers_streams_and_errors(asked: Front, reference: ModuleType) -> None:
    curl = needs.program("curl")

    def said(path: str, body: str) -> tuple[str, str]:
        done = subprocess.run(
            [curl, "--silent", "--no-buffer", "--write-out", "\n%{http_code}", f"{asked.url}/v1/{path}",
             "--header", "Content-Type: application/json", "--data", body],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        answer, _, status = done.stdout.rpartition("\n")
        return answer, status

    prompt = letter(reference)
    body = {"model": NAME, "prompt": prompt, "max_tokens": LENGTH, "temperature": 0}
    whole, status = said("completions", json.dumps(body))
    wanted = text(answer(reference, prompt, LENGTH))
    assert (json.loads(whole)["choices"][0]["text"], status) == (wanted, "200")
    stream, status = said("completions", json.dumps({**body, "stream": True}))
    lines = [line.removeprefix("data: ") for line in stream.splitlines() if line]
    assert (lines[-1], status) == ("[DONE]", "200")
    assert "".join(json.loads(line)["choices"][0]["text"] for line in lines[:-1]) == wanted
    for broken in ('{"model":', "[]", "null"):
        refused, status = said("completions", broken)
        assert (json.loads(refused)["error"]["type"], status) == ("invalid_request_error", "400")


def test_no_text_of_a_prompt_or_an_answer_is_logged(asked: Front) -> None:
    secret = "a secret of somebody"
    for body in ({"prompt": secret}, {"prompt": secret, "temperature": secret}, {"prompt": secret, "n": 99}):
        asked.post("completions", **body)
    log = asked.log.read_text()
    assert "/v1/completions" in log
    assert "secret" not in log


@pytest.fixture(scope="module")
def slow(
    built: Plan, client: docker.DockerClient, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Front, Server]]:
    folder = tmp_path_factory.mktemp("slow")
    models = slow_model(folder / "models")
    with (
        server_container.serve(built.tag("runtime"), models) as running,
        front(running.grpc, checkpoint, folder / "log") as found,
    ):
        yield found, running


def test_clients_that_leave_do_not_end_the_server(asked: Front, reference: ModuleType) -> None:
    """Server 2.51 ends with a segmentation fault within some hundred calls that are cancelled."""

    def leave(number: int) -> None:
        body = {"model": NAME, "prompt": "Hi", "max_tokens": 100, "temperature": 0, "stream": number % 2 == 0}
        seconds = 0.001 * (number % 30 + 1)
        with (
            contextlib.suppress(requests.RequestException),
            requests.post(
                f"{asked.url}/v1/completions", json=body, stream=True, timeout=(5, seconds)
            ) as half,
        ):
            next(half.iter_lines())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(leave, range(400)))
    body: dict[str, object] = {"prompt": "Hi", "max_tokens": 9, "temperature": 0}
    # What is still computed for those that left counts.
    assert until(lambda: asked.post("completions", **body).status_code != 429)
    found = asked.post("completions", **body)
    assert found.status_code == 200, found.text
    assert found.json()["choices"][0]["text"] == text(answer(reference, "Hi", 9))


def test_a_stream_is_told_while_it_is_computed(slow: tuple[Front, Server]) -> None:
    found, _ = slow
    body = {"model": NAME, "prompt": "a", "max_tokens": 10, "temperature": 0, "stream": True}
    start, times = time.monotonic(), []
    with requests.post(f"{found.url}/v1/completions", json=body, stream=True, timeout=60) as answered:
        times = [time.monotonic() - start for line in answered.iter_lines() if line]
    assert times[-1] - times[0] > 5 * PAUSE_MS / 1000


def test_more_requests_than_allowed_are_told_to_come_back(
    slow: tuple[Front, Server], checkpoint: Path, tmp_path: Path
) -> None:
    _, running = slow
    body: dict[str, object] = {"prompt": "a", "max_tokens": 20, "temperature": 0}
    with (
        front(running.grpc, checkpoint, tmp_path / "log", "--most-requests", "2") as found,
        ThreadPoolExecutor(4) as pool,
    ):
        answers = list(pool.map(lambda _: found.post("completions", **body), range(4)))
        assert sorted(answer.status_code for answer in answers) == [200, 200, 429, 429]
        # What is computed for a client that left counts, too. It leaves long before the end, and not before a
        # busy machine has read its request.
        long = {"model": NAME, **body, "max_tokens": 100}
        for _ in range(2):
            with pytest.raises(requests.Timeout):
                requests.post(f"{found.url}/v1/completions", json=long, timeout=3)
        assert found.post("completions", **body).status_code == 429
    refused = next(answer.json()["error"] for answer in answers if answer.status_code == 429)
    assert refused["code"] == "rate_limit_exceeded"


@contextlib.contextmanager
def alone(client: docker.DockerClient) -> Iterator[Network]:
    """A network without neighbours: a container that restarts in it has the address that it had."""
    network = client.networks.create(f"ftbuild-test-{uuid.uuid4().hex[:8]}")
    try:
        yield network
    finally:
        network.remove()


@contextlib.contextmanager
def joined(network: Network, running: Server) -> Iterator[str]:
    """Connect a server to the network; its address there."""
    container = running.container.get_wrapped_container()
    network.connect(container)
    try:
        container.reload()
        address: str = container.attrs["NetworkSettings"]["Networks"][network.name]["IPAddress"]
        yield address
    finally:
        network.disconnect(container, force=True)


def test_a_server_that_ends_is_a_503_and_its_successor_is_found(
    client: docker.DockerClient, built: Plan, checkpoint: Path, tmp_path: Path
) -> None:
    models = served(client, built, checkpoint, tmp_path / "models", streamed=True)
    with ExitStack() as stack:
        network = stack.enter_context(alone(client))
        running = stack.enter_context(server_container.serve(built.tag("runtime"), models))
        address = stack.enter_context(joined(network, running))
        found = stack.enter_context(front(f"{address}:{triton.GRPC_PORT}", checkpoint, tmp_path / "log"))
        assert requests.get(f"{found.url}/health", timeout=60).status_code == 200
        assert found.post("completions", prompt="a").status_code == 200
        container = running.container.get_wrapped_container()
        container.kill()
        container.wait()
        assert requests.get(f"{found.url}/health", timeout=60).status_code == 503
        for streamed in (False, True):
            refused = found.post("completions", prompt="a", stream=streamed)
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "server_unavailable"
        container.start()
        assert until(lambda: requests.get(f"{found.url}/health", timeout=60).status_code == 200)
        assert found.post("completions", prompt="a").status_code == 200


def test_an_encoder_decoder_answers_without_its_prompt(
    client: docker.DockerClient, built: Plan, reference: ModuleType, tmp_path: Path
) -> None:
    checkpoint = converted(reference, tmp_path / "t5", "t5")
    models = served(client, built, checkpoint, tmp_path / "models", streamed=False, family="t5")
    body: dict[str, object] = {"prompt": "Hi", "max_tokens": 9, "temperature": 0}
    with (
        server_container.serve(built.tag("runtime"), models) as running,
        front(running.grpc, checkpoint, tmp_path / "log") as found,
    ):
        said = found.post("completions", **body).json()
        assert said["choices"][0]["text"] == text(answer(reference, "Hi", 9))
        assert said["usage"]["total_tokens"] == 11
        several = found.post("completions", **{**body, "prompt": ["Hi", "Hello"]}).json()
        assert several["choices"][1]["text"] == text(answer(reference, "Hello", 9))
