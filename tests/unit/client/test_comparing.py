"""Two servers, compared, which speak OpenAI's protocol; Triton's are in tests/engine."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftbuild.client import bleu
from ftbuild.client.comparing import answers, prompts, rendering, runner, servers
from ftbuild.client.comparing.answers import Answer, Outcome, Parting, Side
from ftbuild.client.comparing.report import ComparisonReport
from ftbuild.client.comparing.runner import ComparisonOptions
from ftbuild.client.comparing.servers import Address
from ftbuild.client.connection import Refused
from ftbuild.config import loader
from ftbuild.errors import ConfigError, SmokeError
from testing import bytelevel, forked, needs
from testing.openai_server import Completions, letters, serving
from testing.sample import SAMPLE

MODELS = loader.load(SAMPLE).models
QUESTIONS = [prompts.Prompt(tuple(text.encode())) for text in ("a", "be", "see", "w")]
Compare = Callable[..., ComparisonReport]


@pytest.fixture
def compare() -> Compare:
    """Compare two stand-ins."""

    def run(
        old: Completions,
        new: Completions,
        questions: Sequence[prompts.Prompt] = QUESTIONS,
        tokenizer: Any = None,
        **options: Any,
    ) -> ComparisonReport:
        with ExitStack() as stack:
            addresses = {
                name: Address(stack.enter_context(serving(each)).url, key=each.wanted_key or None)
                for name, each in (("old", old), ("new", new))
            }
            connected = stack.enter_context(servers.connected(addresses, MODELS, tokenizer))
            return runner.run(
                connected, questions, ComparisonOptions(**{"length": 6, **options}), lambda message: None
            )

    return run


@pytest.fixture
def tokenizer(tmp_path: Path) -> Any:
    needs.package("tokenizers")
    return bleu.tokenizer(bytelevel.write(tmp_path / "tokenizer"))


def parting_after(count: int, gap: float = 1.0) -> Callable[[Sequence[int]], Mapping[int, float]]:
    """A model that answers `!` after so many letters of an answer to the prompt `a`."""

    def model(prompt: Sequence[int]) -> Mapping[int, float]:
        usual = letters(prompt)
        if len(prompt) != 1 + count:
            return usual
        best, value = next(iter(usual.items()))
        return {**usual, best: value, ord("!"): value + gap}

    return model


def outcomes(report: ComparisonReport) -> list[str]:
    return [each.outcome(report.tie).value for each in report.compared]


@pytest.mark.parametrize("tells", ["ids", "texts", "text"])
def test_equal_servers_agree_whatever_they_tell(compare: Compare, tokenizer: Any, tells: str) -> None:
    report = compare(Completions(letters), Completions(letters, tells=tells), tokenizer=tokenizer)
    assert outcomes(report) == ["equal"] * 4
    assert report.agreeing == 100
    report.require(100)
    assert {name: figures["requests"] for name, figures in report.latencies.items()} == {"old": 4, "new": 4}
    assert report.notes == []


def test_an_answer_that_ends_is_the_same_with_and_without_the_token_that_ends_it(
    compare: Compare, tokenizer: Any
) -> None:
    """`w` is followed by xyz and the end; at a length of 3 the end is behind the answer."""
    for length, ended in ((6, True), (4, True), (3, False)):
        report = compare(
            Completions(letters), Completions(letters, tells="text"), QUESTIONS[3:], tokenizer, length=length
        )
        (found,) = report.compared
        assert found.old is not None
        assert found.new is not None
        assert bytes(found.old.tokens) == bytes(found.new.tokens) == b"xyz"
        assert (found.old.ended, found.new.ended) == (ended, ended)
        assert outcomes(report) == ["equal"]


@pytest.mark.parametrize("tells", ["ids", "texts"])
def test_servers_that_differ_from_the_third_token_on(compare: Compare, tokenizer: Any, tells: str) -> None:
    report = compare(Completions(letters), Completions(parting_after(2), tells=tells), tokenizer=tokenizer)
    # `be` has two letters, so that its second token is the other one; `see` has as many as the place.
    assert outcomes(report) == ["parted", "parted", "parted", "parted"]
    assert [each.parting.step for each in report.compared if each.parting] == [2, 1, 0, 2]
    first = report.compared[0]
    assert first.parting is not None
    assert first.parting.step == 2
    assert first.parting.old == Side(math.log(0.9), math.log(0.05))
    assert first.parting.new.gap == pytest.approx(1.0)
    record = json.loads(json.dumps(report.as_dict()))
    assert record["outcomes"]["parted"] == outcomes(report).count("parted")
    assert record["answers"][0]["equal_tokens"] == 2
    assert record["answers"][0]["old"]["tokens"] == list(b"bcdefg")
    with pytest.raises(SmokeError, match="of the answers agree, less than --threshold 90"):
        report.require(90)
    report.require(None)


def test_a_part_where_both_servers_nearly_tie_is_told_apart(compare: Compare) -> None:
    def nearly(better: int) -> Callable[[Sequence[int]], Mapping[int, float]]:
        return lambda prompt: {ord("x"): -0.7 - 0.01 * better, ord("y"): -0.71 + 0.01 * better}

    old, new = (Completions(nearly(better)) for better in (0, 1))
    assert outcomes(compare(old, new)) == ["tie"] * 4
    assert outcomes(compare(old, new, tie=0.001)) == ["parted"] * 4


def test_a_server_without_log_probabilities_is_compared_and_named(compare: Compare, tokenizer: Any) -> None:
    report = compare(
        Completions(letters, tells="text"), Completions(parting_after(2)), QUESTIONS[:1], tokenizer
    )
    assert report.notes == ["the old server returns no log-probabilities"]
    assert report.compared[0].parting is not None
    assert report.compared[0].parting.old == Side()
    assert "unknown" in rendering.render(report, "human", None)


def test_a_server_that_tells_text_alone_needs_the_tokenizer(compare: Compare) -> None:
    with pytest.raises(ConfigError, match="returns text only") as wrong:
        compare(Completions(letters), Completions(letters, tells="text"))
    assert "--tokenizer" in str(wrong.value)


@pytest.mark.parametrize("dies_after", range(1, 5))
@pytest.mark.parametrize("dying", ["old", "new"])
def test_a_server_that_dies_leaves_what_was_compared_before(
    compare: Compare, dying: str, dies_after: int
) -> None:
    both = {"old": Completions(letters), "new": Completions(letters)}
    both[dying].dies_after = dies_after
    report = compare(both["old"], both["new"])
    # The first request is the warm-up.
    assert outcomes(report) == ["equal"] * (dies_after - 1)
    assert report.broken is not None
    assert (report.broken.server, report.broken.number) == (dying, dies_after)
    with pytest.raises(SmokeError, match=f"the {dying} server stopped answering at prompt {dies_after} of 4"):
        report.require(None)
    for kind in ("human", "md", "html"):
        assert "prompts were not compared" in rendering.render(report, kind, None)
    json.dumps(report.as_dict())


def test_a_prompt_that_one_server_refuses_is_no_end(compare: Compare) -> None:
    refusing = Completions(letters, refuses=[QUESTIONS[1].tokens])
    report = compare(Completions(letters), refusing)
    assert outcomes(report) == ["equal", "failed", "equal", "equal"]
    with pytest.raises(SmokeError, match="1 of 4 prompts were not answered; prompt 2 by the new server"):
        report.require(None)
    assert "not supported" in rendering.render(report, "human", None)


def test_answers_of_unequal_length_part_where_the_shorter_stops(compare: Compare) -> None:
    report = compare(Completions(letters), Completions(letters, longest=4), QUESTIONS[:1])
    assert outcomes(report) == ["parted"]
    assert report.compared[0].parting is not None
    assert report.compared[0].parting.step == 4
    assert "(cut off)" in rendering.render(report, "human", None)


def test_a_server_that_changes_its_mind_is_named(compare: Compare) -> None:
    asked = []

    def model(prompt: Sequence[int]) -> Mapping[int, float]:
        asked.append(prompt)
        return {ord("x") if len(asked) % 2 else ord("y"): -0.1}

    report = compare(Completions(letters), Completions(model), QUESTIONS[:2], requests=3, length=2)
    assert report.notes == ["the new server gave different answers, when asked twice, to the prompts 1, 2"]
    assert report.latencies["new"]["requests"] == 6


def test_a_key_goes_to_its_server_alone(compare: Compare) -> None:
    report = compare(Completions(letters, wanted_key="secret"), Completions(letters))
    assert outcomes(report) == ["equal"] * 4
    with serving(Completions(letters, wanted_key="secret")) as locked:
        both = {"old": Address(locked.url, key="secret"), "new": Address(locked.url)}
        with servers.connected(both, MODELS, None) as connected:
            found = runner.run(connected, QUESTIONS, ComparisonOptions(), print)
    assert outcomes(found) == ["failed"] * 4
    assert found.compared[0].wrong.keys() == {"new"}
    assert "answered 401" in found.compared[0].wrong["new"]


@pytest.mark.parametrize(
    "whole",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"choices": []}',
        b'{"choices": [{}]}',
        b'{"choices": [{"text": 1}]}',
        b'{"choices": [{"text": "", "token_ids": [-1]}]}',
        b'{"choices": [{"text": "", "token_ids": [99999999999]}]}',
        b'{"choices": [{"text": "", "token_ids": ["a"]}]}',
        b'{"choices": [{"text": "", "logprobs": {"tokens": [1]}}]}',
        b'{"choices": ' + b"[" * 100_000,
        b'{"choices": [{"text": "", "token_ids": [' + b"1," * 3_000_000 + b"1]}]}",
    ],
)
def test_an_answer_that_is_none_fails_its_prompt(compare: Compare, whole: bytes) -> None:
    report = compare(Completions(letters), Completions(letters, whole=whole), QUESTIONS[:1])
    assert outcomes(report) == ["failed"]
    with pytest.raises(SmokeError):
        report.require(None)


def test_log_probabilities_that_are_no_numbers_are_unknown(compare: Compare) -> None:
    choice = {
        "text": "xy",
        "finish_reason": "length",
        "token_ids": [120, 121],
        "logprobs": {"top_logprobs": [{"token_id:120": None, "token_id:99999999999": -1.0}]},
    }
    whole = json.dumps({"choices": [choice]}).encode().replace(b"null", b"-1e999")
    report = compare(Completions(letters), Completions(letters, whole=whole), QUESTIONS[:1])
    assert report.compared[0].parting is not None
    assert report.compared[0].parting.new == Side()


tokens = st.lists(st.integers(0, 3), max_size=6).map(tuple)


@settings(deadline=None)
@given(tokens, tokens, st.booleans(), st.booleans())
def test_answers_part_after_their_longest_common_beginning(
    one: tuple[int, ...], other: tuple[int, ...], ended: bool, also_ended: bool
) -> None:
    old, new = Answer(one, ended), Answer(other, also_ended)
    step = answers.parted_after(old, new)
    assert step == answers.parted_after(new, old)
    if step is None:
        assert (one, ended) == (other, also_ended)
    else:
        assert one[:step] == other[:step]
        assert one[step : step + 1] != other[step : step + 1] or (one == other and ended != also_ended)


def test_a_token_that_a_server_does_not_tell_is_rated_below_those_that_it_tells() -> None:
    assert answers.side({1: -0.1, 2: -3.0}, 1, 7) == Side(-0.1, -3.0, bound=True)
    assert answers.side({1: -0.1}, 1, 7) == Side(-0.1)
    assert answers.side({1: math.nan, 2: -math.inf}, 1, 2) == Side()
    assert Parting(0, Side(-0.7, -0.75), Side()).outcome(0.1) is Outcome.TIE
    assert Parting(0, Side(-0.7, -0.75), Side(-0.1, -3.0, bound=True)).outcome(0.1) is Outcome.PARTED
    assert Parting(0, Side(-0.7, -0.75), Side(-2.1, -2.15, bound=True)).outcome(0.1) is Outcome.PARTED
    assert Parting(0).outcome(0.1) is Outcome.PARTED


def test_pages_escape_what_servers_say(compare: Compare) -> None:
    report = compare(Completions(letters), Completions(parting_after(0)), QUESTIONS[:1])
    evil = "<script>|`x`\x1b[31m"
    page = rendering.render(report, "html", lambda ids: evil)
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    written = rendering.render(report, "md", lambda ids: evil)
    assert "<script>" not in written
    (row,) = (line for line in written.splitlines() if "&lt;script&gt;" in line)
    assert row.replace(r"\|", "").count("|") == 8
    assert "\x1b" not in page + written + rendering.render(report, "human", lambda ids: evil)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.txt", b"", "there is no prompt in the file"),
        ("a.jsonl", b"\n \n\r\n", "there is no prompt in the file"),
        ("a.txt", b"Hello\n", "a text needs the model's tokenizer"),
        ("a.txt", b"\xff\xfe", "not UTF-8"),
        ("a.txt", b"a\x00b", "control character"),
        ("a.jsonl", b"[1, 2\n", "not a prompt: the whole: Invalid JSON"),
        ("a.jsonl", b"[1]\n[1.5]", "not a prompt"),
        ("a.jsonl", b"[true]", "not a prompt: token ids.0: .* valid integer"),
        ("a.jsonl", b"[5, -1]", "not a prompt: token ids.1: .* greater than or equal to 0"),
        ("a.jsonl", b"[2147483648]", "not a prompt: token ids.0: .* less than 2147483648"),
        ("a.jsonl", b"[]", "not a prompt: token ids: .* at least 1 item"),
        ("a.jsonl", b'""', "not a prompt: text: .* at least 1 character"),
        ("a.jsonl", b"null", "not a prompt: .* neither a text, a list of token ids nor an object"),
        ("a.jsonl", b"7", "not a prompt"),
        ("a.jsonl", b'{"prompt": [1], "temperature": 2}', "not a prompt: object.temperature"),
        ("a.jsonl", b'{"prompt": [[1]]}', "not a prompt: object.prompt.token ids.0"),
        ("a.jsonl", b'{"text": "a"}', "not a prompt: object.prompt: Field required"),
        ("a.jsonl", b"[" * 90_000, "not a prompt"),
        ("a.jsonl", b"[1" + b",1" * 100_001 + b"]", "not a prompt"),
    ],
)
def test_a_broken_file_of_prompts_is_named_with_its_line(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=reason) as wrong:
        prompts.read(file, None)
    assert str(file) in str(wrong.value)
    if content.startswith(b"[1]\n"):
        assert f"{file}:2" in str(wrong.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for file in (tmp_path / "none", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            prompts.read(file, None)


def test_prompts_are_texts_and_token_ids(tmp_path: Path, tokenizer: Any) -> None:
    lines = tmp_path / "a.jsonl"
    lines.write_text('"Hi"\r\n\n[72, 105]\n{"prompt": "Hi"}\n{"prompt": [72, 105]}\n')
    assert prompts.read(lines, tokenizer) == [prompts.Prompt((72, 105), "Hi")] * 4
    plain = tmp_path / "a.txt"
    plain.write_bytes(b'\xef\xbb\xbfHi\r\n\n"Hi\n')
    assert [each.text for each in prompts.read(plain, tokenizer)] == ["Hi", '"Hi']


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return forked.invoke("compare", *arguments, env={**os.environ, "FTBUILD_CONFIG": str(SAMPLE)})


def test_the_command_writes_a_report_and_ends_with_9_for_a_server_that_dies(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(f"{list(each.tokens)}\n" for each in QUESTIONS))
    with serving(Completions(letters)) as old, serving(Completions(parting_after(2), dies_after=3)) as new:
        page = tmp_path / "report.html"
        done = run_command(
            "--old", old.url, "--new", new.url, "--prompts", str(file), "--format", "html", "--out", str(page)
        )
        assert done.returncode == 9, done.stderr
        assert "error: the new server stopped answering at prompt 3 of 4" in done.stderr
        assert page.read_text().startswith("<!doctype html>")
        again = run_command("--old", old.url, "--new", old.url, "--prompts", str(file))
        assert (again.returncode, again.stderr) == (0, "")
        assert again.stdout.startswith("4 of 4 answers agree, 4 in every token\n")


def test_triton_gets_no_api_key() -> None:
    with pytest.raises(ConfigError, match="--new: an API key for Triton"):
        servers.connected({"new": Address("127.0.0.1:1", key="x")}, MODELS, None).__enter__()


@pytest.mark.parametrize("address", ["", "nowhere", "host:99999", "ftp://host:1", "https://host:8001"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=r"--old: .*is not an address"):
        servers.connected({"old": Address(address)}, MODELS, None).__enter__()


def test_an_address_that_leads_nowhere_says_so() -> None:
    with pytest.raises(Refused, match="--old: no answer"):
        servers.connected({"old": Address("http://127.0.0.1:1/v1")}, MODELS, None).__enter__()
