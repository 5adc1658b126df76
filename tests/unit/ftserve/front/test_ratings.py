"""Log-probabilities that the front finds out, for a model that is a function: any token, however rare."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import requests

import ftbuild
from ftserve.front import origins
from ftserve.front.errors import ConfigError
from testing import bytelevel, rated_server
from testing.front import Front, front
from testing.rated_server import RatedServer

VOCABULARY = 300  # more than the tokenizer's 258
PROMPT = "Any \u00e9 \x00 text"


def logits(before: Sequence[int]) -> list[float]:
    """Logits of a token far apart, as a function of all tokens before it; the best one differs."""
    chance = random.Random(json.dumps(list(map(int, before))))
    return [chance.gauss(0, 8) for _ in range(VOCABULARY)]


def rates(before: Sequence[int]) -> list[float]:
    found = logits(before)
    whole = max(found) + math.log(math.fsum(math.exp(each - max(found)) for each in found))
    return [each - whole for each in found]


def rated(row: Sequence[int]) -> list[float]:
    return [rates(row[:place])[row[place]] for place in range(1, len(row))]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = bytelevel.write(tmp_path_factory.mktemp("tokenizer") / "t")
    described = {"eos_token": "<|endoftext|>", "chat_template": "{{ messages[0].content }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    return folder


@pytest.fixture(scope="module")
def pair(tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Front, RatedServer]]:
    log = tmp_path_factory.mktemp("front") / "log"
    with (
        rated_server.serve(logits, VOCABULARY) as (server, address),
        front(address, tokenizer, log, "--context", "128", "--origin", "https://chat.example.com") as found,
    ):
        yield found, server


@pytest.fixture
def asked(pair: tuple[Front, RatedServer]) -> Front:
    return pair[0]


def test_a_token_of_any_rank_has_its_log_probability(asked: Front) -> None:
    row = list(PROMPT.encode())
    said = asked.post("completions", prompt=row, max_tokens=0, echo=True, logprobs=1, temperature=0).json()
    found = said["choices"][0]["logprobs"]["token_logprobs"]
    assert found[0] is None
    wanted = rated(row)
    assert min(wanted) < -30, "some are rarer than a float of 32 bits could tell beside one"
    assert found[1:] == pytest.approx(wanted, abs=1e-3)


def test_a_prompt_that_fills_the_context_is_rated_and_has_no_answer(asked: Front) -> None:
    full: dict[str, Any] = {"prompt": [65] * 128, "echo": True, "logprobs": 0, "temperature": 0}
    said = asked.post("completions", **full, max_tokens=0).json()
    assert len(said["choices"][0]["logprobs"]["token_logprobs"]) == 128
    for body in ({**full, "max_tokens": 1}, {**full, "prompt": [65] * 129, "max_tokens": 0}):
        refused = asked.post("completions", **body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert "129 tokens of the prompt and 0 of the answer are more than the 128" in refused.text


@pytest.mark.parametrize("streamed", [False, True])
def test_ratings_are_numbers_of_json_or_the_failure_of_the_server(
    tokenizer: Path, tmp_path: Path, streamed: bool
) -> None:
    """A token that cannot come has the log-probability that vLLM gives it, and NaN is no answer."""
    only = [0.0 if token == 65 else -math.inf for token in range(VOCABULARY)]

    def model(before: Sequence[int]) -> list[float]:
        return only if before[0] == 65 else [math.nan] * VOCABULARY

    wishes = {"max_tokens": 1, "temperature": 0, "logprobs": 4, "stream": streamed}
    with (
        rated_server.serve(model, VOCABULARY) as (_, address),
        front(address, tokenizer, tmp_path / "log") as asked,
    ):
        text = asked.post("completions", prompt="A", **wishes).text
        said = json.loads(text.removeprefix("data: ").partition("\n\n")[0], parse_constant=pytest.fail)
        best = said["choices"][0]["logprobs"]["top_logprobs"][0]
        assert (best.pop("A"), {*best.values()}) == (0, {-9999.0})
        broken = asked.post("completions", prompt="B", **wishes)
        assert (broken.status_code, broken.json()["error"]["type"]) == (500, "server_error")
        assert broken.json()["error"]["message"] == "the Triton server failed"


def test_the_token_that_is_never_banned_has_its_own(asked: Front) -> None:
    row = [65, 0, 0, 66]
    said = asked.post("completions", prompt=row, max_tokens=0, echo=True, logprobs=1, temperature=0).json()
    assert said["choices"][0]["logprobs"]["token_logprobs"][1:] == pytest.approx(rated(row), abs=1e-3)


def test_beams_tell_as_many_of_the_best_as_are_wanted(asked: Front) -> None:
    for top in (1, 2, 5, 20):
        said = asked.post(
            "chat/completions",
            messages=[{"role": "user", "content": "Hi"}],
            max_tokens=1, temperature=0, logprobs=True, top_logprobs=top,
        ).json()  # fmt: skip
        (token,) = said["choices"][0]["logprobs"]["content"]
        found = [each["logprob"] for each in token["top_logprobs"]]
        assert found == pytest.approx(sorted(rates(b"Hi"), reverse=True)[:top], abs=1e-3)


def test_a_request_rates_so_many_tokens_and_no_more(pair: tuple[Front, RatedServer]) -> None:
    asked, server = pair
    before = server.asked
    body: dict[str, Any] = {"prompt": ["a" * 50] * 64, "echo": True, "logprobs": 1, "temperature": 0}
    refused = asked.post("completions", **body, max_tokens=14 + 1)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "logprobs")
    assert "4160 tokens to rate, and at most 4096" in refused.json()["error"]["message"]
    assert server.asked == before, "nothing is computed for it"


def test_a_repository_that_does_not_say_how_many_tokens_there_are_is_named(
    tokenizer: Path, tmp_path: Path
) -> None:
    with (
        rated_server.serve(logits, VOCABULARY, told=False) as (_, address),
        front(address, tokenizer, tmp_path / "log") as asked,
    ):
        refused = asked.post("completions", prompt="Hi", max_tokens=1, echo=True, logprobs=1, temperature=0)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unsupported_parameter")
        assert "invoke model-repo writes it again" in refused.json()["error"]["message"]
        best = asked.post("completions", prompt="Hi", max_tokens=1, logprobs=1, temperature=0).json()
        found = best["choices"][0]["logprobs"]["token_logprobs"]
        assert found == pytest.approx([max(rates(b"Hi"))], abs=1e-3)


def test_tokens_are_made_and_unmade(asked: Front) -> None:
    def post(path: str, **body: object) -> Any:
        return requests.post(f"{asked.url}/{path}", json=body, timeout=60).json()

    made = post("tokenize", prompt="a\u00e9b")
    assert made == {"count": 4, "max_model_len": 128, "tokens": list("a\u00e9b".encode())}
    named = post("tokenize", prompt="a\u00e9b", return_token_strs=True)
    assert named == {**made, "token_strs": ["a", "\u00c3", "\u00a9", "b"]}
    assert post("tokenize", prompt="a", return_token_strs=1)["error"]["param"] == "return_token_strs"
    assert post("detokenize", tokens=made["tokens"]) == {"prompt": "a\u00e9b"}
    chat = [{"role": "user", "content": "Hi"}]
    assert post("tokenize", messages=chat, model="tiny")["tokens"] == list(b"Hi")
    for wrong in ({}, {"prompt": "a", "messages": chat}, {"prompt": 5}, {"prompt": "a", "model": "other"}):
        assert "error" in post("tokenize", **wrong), wrong
    assert post("detokenize", tokens=[-1])["error"]["param"] == "tokens"


def test_what_a_client_asks_about_the_service(asked: Front) -> None:
    def get(path: str) -> Any:
        return requests.get(f"{asked.url}/{path}", timeout=60).json()

    assert get("version") == {"version": ftbuild.__version__}
    assert get("tokenizer_info") == {"eos_token": "<|endoftext|>"}
    assert get("v1/models")["data"][0]["max_model_len"] == 128
    assert get("v1/models/tiny")["max_model_len"] == 128


def samples(url: str) -> dict[str, float]:
    said = requests.get(f"{url}/metrics", timeout=60)
    assert said.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = [line for line in said.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_prometheus_counts_requests_and_tokens(asked: Front) -> None:
    before = samples(asked.url)
    asked.post("completions", prompt="Hi", max_tokens=3, temperature=0)
    asked.post("completions", prompt="Hi", max_tokens=-1)
    requests.get(f"{asked.url}/somebody/{'x' * 50}", timeout=60)
    after = samples(asked.url)
    grown = {name: value - before.get(name, 0) for name, value in after.items()}
    path = 'model="tiny",path="/v1/completions"'
    assert grown[f'ftbuild_front_requests_total{{{path},status="200"}}'] == 1
    assert grown[f'ftbuild_front_requests_total{{{path},status="400"}}'] == 1
    assert grown['ftbuild_front_requests_total{model="tiny",path="other",status="404"}'] == 1
    assert grown['ftbuild_front_prompt_tokens_total{model="tiny"}'] == 2
    assert grown['ftbuild_front_generation_tokens_total{model="tiny"}'] == 3
    assert grown[f'ftbuild_front_request_duration_seconds_bucket{{{path},le="+Inf"}}'] == 2
    assert after['ftbuild_front_requests_running{model="tiny"}'] == 1, "that for the counts"
    assert not any("xxx" in name for name in after), "a client makes no names"


def test_pages_of_named_origins_may_ask_and_no_others(asked: Front) -> None:
    for origin, allowed in (("https://chat.example.com", True), ("https://evil.example.com", False)):
        first = requests.options(
            f"{asked.url}/v1/completions",
            headers={
                "Origin": origin,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,content-type",
            },
            timeout=60,
        )
        assert (first.status_code == 200) == allowed
        said = requests.get(f"{asked.url}/v1/models", headers={"Origin": origin}, timeout=60)
        assert said.headers.get("Access-Control-Allow-Origin") == (origin if allowed else None)


@pytest.mark.parametrize(
    "text",
    [
        "chat.example.com",
        "https://",
        "ftp://a",
        "https://a/b",
        "https://u:p@a",
        "https://[",
        "null",
        "https://a:b",
    ],
)
def test_what_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--origin .* is not an origin"):
        origins.read(text, "--origin")
    assert origins.read("*", "--origin") == "*"
    assert origins.read("http://a.example:8080/", "--origin") == "http://a.example:8080"


def greedy(prompt: bytes, length: int, banned: Sequence[int] = ()) -> list[int]:
    row = list(prompt)
    for _ in range(length):
        found = logits(row)
        row.append(max((token for token in range(VOCABULARY) if token not in banned), key=found.__getitem__))
    return row[len(prompt) :]


@pytest.fixture(scope="module")
def ending(tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """A front for which the third best token after "Hi" is the end of an answer."""
    log = tmp_path_factory.mktemp("ending") / "log"
    end = greedy(b"Hi", 3)[-1]
    assert end not in greedy(b"Hi", 2)
    with (
        rated_server.serve(logits, VOCABULARY) as (_, address),
        front(address, tokenizer, log, "--end-id", str(end)) as found,
    ):
        yield found


def ended(asked: Front, **wishes: object) -> tuple[int, str]:
    """How many tokens an answer to "Hi" of at most 8 has, and why it ends."""
    said = asked.post("completions", prompt="Hi", max_tokens=8, temperature=0, **wishes)
    assert said.status_code == 200, said.text
    return said.json()["usage"]["completion_tokens"], said.json()["choices"][0]["finish_reason"]


def test_an_answer_ends_where_a_client_says(ending: Front) -> None:
    first = greedy(b"Hi", 3)
    assert ended(ending) == (3, "stop")
    assert ended(ending, stop_token_ids=[first[1], 7]) == (2, "stop")
    assert ended(ending, ignore_eos=True) == (8, "length")
    assert ended(ending, min_tokens=8) == (8, "length")
    assert ended(ending, min_tokens=2) == (3, "stop")


def test_no_end_comes_before_the_least_tokens_and_what_follows_follows_them(ending: Front) -> None:
    first = greedy(b"Hi", 3)
    ends = [first[2], first[0]]
    beginning = greedy(b"Hi", 4, banned=ends)
    said = ending.post(
        "completions",
        prompt="Hi", max_tokens=5, temperature=0, min_tokens=4, stop_token_ids=[first[0]], logprobs=0,
    ).json()  # fmt: skip
    found = said["choices"][0]["logprobs"]["token_logprobs"]
    assert found[:4] == pytest.approx(rated([*b"Hi", *beginning])[1:], abs=1e-3)
    assert said["usage"]["completion_tokens"] == 5
