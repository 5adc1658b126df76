"""Tensors in a server's messages: read by their places, they are what protobuf reads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from ftserve.front import responses, tensors
from ftserve.front.failures import Failure
from ftserve.front.responses import Reader
from ftserve.front.tensors import Answer, Ask, Facts

NAMES = [tensors.ANSWER, tensors.ANSWER_LENGTH, "cum_log_probs", "another"]
ROWS = st.tuples(st.sampled_from(NAMES), st.lists(st.integers(0, 2**32 - 1), max_size=70))
GPT = Facts({"input_ids": "UINT32", "input_lengths": "UINT32"}, frozenset(), frozenset(), decoupled=True)


def message(rows: list[tuple[str, list[int]]], name: str = "m") -> bytes:
    response = service_pb2.ModelInferResponse(model_name=name)
    for output, values in rows:
        response.outputs.add(name=output, datatype="UINT32", shape=[len(values)])
        response.raw_output_contents.append(np.array(values, np.uint32).tobytes())
    sent: bytes = service_pb2.ModelStreamInferResponse(infer_response=response).SerializeToString()
    return sent


def parsed(sent: bytes) -> dict[str, list[int]] | None:
    response = service_pb2.ModelStreamInferResponse.FromString(sent).infer_response
    return {name: list(values) for name, values in responses.outputs(response).items()} or None


@given(st.lists(st.lists(ROWS, max_size=4, unique_by=lambda row: row[0]), max_size=8), st.data())
@settings(deadline=None)
def test_a_message_after_others_is_read_as_alone(
    said: list[list[tuple[str, list[int]]]], data: st.DataObject
) -> None:
    reader = Reader()
    for rows in said:
        other = [(name, data.draw(st.permutations(values))) for name, values in rows]
        for sent in (message(rows), message(other), message(rows, "n"), message(rows[::-1])):
            found = reader.read(sent)
            assert ({name: list(values) for name, values in found.items()} if found else None) == parsed(sent)


def test_an_error_is_raised_also_after_an_answer() -> None:
    reader = Reader()
    reader.read(message([(tensors.ANSWER, [1, 2])]))
    refused = service_pb2.ModelStreamInferResponse(error_message="Server not ready")
    with pytest.raises(Failure) as failed:
        reader.read(refused.SerializeToString())
    assert failed.value.status == 503


@pytest.mark.parametrize(
    ("rows", "tokens"),
    [
        # Filled up behind the length; nothing new; several at once; more than was asked for.
        ([([7, 8, 1, 0, 0], 3), ([7, 8, 1, 0, 0], 3), ([7, 8, 1, 2, 3, 4], 6)], [[1], [], [2, 3]]),
        # Up to the end.
        ([([7, 8, 1, 9, 2], 5)], [[1, 9]]),
        # Shorter than the answer before it.
        ([([7, 8, 1, 2, 0], 4), ([7, 8, 1, 2, 0], 3)], [[1, 2], []]),
    ],
)
def test_new_tokens_are_those_that_no_response_before_had(
    rows: list[tuple[list[int], int]], tokens: list[list[int]]
) -> None:
    answer = Answer(GPT, Ask([7, 8], 3, 9))
    reader = Reader()
    found = []
    for row, length in rows:
        outputs = reader.read(message([(tensors.ANSWER, row), (tensors.ANSWER_LENGTH, [length])]))
        assert outputs is not None
        found.append(answer.new_tokens(outputs))
    assert found == tokens
    assert answer.whole == (sum(map(len, tokens)) == 3 or tokens[-1][-1:] == [9])
