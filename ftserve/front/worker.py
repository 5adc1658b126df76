"""The process that renders templates and tokenizes: `python -m ftserve.front.worker FOLDER` (workers.py).

A checkpoint's template and tokenizer are a stranger's, and the texts a client's: what they may take of time
and memory is bounded from outside, by the limits of a process. It reads requests from its standard input and
answers on its standard output, each as four bytes of length and then so many bytes; it ends with its input.

An answer is `{"error": ...}` or `{"lengths": [...], "words": [...]}`, a line end, and the token ids of all
texts, one after the other, as 32 bits each. There are none where a text exceeds the request's `max_tokens`.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
import sys
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ftserve.front import chat, limits
from ftserve.front.chat import ChatTemplate
from ftserve.front.errors import ConfigError
from ftserve.front.failures import Failure

LENGTH = struct.Struct("<I")


def main(folder: Path, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more."""
    _limit(limits.START_BYTES, limits.START_SECONDS)
    try:
        tokenizer, template = Tokenizer(_load(folder)), chat.read(folder)
    except ConfigError as wrong:
        _send(answers, {"error": wrong.what, "hint": wrong.hint})
        return
    _limit(limits.TEXT_BYTES, limits.TEXT_SECONDS)
    _send(answers, {"template": template is not None})
    while head := requests.read(LENGTH.size):
        request = json.loads(requests.read(LENGTH.unpack(head)[0]))
        _limit_time(limits.TEXT_SECONDS)
        try:
            answer_, ids = answer(tokenizer, template, request)
        except Failure as refused:
            answer_, ids = {"error": refused.message, "param": refused.param}, b""
        _send(answers, answer_, ids)


def answer(
    tokenizer: Tokenizer, template: ChatTemplate | None, request: Mapping[str, Any]
) -> tuple[dict[str, Any], bytes]:
    """Return the answer to one request, and its token ids as bytes.

    `request` has `texts`, or `messages` for the template, and `stops`. Failure (400) where the template
    refuses, or a text takes too much.
    """
    if "messages" in request:
        assert template is not None
        # The template has the special tokens already.
        texts, special = [template.render(request["messages"])], False
    else:
        texts, special = request["texts"], request.get("special", True)
    limit = request.get("max_tokens")
    if limit is not None and (shortest := max(map(tokenizer.least, texts), default=0)) > limit:
        return {"lengths": [shortest] * len(texts), "words": []}, b""
    try:
        rows = [tokenizer.encoded(text, special=special) for text in texts]
        words = [word for stop in request.get("stops", ()) if (word := tokenizer.word(stop))]
    except MemoryError:
        raise Failure(400, "the text takes too much memory") from None
    except Exception as broken:  # the library raises Exception itself
        raise Failure(400, f"it cannot be tokenized: {type(broken).__name__}") from None
    if limit is not None and any(len(row) > limit for row in rows):
        return {"lengths": [len(row) for row in rows], "words": []}, b""
    return {"lengths": [len(row) for row in rows], "words": words}, b"".join(map(bytes, rows))


class Tokenizer:
    """A tokenizer of the library tokenizers."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self._special = {token.content: number for number, token in added.items() if token.special}
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        # Characters of the longest token; None where some may come to be in no token, or many in one.
        self._longest = max(map(len, vocabulary), default=1) if _keeps_all(tokenizer, vocabulary) else None

    def least(self, text: str) -> int:
        """Return the minimum number of tokens of a text, by its length alone."""
        return len(text) // self._longest if self._longest else 0

    def encoded(self, text: str, *, special: bool) -> array[int]:
        """Return the tokens of a text, with those that the tokenizer adds if `special`."""
        # The way that makes no offsets of characters, and takes half of the time and memory.
        return array("I", self._tokenizer.encode_batch_fast([text], add_special_tokens=special)[0].ids)

    def word(self, stop: str) -> list[int]:
        """Return a stop sequence that is exactly one token, by which the server can end an answer itself.

        More tokens would keep requests from being computed together, and a text can be made of other ones. A
        special token is not in the text of an answer at all, so this is the one way to find it.
        """
        if (special := self._special.get(stop)) is not None:
            return [special]
        ids: list[int] = self._tokenizer.encode(stop, add_special_tokens=False).ids
        return ids if len(ids) == 1 and self._tokenizer.decode(ids) == stop else []


def _keeps_all(tokenizer: Any, vocabulary: Mapping[str, int]) -> bool:
    """Return whether each character of any text comes to be in a token, which has no others but its own.

    So it is where bytes are tokens. Else a normalizer or a step before the model may drop characters, as the
    model may those that it does not know; it may also make one token of all of them, and so may an added
    token of all blanks around it.
    """
    from tokenizers import pre_tokenizers

    before = tokenizer.pre_tokenizer
    if tokenizer.normalizer is not None or before is None or type(tokenizer.model).__name__ != "BPE":
        return False
    if any(token.lstrip or token.rstrip for token in tokenizer.get_added_tokens_decoder().values()):
        return False
    state = json.loads(before.__getstate__())
    steps = state.get("pretokenizers", [state])
    kinds = {step["type"] for step in steps}
    return (
        "ByteLevel" in kinds
        and kinds <= {"ByteLevel", "Digits", "Punctuation", "Split"}
        and all(step.get("behavior") != "Removed" for step in steps)
        and vocabulary.keys() >= set(pre_tokenizers.ByteLevel.alphabet())
    )


def _load(folder: Path) -> Any:
    from ftserve.front import texts

    try:
        return texts.load(folder)
    except Exception as broken:  # the library raises Exception itself
        raise ConfigError(
            f"no usable tokenizer: {str(broken)[:200]}",
            hint="--tokenizer: the folder with tokenizer.json, or vocab.json and merges.txt",
        ) from broken


def _limit(size: int, seconds: int) -> None:
    """Let this process take so many bytes and seconds more (RLIMIT_DATA is of Linux 4.7 and later)."""
    _limit_time(seconds)
    limit = _data_bytes() + size
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(
        resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard)
    )


def _limit_time(seconds: int) -> None:
    """Let this process take so many seconds of a processor more, also where no parent is left to end it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    limit = int(used.ru_utime + used.ru_stime) + seconds + 1
    resource.setrlimit(
        resource.RLIMIT_CPU, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard)
    )


def _data_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) << 10
    return 0


def _send(answers: BinaryIO, answer_: Mapping[str, Any], ids: bytes = b"") -> None:
    head = json.dumps(answer_).encode() + b"\n"
    answers.write(LENGTH.pack(len(head) + len(ids)))
    answers.write(head)
    answers.write(ids)
    answers.flush()


if __name__ == "__main__":
    # Ctrl-C ends the service, which then closes the input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Threads of the library would take memory of their own, and processors from the service.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # What a library prints must not be taken for an answer.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    main(Path(sys.argv[1]), sys.stdin.buffer, output)
