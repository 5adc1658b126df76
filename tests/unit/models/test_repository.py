"""What a converter left, upstream's templates, and the repository made of both; no server and no image."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from docker.errors import NotFound

from ftbuild.cli.selection import Selection, plans
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.models import config_ini, config_pbtxt, repository
from ftbuild.models import tokenizer as tokenizer_of_checkpoint
from ftbuild.models.config_pbtxt import Limits
from ftbuild.models.int8 import required
from ftbuild.models.repository import RepositoryOptions
from ftserve import requirements, tokenizers
from testing import bert, bytelevel, needs, weight_files
from tests.unit.models.test_converters import TEMPLATE

# The keys of fastertransformer_backend v1.1, all_models/gpt/fastertransformer/config.pbtxt, other values.
OLD = """\
name: "fastertransformer"
backend: "fastertransformer"
default_model_filename: "gpt3_345M"
max_batch_size: 1024
input [ { name: "input_ids" data_type: TYPE_UINT32 dims: [ -1 ] } ]
input [ { name: "random_seed" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "sequence_length" data_type: TYPE_UINT32 dims: [ -1 ] } ]
""" + "".join(
    f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n'
    for key, value in {
        "max_seq_len": 1, "head_num": 2, "size_per_head": 3, "inter_size": 4, "vocab_size": 5, "start_id": 6,
        "end_id": 7, "decoder_layers": 8, "model_type": "GPT", "int8_mode": 0,
    }.items()
)  # fmt: skip
# As FasterTransformer 5.0 writes it: the arguments, then what config.json holds.
GPT2 = {
    "saved_dir": "/out", "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": None,
    "vocab_size": 50257, "bos_token_id": 50256, "eos_token_id": 50256, "task": "100%",
    "weight_data_type": "fp32",
}  # fmt: skip
GPTJ = {
    "head_num": 16, "size_per_head": 256, "inter_size": 16384, "num_layer": 28, "rotary_embedding": 64,
    "vocab_size": 50400, "start_id": 50256, "end_id": 50256, "weight_data_type": "fp32",
}  # fmt: skip
BARE = TEMPLATE + 'output [ { name: "sequence_length" data_type: TYPE_UINT32 dims: [ -1 ] } ]\n'
TEXT = {
    "ensemble": """\
name: "ensemble" platform: "ensemble" max_batch_size: 8
input [
  { name: "INPUT_0" data_type: TYPE_STRING dims: [ -1 ] },
  { name: "INPUT_2" data_type: TYPE_STRING dims: [ -1 ] },
  { name: "INPUT_3" data_type: TYPE_STRING dims: [ -1 ] },
  { name: "beam_width" data_type: TYPE_UINT32 dims: [ 1 ] optional: true }
]
output [ { name: "lengths" data_type: TYPE_UINT32 dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "preprocessing" model_version: -1
    input_map { key: "QUERY" value: "INPUT_0" } input_map { key: "BAD_WORDS_DICT" value: "INPUT_2" }
    input_map { key: "STOP_WORDS_DICT" value: "INPUT_3" }
    output_map { key: "INPUT_ID" value: "_ids" } },
  { model_name: "fastertransformer" model_version: -1
    input_map { key: "input_ids" value: "_ids" }
    output_map { key: "output_ids" value: "_tokens" }
    output_map { key: "sequence_length" value: "lengths" } },
  { model_name: "postprocessing" model_version: -1
    input_map { key: "TOKENS_BATCH" value: "_tokens" } output_map { key: "OUTPUT" value: "OUTPUT_0" } }
] }
""",
    "preprocessing": """\
name: "preprocessing" backend: "python" max_batch_size: 8
input [ { name: "QUERY" data_type: TYPE_STRING dims: [ -1 ] },
        { name: "BAD_WORDS_DICT" data_type: TYPE_STRING dims: [ -1 ] },
        { name: "STOP_WORDS_DICT" data_type: TYPE_STRING dims: [ -1 ] } ]
parameters { key: "tokenizer_type" value: { string_value: "hf" } }
parameters { key: "tokenizer_path" value: { string_value: "/nowhere/20B_tokenizer.json" } }
""",
    "postprocessing": """\
