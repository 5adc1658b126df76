"""Converted weights against their config.ini: what converters write fits, whatever contradicts is named."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ftbuild.config import loader
from ftbuild.config.families import Loading
from ftbuild.errors import ConfigError
from ftbuild.models import config_ini, loading, proof, recognition, weights
from testing import expert_gpt, weight_files
from testing.weight_files import Model

MODELS = loader.own_models()
CASES = [
    pytest.param(Model(family, converter, gpus), id=f"{family}-{converter.ft}-{gpus}-{number}")
    for family, of in MODELS.families.items()
    for number, converter in enumerate(of.converters)
    for gpus in (1, 2)
]
ONE_OF_EACH = [
    pytest.param(Model(family, of.converters[-1]), id=family) for family, of in MODELS.families.items()
]


def described(model: Model) -> Loading:
    found = MODELS.families[MODELS.template(model.family)].loading
    assert found
    return found


def read_by(model: Model, place: Path) -> dict[str, int]:
    """Name -> bytes of the files that the backend reads, and cannot do without."""
    values, found = config_ini.all_values(place / "config.ini"), dict[str, int]()
    for part in described(model).parts:
        item_type = loading.data_type(part, values)
        assert item_type
        for files in loading.expected(part, loading.numbers(part, values, model.gpus), item_type):
            if files.file.required:
                found |= dict.fromkeys(files.names(model.gpus), files.file.size)
    return found


def wrong(model: Model, place: Path) -> str:
    return "\n".join(proof.contradictions(place, described(model), model.gpus))


@pytest.mark.parametrize("data_type", ["fp32", "fp16"])
@pytest.mark.parametrize("model", CASES)
def test_what_a_converter_writes_is_what_the_backend_reads(
    model: Model, data_type: str, tmp_path: Path
) -> None:
    model = replace(model, data_type=data_type)
    place = model.write(tmp_path)
    assert wrong(model, place) == ""
    assert MODELS.template(model.family) in recognition.best(proof.sizes(place), MODELS)
    written = {file.name for file in place.glob("*.bin")}
    assert read_by(model, place).keys() <= written
    # Converters write a little that is not read.
    assert len(written) - len(read_by(model, place)) <= 2 * 2 * model.gpus + 5


SPOILS: dict[str, Callable[[Path], object]] = {
    "missing": lambda file: file.unlink(),
    "cut": lambda file: _resize(file, lambda size: size - 1),
    "longer": lambda file: _resize(file, lambda size: size + 2),
    "empty": lambda file: _resize(file, lambda _: 0),
    "a folder": lambda file: _replace(file).mkdir(),
    "a link": lambda file: _replace(file).symlink_to("/dev/zero"),
}


def _replace(file: Path) -> Path:
    file.unlink()
    return file


def _resize(file: Path, change: Callable[[int], int]) -> None:
    size = change(file.stat().st_size)
    with file.open("r+b") as opened:
        opened.truncate(size)


@pytest.mark.parametrize("model", ONE_OF_EACH)
def test_each_file_that_is_read_must_be_there_whole(model: Model, tmp_path: Path) -> None:
    place = model.write(tmp_path)
    files = read_by(model, place)
    for name, size in files.items():
        for what, spoil in SPOILS.items():
            spoil(place / name)
            assert name in wrong(model, place), what
            _restore(place / name, size)
    assert wrong(model, place) == ""


def _restore(file: Path, size: int) -> None:
    if file.is_dir():
        file.rmdir()
    file.unlink(missing_ok=True)
    with file.open("wb") as opened:
        opened.truncate(size)


@pytest.mark.parametrize("model", ONE_OF_EACH)
def test_what_is_not_read_may_be_anything(model: Model, tmp_path: Path) -> None:
    place = model.write(tmp_path)
    optional = {name for part in described(model).parts for name in part.optional}
    for file in place.glob("*.bin"):
        if file.name not in read_by(model, place) and file.name not in optional:
            file.write_bytes(b"x")
    (place / "notes.bin").write_bytes(b"")
    (place / "model.layers.0.attention.rotary_emb.inv_freq.bin").write_bytes(b"x")
    assert wrong(model, place) == ""


def sizes_of(model: Model) -> Iterator[str]:
    """The keys of config.ini that sizes depend on."""
    for part in described(model).parts:
        for fact in part.facts:
            if not loading.is_switch(part, fact):
                yield from loading.first_key(part, fact).split(" * ")


@pytest.mark.parametrize("model", ONE_OF_EACH)
def test_each_number_that_contradicts_the_files_is_named(model: Model, tmp_path: Path) -> None:
    place = model.write(tmp_path)
    values = model.values()
    unread = {"gpt.max_pos_seq_len"} if model.family in ("bloom", "mpt") else set()
    for key in {*sizes_of(model)} & values.keys():
        for number in (int(values[key]) * 2, max(int(values[key]) // 2, 1)):
            # A table may have more rows than are read.
            fewer_rows = number < int(values[key]) and key.endswith(("vocab_size", "max_pos_seq_len"))
            if number == int(values[key]) or key in unread or fewer_rows:
                continue
            weight_files.write_config(place, {**values, key: str(number)})
            assert key in wrong(model, place), (key, number)
        for text in ("-1", "x", "1.5", "9" * 12):
            weight_files.write_config(place, {**values, key: text})
            assert key in wrong(model, place) or key in unread, (key, text)
        weight_files.write_config(place, {k: v for k, v in values.items() if k != key})
        assert key in wrong(model, place) or key in unread, key


@pytest.mark.parametrize("model", ONE_OF_EACH)
@pytest.mark.parametrize(
    ("files", "said", "guess"), [("fp16", "fp32", "they look like fp16"), ("fp32", "fp16", "look like fp32")]
)
def test_files_of_another_type_are_called_so(
    model: Model, files: str, said: str, guess: str, tmp_path: Path
) -> None:
    place = replace(model, data_type=files).write(tmp_path)
    weight_files.write_config(place, replace(model, data_type=said).values())
    assert guess in wrong(model, place)
    assert "weight_data_type" in wrong(model, place)
    assert len(wrong(model, place).splitlines()) == 1


def test_the_type_is_what_the_backend_finds_in_the_word(tmp_path: Path) -> None:
    """FT v5.3 cuda_utils.cc:373-386: the first of fp32, fp16 and bf16 in it, else fp32."""
    model = Model("gptj", MODELS.families["gptj"].converters[0], data_type="fp16")
    place = model.write(tmp_path)
    for text, fits in (
        ("fp16", True),
        ("bf16", True),
        ("np.fp16", True),
        ("float16", False),
        ("int8", False),
    ):
        weight_files.write_config(place, {**model.values(), "gptj.weight_data_type": text})
        assert (wrong(model, place) == "") == fits, text
    without = {key: value for key, value in model.values().items() if "data_type" not in key}
    weight_files.write_config(place, without)
    assert wrong(model, place) == "config.ini has no gptj.weight_data_type"


def gpt(**changed: int) -> Model:
    return Model("gpt", MODELS.families["gpt"].converters[-1], changed=changed)


def variant(place: Path, model: Model, **switches: object) -> str:
    values = {key.replace("__", "."): str(value) for key, value in switches.items()}
    weight_files.write_config(place, {**model.values(), **values})
    return wrong(model, place)


def test_switches_decide_which_files_there_must_be(tmp_path: Path) -> None:
    place = gpt().write(tmp_path)
    assert "model.pre_decoder_layernorm.weight.bin is missing" in variant(
        place, gpt(), gpt__has_pre_decoder_layernorm="True"
    )
    (place / "model.wpe.bin").unlink()
    assert "model.wpe.bin is missing" in variant(place, gpt())
    assert variant(place, gpt(), gpt__has_positional_encoding="False") == ""
    (place / "model.final_layernorm.bias.bin").unlink()
    assert variant(place, gpt(), gpt__has_positional_encoding=0, gpt__has_post_decoder_layernorm="no") == ""
    assert "adapter" in variant(place, gpt(), gpt__has_positional_encoding=0, gpt__has_adapters="true")
    # Megatron's converter writes these two for every model.
    none = {"gpt__has_adapters": False, "gpt__adapter_inter_size": 0}
    assert "adapter" not in variant(place, gpt(), **none)


def test_files_that_a_switch_leaves_out_are_a_contradiction(tmp_path: Path) -> None:
    """BLOOM's first norm, say, would not be computed."""
    place = gpt().write(tmp_path)
    weight_files.sparse(place, [(f"model.pre_decoder_layernorm.{k}.bin", 256) for k in ("weight", "bias")])
    name = "model.pre_decoder_layernorm"
    said = variant(place, gpt())
    assert said == (
        f"{name}.weight.bin is there, but config.ini has no gpt.has_pre_decoder_layernorm: it is not read"
    )
    said = variant(place, gpt(), gpt__has_pre_decoder_layernorm="False")
    assert said.endswith("config.ini has gpt.has_pre_decoder_layernorm = False: it is not read")
    assert variant(place, gpt(), gpt__has_pre_decoder_layernorm="True") == ""


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("t5", "structure.use_gated_activation", "0"),
        ("llama", "gptneox.activation_type", "gelu"),
        ("llama", "gptneox.activation_type", None),
    ],
)
def test_a_gate_that_would_not_be_computed_is_a_contradiction(
    family: str, key: str, value: str | None, tmp_path: Path
) -> None:
    model = Model(family, MODELS.families[family].converters[-1])
    place = model.write(tmp_path)
    values = (
        {**model.values(), key: str(value)}
        if value
        else {k: v for k, v in model.values().items() if k != key}
    )
    weight_files.write_config(place, values)
    assert key in wrong(model, place)
    assert "it is not read" in wrong(model, place)


