"""The Python models as Triton runs them: requests in, tensors or an error out.

They are imported from where they are written. Those of a repository are copies, in which mutation testing
can put no fault.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ftbuild.models import tokenization
from ftbuild.models.vectors import vectors
from testing import bytelevel, needs, python_backend
from testing.python_backend import request
from tests.unit.models.test_repository import rows

Array = np.ndarray[Any, Any]


def imported(package: ModuleType, name: str, **beside: ModuleType) -> Any:
    """A module as in a repository: `beside` lie next to it."""
    spec = importlib.util.spec_from_file_location(name, Path(package.__path__[0]) / f"{name}.py")
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patched:
        for there, module in {**beside, python_backend.NAME: python_backend.module()}.items():
            patched.setitem(sys.modules, there, module)
        spec.loader.exec_module(made)
    return made


PACKAGE = importlib.import_module("ftbuild.models.vectors")
ANSWERING = imported(PACKAGE, "answering")
EMBEDDING, CHECKING, POOLING = (
    imported(PACKAGE, name, vectors=vectors, answering=ANSWERING)
    for name in ("embedding", "checking", "pooling")
)


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A model as if it lay in the test's folder, initialized as Triton does it."""

    def start(module: Any, parameters: Mapping[str, str], **outputs: str) -> Any:
        monkeypatch.setattr(module, "__file__", str(tmp_path / "model.py"))
        config = {
            "output": [{"name": name, "data_type": data_type} for name, data_type in outputs.items()],
            "parameters": {name: {"string_value": value} for name, value in parameters.items()},
        }
        model = module.TritonPythonModel()
        model.initialize({"model_config": json.dumps(config)})
        return model

    return start


def told(response: Any) -> dict[str, tuple[Any, Any]]:
    """The type and the values of each tensor of a response."""
    assert response.error is None
    return {name: (array.dtype, array.tolist()) for name, array in response.outputs.items()}


def texts_of(ids: list[list[int]], *lengths: int) -> dict[str, Any]:
    return request(
        input_ids=np.array(ids, np.uint32),
        input_lengths=np.array(lengths, np.uint32).reshape(-1, 1),
    )


@pytest.fixture
def embedding(started: Callable[..., Any], tmp_path: Path) -> Any:
    """Three tokens of two values each, at up to two places."""
    tables = {
        "words": [[8, 9], [1, 0], [0, 1]],
        "positions": [[0, 1], [1, 1]],
        "types": [[1, 0], [8, 9]],
        "scale": [[2, 4]],
        "shift": [[1, 0]],
    }
    (tmp_path / "tables").mkdir()
    for name, table in tables.items():
        np.array(table, np.float16).tofile(tmp_path / "tables" / f"{name}.bin")
    files = {name: f"{name}.bin" for name in tables}
    return started(
        EMBEDDING,
        {**files, "hidden": "2", "stored_as": "fp16", "epsilon": "0.75", "longest": "2"},
        input_hidden_state="TYPE_FP16",
        sequence_lengths="TYPE_INT32",
    )


def test_embedding_gives_the_rows_of_its_tables_normalized(embedding: Any) -> None:
    (one, two) = embedding.execute([texts_of([[1, 2]], 2), texts_of([[1], [2]], 1, 1)])
    # The sums are [2, 1], [2, 2] and [1, 2]; 0.75 makes the root of the first and the last variance 1.
    assert told(one) == {
        "input_hidden_state": (np.float16, [[[2, -2], [1, 0]]]),
        "sequence_lengths": (np.int32, [[2]]),
    }
    assert told(two) == {
        "input_hidden_state": (np.float16, [[[2, -2]], [[0, 2]]]),
        "sequence_lengths": (np.int32, [[1], [1]]),
    }


def test_of_several_tokens_the_unknown_one_is_named(embedding: Any) -> None:
    refused, too_long = embedding.execute([texts_of([[0, 3]], 2), texts_of([[0, 0, 0]], 3)])
    assert refused.error.message == "embedding: a token is 3, which is not in the range [0, 2]"
    assert too_long.error.message == "embedding: 3 tokens in a row, and the model takes 2"


@pytest.fixture
def checking(started: Callable[..., Any]) -> Any:
    types = {"input_ids": "TYPE_UINT32", "sequence_length": "TYPE_INT32"}
    return started(CHECKING, {"vocabulary": "3", "longest": "2"}, **types)


def test_checking_lets_texts_through_as_they_are(checking: Any) -> None:
    (answered,) = checking.execute([texts_of([[0, 2], [1, 0]], 2, 1)])
    assert told(answered) == {
        "input_ids": (np.uint32, [[0, 2], [1, 0]]),
        "sequence_length": (np.int32, [[2], [1]]),
    }


def test_a_clients_mistake_and_a_servers_stay_in_their_response(checking: Any) -> None:
    wrong, broken, good = checking.execute(
        [
            texts_of([[3]], 1),
            request(input_ids=np.array([[1]], np.uint32)),
            texts_of([[1]], 1),
        ]
    )
    assert wrong.error.message == "checking: a token is 3, which is not in the range [0, 2]"
    assert wrong.error.code == python_backend.Error.INVALID_ARG
    assert broken.error.message.startswith("checking: ")
    assert broken.error.code is None
    assert wrong.outputs == broken.outputs == {}
    assert told(good)["input_ids"] == (np.uint32, [[1]])


