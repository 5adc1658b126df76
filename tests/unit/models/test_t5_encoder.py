"""T5's encoder from converted weights to a repository that makes vectors: files, models, refusals."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftbuild.client import probe
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.models import config_ini, config_pbtxt, repository, vector_models, weights
from ftbuild.models.repository import RepositoryOptions
from ftbuild.models.vector_models import Pooling
from ftserve import requirements
from testing import bytelevel, ensembles, python_backend
from testing.t5_encoder import TEMPLATE

Array = np.ndarray[Any, Any]
HIDDEN, VOCABULARY = 6, 300
FACTS = {
    "layers": 2, "heads": 2, "head_size": 4, "hidden": HIDDEN, "inner": 8, "buckets": 32, "gated": 1,
    "vocabulary": VOCABULARY,
}  # fmt: skip
# As FasterTransformer's converter writes it with --encoder_only; many keys more.
INI = f"""\
[encoder]
d_model = {HIDDEN}
d_kv = 4
d_ff = 8
num_layers = 2
num_heads = 2
n_positions = 512
vocab_size = {VOCABULARY}
feed_forward_proj = gated-gelu
weight_data_type = fp32
relative_attention_num_buckets_or_max_pos_seq_len = 32

[decoder]

[structure]
t5_with_bias = false
use_gated_activation = 1
position_embedding_type = relative
"""
# What a server reads of the models around the backend.
CPU = 'backend: "python" instance_group [ { count: 1 kind: KIND_CPU } ]'
TEXTS = """
input [
  { name: "input_ids" data_type: TYPE_UINT32 dims: [ -1 ] },
  { name: "input_lengths" data_type: TYPE_UINT32 dims: [ 1 ] }
]
"""
VECTOR = 'output [ { name: "embeddings" data_type: TYPE_FP32 dims: [ 6 ] } ]'
AROUND = {
    "checking": CPU
    + TEXTS
    + """
output [
  { name: "input_ids" data_type: TYPE_UINT32 dims: [ -1 ] },
  { name: "sequence_length" data_type: TYPE_UINT32 dims: [ 1 ] }
]
parameters { key: "vocabulary" value: { string_value: "300" } }
parameters { key: "longest" value: { string_value: "4096" } }
""",
    "pooling": CPU
    + VECTOR
    + """
input [
  { name: "output_hidden_state" data_type: TYPE_FP32 dims: [ -1, -1 ] },
  { name: "input_lengths" data_type: TYPE_UINT32 dims: [ 1 ] }
]
parameters { key: "pooling" value: { string_value: "mean" } }
parameters { key: "normalized" value: { string_value: "1" } }
""",
    "ensemble": TEXTS
    + VECTOR
    + """