def test_a_sum_of_biases_may_be_there_for_nothing(tmp_path: Path) -> None:
    """eleutherai_gpt_neox_convert.py writes it for every model."""
    model = Model("gptneox", MODELS.families["gptneox"].converters[-1])
    place = model.write(tmp_path)
    assert variant(place, model, gptneox__use_gptj_residual=0) == ""


def test_a_head_of_its_own_may_be_left_out_but_not_cut(tmp_path: Path) -> None:
    place = gpt().write(tmp_path)
    weight_files.sparse(place, [("model.lm_head.weight.bin", 96 * 64 * 4)])
    assert wrong(gpt(), place) == ""
    weight_files.sparse(place, [("model.lm_head.weight.bin", 0)])
    assert "model.lm_head.weight.bin has 0 bytes" in wrong(gpt(), place)


def test_an_untied_t5_must_have_its_head(tmp_path: Path) -> None:
    model = Model("t5", MODELS.families["t5"].converters[-1])
    place = model.write(tmp_path)
    (place / "lm_head.weight.bin").unlink()
    assert wrong(model, place) == ""
    assert "lm_head.weight.bin is missing" in variant(place, model, decoder__tie_word_embeddings="False")


def test_encoder_and_decoder_have_numbers_of_their_own(tmp_path: Path) -> None:
    model = Model("t5", MODELS.families["t5"].converters[-1])
    place = model.write(tmp_path)
    said = variant(place, model, encoder__d_ff=64)
    assert "encoder.d_ff = 64" in said
    assert "decoder.block" not in said