def test_a_server_without_a_code_for_mistakes_gets_the_message_alone(
    checking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(python_backend.Error, "INVALID_ARG")
    (refused,) = checking.execute([texts_of([[1, 1]], 3)])
    assert refused.error.message == "checking: a length is 3, which is not in the range [1, 2]"
    assert refused.error.code is None


@pytest.mark.parametrize(
    ("pooling", "normalized", "vectors"),
    [
        ("mean", "0", [[1.5, 2], [1, 0]]),
        ("mean", "1", [[0.6, 0.8], [1, 0]]),
        ("cls", "0", [[3, 0], [1, 0]]),
        ("cls", "1", [[1, 0], [1, 0]]),
    ],
)
def test_pooling_makes_a_vector_of_each_text(
    pooling: str, normalized: str, vectors: list[list[float]], started: Callable[..., Any]
) -> None:
    states = np.array([[[3, 0], [0, 4]], [[1, 0], [np.nan, np.nan]]], np.float16)
    lengths = np.array([[2], [1]], np.uint32)
    model = started(POOLING, {"pooling": pooling, "normalized": normalized}, embeddings="TYPE_FP32")
    answered, refused = model.execute(
        [
            request(output_hidden_state=states, input_lengths=lengths),
            request(output_hidden_state=states, input_lengths=lengths * 2),
        ]
    )
    assert told(answered).keys() == {"embeddings"}
    assert answered.outputs["embeddings"].dtype == np.float32
    assert np.allclose(answered.outputs["embeddings"], vectors)
    assert refused.error.message == "pooling: a length is 4, which is not in the range [1, 2]"


@pytest.fixture
def texts(tmp_path: Path) -> ModuleType:
    needs.package("tokenizers")
    from ftbuild.models.tokenization import texts

    bytelevel.write(tmp_path / "tokenizer")
    return texts


def test_preprocessing_gives_the_tokens_of_texts_and_words(
    texts: ModuleType, started: Callable[..., Any]
) -> None:
    model = started(
        imported(tokenization, "preprocessing", texts=texts),
        {"tokenizer_path": "tokenizer", "padding_id": "7"},
        INPUT_ID="TYPE_UINT32",
        REQUEST_INPUT_LEN="TYPE_UINT32",
        REQUEST_OUTPUT_LEN="TYPE_UINT32",
        BAD_WORDS_IDS="TYPE_INT32",
        STOP_WORDS_IDS="TYPE_INT32",
    )
    wanted = np.array([[5], [6]], np.uint64)
    asked = {"QUERY": rows("#$", "%"), "REQUEST_OUTPUT_LEN": wanted}
    bare, listed = model.execute(
        [
            request(**asked),
            request(**asked, BAD_WORDS_DICT=rows("#", "$,%&"), STOP_WORDS_DICT=rows("", "#$")),
        ]
    )
    usual = {
        "INPUT_ID": (np.uint32, [[35, 36], [37, 7]]),
        "REQUEST_INPUT_LEN": (np.uint32, [[2], [1]]),
        "REQUEST_OUTPUT_LEN": (np.uint32, [[5], [6]]),
    }
    none = (np.int32, [[[0], [-1]], [[0], [-1]]])
    assert told(bare) == {**usual, "BAD_WORDS_IDS": none, "STOP_WORDS_IDS": none}
    assert told(listed) == {
        **usual,
        "BAD_WORDS_IDS": (np.int32, [[[35, 0, 0], [1, -1, -1]], [[36, 37, 38], [1, 3, -1]]]),
        "STOP_WORDS_IDS": (np.int32, [[[0, 0], [-1, -1]], [[35, 36], [2, -1]]]),
    }


def test_preprocessing_gives_the_tensors_that_are_declared_and_no_others(
    texts: ModuleType, started: Callable[..., Any]
) -> None:
    module = imported(tokenization, "preprocessing", texts=texts)
    parameters = {"tokenizer_path": "tokenizer", "padding_id": "7"}
    model = started(module, parameters, INPUT_ID="TYPE_INT32")
    length = np.array([[1]], np.uint32)
    answered, *refused = model.execute(
        [
            request(QUERY=rows("#"), REQUEST_OUTPUT_LEN=length),
            request(QUERY=rows(""), REQUEST_OUTPUT_LEN=length),
            request(QUERY=rows("#", ""), REQUEST_OUTPUT_LEN=np.array([[1], [1]], np.uint32)),
        ]
    )
    assert told(answered) == {"INPUT_ID": (np.int32, [[35]])}
    assert [response.error.message for response in refused] == [
        "preprocessing: row 1 has no tokens", "preprocessing: row 2 has no tokens",
    ]  # fmt: skip


def test_postprocessing_gives_texts_up_to_their_lengths(
    texts: ModuleType, started: Callable[..., Any]
) -> None:
    model = started(imported(tokenization, "postprocessing", texts=texts), {"tokenizer_path": "tokenizer"})
    tokens = np.array([[[35, 36, 37]]], np.uint32)
    cut, whole, broken = model.execute(
        [
            request(TOKENS_BATCH=tokens, sequence_length=np.array([[2]], np.uint32)),
            request(TOKENS_BATCH=tokens),
            request(),
        ]
    )
    assert told(cut) == {"OUTPUT": (np.dtype(object), [b"#$"])}
    assert told(whole) == {"OUTPUT": (np.dtype(object), [b"#$%"])}
    assert broken.error.message.startswith("postprocessing: ")
