"""Events and vectors as bytes: what every reader takes for one line, and JSON."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from ftbuild.front import formats
from ftbuild.front.formats import Chats, Completions, Envelope, Stream

SIGNS = [
    "\u2028",
    "\u2029",
    "\x85",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x1e",
    "\ud800",
    "\ufffd",
    "\U0001f600",
    '"',
    "\\",
]


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("form", [Completions(), Chats()])
@pytest.mark.parametrize("sign", SIGNS)
def test_an_event_is_one_line_for_everybody(sign: str, form: Completions | Chats, counted: bool) -> None:
    stream = Stream(Envelope(form, f"name{sign}\ufffd"), counted=counted)
    for number in range(3):
        told = stream.piece(number, f"a{sign}b", None, first=False)
        assert told.endswith(b"\n\n")
        line = told.decode("ascii").rstrip("\n").splitlines()
        assert len(line) == 1
        event = json.loads(line[0].removeprefix("data: "))
        (choice,) = event["choices"]
        assert choice["index"] == number
        assert choice.get("text", choice.get("delta", {}).get("content")) == f"a{sign}b"
        assert event["model"] == f"name{sign}\ufffd"
        assert ("usage" in event) == counted


def test_a_quick_event_is_the_same_as_one_made_in_full() -> None:
    for form in (Completions(), Chats()):
        envelope = Envelope(form, "m")
        stream = Stream(envelope, counted=True)
        for text in ("a", "b\n", ""):
            made = form.deltas(1, text, None, first=False)
            whole = b"".join(formats.event(envelope.chunk([each], counted=True)) for each in made)
            assert stream.piece(1, text, None, first=False) == whole or not text


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_vectors_are_json_in_parts(encoding: str) -> None:
    vectors = [np.array([1.5, -2.25], np.float32), np.array([0, math.nan], np.float32)]
    parts = list(formats.embeddings('a"b', vectors, 7, encoding))
    said = json.loads(b"".join(parts))
    assert (said["model"], said["usage"]) == ('a"b', {"prompt_tokens": 7, "total_tokens": 7})
    assert [each["index"] for each in said["data"]] == [0, 1]
    if encoding == "float":
        assert said["data"][0]["embedding"] == [1.5, -2.25]
    # One vector at a time.
    assert max(map(len, parts)) < 200