@pytest.mark.parametrize("kind", [2, 3])
def test_tables_of_learned_prompts_are_files_like_others(tmp_path: Path, kind: int) -> None:
    place = gpt().write(tmp_path)
    tasks = {
        "gpt__num_tasks": 1, "gpt__prompt_learning_type": kind, "task_0__task_name": "squad",
        "task_0__prompt_length": 10,
    }  # fmt: skip
    name, size = {
        2: ("model.prefix_prompt.squad.weight.0.bin", 10 * 2 * 2 * 64 * 4),
        3: ("model.prompt_table.squad.weight.bin", 10 * 64 * 4),
    }[kind]
    assert f"{name} is missing: {size} bytes" in variant(place, gpt(), **tasks)
    weight_files.sparse(place, [(name, size)])
    assert variant(place, gpt(), **tasks) == ""
    assert "task_0.task_name" in variant(place, gpt(), **{**tasks, "task_0__task_name": "../x"})
    assert variant(place, gpt(), **{**tasks, "gpt__prompt_learning_type": 1}) == ""


def test_layers_with_experts_have_other_files(tmp_path: Path) -> None:
    shape = expert_gpt.Shape(mixed=(1,))
    place = expert_gpt.write(tmp_path, shape, expert_gpt.model(shape, 1))
    found = MODELS.families["gpt"].loading
    assert found
    assert proof.contradictions(place, found, 1) == []
    for name in ("mlp.moe.gate.wg.weight", "mlp.moe.experts.dense_h_to_4h.weight.0"):
        file = place / f"model.layers.1.{name}.bin"
        content = file.read_bytes()
        file.write_bytes(content[:-4])
        assert file.name in "".join(proof.contradictions(place, found, 1))
        file.write_bytes(content)


