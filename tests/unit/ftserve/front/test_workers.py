"""Templates and texts in processes of their own: limits of time and memory, and a free event loop."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from ftserve.front import keys, limits
from ftserve.front.errors import ConfigError
from ftserve.front.failures import Failure
from ftserve.front.worker import LENGTH
from testing import bytelevel, needs

workers = needs.package("ftserve.front.workers")
MESSAGES = [{"role": "user", "content": "Hi"}]
# Each runs for ever, or takes all memory, when it is rendered.
HOSTILE = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "repeats": "{{ messages[0].content * 2000000000 }}",
    "pads": "{{ messages[0].content | center(2000000000) }}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "lists": "{% set n = namespace(x=messages) %}{% for i in range(99) %}{% set n.x = n.x * 2 %}{% endfor %}",
}


def folder(place: Path, template: str | None) -> Path:
    made = bytelevel.write(place / "tokenizer")
    if template is not None:
        (made / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return made


def run(place: Path, work: Any) -> Any:
    """Run `work` with workers for a folder, and end them."""

    async def all_of_it() -> Any:
        made = workers.Workers(place)
        await made.start()
        try:
            return await work(made)
        finally:
            await made.close()

    return asyncio.run(all_of_it())


async def longest_wait(work: Coroutine[Any, Any, Any]) -> float:
    """Return for how many seconds the event loop was held while something ran."""
    worst = 0.0
    task = asyncio.create_task(work)
    while not task.done():
        start = time.monotonic()
        await asyncio.sleep(0.01)
        worst = max(worst, time.monotonic() - start - 0.01)
    task.exception()
    return worst


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_template_without_end_is_the_failure_of_one_request(
    hostile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TEXT_SECONDS", 3)

    async def work(made: Any) -> None:
        with pytest.raises(Failure) as refused:
            await made.conversation(MESSAGES)
        assert (refused.value.status, refused.value.param) == (400, "messages")
        assert [row.tolist() for row in (await made.texts(["ab"], "prompt")).rows] == [[97, 98]]

    run(folder(tmp_path, HOSTILE[hostile]), work)


def test_a_long_text_leaves_the_event_loop_free(tmp_path: Path) -> None:
    async def work(made: Any) -> float:
        # 4 s by the library in a thread of this process, which it holds meanwhile.
        return await longest_wait(made.texts(["ab " * 300_000], "prompt"))

    assert run(folder(tmp_path, None), work) < 0.5


def test_texts_rows_and_stop_words_come_together(tmp_path: Path) -> None:
    async def work(made: Any) -> Any:
        return await made.texts(["ab", "", "c"], "prompt", stops=["a", "ab"])

    found = run(folder(tmp_path, None), work)
    assert [row.tolist() for row in found.rows] == [[97, 98], [], [99]]
    assert (found.lengths, found.words) == ([2, 0, 1], [[97]])


def test_of_texts_that_are_too_long_only_the_lengths_come(tmp_path: Path) -> None:
    async def work(made: Any) -> Any:
        return await made.texts(["ab", "abc"], "prompt", limit=2)

    found = run(folder(tmp_path, None), work)
    assert (list(found.rows), found.lengths) == ([], [2, 3])


def test_a_process_ends_whose_answer_nobody_has_read(tmp_path: Path) -> None:
    """asyncio of Python 3.11 does not notice the end of a process while the pipe from it is full."""

    async def ended() -> None:
        process, _ = await workers.start(folder(tmp_path, None))
        asked = json.dumps({"texts": ["ab " * 100_000], "stops": []}).encode()
        sending, reader = process._process.stdin, process._process.stdout
        assert sending is not None
        assert reader is not None
        sending.write(LENGTH.pack(len(asked)) + asked)
        async with asyncio.timeout(60):
            while not reader._paused:
                await asyncio.sleep(0.01)
        async with asyncio.timeout(20):
            await process.end()

    asyncio.run(ended())


def test_a_process_that_has_ended_while_it_waited_is_no_failure_of_the_next_request(tmp_path: Path) -> None:
    async def work(made: Any) -> None:
        async with asyncio.timeout(60):
            while made._idle.qsize() < 2:
                await asyncio.sleep(0.01)
        for process in list(made._all):
            process._process.kill()
            await process._process.wait()
        found = await asyncio.gather(*(made.texts(["ab"], "prompt") for _ in range(3)))
        assert [each.lengths for each in found] == [[2]] * 3

    run(folder(tmp_path, None), work)


def test_who_leaves_leaves_a_process_that_goes_on(tmp_path: Path) -> None:
    async def work(made: Any) -> None:
        asking = asyncio.create_task(made.texts(["ab " * 20_000], "prompt"))
        await asyncio.sleep(0.05)
        asking.cancel()
        before = set(made._all)
        for _ in range(5):
            assert (await made.texts(["ab"], "prompt")).lengths == [2]
        assert before <= made._all

    run(folder(tmp_path, None), work)


@pytest.mark.parametrize(
    "template",
    [
        "{% break %}",
        "{{ " + "(" * 3000 + ")" * 3000 + " }}",
        "{% for i in a %}" * 30 + "{% endfor %}" * 30,
        "{% generation %}",
        "{% if %}",
        "{% endgeneration %}",
        "{{ '\ud800' }}{% import 'a' %",
    ],
)
def test_a_template_that_is_none_ends_the_start_with_a_reason(template: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the chat template is broken") as refused:
        workers.has_template(folder(tmp_path, template))
    assert refused.value.hint


def test_a_template_that_is_computed_while_it_is_compiled_has_a_limit(tmp_path: Path) -> None:
    # Jinja computes constants at that time.
    for template in ("{{ 'a' * (10 ** 11) }}", "{{ [0] * (10 ** 11) }}"):
        assert workers.has_template(folder(tmp_path, template))


def test_a_template_that_takes_too_long_to_compile_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "START_SECONDS", 5)
    with pytest.raises(ConfigError, match="too much time"):
        workers.has_template(folder(tmp_path, "{{ (9 ** 9) ** (9 ** 9) }}"))


def test_a_worker_is_told_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, keys.KEY_VARIABLE, "0123456789abcdef")
    assert keys.KEY_VARIABLE not in workers._environment()


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BLANKS = {"type": "Split", "pattern": {"String": " "}, "behavior": "Removed", "invert": False}
MASK = {"content": "<m>", "single_word": False, "lstrip": False, "normalized": False, "special": True}


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"added_tokens": [{**MASK, "id": 258, "rstrip": True}]}, id="an added token takes them"),
        pytest.param({"pre_tokenizer": {"type": "WhitespaceSplit"}}, id="they end words"),
        pytest.param(
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [BLANKS, BYTES]}}, id="they are removed"
        ),
        pytest.param({"pre_tokenizer": None}, id="the model does not know them"),
        pytest.param(
            {
                "pre_tokenizer": None,
                "added_tokens": [],
                "model": {"type": "WordLevel", "vocab": {"<?>": 0, "a": 1}, "unk_token": "<?>"},
            },
            id="the model knows no such word",
        ),
    ],
)
def test_a_text_of_many_blanks_is_as_long_as_its_tokens(changed: dict[str, Any], tmp_path: Path) -> None:
    made = folder(tmp_path, None)
    file = made / "tokenizer.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))
    text = "<m>" + " " * 100_000

    async def work(made: Any) -> Any:
        return await made.texts([text], "prompt", limit=50)

    found = run(made, work)
    assert 0 < found.lengths[0] <= 3
    assert len(found.rows[0]) == found.lengths[0]


def test_a_text_that_is_too_long_by_its_characters_is_not_cut_into_tokens(tmp_path: Path) -> None:
    """Each token of this tokenizer has at most the 15 characters of <|startoftext|>."""

    async def work(made: Any) -> Any:
        return await made.texts([" " * 10_000], "prompt", limit=50)

    assert run(folder(tmp_path, None), work).lengths == [10_000 // len("<|startoftext|>")]
