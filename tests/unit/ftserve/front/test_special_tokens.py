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


@pytest.mark.parametrize(
    ("stop", "text", "tokens"),
    [
        ("Hi<s>", " ", 2),
        ("<s> H", " Hi", 3),
        ("i<s> Hi", " H", 3),
        ("i<s> Hi Hi", " H", 4),
        (["zz", "i<s> Hi Hi"], " H", 4),
        (["i<s> Hi Hi", "Hi"], " ", 1),
        (["i<s> Hi Hi", "i Hi"], " H", 3),
        ("i<s>Hi", " Hi Hi Hi", 4),
        ("i<s> Hi<s>", " Hi Hi Hi", 4),
        ("i Hi</s>", " Hi Hi Hi", 4),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_special_token_within_a_stop_sequence_is_found_where_it_comes(
    asked: Front, stop: object, text: str, tokens: int, streamed: bool
) -> None:
    wishes = {"prompt": "Hi", "max_tokens": 4, "temperature": 0, "stop": stop}
    reason = "stop" if tokens < 4 or text == " H" else "length"
    if not streamed:
        whole = asked.post("completions", **wishes).json()
        assert whole["choices"][0]["text"] == text
        assert (whole["choices"][0]["finish_reason"], whole["usage"]["completion_tokens"]) == (reason, tokens)
        return
    lines = asked.post("completions", **wishes, stream=True).text.split("\n\n")
    choices = [json.loads(line[6:])["choices"][0] for line in lines if line.startswith("data: {")]
    assert "".join(choice["text"] for choice in choices) == text
    assert choices[-1]["finish_reason"] == reason


def test_the_end_of_an_answer_may_be_the_end_of_a_stop_sequence(tmp_path: Path) -> None:
    folder = write_llama_tokenizer(tmp_path / "tokenizer")
    with (
        rated_server.serve(logits, HI + 1) as (_, address),
        front(address, folder, tmp_path / "log", "--end-id", str(SPECIAL)) as asked,
    ):
        for stop, text in (("i<s>", " H"), ("i<s> Hi", " Hi"), ("<s>", " Hi")):
            ended = said(asked, stop=stop)
            assert (ended["text"], ended["finish_reason"]) == (text, "stop")


def test_rated_tokens_are_those_of_the_text_with_their_blanks(asked: Front) -> None:
    found = said(asked, max_tokens=1, echo=True, logprobs=2, prompt="Hi Hi Hi")
    assert found["text"] == "Hi Hi Hi Hi"
    assert found["logprobs"]["tokens"] == ["<s>", "Hi", " Hi", " Hi", " Hi"]
    assert " Hi" in found["logprobs"]["top_logprobs"][4]


def test_offsets_of_rated_tokens_are_places_in_the_text(asked: Front) -> None:
    found = said(asked, max_tokens=1, echo=True, logprobs=0, prompt="Hi Hi Hi")
    assert found["logprobs"]["text_offset"] == [0, 0, 2, 5, 8]
    lines = asked.post(
        "completions", prompt="Hi", max_tokens=3, temperature=0, echo=True, logprobs=0, stream=True
    ).text.split("\n\n")
    choices = [json.loads(line[6:])["choices"][0] for line in lines if line.startswith("data: {")]
    offsets = [place for choice in choices for place in choice["logprobs"]["text_offset"]]
    assert "".join(choice["text"] for choice in choices) == "Hi Hi Hi"
    # <s>, Hi, then Hi, <s> and Hi of the answer.
    assert offsets == [0, 0, 2, 5, 5]


def test_all_tokens_of_a_character_begin_where_it_begins(tmp_path: Path) -> None:
    answer = "\u00e9b\u20acb".encode()

    def next_one(before: Sequence[int]) -> list[float]:
        return [float(token == answer[(len(before) - 1) % len(answer)]) for token in range(256)]

    with (
        rated_server.serve(next_one, 256) as (_, address),
        front(address, bytelevel.write(tmp_path / "tokenizer"), tmp_path / "log") as asked,
    ):
        found = said(asked, prompt="a", max_tokens=7, logprobs=0)
        assert found["text"] == answer.decode()
        assert found["logprobs"]["text_offset"] == [0, 0, 1, 2, 2, 2, 3]


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
        front(address, tokenizer, tmp_path / "log", "--end-id", str(ord("y"))) as asked,
    ):
        assert said(asked, stop=["<|startoftext|>"], min_tokens=2)["text"] == "zzzz"
        refused = asked.post(
            "completions", prompt="Hi", max_tokens=4, temperature=0, min_tokens=1, stop_token_ids=[0]
        )
        assert refused.json()["error"]["param"] == "min_tokens"


@pytest.mark.parametrize("wish", [{"ignore_eos": True}, {"min_tokens": 1}])
def test_an_end_that_nobody_has_named_is_not_promised_to_stay_away(
    wish: dict[str, object], tmp_path: Path
) -> None:
    with (
        rated_server.serve(logits, HI + 1) as (_, address),
        front(address, bytelevel.write(tmp_path / "tokenizer"), tmp_path / "log") as asked,
    ):
        refused = asked.post("completions", prompt="Hi", max_tokens=4, temperature=0, **wish)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, next(iter(wish)))
        assert "--end-id" in refused.json()["error"]["message"]