def test_int8_that_is_converted_before_has_files_of_its_own(tmp_path: Path) -> None:
    place = gpt().write(tmp_path)
    found = described(gpt())
    assert proof.contradictions(place, found, 1, int8_mode=1) == []
    assert "weight.int8.0.bin is missing" in "".join(proof.contradictions(place, found, 1, int8_mode=2))
    for layer in range(2):
        for name, values in (("query_key_value", 3 * 64 * 64), ("dense", 64 * 64)):
            weight_files.sparse(place, [(f"model.layers.{layer}.attention.{name}.weight.int8.0.bin", values)])
        for name in ("h_to_4h", "4h_to_h"):
            weight_files.sparse(
                place, [(f"model.layers.{layer}.mlp.dense_{name}.weight.int8.0.bin", 64 * 256)]
            )
    assert proof.contradictions(place, found, 1, int8_mode=2) == []


def test_what_is_wrong_is_said_in_a_few_lines(tmp_path: Path) -> None:
    place = gpt(layers=30).write(tmp_path)
    for file in place.glob("*.mlp.*"):
        file.unlink()
    lines = proof.contradictions(place, described(gpt()), 1)
    assert len(lines) == 4
    assert lines[-1] == "and 117 more of 364 files"
    for file in place.glob("*.bin"):
        file.unlink()
    (line,) = proof.contradictions(place, described(gpt()), 1)
    assert line == "none of the 364 weight files is there, for instance model.wte.bin"


def test_three_wrong_files_are_all_shown(tmp_path: Path) -> None:
    place = gpt().write(tmp_path)
    names = [f"model.{name}.bin" for name in ("wte", "wpe", "final_layernorm.weight")]
    for name in names:
        (place / name).unlink()
    assert [line.split()[0] for line in wrong(gpt(), place).splitlines()] == names


def test_files_of_more_layers_than_config_ini_counts_are_a_contradiction(tmp_path: Path) -> None:
    place = gpt().write(tmp_path)
    said = variant(place, gpt(), gpt__num_layer=1)
    assert said == "there are files of 2 layers, but config.ini has gpt.num_layer = 1"


def test_a_model_of_7_billion_takes_milliseconds(tmp_path: Path) -> None:
    large = Model(
        "llama", MODELS.families["llama"].converters[0], 8, "fp16",
        {"layers": 32, "heads": 32, "hidden": 4096, "inner": 11008, "vocabulary": 32000},
    )  # fmt: skip
    place = large.write(tmp_path)
    began = time.process_time()
    assert wrong(large, place) == ""
    assert time.process_time() - began < 1


def test_more_files_than_any_model_has_are_no_reason_to_run_out_of_memory(tmp_path: Path) -> None:
    place = gpt().write(tmp_path)
    with pytest.raises(ConfigError, match="more than the 250000 of any model"):
        variant(place, gpt(), gpt__num_layer=2**31 - 1)


def test_a_table_may_have_more_rows_than_are_read(tmp_path: Path) -> None:
    """As the server has it (patches/ft/0495): checkpoints pad their vocabulary."""
    place = gpt().write(tmp_path)
    assert variant(place, gpt(), gpt__vocab_size=90, gpt__max_pos_seq_len=16) == ""
    assert "model.wte.bin has" in variant(place, gpt(), gpt__vocab_size=97)
    weight_files.sparse(place, [("model.wte.bin", 96 * 64 * 4 + 4)])
    assert "model.wte.bin has" in variant(place, gpt(), gpt__vocab_size=90)


