"""Log-probabilities and ends of answers from the OpenAI front, as the sample stack's server computes them."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from ftbuild.client import server_container
from ftbuild.plan import Plan
from testing import needs
from testing.front import NAME, Front, front
from tests.engine.ftserve.test_front import CONTEXT, answer, converted, served, text

if TYPE_CHECKING:
    import docker
    import openai
else:
    openai = needs.package("openai")

NEAR = 1e-3
# Letters in no order, so that most of them are not what the model takes for likely.
PROMPT = "The moon is zqxj!"
BEFORE_END = 4


@pytest.fixture(scope="module", params=[True, False], ids=["streams", "answers-at-once"])
def begun(
    request: pytest.FixtureRequest,
    client: docker.DockerClient,
    built: Plan,
    reference: ModuleType,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., AbstractContextManager[Front]]]:
    """Starts a front with options before a server."""
    folder = tmp_path_factory.mktemp("ratings")
    checkpoint = converted(reference, folder / "gpt", "gpt")
    models = served(client, built, checkpoint, folder / "models", streamed=request.param)
    with server_container.serve(built.tag("runtime"), models) as running:
        yield lambda *options: front(
            running.grpc, checkpoint, folder / "log", "--context", str(CONTEXT), *options
        )


@pytest.fixture(scope="module")
def asked(begun: Callable[..., AbstractContextManager[Front]]) -> Iterator[Front]:
    with begun() as found:
        yield found


@pytest.fixture
def ended(begun: Callable[..., AbstractContextManager[Front]], reference: ModuleType) -> Iterator[Front]:
    """A front for which the last of the BEFORE_END tokens after "Hi" is the end of an answer."""
    *others, end = answer(reference, "Hi", BEFORE_END)
    assert end not in others
    with begun("--end-id", str(end)) as found:
        yield found


def log_probs(reference: ModuleType, last: int) -> list[float]:
    """The log-probabilities of all tokens after a token, as the reference has them."""
    scores = reference.logits(reference.make(), last)
    highest = max(scores)
    whole = highest + math.log(math.fsum(math.exp(score - highest) for score in scores))
    return [score - whole for score in scores]


def rated(reference: ModuleType, row: list[int]) -> list[float]:
    """The log-probabilities of the tokens of a row but the first."""
    return [log_probs(reference, last)[token] for last, token in itertools.pairwise(row)]


def events(said: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in said.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@pytest.mark.parametrize("prompt", [PROMPT, list(PROMPT.encode())], ids=["text", "ids"])
@pytest.mark.parametrize("length", [0, 1])
@pytest.mark.parametrize("stream", [False, True])
def test_every_token_of_a_prompt_has_the_models_own_log_probability(
    asked: Front, reference: ModuleType, prompt: str | list[int], length: int, stream: bool
) -> None:
    said = asked.post(
        "completions", prompt=prompt, max_tokens=length, echo=True, logprobs=1, temperature=0, stream=stream
    )
    assert said.status_code == 200, said.text
    choices = [each["choices"][0] for each in (events(said.text) if stream else [said.json()])]
    row = [*PROMPT.encode(), *answer(reference, PROMPT, length)]
    whole = "".join(choice["text"] for choice in choices)
    assert whole == PROMPT + text(row[len(PROMPT) :])
    columns = {
        name: [value for choice in choices for value in choice["logprobs"][name]]
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    }
    assert "".join(columns["tokens"][: len(PROMPT)]) == PROMPT
    assert columns["text_offset"][: len(PROMPT)] == list(range(len(PROMPT)))
    first, *found = columns["token_logprobs"]
    assert (first, columns["top_logprobs"][0]) == (None, None)
    assert found == pytest.approx(rated(reference, row), abs=NEAR)
    for last, top in zip(row, columns["top_logprobs"][1:], strict=False):
        assert max(top.values()) == pytest.approx(max(log_probs(reference, last)), abs=NEAR)


def test_the_tokens_of_an_answer_are_rated_whether_they_are_the_best_or_drawn(
    asked: Front, reference: ModuleType
) -> None:
    for options in ({"temperature": 0}, {"temperature": 1.5, "seed": 3}):
        said = asked.post("completions", prompt=PROMPT, max_tokens=6, logprobs=5, **options).json()
        (choice,) = said["choices"]
        found = choice["logprobs"]
        assert len(found["tokens"]) == 6
        last = ord(PROMPT[-1])
        for token, rate, top in zip(
            found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True
        ):
            rates = log_probs(reference, last)
            assert min(abs(rate - each) for each in rates) < NEAR
            best = sorted(rates, reverse=True)[:5]
            assert sorted(top.values(), reverse=True)[:2] == pytest.approx(best[:2], abs=NEAR)
            if len(token) != 1 or not token.isascii():
                break
            assert rate == pytest.approx(rates[ord(token)], abs=NEAR)
            last = ord(token)


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_has_its_best_tokens(asked: Front, reference: ModuleType, stream: bool) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    said = asked.post(
        "chat/completions",
        messages=messages, max_tokens=2, temperature=0, logprobs=True, top_logprobs=3, stream=stream,
    )  # fmt: skip
    assert said.status_code == 200, said.text
    choices = [each["choices"][0] for each in (events(said.text) if stream else [said.json()])]
    content = [one for choice in choices for one in (choice["logprobs"] or {"content": []})["content"]]
    first = log_probs(reference, ord(":"))
    assert len(content) == 2
    assert content[0]["logprob"] == pytest.approx(max(first), abs=NEAR)
    found = [best["logprob"] for best in content[0]["top_logprobs"]]
    assert found == pytest.approx(sorted(first, reverse=True)[:3], abs=NEAR)
    assert all(bytes(one["bytes"]).decode() == one["token"] for one in content if one["bytes"])


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_ignores_its_end_is_as_long_as_it_may_be(ended: Front, stream: bool) -> None:
    body: dict[str, Any] = {"prompt": "Hi", "max_tokens": 20, "temperature": 0}
    plain = ended.post("completions", **body).json()
    assert plain["usage"]["completion_tokens"] == BEFORE_END
    told = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    for more in ({"ignore_eos": True}, {"min_tokens": 20}):
        said = ended.post("completions", **body, **more, **told)
        assert said.status_code == 200, said.text
        last = (events(said.text) if stream else [said.json()])[-1]
        assert last["usage"]["completion_tokens"] == 20, said.text
    least = ended.post("completions", **body, min_tokens=BEFORE_END).json()
    assert least["usage"]["completion_tokens"] >= BEFORE_END
    assert least["choices"][0]["text"].startswith(plain["choices"][0]["text"])
    assert len(least["choices"][0]["text"]) > len(plain["choices"][0]["text"])


@pytest.mark.parametrize("stream", [False, True])
def test_a_token_may_be_the_end(asked: Front, reference: ModuleType, stream: bool) -> None:
    tokens = answer(reference, "Hi", 9)
    end = tokens[3]
    assert end not in tokens[:3]
    said = asked.post(
        "completions", prompt="Hi", max_tokens=9, temperature=0, stop_token_ids=[end], stream=stream
    )
    choices = [each["choices"][0] for each in (events(said.text) if stream else [said.json()])]
    assert "".join(choice["text"] for choice in choices) == text(tokens[:3])
    assert choices[-1]["finish_reason"] == "stop"
    later = asked.post(
        "completions", prompt="Hi", max_tokens=9, temperature=0, stop_token_ids=[end], min_tokens=6
    ).json()
    assert later["usage"]["completion_tokens"] >= 6


def test_openais_client_reads_log_probabilities(asked: Front, reference: ModuleType) -> None:
    with openai.OpenAI(base_url=f"{asked.url}/v1", api_key="none", max_retries=0) as asking:
        found = asking.completions.create(model=NAME, prompt="Hi", max_tokens=3, logprobs=2, temperature=0)
        assert found.choices[0].logprobs is not None
        wanted = rated(reference, [ord("i"), *answer(reference, "Hi", 3)])
        assert found.choices[0].logprobs.token_logprobs == pytest.approx(wanted, abs=NEAR)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": "a", "logprobs": 6}, "logprobs"),
        ({"prompt": "a", "logprobs": -1}, "logprobs"),
        ({"prompt": "a", "logprobs": True}, "logprobs"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "max_tokens": 3, "min_tokens": 4}, "min_tokens"),
        ({"prompt": ["a"] * 64, "max_tokens": 100, "logprobs": 1}, "logprobs"),
    ],
)
def test_what_cannot_be_rated_is_refused_by_name(asked: Front, body: dict[str, Any], param: str) -> None:
    refused = asked.post("completions", **body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), refused.text
