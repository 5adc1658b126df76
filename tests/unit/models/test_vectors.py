"""BERT from a checkpoint to a repository that makes vectors: files, models, numbers, refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftbuild.client import probe
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.models import config_pbtxt, conversion, repository, vector_models, weights
from ftbuild.models.conversion import ConversionRequest
from ftbuild.models.repository import RepositoryOptions
from ftbuild.models.vector_models import Pooling
from ftbuild.models.vectors import vectors
from ftserve import requirements
from testing import ROOT, bytelevel, ensembles, scripts
from testing.bert import TEMPLATE

Array = np.ndarray[Any, Any]
LAYERS, HEADS, SIZE, INNER, POSITIONS, VOCABULARY = 2, 3, 32, 12, 7, 300
HIDDEN = HEADS * SIZE
SETTINGS: dict[str, Any] = {
    "model_type": "bert", "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "vocab_size": VOCABULARY, "max_position_embeddings": POSITIONS,
    "type_vocab_size": 2, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5,
}  # fmt: skip


def tensors() -> dict[str, Array]:
    random = np.random.default_rng(3)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (VOCABULARY, HIDDEN),
        "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
        "embeddings.LayerNorm.weight": (HIDDEN,),
        "embeddings.LayerNorm.bias": (HIDDEN,),
        "pooler.dense.weight": (HIDDEN, HIDDEN),
    }
    for layer in range(LAYERS):
        of = f"encoder.layer.{layer}."
        matrices = {
            **{f"attention.self.{name}": (HIDDEN, HIDDEN) for name in ("query", "key", "value")},
            "attention.output.dense": (HIDDEN, HIDDEN),
            "intermediate.dense": (INNER, HIDDEN),
            "output.dense": (HIDDEN, INNER),
        }
        for name, shape in matrices.items():
            shapes |= {f"{of}{name}.weight": shape, f"{of}{name}.bias": shape[:1]}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{of}{name}.weight": (HIDDEN,), f"{of}{name}.bias": (HIDDEN,)}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def write(folder: Path, held: dict[str, Array], **settings: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**SETTINGS, **settings}))
    header, data = dict[str, Any](), b""
    for name, array in held.items():
        end = len(data) + array.nbytes
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [len(data), end]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    return folder


def converted(config: Config, folder: Path, out: Path, **options: Any) -> Path:
    """What the script writes, called as in the SDK image; torch is not needed."""
    found = conversion.plan_conversion(config, "22.12", ConversionRequest("bert", folder, out, **options))
    assert {script.name for script in found.scripts} == {"bert_weights.py", "checkpoint_tensors.py"}
    (argv,) = found.commands(str(folder), str(out), str(ROOT / "ftbuild" / "models"))
    done = scripts.run(argv)
    assert done.returncode == 0, done.stderr
    made = out / weights.folder_name(found.request.gpus)
    gpus, facts = found.request.gpus, found.checkpoint.facts
    assert list(weights.complaints(made, found.converter, facts, gpus, found.data_type)) == []
    return made


def stored(made: Path, name: str, *shape: int) -> Array:
    return np.fromfile(made / f"model.{name}.bin", np.float32).reshape(shape)


@pytest.fixture
def options(config: Config, tmp_path: Path) -> RepositoryOptions:
    made = converted(config, write(tmp_path / "checkpoint", tensors()), tmp_path / "weights")
    known = config.models.families["bert"].vectors
    return RepositoryOptions("bert", made, tmp_path / "models", dtype="fp16", vectors=known)


def served(options: RepositoryOptions) -> Path:
    return repository.make({"fastertransformer": TEMPLATE}, options).folder


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_a_gpu_gets_its_columns_or_rows_of_each_matrix(config: Config, tmp_path: Path, prefix: str) -> None:
    held = tensors()
    older = {name.replace("LayerNorm.weight", "LayerNorm.gamma"): array for name, array in held.items()}
    checkpoint = write(tmp_path / "in", {f"{prefix}{name}": array for name, array in older.items()})
    made = converted(config, checkpoint, tmp_path / "out", gpus=3)
    of, local = "encoder.layer.1.", HIDDEN // 3
    for gpu in range(3):
        mine, inner = slice(gpu * local, (gpu + 1) * local), slice(gpu * 4, (gpu + 1) * 4)
        for name in ("query", "key", "value"):
            part = stored(made, f"{of}attention.self.{name}.weight.{gpu}", HIDDEN, local)
            assert np.array_equal(part, held[f"{of}attention.self.{name}.weight"][mine].T)
            bias = stored(made, f"{of}attention.self.{name}.bias.{gpu}", local)
            assert np.array_equal(bias, held[f"{of}attention.self.{name}.bias"][mine])
        part = stored(made, f"{of}attention.output.dense.weight.{gpu}", local, HIDDEN)
        assert np.array_equal(part, held[f"{of}attention.output.dense.weight"][:, mine].T)
        part = stored(made, f"{of}intermediate.dense.weight.{gpu}", HIDDEN, 4)
        assert np.array_equal(part, held[f"{of}intermediate.dense.weight"][inner].T)
        part = stored(made, f"{of}output.dense.weight.{gpu}", 4, HIDDEN)
        assert np.array_equal(part, held[f"{of}output.dense.weight"][:, inner].T)
    for name in (
        "embeddings.word_embeddings.weight",
        "embeddings.LayerNorm.weight",
        f"{of}output.dense.bias",
    ):
        assert np.array_equal(stored(made, name, *held[name].shape), held[name])


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"hidden_act": "silu"}, "hidden_act is 'silu'"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"num_attention_heads": 6}, "a head has 16 values"),
    ],
)
def test_what_fastertransformer_does_not_compute_is_refused(
    config: Config, tmp_path: Path, settings: dict[str, Any], reason: str
) -> None:
    folder = write(tmp_path / "in", tensors(), **settings)
    with pytest.raises(ConfigError, match=reason):
        conversion.plan_conversion(config, "22.12", ConversionRequest("bert", folder, tmp_path / "out"))


def test_a_repository_has_the_models_around_the_backend_and_the_tables_once(
    options: RepositoryOptions,
) -> None:
    folder = served(replace(options, tokenizer=bytelevel.write(options.out.parent / "tokenizer")))
    files = {str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file() and "encoder" not in f.name}
    tables = {f"embedding/1/tables/{name}" for name in options.vectors.files} if options.vectors else set()
    assert files == {
        "ensemble/config.pbtxt", "ensemble/1/.keep",
        "embedding/config.pbtxt", "embedding/1/model.py", "embedding/1/answering.py",
        "embedding/1/vectors.py", *tables,
        "embedding/1/tokenizer/tokenizer.json",
        "fastertransformer/config.pbtxt", "fastertransformer/1/1-gpu/config.ini",
        "pooling/config.pbtxt", "pooling/1/model.py", "pooling/1/answering.py", "pooling/1/vectors.py",
    }  # fmt: skip
    assert len(tables) == 5
    # The weights themselves stay as they were.
    assert all((options.weights / Path(name).name).is_file() for name in tables)


def test_the_backend_finds_its_weights_and_every_step_fits_the_next(options: RepositoryOptions) -> None:
    folder = served(options)
    backend = config_pbtxt.read(folder / "fastertransformer/config.pbtxt")
    # FasterTransformer 5.3 appends the names of files to this path as it is.
    assert backend.default_model_filename == "1-gpu/"
    assert ensembles.parameters(folder, "fastertransformer")["is_remove_padding"] == "0"
    assert not backend.batch_input
    found = requirements.read(folder)
    assert [(each.folder, each.exists) for each in found.weights] == [("fastertransformer/1/1-gpu", True)]
    assert found.weights[0].data_types == ("fp16", "fp32")

    configs = ensembles.configs(folder)
    assert {config.max_batch_size for config in configs.values()} == {64}
    ensembles.check(configs)
    (answer,) = configs["ensemble"].output
    assert list(answer.dims) == [HIDDEN]


def test_a_text_may_be_as_long_as_the_table_of_positions(options: RepositoryOptions) -> None:
    assert vector_models.longest_text(served(options)) == POSITIONS


def test_the_probe_of_a_server_asks_the_ensemble_for_one_vector(options: RepositoryOptions) -> None:
    folder = served(options)

    def as_json(name: str) -> Any:
        from google.protobuf.json_format import MessageToDict

        message = config_pbtxt.read(folder / name / "config.pbtxt")
        return MessageToDict(message, preserving_proto_field_name=True)

    (asked,) = probe.requests({path.name: as_json(path.name) for path in folder.iterdir()})
    assert (asked.name, asked.streamed) == ("ensemble", False)
    assert {tensor.name: tensor.value for tensor in asked.inputs} == {"input_ids": 0, "input_lengths": 1}


def ini(written: str, other: str) -> Callable[[Path], None]:
    """Let config.ini say something else."""

    def spoil(folder: Path) -> None:
        text = (folder / "config.ini").read_text()
        assert written in text
        (folder / "config.ini").write_text(text.replace(written, other))

    return spoil


def of_two_bytes(data_type: str) -> Callable[[Path], None]:
    """Let the values of all weights have two bytes; which ones they are does not matter."""

    def halve(folder: Path) -> None:
        ini("= fp32", f"= {data_type}")(folder)
        for file in folder.glob("*.bin"):
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])

    return halve


def no_table(folder: Path) -> None:
    (folder / "model.embeddings.LayerNorm.bias.bin").unlink()


def half_a_row(folder: Path) -> None:
    (folder / "model.embeddings.word_embeddings.weight.bin").write_bytes(bytes(HIDDEN * 4 + 2))


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (ini("1e-05", "much"), "no usable weight_data_type and layer_norm_eps"),
        (ini("1e-05", "1.0"), "no usable weight_data_type and layer_norm_eps"),
        (ini("1e-05", "-0.1"), "no usable weight_data_type and layer_norm_eps"),
        (ini("= fp32", "= int8"), "no usable weight_data_type and layer_norm_eps"),
        (of_two_bytes("bf16"), "no usable weight_data_type and layer_norm_eps"),
        (ini("hidden_size", "hid"), "no usable hidden_size"),
        (no_table, "model.embeddings.LayerNorm.bias.bin has 0 bytes"),
        (half_a_row, f"word_embeddings.weight.bin has {HIDDEN * 4 + 2} bytes"),
    ],
)
def test_weights_without_usable_tables_make_no_repository(
    options: RepositoryOptions, spoil: Callable[[Path], None], what: str
) -> None:
    spoil(options.weights)
    with pytest.raises(ConfigError, match=what):
        served(options)
    assert not options.out.exists()


def test_tables_may_have_two_bytes_for_a_value(options: RepositoryOptions) -> None:
    of_two_bytes("fp16")(options.weights)
    folder = served(options)
    assert ensembles.parameters(folder, "embedding")["stored_as"] == "fp16"
    assert vector_models.longest_text(folder) == POSITIONS


def test_a_norm_may_add_nothing_to_the_variance(options: RepositoryOptions) -> None:
    ini("1e-05", "0")(options.weights)
    assert ensembles.parameters(served(options), "embedding")["epsilon"] == "0"


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"bare": True}, "bert has no model of token ids alone"),
        ({"dtype": "bf16"}, "bert cannot be served as bf16"),
        ({"streamed": True}, "bert cannot stream"),
    ],
)
def test_what_a_family_of_vectors_has_not_is_refused(
    options: RepositoryOptions, changed: dict[str, Any], what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        served(replace(options, **changed))


def embeddings(options: RepositoryOptions) -> vectors.Embeddings:
    folder = served(options)
    return vectors.Embeddings(folder / "embedding/1/tables", ensembles.parameters(folder, "embedding"))


def test_an_embedding_is_the_normalized_sum_of_its_rows(options: RepositoryOptions) -> None:
    held = tensors()
    found = embeddings(options)(np.array([[5, 299, 0]], np.uint32), np.array([3]))
    for place, token in enumerate((5, 299, 0)):
        summed = (
            held["embeddings.word_embeddings.weight"][token]
            + held["embeddings.position_embeddings.weight"][place]
            + held["embeddings.token_type_embeddings.weight"][0]
        ).astype(np.float64)
        normed = (summed - summed.mean()) / np.sqrt(summed.var() + 1e-5)
        wanted = normed * held["embeddings.LayerNorm.weight"] + held["embeddings.LayerNorm.bias"]
        assert np.allclose(found[0, place], wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("ids", "lengths", "what"),
    [
        ([[300]], [1], "a token is 300"),
        ([[1, 2]], [3], "a length is 3"),
        ([[1, 2]], [0], "a length is 0"),
        ([[1, 2]], [1, 1], "there are 2 lengths of 1 texts"),
        ([[]], [0], "there is no text"),
        ([[1] * 8], [8], "8 tokens in a row, and the model takes 7"),
    ],
)
def test_what_is_in_no_table_is_refused(
    options: RepositoryOptions, ids: list[list[int]], lengths: list[int], what: str
) -> None:
    with pytest.raises(ValueError, match=what):
        embeddings(options)(np.array(ids, np.uint32), np.array(lengths, np.uint32))


def test_pooling_sees_no_padding() -> None:
    states = np.full((2, 3, 2), np.nan, np.float16)
    states[0, :2], states[1, :] = [[3, 0], [0, 4]], [[1, 1], [2, 2], [3, 3]]
    lengths = np.array([2, 3])
    assert vectors.pooled(states, lengths, "mean", False).tolist() == [[1.5, 2], [2, 2]]
    assert vectors.pooled(states, lengths, "cls", False).tolist() == [[3, 0], [1, 1]]
    assert np.allclose(vectors.pooled(states, lengths, "mean", True), [[0.6, 0.8], [0.5**0.5] * 2])
    assert vectors.pooled(np.zeros((1, 1, 2)), np.array([1]), "mean", True).tolist() == [[0, 0]]


def test_the_pooling_that_is_chosen_is_told_to_the_server(options: RepositoryOptions) -> None:
    folder = served(replace(options, pooling=Pooling("cls", normalized=False)))
    assert ensembles.parameters(folder, "pooling") == {"pooling": "cls", "normalized": "0"}


def test_the_pooling_is_the_checkpoints_unless_another_is_chosen(options: RepositoryOptions) -> None:
    checkpoint = bytelevel.write(options.out.parent / "sentences")
    (checkpoint / "1_Pooling").mkdir()
    said = {
        "word_embedding_dimension": HIDDEN,
        "pooling_mode_cls_token": True,
        "pooling_mode_mean_tokens": False,
    }
    (checkpoint / "1_Pooling/config.json").write_text(json.dumps(said))
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    named = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in modules]
    (checkpoint / "modules.json").write_text(json.dumps(named))
    (checkpoint / "sentence_bert_config.json").write_text('{"max_seq_length": 5}')
    wanted = replace(options, tokenizer=checkpoint)
    made = repository.make({"fastertransformer": TEMPLATE}, wanted)
    assert ensembles.parameters(made.folder, "pooling") == {"pooling": "cls", "normalized": "0"}
    assert vector_models.longest_text(made.folder) == 5
    tables = vectors.Embeddings(
        made.folder / "embedding/1/tables", ensembles.parameters(made.folder, "embedding")
    )
    with pytest.raises(ValueError, match="6 tokens in a row, and the model takes 5"):
        tables(np.ones((1, 6), np.uint32), np.array([6]))
    other = replace(wanted, out=options.out.with_name("other"), pooling=Pooling("mean"))
    made = repository.make({"fastertransformer": TEMPLATE}, other)
    assert ensembles.parameters(made.folder, "pooling")["pooling"] == "mean"
    assert "the checkpoint has the pooling cls, --pooling is mean: the latter is served" in made.warnings


def test_what_a_conversion_carried_is_the_default(options: RepositoryOptions) -> None:
    with (options.weights / "config.ini").open("a") as file:
        file.write("[sentence_transformers]\npooling = cls\nnormalized = 0\nlongest = 4\n")
    folder = served(options)
    assert ensembles.parameters(folder, "pooling") == {"pooling": "cls", "normalized": "0"}
    assert vector_models.longest_text(folder) == 4


def test_a_plan_reads_the_modules_and_warns_of_what_will_not_be_served(
    config: Config, tmp_path: Path
) -> None:
    folder = bytelevel.write(write(tmp_path / "in", tensors()))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text('{"pooling_mode": "max"}')
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<nowhere>"}')
    planned = conversion.plan_conversion(config, "22.12", ConversionRequest("bert", folder, tmp_path / "out"))
    assert planned.sentence is not None
    assert planned.sentence.values()["pooling"] == "max"
    assert any(
        "without --pooling: 1_Pooling/config.json has the pooling max" in one for one in planned.warnings
    )
    assert any("names '<nowhere>' as eos_token" in one for one in planned.warnings)
