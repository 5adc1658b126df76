"""OpenAI's client before a real model on a GPU.

FTBUILD_TEXT_MODEL names a folder with what `tests/gpu/programs/text_llama.py` writes, and with `models`, made
of it by `invoke convert` and `invoke model-repo --tokenizer FOLDER --dtype fp32 --streamed`. The image that
serves it is named by FTBUILD_TEXT_IMAGE; the front is that of `invoke serve.front`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import requests

from testing import ROOT, needs
from testing.serving import free_ports

if TYPE_CHECKING:
    import openai
else:
    openai = needs.package("openai")

FOLDER, IMAGE = "FTBUILD_TEXT_MODEL", "FTBUILD_TEXT_IMAGE"
NAME = "tiny-llama"
CLIENTS = 32


@pytest.fixture(scope="module")
def folder() -> Path:
    given = os.environ.get(FOLDER)
    if not given or not os.environ.get(IMAGE):
        pytest.skip(f"needs a GPU, and a model with text for it: {FOLDER} and {IMAGE}")
    return Path(given)


@pytest.fixture(scope="module")
def answers(folder: Path) -> dict[str, str]:
    """Transformers' greedy answers by prompt."""
    found: dict[str, str] = json.loads((folder / "answers.json").read_text())
    return found


@pytest.fixture(scope="module")
def asking(folder: Path) -> Iterator[openai.OpenAI]:
    ports, other = free_ports(), free_ports()
    numbers = [f"--http-port={ports.http}", f"--grpc-port={ports.grpc}", f"--metrics-port={ports.metrics}"]
    named = [sys.executable, "-m", "invoke", "serve", "--name", f"ftbuild-test-{uuid.uuid4().hex[:8]}"]
    which = ["--model-repo", str(folder / "models"), "--image", os.environ[IMAGE], "--gpus", "0"]
    fronted = ["--openai", "--openai-model", NAME, f"--openai-port={other.http}"]
    done = subprocess.run(
        [*named, "--detach", *which, *numbers, *fronted],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    try:
        with openai.OpenAI(
            base_url=f"http://127.0.0.1:{other.http}/v1", api_key="none", max_retries=0
        ) as made:
            yield made
    finally:
        subprocess.run([*named, "--stop"], cwd=ROOT, check=True)


def test_a_completion_is_transformers_text(asking: openai.OpenAI, answers: dict[str, str]) -> None:
    for prompt, wanted in answers.items():
        found = asking.completions.create(model=NAME, prompt=prompt, max_tokens=len(wanted), temperature=0)
        assert found.choices[0].text == wanted
        assert found.usage is not None
        assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (len(prompt), len(wanted))


def test_a_conversation_goes_through_the_chat_template(
    asking: openai.OpenAI, answers: dict[str, str]
) -> None:
    found = asking.chat.completions.create(
        model=NAME, messages=[{"role": "user", "content": "Hello"}], max_tokens=24, temperature=0
    )
    assert found.choices[0].message.content == answers["u:Hello;a:"]


def test_a_stream_has_the_same_text(asking: openai.OpenAI, answers: dict[str, str]) -> None:
    for prompt, wanted in answers.items():
        parts = asking.completions.create(
            model=NAME, prompt=prompt, max_tokens=len(wanted), temperature=0, stream=True
        )
        texts = [part.choices[0].text for part in parts]
        assert "".join(texts) == wanted
        assert len([text for text in texts if text]) > 1


def test_a_stop_word_ends_the_answer(asking: openai.OpenAI, answers: dict[str, str]) -> None:
    wanted = answers["Hi"]
    found = asking.completions.create(model=NAME, prompt="Hi", max_tokens=24, temperature=0, stop=wanted[5:8])
    assert found.choices[0].text == wanted[: wanted.index(wanted[5:8])]
    assert found.choices[0].finish_reason == "stop"


def test_another_model_is_not_found(asking: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        asking.completions.create(model="another", prompt="Hi", max_tokens=1)


def test_more_tokens_than_a_request_may_ask_for_are_refused(asking: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        asking.completions.create(model=NAME, prompt="Hi", max_tokens=100_000)


def test_a_client_that_leaves_takes_the_server_from_nobody(
    asking: openai.OpenAI, answers: dict[str, str]
) -> None:
    for _ in range(8):
        body = {"model": NAME, "prompt": "Hi", "max_tokens": 400, "stream": True}
        with requests.post(f"{asking.base_url}completions", json=body, stream=True, timeout=60) as left:
            assert next(left.iter_lines())
    began = time.monotonic()
    found = asking.completions.create(model=NAME, prompt="Hi", max_tokens=24, temperature=0)
    assert found.choices[0].text == answers["Hi"]
    assert time.monotonic() - began < 60


def test_many_clients_at_once_get_their_own_answers(asking: openai.OpenAI, answers: dict[str, str]) -> None:
    prompts = [list(answers)[number % len(answers)] for number in range(CLIENTS * 4)]

    def ask(prompt: str) -> str:
        found = asking.completions.create(model=NAME, prompt=prompt, max_tokens=24, temperature=0)
        return str(found.choices[0].text)

    with ThreadPoolExecutor(CLIENTS) as pool:
        assert list(pool.map(ask, prompts)) == [answers[prompt] for prompt in prompts]
