"""What the client tests conclude from a server's answers; the server is a fake one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftbuild.client import bleu, golden, latency, model_metadata
from ftbuild.client.acceptance import runner, translation
from ftbuild.client.acceptance.options import AcceptanceOptions, BleuOptions
from ftbuild.client.connection import Refused
from ftbuild.errors import ConfigError, SmokeError
from testing import needs
from tests.unit.models.test_converters import DECODER

END = 257
BARE: dict[str, Any] = {
    "name": "fastertransformer",
    "input": [
        {"name": "input_ids", "data_type": "TYPE_UINT32"},
        {"name": "input_lengths", "data_type": "TYPE_UINT32"},
        {"name": "request_output_len", "data_type": "TYPE_UINT32"},
        {"name": "runtime_top_k", "data_type": "TYPE_UINT32", "optional": True},
        {"name": "end_id", "data_type": "TYPE_UINT32"},
        {"name": "temperature", "data_type": "TYPE_FP32", "optional": True},
    ],
    "parameters": {"data_type": {"string_value": "fp32"}, "end_id": {"string_value": str(END)}},
}
ENSEMBLE: dict[str, Any] = {
    "name": "ensemble",
    "input": [
        {"name": "INPUT_0", "data_type": "TYPE_STRING"},
        {"name": "INPUT_1", "data_type": "TYPE_UINT32"},
        {"name": "INPUT_2", "data_type": "TYPE_STRING", "optional": True},
        {"name": "random_seed", "data_type": "TYPE_INT32"},
    ],
    "ensemble_scheduling": {
        "step": [
            {
                "model_name": "preprocessing",
                "input_map": {
                    "QUERY": "INPUT_0",
                    "REQUEST_OUTPUT_LEN": "INPUT_1",
                    "BAD_WORDS_DICT": "INPUT_2",
                },
                "output_map": {
                    "INPUT_ID": "_ids",
                    "REQUEST_INPUT_LEN": "_lengths",
                    "REQUEST_OUTPUT_LEN": "_n",
                },
            },
            {
                "model_name": "fastertransformer",
                "input_map": {"input_ids": "_ids", "input_lengths": "_lengths", "request_output_len": "_n"},
                "output_map": {"output_ids": "_tokens"},
            },
            {
                "model_name": "postprocessing",
                "input_map": {"TOKENS_BATCH": "_tokens"},
                "output_map": {"OUTPUT": "OUTPUT_0"},
            },
        ]
    },
}
PART: dict[str, Any] = {"input": []}
MODELS = {
    "fastertransformer": BARE,
    "ensemble": ENSEMBLE,
    "preprocessing": {"name": "preprocessing", **PART},
    "postprocessing": {"name": "postprocessing", **PART},
}
Arrays = Mapping[str, np.ndarray[Any, Any]]
Spoil = Callable[[str, str, int, dict[str, Any]], dict[str, Any]]


class Server:
    """Continues a prompt by counting up; each method may be replaced by a test."""

    def __init__(self) -> None:
        self.models = dict(MODELS)
        self.asked: list[tuple[str, str, Arrays]] = []
        self.spoil: Spoil = lambda model, protocol, count, outputs: outputs

    def answer(self, model: str, protocol: str, inputs: Arrays) -> dict[str, Any]:
        self.asked.append((model, protocol, inputs))
        outputs: dict[str, Any] = getattr(self, model)(inputs)
        return self.spoil(model, protocol, len(self.asked), outputs)

    def preprocessing(self, inputs: Arrays) -> dict[str, Any]:
        encoded = [list(row[0]) for row in inputs["QUERY"]]
        width = max(map(len, encoded))
        return {
            "INPUT_ID": np.array([[*ids, *[END] * (width - len(ids))] for ids in encoded]),
            "REQUEST_INPUT_LEN": np.array([[len(ids)] for ids in encoded]),
            "REQUEST_OUTPUT_LEN": inputs["REQUEST_OUTPUT_LEN"],
        }

    def fastertransformer(self, inputs: Arrays) -> dict[str, Any]:
        ids, lengths, wanted = (inputs[n] for n in ("input_ids", "input_lengths", "request_output_len"))
        width = ids.shape[1] + int(wanted.max())
        rows = []
        for row, (length,), (count,) in zip(ids.tolist(), lengths.tolist(), wanted.tolist(), strict=True):
            prompt = row[:length]
            more = [(prompt[-1] + step) % 256 for step in range(1, count + 1)]
            rows.append([[*prompt, *more, *[END] * (width - length - count)]])
        return {"output_ids": np.array(rows), "sequence_length": np.full((len(rows), 1), width)}

    def postprocessing(self, inputs: Arrays) -> dict[str, Any]:
        rows = inputs["TOKENS_BATCH"].reshape(-1, inputs["TOKENS_BATCH"].shape[-1]).tolist()
        return {"OUTPUT": np.array([bytes(t for t in row if t < 256) for row in rows], object)}

    def ensemble(self, inputs: Arrays) -> dict[str, Any]:
        first = self.preprocessing({"QUERY": inputs["INPUT_0"], "REQUEST_OUTPUT_LEN": inputs["INPUT_1"]})
        names = {"input_ids": "INPUT_ID", "input_lengths": "REQUEST_INPUT_LEN"}
        second = self.fastertransformer(
            {**{n: first[f] for n, f in names.items()}, "request_output_len": first["REQUEST_OUTPUT_LEN"]}
        )
        return {"OUTPUT_0": self.postprocessing({"TOKENS_BATCH": second["output_ids"]})["OUTPUT"]}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    fake = Server()

    class Client:
        def __init__(self, address: str, protocol: str) -> None:
            self.address, self.protocol = address, protocol

        def infer(self, model: str, inputs: Arrays) -> dict[str, Any]:
            return fake.answer(model, self.protocol, inputs)

        def stream(self, model: str, inputs: Arrays) -> Iterator[dict[str, Any]]:
            assert self.protocol == "grpc"
            yield {}
            yield fake.answer(model, self.protocol, inputs)

        def config(self, model: str) -> dict[str, Any]:
            if model not in fake.models:
                raise Refused(f"unknown model {model}")
            return fake.models[model]

        def ready(self, model: str) -> bool:
            return model in fake.models

        def close(self) -> None:
            pass

    monkeypatch.setattr(runner, "Client", Client)
    return fake


@pytest.fixture
def options() -> AcceptanceOptions:
    addresses: Any = {"http": "h:1", "grpc": "h:2"}
    return AcceptanceOptions(tensors=DECODER, addresses=addresses, batch_size=3, requests=4, length=5)


def wrong(options: AcceptanceOptions) -> list[tuple[str, str]]:
    """Test and expectation of every failed check."""
    return [(result.subject, result.check) for result in runner.run(options).failed]


def test_a_right_server_passes_and_is_measured(server: Server, options: AcceptanceOptions) -> None:
    report = runner.run(options)
    report.require()
    assert len(report.results) == 14
    assert {name: figures["requests"] for name, figures in report.latencies.items()} == {
        "identity http": 4, "identity grpc": 4, "end to end http": 4, "end to end grpc": 4,
    }  # fmt: skip
    record = json.loads(json.dumps(report.as_dict()))
    assert record["passed"] is True
    assert record["checks"][0] == {"test": "identity", "what": "shape over http", "wrong": None}
    assert "end to end grpc" in report.render()


def test_requests_are_greedy_and_have_what_the_models_demand(
    server: Server, options: AcceptanceOptions
) -> None:
    runner.run(options)
    asked = {model: inputs for model, _, inputs in server.asked}
    assert asked["ensemble"].keys() == {"INPUT_0", "INPUT_1", "random_seed"}
    assert asked["ensemble"]["random_seed"].dtype == np.int32
    first = server.asked[0][2]
    assert first["runtime_top_k"].tolist() == [[1]] * 3
    assert first["end_id"].tolist() == [[END]] * 3
    assert "temperature" not in first


def test_an_answer_that_changes_from_time_to_time_is_wrong(
    server: Server, options: AcceptanceOptions
) -> None:
    def spoil(model: str, protocol: str, count: int, outputs: dict[str, Any]) -> dict[str, Any]:
        if model == "fastertransformer" and count == 3:
            outputs["output_ids"][1, 0, -1] = 7
        return outputs

    server.spoil = spoil
    assert wrong(options) == [("identity", "4 repeats equal over http")]


def test_protocols_that_disagree_are_wrong(server: Server, options: AcceptanceOptions) -> None:
    def spoil(model: str, protocol: str, count: int, outputs: dict[str, Any]) -> dict[str, Any]:
        return {**outputs, "output_ids": outputs["output_ids"] ^ 1} if protocol == "grpc" and model == (
            "fastertransformer"
        ) else outputs  # fmt: skip

    server.spoil = spoil
    assert wrong(options) == [
        ("identity", "prompts repeated over grpc"),
        ("identity", "HTTP and gRPC equal"),
        ("end to end", "ensemble and its steps equal over grpc"),
    ]
    with pytest.raises(
        SmokeError, match=r"3 of 14 checks failed\nidentity: prompts repeated over grpc: row 1"
    ):
        runner.run(options).require()


def test_an_answer_of_another_shape_or_none_is_wrong(server: Server, options: AcceptanceOptions) -> None:
    server.models = {"fastertransformer": BARE}
    server.spoil = lambda model, protocol, count, outputs: {"output_ids": outputs["output_ids"][:, :, :-1]}
    assert wrong(options) == [("identity", "shape over http"), ("identity", "shape over grpc")]
    server.spoil = lambda *_: {"other": np.zeros(1)}
    assert wrong(options) == [("identity", "answer over http"), ("identity", "answer over grpc")]


def test_an_ensemble_that_garbles_the_text_is_wrong(server: Server, options: AcceptanceOptions) -> None:
    def spoil(model: str, protocol: str, count: int, outputs: dict[str, Any]) -> dict[str, Any]:
        if model == "ensemble":
            outputs["OUTPUT_0"] = np.array([text[1:] for text in outputs["OUTPUT_0"]], object)
        return outputs

    server.spoil = spoil
    assert wrong(replace(options, addresses={"http": "h:1"})) == [
        ("end to end", "texts begin with the prompts over http"),
        ("end to end", "ensemble and its steps equal over http"),
    ]


def test_without_an_ensemble_the_report_says_so(server: Server, options: AcceptanceOptions) -> None:
    server.models = {"fastertransformer": BARE}
    report = runner.run(options)
    assert report.notes == ["no ensemble is served: text was not tested"]
    assert {result.subject for result in report.results} == {"identity"}


def test_a_model_of_another_family_is_no_crash(server: Server, options: AcceptanceOptions) -> None:
    t5 = DECODER.model_copy(update={"prompt_length": "sequence_length", "answer_length": "max_output_len"})
    with pytest.raises(ConfigError, match="takes no sequence_length, max_output_len"):
        runner.run(replace(options, tensors=t5))


def test_a_streamed_model_is_asked_over_grpc_alone(server: Server, options: AcceptanceOptions) -> None:
    server.models["fastertransformer"] = {**BARE, "model_transaction_policy": {"decoupled": True}}
    report = runner.run(options)
    report.require()
    assert {protocol for _, protocol, _ in server.asked} == {"grpc"}
    assert "HTTP" in report.notes[0]
    with pytest.raises(ConfigError, match="needs gRPC"):
        runner.run(replace(options, addresses={"http": "h:1"}))


@pytest.mark.parametrize("token", [None, 9])
def test_a_references_answers_are_compared_token_by_token(
    server: Server, options: AcceptanceOptions, tmp_path: Path, token: int | None
) -> None:
    rows = [[(prompt[-1] + step) % 256 for step in range(1, golden.LENGTH + 1)] for prompt in golden.PROMPTS]
    if token is not None:
        rows[2][3] = token
    facts = {"vocab_size": 258, "start_id": 256, "end_id": END, "layers": 2, "max_length": None}
    answers = {"one": [{"tokens": rows[0]}], "eight": [{"tokens": row} for row in rows]}
    file = tmp_path / "answers.json"
    file.write_text(json.dumps({**facts, "cases": answers}))
    failed = wrong(replace(options, expect=file))
    expected = [("identity", f"reference's answers to 'eight' over {p}") for p in ("http", "grpc")]
    assert failed == ([] if token is None else expected)


def test_a_missing_file_of_answers_is_named(
    server: Server, options: AcceptanceOptions, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="no reference answers"):
        runner.run(replace(options, expect=tmp_path / "none.json"))


def test_percentiles_are_measured_values() -> None:
    seconds = [0.001 * n for n in range(1, 101)]
    assert [latency.percentile(seconds, p) for p in (50, 90, 99)] == pytest.approx([0.050, 0.090, 0.099])
    assert latency.percentile([0.2], 99) == 0.2
    summary = latency.summary([0.001, 0.002, 0.003, 0.010])
    assert summary == {"requests": 4, "mean": 4.0, "p50": 2.0, "p90": 10.0, "p99": 10.0}
    assert "10.0" in latency.table({"identity http": summary})


def test_sentences_in_pieces_become_text(tmp_path: Path) -> None:
    file = tmp_path / "test.en"
    file.write_text(
        "\u2581A \u258128 - year - old \u2581ch ef . </s>\nPlain text, as it is.\n", encoding="utf-8"
    )
    assert bleu.sentences(file) == ["A 28-year-old chef.", "Plain text, as it is."]
    (tmp_path / "test.de").write_text("Eins\n")
    with pytest.raises(ConfigError, match="2 sentences and 1 translations"):
        bleu.pairs(file, tmp_path / "test.de")


def test_a_translation_needs_a_tokenizer(server: Server, options: AcceptanceOptions, tmp_path: Path) -> None:
    asked = BleuOptions(tmp_path / "a", tmp_path / "b")
    with pytest.raises(ConfigError, match="needs the model's tokenizer"):
        runner.run(replace(options, bleu=asked))


@pytest.mark.parametrize(("threshold", "failed"), [(99.0, False), (None, False), (100.1, True)])
def test_translations_are_judged_by_bleu(
    server: Server,
    options: AcceptanceOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    threshold: float | None,
    failed: bool,
) -> None:
    needs.package("sacrebleu")
    needs.package("tokenizers")
    from testing import bytelevel

    # The fake server repeats its prompt, so a reference is the source; length 0 is what makes it end there.
    monkeypatch.setattr(translation, "LENGTH", 0)
    lines = [
        "The cat sat on the mat today.",
        "Who goes there at night?",
        "A fine day it was for all.",
        "No more.",
    ]
    (tmp_path / "source").write_text("\n".join(lines))
    asked = BleuOptions(tmp_path / "source", tmp_path / "source", threshold, prefix="")
    tokenizer = bytelevel.write(tmp_path / "tokenizer")
    server.models = {"fastertransformer": BARE}
    report = runner.run(replace(options, bleu=asked, tokenizer=tokenizer))
    assert report.bleu == 100.0
    assert [result.subject for result in report.failed] == (["translation"] if failed else [])
    assert report.latencies["translation http"]["requests"] == 2


def test_release_1_1_says_what_it_computes_in_by_another_name() -> None:
    config = {**BARE, "parameters": {"is_half": {"string_value": "1"}}}
    assert model_metadata.read(config).computes_in == "fp16"