name: "postprocessing" backend: "python" max_batch_size: 8
input [ { name: "TOKENS_BATCH" data_type: TYPE_UINT32 dims: [ -1, -1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_STRING dims: [ -1, -1 ] } ]
""",
}
TEMPLATES = {"fastertransformer": BARE, **TEXT}


def converted(folder: Path, section: str, values: Mapping[str, object], gpus: int = 1) -> Path:
    weights = folder / f"{gpus}-gpu"
    weights.mkdir(parents=True)
    lines = [f"[{section}]", *(f"{key} = {value}" for key, value in values.items())]
    (weights / "config.ini").write_text("\n".join(lines) + "\n")
    return weight_files.complete(weights)


@pytest.fixture
def options(tmp_path: Path) -> RepositoryOptions:
    return RepositoryOptions(
        family="gptj",
        weights=converted(tmp_path / "weights", "gptj", GPTJ, gpus=2),
        out=tmp_path / "models",
        tokenizer=bytelevel.write(tmp_path / "checkpoint", {"<|endoftext|>": 50256}),
    )


def parameters(config: str) -> dict[str, str]:
    return {name: value.string_value for name, value in config_pbtxt.parse(config).parameters.items()}


def test_release_1_1_gets_the_structure_from_what_hugging_face_calls_it(tmp_path: Path) -> None:
    weights = config_ini.read(converted(tmp_path, "gpt", GPT2))
    filled = config_pbtxt.fill_template(OLD, tensor_para=1, data_type="fp16", model=weights)
    assert parameters(filled) == {
        "max_seq_len": "1024", "head_num": "12", "size_per_head": "64", "inter_size": "3072",
        "vocab_size": "50257", "start_id": "50256", "end_id": "50256", "decoder_layers": "12",
        "model_type": "GPT", "int8_mode": "0", "tensor_para_size": "1", "pipeline_para_size": "1",
        "data_type": "fp16", "max_output_len": "2048", "max_batch_tokens": "262144",
        "max_request_seconds": "600",
    }  # fmt: skip
    # Else the backend looks for <version>/gpt3_345M.
    assert not config_pbtxt.parse(filled).default_model_filename


@pytest.mark.parametrize(
    ("section", "values", "wanted"),
    [
        (
            "t5",
            {
                "num_heads": 8, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "vocab_size": 32128,
                "decoder_start_token_id": 0, "eos_token_id": 1,
            },
            {
                "head_num": 8, "size_per_head": 64, "inter_size": 2048, "decoder_layers": 6,
                "vocab_size": 32128, "start_id": 0, "end_id": 1,
            },
        ),
        ("gptj", {"rotary_dim": 0}, {"max_seq_len": 2048, "rotary_embedding": 0}),
        (
            "gpt",
            {
                "n_embd": 1, "n_head": 1, "n_layer": 1, "n_inner": 1, "n_positions": 1, "vocab_size": 1,
                "bos_token_id": 0, "eos_token_id": 0,
            },
            {
                "head_num": 1, "size_per_head": 1, "inter_size": 1, "decoder_layers": 1, "max_seq_len": 1,
                "vocab_size": 1, "start_id": 0, "end_id": 0,
            },
        ),
    ],
    ids=["T5 of the sample stack", "GPT-J", "GPT as small as can be"],
)  # fmt: skip
def test_numbers_are_found_by_the_names_that_converters_give_them(
    section: str, values: Mapping[str, int], wanted: Mapping[str, int], tmp_path: Path
) -> None:
    weights = config_ini.read(converted(tmp_path, section, values))
    assert weights.family == section
    assert {name: weights.number(name) for name in wanted} == wanted


@pytest.mark.parametrize(("line", "size"), [("", 0), ("vocab_size = 0", 0), ("vocab_size = 7", 7)])
def test_a_vocabulary_that_config_ini_does_not_tell_has_no_size(line: str, size: int, tmp_path: Path) -> None:
    folder = tmp_path / "1-gpu"
    folder.mkdir()
    (folder / "config.ini").write_text(f"[gptj]\nmodel_name\n{line}\n")
    weights = config_ini.read(folder)
    assert (weights.vocab_size, weights.values["model_name"]) == (size, "")


def test_what_config_ini_does_not_tell_is_no_guess(tmp_path: Path) -> None:
    lacking = {key: value for key, value in GPT2.items() if key != "eos_token_id"}
    weights = config_ini.read(converted(tmp_path, "gpt", lacking))
    with pytest.raises(ConfigError, match="has no end_id"):
        config_pbtxt.fill_template(OLD, tensor_para=1, data_type="fp16", model=weights)


@pytest.mark.parametrize(("data_type", "is_half"), [("fp16", "1"), ("fp32", "0")])
def test_where_half_is_a_parameter_it_follows_the_data_type(data_type: str, is_half: str) -> None:
    template = TEMPLATE + 'parameters { key: "is_half" value: { string_value: "1" } }'
    assert (
        parameters(config_pbtxt.fill_template(template, tensor_para=1, data_type=data_type))["is_half"]
        == is_half
    )
    assert config_pbtxt.data_types(config_pbtxt.parse(template)) == ("fp16", "fp32")


def test_gpt_neox_computes_in_bf16_where_its_template_says_so() -> None:
    neox = TEMPLATE.replace("GPT-J", "GPT-NeoX")
    patched = neox + 'parameters { key: "data_types" value: { string_value: "fp16 fp32 bf16" } }'
    types = [config_pbtxt.data_types(config_pbtxt.parse(text)) for text in (TEMPLATE, neox, patched)]
    assert ["bf16" in found for found in types] == [True, False, True]


def test_weights_are_found_by_their_number_of_gpus(tmp_path: Path) -> None:
    one, two = (converted(tmp_path, "gptj", GPTJ, gpus) for gpus in (1, 2))
    assert config_ini.find(two).folder == two
    assert config_ini.find(tmp_path, 1) == config_ini.read(one)
    with pytest.raises(ConfigError, match=r"for 1, 2 GPUs: which\?"):
        config_ini.find(tmp_path)
    with pytest.raises(ConfigError, match="for 1, 2 GPUs, not 4"):
        config_ini.find(tmp_path, 4)
    with pytest.raises(ConfigError, match="for 2 GPUs, not 1"):
        config_ini.find(two, 1)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda file: file.unlink(), "no converted weights"),
        (lambda file: file.write_text("[gptj\n"), "cannot be read"),
        (lambda file: file.write_text("[xlnet]\nhead_num = 2\n"), "has none of the sections"),
        (
            lambda file: file.write_text("[gptj]\ntensor_para_size = 4\n"),
            "has 2 GPUs, its config.ini 4",
        ),
        (lambda file: file.parent.rename(file.parent.with_name("final")), "name lacks the number of GPUs"),
    ],
)
def test_weights_that_contradict_themselves_are_refused(
    tmp_path: Path, spoil: Callable[[Path], None], message: str
) -> None:
    weights = converted(tmp_path, "gptj", GPTJ, gpus=2)
    spoil(weights / "config.ini")
    found = tmp_path / "final" if (tmp_path / "final").exists() else weights
    with pytest.raises(ConfigError, match=message):
        config_ini.find(found)


def test_a_repository_is_complete_and_names_no_folder_outside(options: RepositoryOptions) -> None:
    made = repository.make(TEMPLATES, replace(options, pipeline=4))
    assert made.gpus == 8
    assert made.warnings == ("no model over more than 2 pipeline stages has ever been run on GPUs",)
    assert set(made.models) == {"ensemble", "preprocessing", "fastertransformer", "postprocessing"}
    files = {str(file.relative_to(made.folder)) for file in made.folder.rglob("*") if file.is_file()}
    weights = {f"fastertransformer/1/2-gpu/{file.name}" for file in options.weights.iterdir()}
    assert len(weights) == 5 + 28 * 13 + 1
    assert files - weights == {
        "ensemble/config.pbtxt", "ensemble/1/.keep",
        "preprocessing/config.pbtxt", "preprocessing/1/model.py", "preprocessing/1/texts.py",
        "preprocessing/1/declared.py", "postprocessing/1/declared.py",
        "preprocessing/1/tokenizer/tokenizer.json",
        "fastertransformer/config.pbtxt",
        "postprocessing/config.pbtxt", "postprocessing/1/model.py", "postprocessing/1/texts.py",
        "postprocessing/1/tokenizer/tokenizer.json",
    }  # fmt: skip
    configs = {
        name: config_pbtxt.parse((made.folder / name / "config.pbtxt").read_text()) for name in made.models
    }
    assert {config.max_batch_size for config in configs.values()} == {1024}
    assert "/" not in "".join(
        value.string_value for config in configs.values() for value in config.parameters.values()
    )
    assert parameters((made.folder / "preprocessing/config.pbtxt").read_text()) == {
        "tokenizer_path": "tokenizer",
        "padding_id": "50256",
    }
    bare = parameters((made.folder / "fastertransformer/config.pbtxt").read_text())
    assert (bare["tensor_para_size"], bare["pipeline_para_size"], bare["data_type"]) == ("2", "4", "fp16")
    assert bare["vocab_size"] == "50400", "clients read it"
    assert {path.name for path in options.out.parent.iterdir()} == {"weights", "checkpoint", "models"}


def test_two_pipeline_stages_have_run_on_gpus(options: RepositoryOptions) -> None:
    assert repository.make(TEMPLATES, replace(options, pipeline=2)).warnings == ()


def test_weights_are_linked_not_copied(options: RepositoryOptions) -> None:
    made = repository.make(TEMPLATES, options)
    linked = made.folder / "fastertransformer/1/2-gpu/model.wte.bin"
    assert linked.samefile(options.weights / "model.wte.bin")


def test_word_lists_may_be_left_out_and_the_end_of_an_answer_is_known(options: RepositoryOptions) -> None:
    made = repository.make(TEMPLATES, options)

    def optional(model: str) -> dict[str, bool]:
        config = config_pbtxt.parse((made.folder / model / "config.pbtxt").read_text())
        return {tensor.name: tensor.optional for tensor in config.input}

    assert optional("preprocessing") == {"QUERY": False, "BAD_WORDS_DICT": True, "STOP_WORDS_DICT": True}
    assert optional("ensemble") == {
        "INPUT_0": False, "INPUT_2": True, "INPUT_3": True, "beam_width": True,
    }  # fmt: skip
    assert optional("postprocessing") == {"TOKENS_BATCH": False, "sequence_length": True}
    steps = config_pbtxt.parse((made.folder / "ensemble/config.pbtxt").read_text()).ensemble_scheduling.step
    assert dict(steps[2].input_map) == {"TOKENS_BATCH": "_tokens", "sequence_length": "lengths"}


def test_an_ensemble_of_a_release_without_optional_inputs_stays_without(options: RepositoryOptions) -> None:
    old = {**TEMPLATES, "ensemble": TEXT["ensemble"].replace(" optional: true", "")}
    made = repository.make(old, options)
    config = config_pbtxt.parse((made.folder / "ensemble/config.pbtxt").read_text())
    assert not any(tensor.optional for tensor in config.input)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"family": "gptneox"}, "weights of a gptj model, not of a gptneox model"),
        ({"gpus": 4}, "weights are for 2 GPUs, not 4"),
        ({"pipeline": 3}, "28 layers cannot be split evenly over 3"),
        ({"dtype": "int8"}, "cannot be served as int8"),
        ({"tokenizer": None}, "needs a tokenizer"),
        ({"tokenizer": Path("/nowhere")}, "no tokenizer here"),
        ({"weights": Path("/nowhere")}, "does not exist"),
        ({"out": Path("/nowhere/models")}, "parent folder of the output does not exist"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    options: RepositoryOptions, change: dict[str, Any], message: str
) -> None:
    before = sorted(options.out.parent.rglob("*"))
    with pytest.raises(ConfigError, match=message):
        repository.make(TEMPLATES, replace(options, **change))
    assert sorted(options.out.parent.rglob("*")) == before


def test_what_exists_is_not_overwritten(options: RepositoryOptions) -> None:
    options.out.mkdir()
    with pytest.raises(ConfigError, match="the output exists"):
        repository.make(TEMPLATES, options)


def test_a_checkpoints_chat_template_comes_beside_its_tokenizer(options: RepositoryOptions) -> None:
    assert options.tokenizer is not None
    (options.tokenizer / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    (options.tokenizer / "chat_template.jinja").write_text("{{ messages }}")
    made = repository.make(TEMPLATES, options)
    beside = made.folder / "preprocessing/1/tokenizer"
    assert {file.name for file in beside.iterdir()} == {
        "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
    }  # fmt: skip


def test_a_chat_template_from_elsewhere_is_refused(options: RepositoryOptions, tmp_path: Path) -> None:
    assert options.tokenizer is not None
    (tmp_path / "secret").write_text("a secret")
    (options.tokenizer / "chat_template.jinja").symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigError, match="leads out of the folder"):
        repository.make(TEMPLATES, options)


@pytest.mark.parametrize(("key", "name"), [("start_id", "start"), ("end_id", "end")])
def test_a_token_beyond_the_table_is_refused_without_a_tokenizer_too(
    key: str, name: str, options: RepositoryOptions, tmp_path: Path
) -> None:
    weights = converted(tmp_path / "other", "gptj", {**GPTJ, key: 50400}, gpus=2)
    with pytest.raises(ConfigError, match=f"the {name} token is 50400 in config.ini, the weights have 50400"):
        repository.make(TEMPLATES, replace(options, weights=weights, tokenizer=None))


def test_a_tokenizer_of_another_model_is_refused(options: RepositoryOptions, tmp_path: Path) -> None:
    too_many = bytelevel.write(tmp_path / "checkpoint", {"<|endoftext|>": 50400})
    with pytest.raises(ConfigError, match="tokens up to 50400, the weights have 50400 tokens"):
        repository.make(TEMPLATES, replace(options, tokenizer=too_many))


def test_what_contradicts_is_told_and_the_files_that_decide_are_served(options: RepositoryOptions) -> None:
    assert options.tokenizer is not None
    (options.tokenizer / "special_tokens_map.json").write_text('{"eos_token": "!"}')
    (options.tokenizer / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    made = repository.make(TEMPLATES, replace(options, pipeline=4))
    assert made.warnings[0] == repository.STAGES_NEVER_RUN
    assert [
        one for one in made.warnings if "config.ini" in one and "special_tokens_map.json is 33 ('!')" in one
    ]
    assert [one for one in made.warnings if "generation_config.json (eos_token_id) at 5" in one]
    beside = {file.name for file in (made.folder / "preprocessing/1/tokenizer").iterdir()}
    assert beside == {"tokenizer.json", "special_tokens_map.json"}


def test_what_a_model_of_vectors_lacks_in_its_tokenizer_is_told(config: Config, tmp_path: Path) -> None:
    family = config.models.families["bert"]
    weights = weight_files.Model("bert", family.converters[0], changed={"vocabulary": 300}).write(tmp_path)
    folder = bytelevel.write(tmp_path / "checkpoint")
    options = RepositoryOptions(
        "bert", weights, tmp_path / "models", tokenizer=folder, vectors=family.vectors
    )
    made = repository.make({"fastertransformer": bert.TEMPLATE}, options)
    assert [warning for warning in made.warnings if warning.startswith("bert was trained with")] == [
        f"bert was trained with a token {place} every text; this tokenizer adds none, and neither does "
        "transformers"
        for place in ("in front of", "behind")
    ]


def test_a_server_compares_the_tokenizer_of_its_repository(options: RepositoryOptions) -> None:
    made = repository.make(TEMPLATES, options)
    place = made.folder / tokenizers.TEXTS
    assert tokenizers.warnings(made.folder, requirements.read(made.folder)) == ()
    (place / "special_tokens_map.json").write_text('{"eos_token": "!"}')
    (one,) = tokenizers.warnings(made.folder, requirements.read(made.folder))
    assert "special_tokens_map.json is 33 ('!')" in one
    bytelevel.write(place, {"<|endoftext|>": 50400})
    with pytest.raises(ConfigError, match="tokens up to 50400, the weights have 50400 tokens"):
        tokenizers.warnings(made.folder, requirements.read(made.folder))


def test_a_release_without_ensembles_serves_token_ids(options: RepositoryOptions) -> None:
    alone = {"fastertransformer": BARE}
    with pytest.raises(ConfigError, match="no ensemble for gptj"):
        repository.make(alone, options)
    assert repository.make(alone, replace(options, tokenizer=None)).models == ("fastertransformer",)


def test_the_bare_model_needs_no_tokenizer(options: RepositoryOptions) -> None:
    assert repository.make(TEMPLATES, replace(options, tokenizer=None, bare=True)).models == (
        "fastertransformer",
    )


def test_only_what_the_release_can_stream_is_streamed(options: RepositoryOptions) -> None:
    made = repository.make(TEMPLATES, replace(options, streamed=True))
    bare = config_pbtxt.parse((made.folder / "fastertransformer/config.pbtxt").read_text())
    assert bare.model_transaction_policy.decoupled
    silent = {
        **TEMPLATES,
        "fastertransformer": BARE.replace("model_transaction_policy { decoupled: True }", ""),
    }
    with pytest.raises(ConfigError, match="cannot stream"):
        repository.make(silent, replace(options, streamed=True, out=options.out.with_name("other")))


@pytest.mark.parametrize(
    ("size", "rotary", "dtype", "said", "hint"),
    [
        (32, 8, "fp32", "does not rotate heads of 32 values", "--dtype fp16 or bf16"),
        (256, 36, "fp16", "a multiple of 8", "--dtype fp32"),
        (64, 96, "fp16", "96 values of a head are rotated, which has 64", "no data type computes it"),
    ],
)
def test_heads_that_are_not_rotated_right_are_not_served(
    options: RepositoryOptions, tmp_path: Path, size: int, rotary: int, dtype: str, said: str, hint: str
) -> None:
    values = {**GPTJ, "size_per_head": size, "rotary_embedding": rotary}
    weights = converted(tmp_path / "small", "gptj", values)
    with pytest.raises(ConfigError, match=said) as refused:
        repository.make(TEMPLATES, replace(options, weights=weights, dtype=dtype))
    assert refused.value.hint == hint
    assert not options.out.exists()


GPT = {
    "head_num": 6, "size_per_head": 64, "inter_size": 1536, "num_layer": 4, "vocab_size": 509,
    "max_pos_seq_len": 128, "start_id": 1, "end_id": 2, "weight_data_type": "fp32",
}  # fmt: skip
QUANTIZES = BARE + 'parameters { key: "int8_mode" value: { string_value: "0" } }\n'


@pytest.fixture
def int8(config: Config, tmp_path: Path) -> RepositoryOptions:
    return RepositoryOptions(
        family="gpt",
        weights=converted(tmp_path / "gpt", "gpt", GPT),
        out=tmp_path / "models",
        bare=True,
        int8=required(config.models, "bloom"),
    )


def test_int8_weights_are_for_the_backend_to_make(int8: RepositoryOptions) -> None:
    made = repository.make({"fastertransformer": QUANTIZES}, int8)
    found = parameters((made.folder / "fastertransformer/config.pbtxt").read_text())
    assert (found["int8_mode"], found["data_type"]) == ("1", "fp16")
    plain = replace(int8, int8=None, out=int8.out.with_name("plain"))
    made = repository.make({"fastertransformer": QUANTIZES}, plain)
    assert parameters((made.folder / "fastertransformer/config.pbtxt").read_text())["int8_mode"] == "0"


@pytest.mark.parametrize(
    ("values", "gpus", "changes", "message"),
    [
        ({}, 1, {"dtype": "fp32"}, "computed with in fp16, not in fp32"),
        ({}, 1, {"dtype": "bf16"}, "computed with in fp16, not in bf16"),
        ({"size_per_head": 48}, 1, {}, "its hidden size 288 is not a multiple of 64\n"),
        ({"inter_size": 100}, 1, {}, "its inner size 100 is not a multiple of 64\n"),
        ({"inter_size": 32}, 1, {}, "its inner size 32 is not a multiple of 64\n"),
        ({}, 4, {}, "hidden size 384, 96 on each of 4 GPUs, is not a multiple of 64\n"),
        ({}, 6, {}, None),
    ],
)
def test_shapes_and_types_that_int8_has_no_kernel_for_are_refused(
    int8: RepositoryOptions,
    tmp_path: Path,
    values: dict[str, int],
    gpus: int,
    changes: dict[str, Any],
    message: str | None,
) -> None:
    weights = converted(tmp_path / "other", "gpt", {**GPT, **values}, gpus)
    options = replace(int8, weights=weights, **changes)
    if message is None:
        assert repository.make({"fastertransformer": QUANTIZES}, options).gpus == gpus
        return
    with pytest.raises(ConfigError, match=message):
        repository.make({"fastertransformer": QUANTIZES}, options)
    assert not int8.out.exists()


@pytest.mark.parametrize("template", [BARE, OLD])
def test_a_release_without_int8_weights_says_so(int8: RepositoryOptions, template: str) -> None:
    """OLD is 22.03's: its int8_mode keeps the fp16 weights as well."""
    seed = 'input [ { name: "random_seed" data_type: TYPE_INT32 dims: [ 1 ] } ]\n'
    old = template if seed in template else template.replace("output [", f"{seed}output [")
    with pytest.raises(ConfigError, match="this release has no int8 weights"):
        repository.make({"fastertransformer": old}, int8)


@pytest.mark.parametrize("model", ["gptj", "codegen", "gptneox", "llama", "t5"])
def test_families_without_int8_weights_are_refused_by_name(config: Config, model: str) -> None:
    with pytest.raises(ConfigError, match=f"{model} has no int8 weights") as refused:
        required(config.models, model)
    assert "gpt, opt, bloom, mpt" in (refused.value.hint or "")


def test_several_pipeline_stages_cannot_stream(options: RepositoryOptions) -> None:
    with pytest.raises(ConfigError, match="over 2 pipeline stages cannot stream") as refused:
        repository.make(TEMPLATES, replace(options, streamed=True, pipeline=2))
    assert "tensor parallelism" in (refused.value.hint or "")


def test_only_models_that_generate_in_one_stage_have_slots(options: RepositoryOptions) -> None:
    eight = replace(options, limits=Limits(slots=8))
    with pytest.raises(ConfigError, match="gptj over 2 pipeline stages has no slots") as refused:
        repository.make(TEMPLATES, replace(eight, pipeline=2))
    assert refused.value.hint == "leave out --slots"
    encoder = {**TEMPLATES, "fastertransformer": BARE.replace('"GPT-J"', '"bert"')}
    with pytest.raises(ConfigError, match="gptj has no slots in this release"):
        repository.make(encoder, eight)
    made = repository.make(TEMPLATES, eight)
    bare = parameters((made.folder / "fastertransformer/config.pbtxt").read_text())
    assert bare["in_flight_slots"] == "8"


def test_slots_are_for_the_releases_that_compute_requests_in_flight(config: Config) -> None:
    planned = plans(config, Selection(config.folder, triton=["22.03", "22.12"], sm=["80"], base=["open"]))
    older, newer = sorted(planned, key=lambda plan: plan.cell.triton)
    assert [repository.slots(newer, count) for count in (None, 0, 8)] == [None, 0, 8]
    assert [repository.slots(older, count) for count in (None, 0)] == [0, 0]
    with pytest.raises(ConfigError, match=r"22\.03 has no slots: it computes requests in batches"):
        repository.slots(older, 8)


@pytest.mark.parametrize(("slots", "stages"), [(0, 1), (None, 2)], ids=["without", "over-two-stages"])
def test_memory_of_slots_is_for_models_with_slots(
    options: RepositoryOptions, slots: int | None, stages: int
) -> None:
    limits = Limits(slots=slots, cache_tokens=10_000)
    with pytest.raises(ConfigError, match="--cache-tokens is the memory of slots, and the model gets none"):
        repository.make(TEMPLATES, replace(options, limits=limits, pipeline=stages))


def test_a_release_that_shares_no_weights_has_one_instance(options: RepositoryOptions) -> None:
    def with_seeds(bits: str) -> dict[str, str]:
        seed = f'input [ {{ name: "random_seed" data_type: TYPE_{bits} dims: [ 1 ] optional: true }} ]\n'
        return {**TEMPLATES, "fastertransformer": BARE + seed}

    with pytest.raises(ConfigError, match="has one instance in this release"):
        repository.make(with_seeds("INT32"), replace(options, instances=2))
    assert repository.make(with_seeds("UINT64"), replace(options, instances=2)).gpus == 2


def test_a_family_may_be_served_as_another(config: Config) -> None:
    assert repository.served_family(config, "gptj") == "gptj"
    assert repository.served_family(config, "codegen") == "gptj"
    assert repository.served_family(config, "llama") == "gptneox"
    with pytest.raises(ConfigError, match="there is no model mistral"):
        repository.served_family(config, "mistral")


def test_streams_are_known_by_release(config: Config) -> None:
    repository.check_streams(config, "gptj", "22.12")
    repository.check_streams(config, "t5", "22.12")
    for model, release in [("gpt", "22.03"), ("t5", "22.07")]:
        with pytest.raises(ConfigError, match=f"{model} cannot stream its answers in {release}"):
            repository.check_streams(config, model, release)


@pytest.mark.parametrize("layers", ["[1]", "[0, 2]"])
def test_experts_are_for_the_releases_that_load_them(config: Config, tmp_path: Path, layers: str) -> None:
    weights = converted(tmp_path, "gpt", {"num_layer": 3})
    planned = plans(config, Selection(config.folder, sm=["80"], base=["open"]))
    for text in ("", "[structure]\nmoe_layers = []\n"):
        with (weights / "config.ini").open("a") as file:
            file.write(text)
        for plan in planned:
            repository.check_experts(weights, None, plan)
    with (weights / "config.ini").open("a") as file:
        file.write(f"[structure]\nmoe_layers = {layers}\n")
    for plan in planned:
        if plan.cell.triton == "22.12":
            repository.check_experts(weights, None, plan)
        else:
            with pytest.raises(ConfigError, match=f"{plan.cell.triton} serves no mixture of experts"):
                repository.check_experts(weights, None, plan)
    assert {plan.cell.triton for plan in planned} == {"22.03", "22.07", "22.12"}


@pytest.mark.parametrize(
    ("there", "message"),
    [([], "no SDK image"), (["22.03", "22.12"], r"SDK images of 22\.03, 22\.12"), (["22.12"], None)],
)
def test_the_templates_come_from_an_image_that_is_here(
    config: Config, monkeypatch: pytest.MonkeyPatch, there: list[str], message: str | None
) -> None:
    planned = plans(config, Selection(config.folder, sm=["80"], base=["open"]))
    client: Any = None
    tags = [plan.tag("sdk") for plan in planned if plan.cell.triton in there]
    monkeypatch.setattr("ftbuild.engine.daemon.image", lambda client, name: name if name in tags else None)
    if message is None:
        assert repository.sdk_image(client, planned).cell.triton == "22.12"
    else:
        with pytest.raises(ConfigError, match=message):
            repository.sdk_image(client, planned)


class SdkImage:
    """An engine with one image, in which upstream's templates are these files."""

    def __init__(self, family: str, files: Mapping[str, bytes | None]) -> None:
        self.containers = self.api = self
        self.family = family
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            for name, data in files.items():
                entry = tarfile.TarInfo(f"{family}/{name}")
                entry.size, entry.type = (
                    len(data or b""),
                    tarfile.DIRTYPE if data is None else tarfile.REGTYPE,
                )
                archive.addfile(entry, io.BytesIO(data or b""))
        self.tar = content.getvalue()

    def info(self) -> dict[str, int]:
        return {"MemTotal": 2**34}

    def create(self, *_: Any, **__: Any) -> SdkImage:
        return self

    def remove_container(self, name: str, **_: Any) -> None:
        pass

    def get_archive(self, path: str) -> tuple[Iterator[bytes], object]:
        if path != config_pbtxt.template(self.family).removesuffix("/fastertransformer/config.pbtxt"):
            raise NotFound(path)
        return (self.tar[at : at + 1000] for at in range(0, len(self.tar), 1000)), None


def test_the_templates_of_a_family_are_each_models_config_in_the_sdk_image() -> None:
    engine: Any = SdkImage(
        "gptj",
        {
            "ensemble/config.pbtxt": TEXT["ensemble"].encode(),
            "ensemble/1": None,
            "fastertransformer/config.pbtxt": BARE.encode() + b"# caf\xe9\n",
            "fastertransformer/1/config.pbtxt": b"of no model",
            "fastertransformer/1/.gitkeep": b"",
            "preprocessing/model.py": b"",
            "postprocessing/config.pbtxt": None,
            "config.pbtxt": b"of no model",
        },
    )
    assert repository.templates(engine, "mine:sdk", "gptj") == {
        "ensemble": TEXT["ensemble"],
        "fastertransformer": f"{BARE}# caf\ufffd\n",
    }
    with pytest.raises(ConfigError, match="mine:sdk has no templates for t5") as refused:
        repository.templates(engine, "mine:sdk", "t5")
    assert refused.value.where == "/opt/ftbuild/fastertransformer_backend/all_models/t5"
    with pytest.raises(ConfigError, match="'--privileged' is not the name of an image"):
        repository.templates(engine, "--privileged", "gptj")


@pytest.fixture
def texts() -> ModuleType:
    needs.package("tokenizers")
    from ftbuild.models.tokenization import texts

    return texts


def rows(*lines: str) -> np.ndarray[Any, Any]:
    return np.array([[line.encode()] for line in lines], object)


def test_prompts_are_padded_and_never_cut(texts: ModuleType, tmp_path: Path) -> None:
    tokenizer = texts.load(bytelevel.write(tmp_path / "tokenizer"))
    ids, lengths = texts.prompts(tokenizer, rows("#$%&", "!"), 99)
    assert ids.tolist() == [[35, 36, 37, 38], [33, 99, 99, 99]]
    assert lengths.tolist() == [[4], [1]]
    with pytest.raises(ValueError, match="row 2 has no tokens"):
        texts.prompts(tokenizer, rows("#", ""), 99)


def test_words_are_read_as_csv(texts: ModuleType, tmp_path: Path) -> None:
    tokenizer = texts.load(bytelevel.write(tmp_path / "tokenizer"))
    assert texts.words(tokenizer, rows('#$,"%,"', "", "&")).tolist() == [
        [[35, 36, 37, 44], [2, 4, -1, -1]],
        [[0, 0, 0, 0], [-1, -1, -1, -1]],
        [[38, 0, 0, 0], [1, -1, -1, -1]],
    ]
    assert texts.words(tokenizer, rows("")).tolist() == [[[0], [-1]]]


def write_llama_tokenizer(folder: Path) -> Path:
    """As a LLaMA's tokenizer.json: pieces of SentencePiece, bytes for the rest, <s> before each text."""
    from tokenizers import Tokenizer, decoders, models, normalizers, processors

    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "H", "i", "▁H", "▁Hi"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    merges = [("▁", "H"), ("▁H", "i")]
    tokenizer = Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<s>", "</s>"])
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_a_llama_tokenizer_begins_prompts_but_no_words_with_its_first_token(
    texts: ModuleType, tmp_path: Path
) -> None:
    folder = write_llama_tokenizer(tmp_path / "tokenizer")
    assert [file.name for file in tokenizer_of_checkpoint.files(folder)] == ["tokenizer.json"]
    tokenizer = texts.load(folder)
    hi, newline = 263, 3 + 10
    ids, lengths = texts.prompts(tokenizer, rows("Hi", "Hi\n"), 0)
    assert ids.tolist() == [[1, hi, 0], [1, hi, newline]]
    assert lengths.tolist() == [[2], [3]]
    assert texts.words(tokenizer, rows("Hi")).tolist() == [[[hi], [1]]]
    answered = texts.answers(tokenizer, np.array([[[1, hi, hi, newline, 2, 2]]]), None)
    assert answered.tolist() == [b"Hi Hi\n"]


def test_an_answer_ends_at_its_length_and_shows_no_special_token(texts: ModuleType, tmp_path: Path) -> None:
    tokenizer = texts.load(bytelevel.write(tmp_path / "tokenizer"))
    tokens = np.array([[[35, 36, 257, 37]], [[38, 39, 40, 41]]], np.uint32)
    assert texts.answers(tokenizer, tokens, np.array([[3], [2]])).tolist() == [b"#$", b"&'"]
    assert texts.answers(tokenizer, tokens, None).tolist() == [b"#$%", b"&'()"]


def test_gpt2s_older_files_give_the_same_tokens(texts: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text(json.dumps({"#": 0, "$": 1, "#$": 2, "<|endoftext|>": 3}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n# $\n")
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<b>": 5, "<a>": 4}))
    assert [file.name for file in tokenizer_of_checkpoint.files(tmp_path)] == [
        "vocab.json", "merges.txt", "added_tokens.json",
    ]  # fmt: skip
    tokenizer = texts.load(tmp_path)
    ids, _ = texts.prompts(tokenizer, rows("#$$<a><b><|endoftext|>"), 0)
    assert ids.tolist() == [[2, 1, 4, 5, 3]]
    assert texts.answers(tokenizer, ids[None], None).tolist() == [b"#$$<a><b>"]


@pytest.mark.parametrize("token", ["</s>", {"content": "</s>", "lstrip": False}])
def test_prompts_begin_with_opts_token_but_words_do_not(
    token: object, texts: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "vocab.json").write_text(json.dumps({"#": 0, "$": 1, "</s>": 2}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    settings = tmp_path / "tokenizer_config.json"
    settings.write_text(json.dumps({"add_bos_token": True, "bos_token": token}))
    tokenizer = texts.load(tmp_path)
    ids, _ = texts.prompts(tokenizer, rows("$#"), 0)
    assert ids.tolist() == [[2, 1, 0]]
    assert texts.answers(tokenizer, ids[None], None).tolist() == [b"$#"]
    assert texts.words(tokenizer, rows("#,$")).tolist() == [[[0, 1], [1, 2]]]
    settings.write_text(json.dumps({"add_bos_token": False, "bos_token": token}))
    assert texts.prompts(texts.load(tmp_path), rows("$#"), 0)[0].tolist() == [[1, 0]]
    settings.write_text(json.dumps({"add_bos_token": True, "bos_token": "<s>"}))
    with pytest.raises(ValueError, match="begin with '<s>', which is not a token"):
        texts.load(tmp_path)