def test_links_may_lead_within_a_repository_and_no_further(tmp_path: Path) -> None:
    place = gpt().write(tmp_path / "models")
    held = tmp_path / "models" / "held.bin"
    (place / "model.wte.bin").rename(held)
    (place / "model.wte.bin").symlink_to("../held.bin")
    found = described(gpt())
    assert proof.contradictions(place, found, 1, inside=tmp_path / "models") == []
    assert "leads out of the folder" in "".join(proof.contradictions(place, found, 1))
    held.rename(tmp_path / "outside.bin")
    (place / "model.wte.bin").unlink()
    (place / "model.wte.bin").symlink_to("../../outside.bin")
    said = "".join(proof.contradictions(place, found, 1, inside=tmp_path / "models"))
    assert said == "model.wte.bin is a link that leads out of the folder"
    (tmp_path / "outside.bin").unlink()
    assert proof.contradictions(place, found, 1) == ["model.wte.bin is a dangling link"]
    (place / "model.wte.bin").unlink()
    (place / "model.wte.bin").symlink_to("model.wte.bin")
    assert proof.contradictions(place, found, 1) == ["model.wte.bin is a dangling link"]


def test_without_config_ini_release_1_1_reads_config_pbtxt(tmp_path: Path) -> None:
    model = Model("gptj", MODELS.families["gptj"].converters[0])
    place = model.write(tmp_path)
    (place / "config.ini").unlink()
    parameters = {
        "head_num": "4", "size_per_head": "16", "inter_size": "256", "decoder_layers": "2",
        "vocab_size": "96",
    }  # fmt: skip
    assert proof.contradictions(place, described(model), 1) == ["config.ini is missing"]
    assert proof.contradictions(place, described(model), 1, otherwise=parameters) == []
    larger = {**parameters, "inter_size": "512"}
    assert "inter_size = 512" in proof.contradictions(place, described(model), 1, otherwise=larger)[0]
    place = replace(model, data_type="fp16").write(tmp_path / "half")
    (place / "config.ini").unlink()
    assert proof.contradictions(place, described(model), 1, otherwise=parameters) == [
        "all 21 files have half of the bytes: they look like fp16, but config.ini has "
        "gptj.weight_data_type = fp32"
    ]


def test_a_config_ini_without_the_section_is_answered_with_those_that_it_has(tmp_path: Path) -> None:
    place = gpt().write(tmp_path)
    values = {"gptj.head_num": "4", "notes.a": "1", "notes.b": "1"}
    weight_files.write_config(place, values)
    assert wrong(gpt(), place) == "config.ini has no section [gpt], but [gptj], [notes]"
    (place / "config.ini").write_text("")
    assert wrong(gpt(), place) == "config.ini has no section [gpt]"


def test_what_is_wrong_of_the_decoder_is_told_beside_an_encoder_without_a_section(tmp_path: Path) -> None:
    model = Model("t5", MODELS.families["t5"].converters[-1])
    place = model.write(tmp_path)
    decoder = {key: value for key, value in model.values().items() if not key.startswith("encoder.")}
    weight_files.write_config(place, decoder)
    (place / "decoder.final_layer_norm.weight.bin").unlink()
    first, second = wrong(model, place).splitlines()
    assert first == "config.ini has no section [encoder], but [decoder], [structure]"
    assert second.startswith("decoder.final_layer_norm.weight.bin is missing: 256 bytes")


def test_weights_for_another_number_of_gpus_do_not_fit(tmp_path: Path) -> None:
    two = replace(gpt(), gpus=2).write(tmp_path)
    (tmp_path / "1-gpu").mkdir()
    two.rename(tmp_path / "1-gpu")
    assert "weight.0.bin has" in "".join(proof.contradictions(tmp_path / "1-gpu", described(gpt()), 1))
    assert weights.folder_name(1) == "1-gpu"
