"""What the errors of the Triton server mean for a client, by their status, or by their words alone."""

from __future__ import annotations

import re

import grpc

from ftserve.front.failures import SERVER, TOO_LONG, Failure, broken, busy, late, unavailable

# The longest message of the server that a client gets.
_LONGEST = 500


def of_server(status: grpc.StatusCode, message: str) -> Failure:
    """Return what a status of the Triton server means for the client."""
    if status is grpc.StatusCode.INVALID_ARGUMENT:
        return _refused(message)
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return late()
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return busy("the Triton server computes as many requests as it can at once")
    if status in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND):
        sentence = next((sentence for words, sentence in _OVERLOADED if words in message), None)
        return Overloaded(sentence) if sentence else unavailable(_AWAY)
    return broken()


def of_message(message: str) -> Failure:
    """Return what an error in a stream means, which has a message and no status.

    Servers write an error that they find before a model computes into the stream even where the client asks
    for the status (server r24.10 stream_infer_handler.cc:340-352), and those before 2.49 write all of them
    there. So the words decide.
    """
    status = next((status for words, status in _WORDS if words.search(message)), grpc.StatusCode.INTERNAL)
    return of_server(status, message)


class TooLong(Failure):
    """The server's refusal of a length; `room` is what it would take after the prompt, if it says so."""

    def __init__(self, message: str, room: int | None) -> None:
        super().__init__(400, message, code=TOO_LONG)
        self.room = room


class Overloaded(Failure):
    """What a server does not compute that has too much to do; it is there, and its model is what it was."""

    def __init__(self, message: str, seconds: int = 1) -> None:
        """`seconds` is when to come back."""
        headers = {"Retry-After": str(seconds)}
        super().__init__(503, message, kind=SERVER, code="server_overloaded", headers=headers)


def _refused(message: str) -> Failure:
    sentence = message[:_LONGEST]
    for words in _LENGTHS:
        if match := words.search(message):
            return TooLong(sentence, _room(match.groupdict()))
    return Failure(400, sentence)


def _room(numbers: dict[str, str]) -> int | None:
    if "answer" in numbers:
        return int(numbers["answer"])
    if "both" in numbers:
        return int(numbers["both"]) - int(numbers["prompt"])
    return None


_AWAY = "the Triton server cannot be reached, or is loading its model; try again later"
# The server's words, and the backend's (patches/backend, in_flight_queue.h), for what waits.
_OVERLOADED = (
    ("queue size", "the queue of the Triton server is full; try again later"),
    ("timeout expired", "the request waited too long in the queue of the Triton server; try again later"),
)
# The backend's words for a text or an answer that has no room (patches/backend, request_limits.h), and those
# of the sample's. What they say of the room is of the request's only row.
_LENGTHS = tuple(
    map(
        re.compile,
        (
            r"tokens in a row, and the model takes",
            r"with (?P<prompt>\d{1,9}) tokens of prompt and \d+ of answer, "
            r"and the server computes (?P<both>\d{1,9})",
            r"(?P<prompt>\d{1,9}) tokens in and \d+ out are more than (?P<both>\d{1,9})",
            r"(?:request|max)_output_len\[\d+\] is \d+, "
            r"which is not in the range \[\d+, (?P<answer>\d{1,9})\]",
        ),
    )
)
# Words of an error message -> the status that Triton's core gives such errors: server.cc (Server not ready),
# dynamic_batch_scheduler.cc:189, scheduler_utils.cc:174, model_lifecycle.cc:370-385 and
# model_repository_manager.cc:1255 of core r24.10; libfastertransformer.cc:1553-1563 of the backend.
_WORDS = (
    (
        re.compile(
            r"not ready|is stopping|queue size|not at ready state|no available versions|is not found"
            r"|timeout expired|unavailable|exiting|unloading",
            re.IGNORECASE,
        ),
        grpc.StatusCode.UNAVAILABLE,
    ),
    (
        re.compile(r"execute failure|CUDA|CUBLAS|NCCL|out of memory|internal|not healthy", re.IGNORECASE),
        grpc.StatusCode.INTERNAL,
    ),
    # What names an input of the request, or its tokens, is about the request.
    (
        re.compile(
            r"tokens|input|_ids|_len|lengths|runtime_top|temperature|penalty|random_seed|beam|words_list|_id\b",
            re.IGNORECASE,
        ),
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
)