platform: "ensemble"
ensemble_scheduling {
  step [
    {
      model_name: "checking" model_version: -1
      input_map { key: "input_ids" value: "input_ids" }
      input_map { key: "input_lengths" value: "input_lengths" }
      output_map { key: "input_ids" value: "checking_input_ids" }
      output_map { key: "sequence_length" value: "checking_sequence_length" }
    },
    {
      model_name: "fastertransformer" model_version: -1
      input_map { key: "input_ids" value: "checking_input_ids" }
      input_map { key: "sequence_length" value: "checking_sequence_length" }
      output_map { key: "output_hidden_state" value: "output_hidden_state" }
    },
    {
      model_name: "pooling" model_version: -1
      input_map { key: "output_hidden_state" value: "output_hidden_state" }
      input_map { key: "input_lengths" value: "input_lengths" }
      output_map { key: "embeddings" value: "embeddings" }
    }
  ]
}
""",
}


@pytest.fixture
def options(config: Config, tmp_path: Path) -> RepositoryOptions:
    family = config.models.families["t5-encoder"]
    converter = family.converter("5.3")
    assert converter
    made = tmp_path / "weights" / "1-gpu"
    made.mkdir(parents=True)
    (made / "config.ini").write_text(INI)
    for name, size in weights.expected(converter, FACTS, 1, "fp32").items():
        (made / name).write_bytes(bytes(size))
    assert list(weights.complaints(made, converter, FACTS, 1, "fp32")) == []
    return RepositoryOptions("t5-encoder", made, tmp_path / "models", dtype="fp16", vectors=family.vectors)


def served(options: RepositoryOptions) -> Path:
    return repository.make({"fastertransformer": TEMPLATE}, options).folder


def outputs(folder: Path, model: str) -> dict[str, str]:
    from tritonclient.grpc.model_config_pb2 import DataType

    config = config_pbtxt.read(folder / model / "config.pbtxt")
    return {tensor.name: DataType.Name(tensor.data_type) for tensor in config.output}


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, str], Any]:
    """A Python model of a repository, as its server makes it."""

    def make(folder: Path, name: str) -> Any:
        version = folder / name / "1"
        monkeypatch.setitem(sys.modules, python_backend.NAME, python_backend.module())
        for shared in ("vectors", "answering"):
            spec = importlib.util.spec_from_file_location(shared, version / f"{shared}.py")
            assert spec
            assert spec.loader
            module = importlib.util.module_from_spec(spec)
            monkeypatch.setitem(sys.modules, shared, module)
            spec.loader.exec_module(module)
        types = outputs(folder, name)
        return python_backend.model(version / "model.py", version, ensembles.parameters(folder, name), types)

    return make


def test_an_encoder_without_a_decoder_is_no_t5(options: RepositoryOptions) -> None:
    assert config_ini.read(options.weights).family == "t5-encoder"
    whole = INI.replace("[decoder]\n", "[decoder]\nd_model = 6\n")
    (options.weights / "config.ini").write_text(whole)
    assert config_ini.read(options.weights).family == "t5"
    with pytest.raises(
        ConfigError, match="the section of a t5 model, but the files are those of a t5-encoder model"
    ):
        served(options)


def test_a_repository_has_a_model_before_the_backend_and_one_behind_it(options: RepositoryOptions) -> None:
    folder = served(replace(options, tokenizer=bytelevel.write(options.out.parent / "tokenizer")))
    files = {str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file() and f.suffix != ".bin"}
    assert files == {
        "ensemble/config.pbtxt", "ensemble/1/.keep",
        "checking/config.pbtxt", "checking/1/model.py", "checking/1/answering.py", "checking/1/vectors.py",
        "checking/1/tokenizer/tokenizer.json",
        "fastertransformer/config.pbtxt", "fastertransformer/1/1-gpu/config.ini",
        "pooling/config.pbtxt", "pooling/1/model.py", "pooling/1/answering.py", "pooling/1/vectors.py",
    }  # fmt: skip
    places = [place for place in vector_models.tokenizer_places() if (folder / place).is_dir()]
    assert places == ["checking/1/tokenizer"]
    ours, theirs = (sorted(f.name for f in at.glob("*.bin")) for at in (
        folder / "fastertransformer/1/1-gpu", options.weights
    ))  # fmt: skip
    assert ours == theirs


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_every_step_fits_the_next(options: RepositoryOptions, dtype: str) -> None:
    folder = served(replace(options, dtype=dtype))
    found = requirements.read(folder)
    assert [(each.folder, each.exists) for each in found.weights] == [("fastertransformer/1/1-gpu", True)]
    assert found.weights[0].data_types == ("fp16", "fp32")
    configs = ensembles.configs(folder)
    assert {config.max_batch_size for config in configs.values()} == {64}
    ensembles.check(configs)
    (answer,) = configs["ensemble"].output
    assert list(answer.dims) == [HIDDEN]


def test_a_server_is_told_everything_of_the_models_around_the_backend(options: RepositoryOptions) -> None:
    assert options.vectors
    made = vector_models.configs(TEMPLATE, config_ini.read(options.weights), options.vectors, Pooling())
    assert made == {
        name: config_pbtxt.text(config_pbtxt.parse(f'name: "{name}" max_batch_size: 64 {wanted}'))
        for name, wanted in AROUND.items()
    }


def test_requests_are_computed_together_if_their_rows_are_equally_long(options: RepositoryOptions) -> None:
    backend = config_pbtxt.read(served(options) / "fastertransformer/config.pbtxt")
    assert backend.HasField("dynamic_batching")
    assert not any(tensor.allow_ragged_batch for tensor in backend.input)
    assert not backend.batch_input


def test_the_states_have_the_type_that_is_computed_in(options: RepositoryOptions) -> None:
    assert outputs(served(options), "fastertransformer")["output_hidden_state"] == "TYPE_FP16"


def test_the_probe_of_a_server_asks_the_ensemble_for_one_vector(options: RepositoryOptions) -> None:
    from google.protobuf.json_format import MessageToDict

    folder = served(options)
    configs = {
        path.name: MessageToDict(config_pbtxt.read(path / "config.pbtxt"), preserving_proto_field_name=True)
        for path in folder.iterdir()
    }
    (asked,) = probe.requests(configs)
    assert (asked.name, asked.streamed) == ("ensemble", False)
    assert {tensor.name: tensor.value for tensor in asked.inputs} == {"input_ids": 0, "input_lengths": 1}


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"bare": True}, "t5-encoder has no model of token ids alone"),
        ({"dtype": "bf16"}, "t5-encoder cannot be served as bf16"),
        ({"streamed": True}, "t5-encoder cannot stream"),
    ],
)
def test_what_a_family_of_vectors_has_not_is_refused(
    options: RepositoryOptions, changed: dict[str, Any], what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        served(replace(options, **changed))


@pytest.mark.parametrize("key", ["d_model", "vocab_size"])
def test_weights_that_do_not_say_their_size_make_no_repository(options: RepositoryOptions, key: str) -> None:
    (options.weights / "config.ini").write_text(INI.replace(f"{key} =", "other ="))
    with pytest.raises(ConfigError, match=f"has no encoder.{key}"):
        served(options)
    assert not options.out.exists()


def test_a_text_may_have_4096_tokens_whatever_the_checkpoint_says(options: RepositoryOptions) -> None:
    assert vector_models.longest_text(served(options)) == 4096


@pytest.mark.parametrize(
    ("written", "longest"), [('"12"', 12), ('"0"', None), ('"-3"', None), ('"many"', None), ("", None)]
)
def test_a_length_that_somebody_has_written_into_a_repository_is_a_number_or_none(
    written: str, longest: int | None, tmp_path: Path
) -> None:
    (tmp_path / "checking").mkdir()
    parameter = f'parameters {{ key: "longest" value: {{ string_value: {written} }} }}' if written else ""
    (tmp_path / "checking/config.pbtxt").write_text(f'name: "checking" {parameter}')
    assert vector_models.longest_text(tmp_path) == longest


def test_what_the_encoder_can_take_goes_through_as_it_is(
    options: RepositoryOptions, model: Callable[[Path, str], Any]
) -> None:
    ids, lengths = np.array([[5, 299, 0], [1, 0, 0]], np.uint32), np.array([[3], [1]], np.uint32)
    longest = np.zeros((1, 4096), np.uint32)
    two, one = model(served(options), "checking").execute(
        [
            python_backend.request(input_ids=ids, input_lengths=lengths),
            python_backend.request(input_ids=longest, input_lengths=np.array([[4096]], np.uint32)),
        ]
    )
    assert {name: array.tolist() for name, array in two.outputs.items()} == {
        "input_ids": ids.tolist(),
        "sequence_length": lengths.tolist(),
    }
    assert {array.dtype for array in two.outputs.values()} == {np.dtype(np.uint32)}
    assert one.error is None


@pytest.mark.parametrize(
    ("ids", "lengths", "what"),
    [
        ([[300]], [[1]], "a token is 300, which is not in the range [0, 299]"),
        # Padding is looked up as well.
        ([[1, 2**32 - 1]], [[1]], "a token is 4294967295, which is not in the range [0, 299]"),
        ([[1, 2]], [[3]], "a length is 3, which is not in the range [1, 2]"),
        ([[1, 2]], [[0]], "a length is 0, which is not in the range [1, 2]"),
        ([[]], [[0]], "there is no text"),
        ([[1]], [[1], [1]], "there are 2 lengths of 1 texts"),
        ([[1] * 4097], [[1]], "4097 tokens in a row, and the model takes 4096"),
    ],
)
def test_what_the_encoder_cannot_take_is_refused_with_a_sentence(
    options: RepositoryOptions,
    model: Callable[[Path, str], Any],
    ids: list[list[int]],
    lengths: list[list[int]],
    what: str,
) -> None:
    asked = python_backend.request(
        input_ids=np.array(ids, np.uint32), input_lengths=np.array(lengths, np.uint32)
    )
    good = python_backend.request(
        input_ids=np.array([[1]], np.uint32), input_lengths=np.array([[1]], np.uint32)
    )
    refused, answered = model(served(options), "checking").execute([asked, good])
    assert refused.error.message == f"checking: {what}"
    assert refused.error.code == python_backend.Error.INVALID_ARG
    assert answered.error is None


def test_the_mean_of_the_states_is_the_vector_and_padding_is_none_of_them(
    options: RepositoryOptions, model: Callable[[Path, str], Any]
) -> None:
    states = np.full((2, 3, HIDDEN), np.nan, np.float16)
    states[0, :2], states[1] = 0, 1
    states[0, 0, 0], states[0, 1, 1] = 6, 8
    lengths = np.array([[2], [3]], np.uint32)
    pooling = model(served(options), "pooling")
    (found,) = pooling.execute([python_backend.request(output_hidden_state=states, input_lengths=lengths)])
    vectors = found.outputs["embeddings"]
    assert vectors.dtype == np.float32
    assert np.allclose(vectors, [[0.6, 0.8, 0, 0, 0, 0], [HIDDEN**-0.5] * HIDDEN])
    (wrong,) = pooling.execute(
        [python_backend.request(output_hidden_state=states, input_lengths=lengths * 2)]
    )
    assert wrong.error.message == "pooling: a length is 6, which is not in the range [1, 3]"
    assert ensembles.parameters(options.out, "pooling") == {"pooling": "mean", "normalized": "1"}
