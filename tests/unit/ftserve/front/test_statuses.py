"""What the errors of a Triton server mean for a client."""

from __future__ import annotations

import grpc
import pytest

from ftserve.front import statuses

LONG = "context_length_exceeded"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, 400),
        (grpc.StatusCode.UNAVAILABLE, 503),
        (grpc.StatusCode.NOT_FOUND, 503),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 429),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 504),
        (grpc.StatusCode.INTERNAL, 500),
        (grpc.StatusCode.UNKNOWN, 500),
        (grpc.StatusCode.UNIMPLEMENTED, 500),
    ],
)
def test_a_status_has_one_of_http(status: grpc.StatusCode, expected: int) -> None:
    failure = statuses.of_server(status, "words")
    assert failure.status == expected
    assert ("Retry-After" in failure.headers) == (expected in (429, 503))


@pytest.mark.parametrize(
    ("message", "expected", "code"),
    [
        # core r24.10: server.cc, dynamic_batch_scheduler.cc, scheduler_utils.cc, model_lifecycle.cc
        ("Server not ready", 503, "server_unavailable"),
        ("Server is stopping, scheduler for model has stopped accepting new inference requests", 503, None),
        ("[request id: <id_unknown>] Exceeds maximum queue size", 503, None),
        ("Request timeout expired", 503, None),
        ("Request for unknown model: 'fastertransformer' version 1 is not at ready state", 503, None),
        ("Request for unknown model: 'fastertransformer' has no available versions", 503, None),
        # backend, libfastertransformer.cc and request_limits.h
        ("FasterTransformer execute failure: [FT][ERROR] CUDA runtime error: out of memory", 500, None),
        ("CUDA error: an illegal memory access was encountered", 500, None),
        ("NCCL error: unhandled system error", 500, None),
        ("something that nobody has seen", 500, None),
        ("FasterTransformer execute failure: CUDA error after input_ids", 500, None),
        ("model is not healthy with these tokens", 500, None),
        ("the model is unloading", 503, None),
        ("end_id[0] is 9999, which is not in the range [0, 511]", 400, None),
        ("input_ids[1] is 9999, which is not in the range [0, 511]", 400, None),
        ("temperature[0] is 5000, which is not in the range [0, 1000]", 400, None),
        ("input_ids has 2000 tokens in a row, and the model takes 1024", 400, LONG),
        ("request_output_len[0] is 2048, which is not in the range [0, 506]", 400, LONG),
        ("max_output_len[0] is 2048, which is not in the range [0, 506]", 400, LONG),
        ("7 tokens in and 2048 out are more than 1024", 400, LONG),
    ],
)
def test_the_words_of_a_stream_have_the_status_that_they_had_with_one(
    message: str, expected: int, code: str | None
) -> None:
    failure = statuses.of_message(message)
    assert failure.status == expected
    if code is not None:
        assert failure.code == code
    # Only a refusal's words are for the client.
    assert (message in failure.message) == (expected == 400)


@pytest.mark.parametrize(
    ("message", "room"),
    [
        ("request_output_len[0] is 2048, which is not in the range [0, 506]", 506),
        ("7 tokens in and 2048 out are more than 1024", 1017),
        (
            "the request has 1 rows of 1 beams with 7 tokens of prompt and 2048 of answer, and the server "
            "computes 1024 tokens at once",
            1017,
        ),
        ("input_ids has 2000 tokens in a row, and the model takes 1024", None),
    ],
)
def test_what_is_too_long_says_what_would_fit(message: str, room: int | None) -> None:
    failure = statuses.of_server(grpc.StatusCode.INVALID_ARGUMENT, message)
    assert isinstance(failure, statuses.TooLong)
    assert (failure.room, failure.code) == (room, LONG)


@pytest.mark.parametrize(
    ("status", "message", "said"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "x" * 600, "x" * 500),
        (grpc.StatusCode.UNAVAILABLE, "exceeds maximum queue size", "the queue of the Triton server is full"),
        (
            grpc.StatusCode.UNAVAILABLE,
            "connection refused",
            "the Triton server cannot be reached, or is load",
        ),
        (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "secret",
            ("the Triton server computes as many requests as it can at once; try"),
        ),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "secret", "the Triton server took too long"),
        (grpc.StatusCode.INTERNAL, "secret", "the Triton server failed"),
    ],
)
def test_a_client_is_told_what_it_can_do_about(status: grpc.StatusCode, message: str, said: str) -> None:
    found = statuses.of_server(status, message).message
    assert found.startswith(said)
    assert len(found) <= 500
    assert "secret" not in found


def test_a_length_is_cut_as_other_refusals_are() -> None:
    message = "7 tokens in and 2048 out are more than 1024" + "x" * 600
    found = statuses.of_server(grpc.StatusCode.INVALID_ARGUMENT, message)
    assert (found.message, found.status) == (message[:500], 400)
