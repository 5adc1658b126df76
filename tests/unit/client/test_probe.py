"""What the probe asks of each kind of model; that servers answer it: tests/engine/ftserve/test_clients.py."""

from __future__ import annotations

import ast
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from ftbuild.client import probe

DECODER = {"input_ids": 0, "input_lengths": 1, "request_output_len": 1}
T5 = {"input_ids": 0, "sequence_length": 1, "max_output_len": 1}
OPTIONS = ("runtime_top_k", "random_seed", "start_id", "end_id")


def tensor(name: str, data_type: str = "UINT32", *, optional: bool = False) -> dict[str, Any]:
    return {"name": name, "data_type": f"TYPE_{data_type}", "dims": ["-1"], "optional": optional}


def bare(required: dict[str, int], **more: Any) -> dict[str, Any]:
    optional = [tensor(name, optional=True) for name in OPTIONS]
    inputs = [
        *(tensor(name) for name in required),
        *optional,
        tensor("is_return_log_probs", "BOOL", optional=True),
    ]
    return {"backend": "fastertransformer", "max_batch_size": 8, "input": inputs, **more}


def ensemble(*, optional: bool) -> dict[str, Any]:
    """Upstream's, whose options are required in 22.03 and optional later."""
    feeds = {"QUERY": "INPUT_0", "REQUEST_OUTPUT_LEN": "INPUT_1", "BAD_WORDS_DICT": "INPUT_2"}
    inputs = [
        tensor("INPUT_0", "STRING"),
        tensor("INPUT_1"),
        tensor("INPUT_2", "STRING", optional=optional),
        *(tensor(name, optional=optional) for name in OPTIONS),
        tensor("is_return_log_probs", "BOOL", optional=optional),
    ]
    own = {name: name for name in (*OPTIONS, "is_return_log_probs")}
    steps = [
        {"model_name": "preprocessing", "input_map": feeds, "output_map": {"INPUT_ID": "_ids"}},
        {"model_name": "fastertransformer", "input_map": {"input_ids": "_ids", **own}, "output_map": {}},
    ]
    return {"max_batch_size": 8, "input": inputs, "ensemble_scheduling": {"step": steps}}


def values(asked: probe.Question) -> dict[str, Any]:
    return {tensor.name: tensor.value for tensor in asked.inputs}


@pytest.mark.parametrize("required", [DECODER, T5])
def test_a_bare_model_is_asked_for_one_token(required: dict[str, int]) -> None:
    (asked,) = probe.requests({"fastertransformer": bare(required)})
    assert values(asked) == {**required, "runtime_top_k": 1, "is_return_log_probs": True}
    assert {tuple(tensor.shape) for tensor in asked.inputs} == {(1, 1)}
    assert not asked.streamed


@pytest.mark.parametrize("optional", [True, False])
def test_an_ensemble_is_asked_in_place_of_its_steps(optional: bool) -> None:
    ids = {"start_id": {"string_value": "50"}, "end_id": {"string_value": "51"}}
    models = {
        "ensemble": ensemble(optional=optional),
        "fastertransformer": bare(DECODER, parameters=ids),
        "preprocessing": {"backend": "python", "input": [tensor("QUERY", "STRING")]},
    }
    (asked,) = probe.requests(models)
    wanted: dict[str, Any] = {"INPUT_0": "a", "INPUT_1": 1, "runtime_top_k": 1, "is_return_log_probs": True}
    if not optional:
        wanted |= {"INPUT_2": "", "random_seed": 0, "start_id": 50, "end_id": 51}
    assert values(asked) == wanted
    assert asked.inputs[0].data_type == "BYTES"
    assert asked.counted == ["ensemble", "fastertransformer"]


def test_an_ensemble_of_a_model_that_streams_does_so_too() -> None:
    streams = bare(DECODER, model_transaction_policy={"decoupled": True})
    assert [asked.streamed for asked in probe.requests({"fastertransformer": streams})] == [True]
    (asked,) = probe.requests({"ensemble": ensemble(optional=True), "fastertransformer": streams})
    assert (asked.name, asked.streamed) == ("ensemble", True)


def test_what_cannot_be_asked_is_left_out() -> None:
    odd = ensemble(optional=True)
    odd["input"].append(tensor("SECRET", "STRING"))
    (asked,) = probe.requests({"ensemble": odd, "fastertransformer": bare(DECODER)})
    assert asked.name == "fastertransformer"
    half = bare(DECODER)
    half["input"].append(tensor("request_prompt_embedding", "FP16"))
    assert probe.requests({"fastertransformer": half, "other": {"backend": "python", "input": []}}) == []


def test_a_model_without_batches_gets_no_batch() -> None:
    (asked,) = probe.requests({"fastertransformer": bare(DECODER, max_batch_size=0)})
    assert {tuple(tensor.shape) for tensor in asked.inputs} == {(1,)}


def test_the_oldest_python_of_an_image_can_read_it() -> None:
    """NGC's images have Python 3.8."""
    script = Path(probe.__file__).read_text()
    tree = ast.parse(script, feature_version=(3, 8))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not [name for name in modules if name and name.startswith("ftbuild")]
    assert "$" not in script  # Compose would take it for a variable


@pytest.mark.parametrize(("kind", "fails"), [("ready", True), ("alive", False)])
def test_a_server_without_any_model_is_alive_and_not_ready(
    kind: str, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton itself is ready then, for instance where an empty bucket was fetched."""

    class Empty(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"[]")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *words: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Empty) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        asked = probe.Server("127.0.0.1", server.server_port, 1, 5.0)
        if fails:
            with pytest.raises(probe.Failed, match="it serves no model"):
                probe.answering(kind, asked)
        else:
            assert probe.answering(kind, asked) == []
        server.shutdown()
