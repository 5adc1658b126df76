"""Upstream's config.pbtxt of every model and release, patched: each is one, and model-repo fills it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tritonclient.grpc.model_config_pb2 import DataType

from ftbuild.config.schema import Config
from ftbuild.models import config_pbtxt, ensemble, repository
from ftbuild.models.repository import RepositoryOptions
from ftbuild.sources import fetch
from ftbuild.sources.patches import series
from testing import ROOT, bytelevel, ensembles, weight_files

from .conftest import Need

BACKEND = "backend"
# Values that no template has, so that a parameter that was not filled shows.
GPT = {
    "head_num": 5, "size_per_head": 36, "inter_size": 11, "num_layer": 6, "vocab_size": 60001, "start_id": 1,
    "end_id": 2, "weight_data_type": "fp32",
}  # fmt: skip
# What FasterTransformer 5.0's converter takes from config.json.
GPT2 = {
    "n_head": 5, "n_embd": 180, "n_inner": 11, "n_layer": 6, "vocab_size": 60001, "n_positions": 13,
    "bos_token_id": 1, "eos_token_id": 2, "weight_data_type": "fp32",
}  # fmt: skip
T5 = {
    "num_heads": 5, "d_kv": 36, "d_ff": 11, "num_layers": 6, "vocab_size": 60001, "decoder_start_token_id": 1,
    "eos_token_id": 2, "d_model": 180, "relative_attention_num_buckets_or_max_pos_seq_len": 32,
    "weight_data_type": "fp32",
}  # fmt: skip
WIDTH = 180
# Family -> section and values of config.ini.
ENCODERS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "bert": (
        "bert",
        {
            "hidden_size": WIDTH, "num_layer": 6, "head_num": 5, "size_per_head": 36,
            "inter_size": 11, "weight_data_type": "fp32", "layer_norm_eps": 1e-6,
        },
    ),
    "t5-encoder": ("encoder", {**T5, "d_model": WIDTH}),
}  # fmt: skip
INI: Mapping[str, Mapping[str, object]] = {
    "gpt": {**GPT, "max_pos_seq_len": 13},
    "gptj": {**GPT, "rotary_embedding": 12},
    "gptneox": {**GPT, "rotary_embedding": 12},
    "t5": T5,
}
SECTIONS = {"t5": ("encoder", "decoder")}
# Release -> layouts, and which of them upstream serves with text.
LAYOUTS = {
    "22.03": ({"gpt", "gptj", "t5"}, {"gpt", "gptj"}),
    "22.07": ({"gpt", "gptj", "gptneox", "t5"}, {"gpt", "gptj", "gptneox"}),
    "22.12": ({"gpt", "gptj", "gptneox", "t5"}, {"gpt", "gptj", "gptneox"}),
}
# What release 1.1 reads from config.pbtxt, for the values above.
STRUCTURE = {
    "head_num": "5", "size_per_head": "36", "inter_size": "11", "decoder_layers": "6", "vocab_size": "60001",
    "start_id": "1", "end_id": "2",
}  # fmt: skip


@pytest.fixture(scope="module", params=LAYOUTS)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def all_models(
    release: str, config: Config, cache: Path, need: Need, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """all_models of the patched backend."""
    need(BACKEND)
    folder = tmp_path_factory.mktemp(release) / BACKEND
    fetch.export(config, release, BACKEND, cache, folder, report=print)
    version = config.version(release, BACKEND)
    for entry in series.applicable(series.read_series(config)[BACKEND], version):
        series.apply(folder, entry, fetch.entry_diff(config, entry, cache, report=print), version=version)
    return folder / "all_models"


def templates(all_models: Path, layout: str) -> dict[str, str]:
    return {file.parent.name: file.read_text() for file in (all_models / layout).glob("*/config.pbtxt")}


def weights(folder: Path, layout: str, values: Mapping[str, object]) -> Path:
    made = folder / "4-gpu"
    made.mkdir(parents=True)
    sections = SECTIONS.get(layout, (layout,))
    weight_files.write_config(
        made, {f"{s}.{key}": str(value) for s in sections for key, value in values.items()}
    )
    return weight_files.complete(made)


def test_every_config_is_one(all_models: Path) -> None:
    files = sorted(all_models.glob("*/*/config.pbtxt"))
    assert len(files) >= 9
    for file in files:
        assert config_pbtxt.parse(file.read_text()).name in ("", file.parent.name)  # "": as the folder


def test_every_layout_and_ensemble_is_where_the_test_believes_it(release: str, all_models: Path) -> None:
    layouts, with_text = LAYOUTS[release]
    assert {layout for layout in INI if (all_models / layout).is_dir()} == layouts
    assert {
        layout for layout in layouts if set(ensemble.MODELS) <= set(templates(all_models, layout))
    } == with_text


def test_the_models_of_bloom_are_those_of_gpt_without_its_batches(release: str, all_models: Path) -> None:
    """So models.yaml serves BLOOM as GPT: model-repo lets every model batch."""
    if release == "22.03":
        pytest.skip("22.03 has no bloom")
    pairs = zip(*(sorted(templates(all_models, family).items()) for family in ("gpt", "bloom")), strict=True)
    for (name, gpt), (same_name, bloom) in pairs:
        assert name == same_name
        configs = [config_pbtxt.parse(text) for text in (gpt, bloom)]
        for found in configs:
            found.ClearField("dynamic_batching")
            found.ClearField("batch_input")
            found.ClearField("default_model_filename")
            found.parameters.pop("model_checkpoint_path", None)
            for tensor in found.input:
                tensor.allow_ragged_batch = False
        assert configs[0] == configs[1], name


def test_the_options_of_requests_are_in_the_templates_that_the_documentation_names(
    release: str, all_models: Path
) -> None:
    text = (ROOT / "docs/ftserve/serving.md").read_text()
    rows = [row.split("|")[1:-1] for row in text[text.index("| option | inputs |") :].splitlines()]
    rows = [[cell.strip(" `") for cell in row] for row in rows[2 : rows.index([])]]
    assert len(rows) > 5
    for option, inputs, oldest, later, _ in rows:
        named = {name for name in inputs.replace("`", "").split() if name}
        there = [
            layout
            for layout in INI
            if layout in LAYOUTS[release][0]
            and named
            and named <= set(config_pbtxt.inputs(templates(all_models, layout)[config_pbtxt.MODEL]))
        ]
        assert (oldest if release == "22.03" else later).split() == (there or ["none"]), option


@pytest.mark.parametrize("layout", INI)
def test_model_repo_fills_the_layout(release: str, layout: str, all_models: Path, tmp_path: Path) -> None:
    layouts, with_text = LAYOUTS[release]
    if layout not in layouts:
        pytest.skip(f"{release} has no {layout}")
    found = templates(all_models, layout)
    old = release == "22.03"
    values = GPT2 if old and layout == "gpt" else INI[layout]
    options = RepositoryOptions(
        family=layout,
        weights=weights(tmp_path / "weights", layout, values),
        out=tmp_path / "models",
        dtype="fp32",
        pipeline=2,
        tokenizer=bytelevel.write(tmp_path / "tokenizer") if layout in with_text else None,
    )
    made = repository.make(found, options)
    configs = {
        name: config_pbtxt.parse((made.folder / name / "config.pbtxt").read_text()) for name in made.models
    }
    assert set(configs) == {config_pbtxt.MODEL, *(ensemble.MODELS if layout in with_text else ())}

    bare = configs[config_pbtxt.MODEL]
    parameters = {name: value.string_value for name, value in bare.parameters.items()}
    assert (parameters["tensor_para_size"], parameters["pipeline_para_size"]) == ("4", "2")
    assert parameters["data_type"] == "fp32"
    assert parameters.get("is_half", "0") == "0"
    assert "model_checkpoint_path" not in parameters
    assert not bare.default_model_filename
    if old and layout != "t5":
        assert STRUCTURE.items() <= parameters.items()
        assert parameters["max_seq_len"] == ("13" if layout == "gpt" else "2048")
    assert {config.max_batch_size for config in configs.values()} == {bare.max_batch_size}
    assert bare.HasField("dynamic_batching")
    assert [tensor.name for tensor in bare.input if tensor.allow_ragged_batch] == ["input_ids"]
    assert len(bare.batch_input) == 1
    assert config_pbtxt.has_instances(found[config_pbtxt.MODEL]) != old

    if layout in with_text:
        taken = {tensor.name: tensor.optional for tensor in configs[ensemble.PREPROCESSING].input}
        assert all(taken[name] for name in ensemble.WORDS)
        ensembles.check(configs)


@pytest.mark.parametrize(("family", "first"), [("bert", "embedding"), ("t5-encoder", "checking")])
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_model_repo_puts_models_around_an_encoder(
    release: str, family: str, first: str, dtype: str, config: Config, all_models: Path, tmp_path: Path
) -> None:
    if config.models.families[family].converter(config.version(release, "ft")) is None:
        pytest.skip(f"{release} has no {family}")
    section, values = ENCODERS[family]
    made = weights(tmp_path / "weights", section, values)
    known = config.models.families[family].vectors
    assert known
    for file in known.files:
        (made / file).write_bytes(bytes(4 * WIDTH))
    options = RepositoryOptions(family, made, tmp_path / "models", dtype=dtype, vectors=known)
    folder = repository.make(templates(all_models, family), options).folder
    configs = ensembles.configs(folder)
    assert set(configs) == {"ensemble", first, "fastertransformer", "pooling"}
    ensembles.check(configs)
    backend = configs[config_pbtxt.MODEL]
    assert config_pbtxt.data_types(backend) == ("fp16", "fp32")
    assert not any(tensor.allow_ragged_batch for tensor in backend.input)
    (states,) = (tensor for tensor in backend.output if tensor.name == "output_hidden_state")
    assert states.data_type == DataType.Value(f"TYPE_{dtype.upper()}")
    assert {each.max_batch_size for each in configs.values()} == {backend.max_batch_size}
