"""Tokens that no text shows: those that end an answer, and those between words, whose blanks they leave."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from testing import bytelevel, rated_server
from testing.front import Front, front
from tests.unit.models.test_repository import write_llama_tokenizer

# What the model says to "Hi", whose tokens are <s> and Hi: Hi, <s>, and Hi from then on.
SPECIAL, HI = 1, 263
PROMPT = 2


def logits(before: Sequence[int]) -> list[float]:
    """Prefer the next token of the answer, and then the last ones of the vocabulary."""
    wanted = SPECIAL if len(before) == PROMPT + 1 else HI
    return [99.0 if token == wanted else token / 100 for token in range(HI + 1)]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("special")
    tokenizer = write_llama_tokenizer(folder / "tokenizer")
    (tokenizer / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizer"}))
    with (
        rated_server.serve(logits, HI + 1) as (_, address),
        front(address, tokenizer, folder / "log", "--end-id", "0") as found,
    ):
        yield found


def said(asked: Front, **wishes: object) -> Any:
    answered = asked.post("completions", **{"prompt": "Hi", "max_tokens": 4, "temperature": 0, **wishes})
    assert answered.status_code == 200, answered.text
    return answered.json()["choices"][0]


def test_a_stop_sequence_that_does_not_come_changes_no_blank(asked: Front) -> None:
    assert said(asked)["text"] == said(asked, stop=["zz"])["text"] == " Hi Hi Hi"


@pytest.mark.parametrize("stop", ["<s>", ["zz", "<s>"]])
def test_a_special_token_is_a_stop_sequence_though_no_text_has_it(asked: Front, stop: object) -> None:
    ended = said(asked, stop=stop)
    assert (ended["text"], ended["finish_reason"]) == (" Hi", "stop")
    of_ids = said(asked, stop=stop, prompt=[SPECIAL, HI])
    assert (of_ids["text"], of_ids["finish_reason"]) == (" Hi", "stop")


def test_rated_tokens_are_those_of_the_text_with_their_blanks(asked: Front) -> None:
    found = said(asked, max_tokens=1, echo=True, logprobs=2, prompt="Hi Hi Hi")
    assert found["text"] == "Hi Hi Hi Hi"
    assert found["logprobs"]["tokens"] == ["<s>", "Hi", " Hi", " Hi", " Hi"]
    assert " Hi" in found["logprobs"]["top_logprobs"][4]


@pytest.mark.parametrize(
    ("wish", "named"),
    [
        ({"ignore_eos": True}, "ignore_eos"),
        ({"min_tokens": 1}, "min_tokens"),
        ({"min_tokens": 1, "ignore_eos": True}, "ignore_eos"),
    ],
)
def test_an_end_that_the_backend_never_bans_is_not_promised_to_stay_away(
    asked: Front, wish: dict[str, object], named: str
) -> None:
    refused = asked.post("completions", prompt="Hi", max_tokens=4, temperature=0, **wish)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, named)
    assert "the token 0, which the backend never bans" in refused.json()["error"]["message"]


def test_ends_that_the_model_does_not_have_are_not_told_to_the_server(tmp_path: Path) -> None:
    def letters(before: Sequence[int]) -> list[float]:
        return [float(token == ord("z")) for token in range(256)]

    tokenizer = bytelevel.write(tmp_path / "tokenizer")
    with (
        rated_server.serve(letters, 256) as (_, address),
        front(address, tokenizer, tmp_path / "log") as asked,
    ):
        assert said(asked, stop=["<|startoftext|>"], min_tokens=2)["text"] == "zzzz"
        refused = asked.post(
            "completions", prompt="Hi", max_tokens=4, temperature=0, min_tokens=1, stop_token_ids=[0]
        )
        assert refused.json()["error"]["param"] == "min_tokens"
