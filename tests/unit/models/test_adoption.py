"""Weights that other programs converted: what they are, what must be asked for, and that they are served."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ftbuild.config import loader
from ftbuild.config.checkpoints import Converter
from ftbuild.errors import ConfigError
from ftbuild.models import adoption, config_ini, config_pbtxt, proof, repository
from ftbuild.models.adoption import Adoption
from ftbuild.models.repository import RepositoryOptions
from ftbuild.sm import Sm
from ftserve import requirements
from ftserve.deployment import Options, decide
from ftserve.image_choice import Image
from testing import ROOT, foreign_weights, weight_files
from testing.weight_files import FACTS, Model

MODELS = loader.own_models()
TYPES = {
    name: of.loading.model_type for name, of in MODELS.families.items() if of.loading and of.tensors
}  # those of text
# FasterTransformer's, which no file tells.
DEFAULTS = {
    "gpt.has_positional_encoding": "1", "gpt.activation_type": "Gelu", "gpt.layernorm_type": "pre_layernorm",
    "decoder.tie_word_embeddings": "1",
}  # fmt: skip
IDS = {"start_id": "94", "end_id": "95"}


def template(family: str) -> dict[str, str]:
    text = (
        'name: "fastertransformer" backend: "fastertransformer" max_batch_size: 8\n'
        "model_transaction_policy { decoupled: False }\n"
        'input [ { name: "input_ids" data_type: TYPE_UINT32 dims: [ -1 ] } ]\n'
        'output [ { name: "output_ids" data_type: TYPE_UINT32 dims: [ -1, -1 ] } ]\n'
        "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
    )
    parameters = {"tensor_para_size": "1", "data_type": "fp16", "model_type": TYPES[family]}
    parameters["model_checkpoint_path"] = "/data/models"
    lines = [f'parameters {{ key: "{k}" value: {{ string_value: "{v}" }} }}\n' for k, v in parameters.items()]
    return {config_pbtxt.MODEL: text + "".join(lines)}


def adopted(folder: Path, options: Mapping[str, str] | None = None, **others: object) -> Adoption:
    return adoption.adopt(folder, MODELS, options=options, **others)  # type: ignore[arg-type]


def served(found: Adoption, out: Path) -> dict[str, str]:
    """Make the repository of adopted weights, see that it can be served, and return its config.ini."""
    options = RepositoryOptions(found.family, found.folder, out, bare=True)
    made = repository.adopt(template(found.family), options, found)
    needs = requirements.read(made.folder, MODELS)
    assert [weights.defects for weights in needs.weights] == [()]
    image = Image("triton_with_ft:22.12-sm80", "22.12", (Sm(80),), "open")
    assert decide(Options(models=out), needs, image, "gpu").gpus == tuple(range(found.gpus))
    assert {path.name for path in out.parent.iterdir() if path.name.startswith(".")} == set()
    return config_ini.all_values(out / f"fastertransformer/1/{found.gpus}-gpu" / "config.ini")


def keys_of(family: str, section: str = "") -> set[str]:
    found = MODELS.families[family].loading
    assert found
    return {key for part in found.parts for key in part.keys if key.startswith(section)}


def in_order(family: str) -> list[str]:
    found = MODELS.families[family].loading
    assert found
    return list(dict.fromkeys(key for part in found.parts for key in (*part.keys, *part.more_keys)))


def without_config(family: str, place: Path) -> Path:
    """Write a model of the family's newest converter, and take its config.ini away."""
    made = Model(family, MODELS.families[family].converters[-1]).write(place)
    (made / config_ini.FILE).unlink()
    return made


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize("data_type", ["fp32", "fp16"])
@pytest.mark.parametrize(
    "below", ["", "fastertransformer", "fastertransformer/1", "fastertransformer/1/{}-gpu"]
)
def test_fauxpilots_folder_is_a_gptj(tmp_path: Path, gpus: int, data_type: str, below: str) -> None:
    folder = foreign_weights.fauxpilot(tmp_path / "codegen-350M-mono", gpus, data_type)
    before = {file: file.read_bytes()[:100] for file in folder.rglob("*") if file.is_file()}
    found = adopted(folder / below.format(gpus))
    assert (found.family, found.gpus) == ("gptj", gpus)
    values = served(found, tmp_path / "models")
    wanted = {
        "head_num": "4", "size_per_head": "16", "inter_size": "256", "num_layer": "2", "vocab_size": "96",
        "rotary_embedding": "8", "start_id": "94", "end_id": "95", "weight_data_type": data_type,
        "layernorm_eps": "1e-05",
    }  # fmt: skip
    assert {f"gptj.{key}": value for key, value in wanted.items()}.items() <= values.items()
    assert not [key for key in values if key.startswith("gpt.")]
    # What it was made of stays as it was, and takes no second place.
    assert {file: file.read_bytes()[:100] for file in folder.rglob("*") if file.is_file()} == before
    held = tmp_path / f"models/fastertransformer/1/{gpus}-gpu/model.wte.bin"
    assert held.samefile(folder / f"fastertransformer/1/{gpus}-gpu/model.wte.bin")


def test_what_was_concluded_from_what_is_said(tmp_path: Path) -> None:
    text = adopted(foreign_weights.fauxpilot(tmp_path / "m")).render()
    assert "m/fastertransformer/1/1-gpu: gptj, split for 1 GPU, by the names of the files\n" in text
    assert re.search(r"gptj.head_num = 4 +config.ini, \[gpt\] n_head = 4\n", text)
    assert re.search(r"gptj.size_per_head = 16 +sizes of the files, and gptj.head_num\n", text)
    assert re.search(r"gptj.inter_size = 256 +sizes of the files\n", text)
    assert re.findall(r"^  (\S+) = ", text, re.MULTILINE) == in_order("gptj")


@pytest.mark.parametrize(
    ("make", "family", "options", "missing"),
    [
        (foreign_weights.gpt_of_5_0, "gpt", {}, []),
        (foreign_weights.megatron_of_5_0, "gpt", IDS, ["gpt.start_id", "gpt.end_id"]),
        (foreign_weights.nemo_of_5_0, "gpt", IDS, ["gpt.start_id", "gpt.end_id"]),
        (foreign_weights.nemo_of_5_3, "gpt", {}, []),
        (foreign_weights.gptj_of_5_0, "gptj", {}, []),
        (foreign_weights.t5_of_5_0, "t5", {}, []),
        (
            foreign_weights.gpt_neox_of_hugging_face, "gptneox", {}, [],
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("gpus", [1, 2])
def test_weights_of_older_converters_are_served(
    make: Callable[..., Path],
    family: str,
    options: Mapping[str, str],
    missing: list[str],
    gpus: int,
    tmp_path: Path,
) -> None:
    if make is foreign_weights.gpt_neox_of_hugging_face and gpus == 2:
        pytest.skip("one GPU is enough")
    made = (
        make(tmp_path / "w")
        if make is foreign_weights.gpt_neox_of_hugging_face
        else make(tmp_path / "w", gpus)
    )
    if missing:
        with pytest.raises(ConfigError, match=r"neither the files nor config\.ini") as asked:
            adopted(made)
        assert asked.value.hint == " ".join(f"--ini {key}=VALUE" for key in missing)
        assert all(key in asked.value.what for key in missing)
    found = adopted(made, options)
    assert found.family == family
    values = served(found, tmp_path / "models")
    assert keys_of(family) <= values.keys()
    sizes = {
        "gpt.inter_size": "256",
        "gptj.inter_size": "256",
        "gptneox.inter_size": "256",
        "encoder.d_ff": "256",
    }
    assert sizes.items() & values.items()


def test_relative_positions_of_release_1_1_are_called_so(tmp_path: Path) -> None:
    values = served(adopted(foreign_weights.t5_of_5_0(tmp_path / "w")), tmp_path / "models")
    assert values["structure.position_embedding_type"] == "relative"


def all_models() -> list[object]:
    return [
        pytest.param(family, converter, id=f"{family}-{converter.ft}-{number}")
        for family, of in MODELS.families.items()
        for number, converter in enumerate(of.converters)
        if MODELS.template(family) in TYPES
    ]


@pytest.mark.parametrize(("family", "converter"), all_models())
def test_what_our_own_converters_write_is_adopted_unchanged(
    family: str, converter: Converter, tmp_path: Path
) -> None:
    model = Model(family, converter)
    found = adopted(model.write(tmp_path / "w"))
    assert found.family == MODELS.template(family)
    assert model.values().items() <= served(found, tmp_path / "models").items()


def asked_for(place: Path, options: Mapping[str, str], family: str) -> list[str]:
    """The keys that adopting asks for; none when it has all."""
    try:
        adopted(place, options, family=family)
    except ConfigError as asked:
        return re.findall(r"--ini (\S+)=VALUE", asked.hint or "")
    return []


@pytest.mark.parametrize(("family", "converter"), all_models())
def test_a_model_without_config_ini_is_asked_for_what_no_file_tells(
    family: str, converter: Converter, tmp_path: Path
) -> None:
    """What is asked for is enough, and what is not asked for is what config.ini had."""
    model = Model(family, converter, gpus=2, data_type="fp16")
    place = model.write(tmp_path / "w")
    told = {key: found.value for key, found in adopted(place).concluded.items()}
    values = {**DEFAULTS, **told}
    (place / "config.ini").unlink()
    options: dict[str, str] = {}
    # Where only a product is known, it asks for one factor after the other.
    while wanted := asked_for(place, options, MODELS.template(family)):
        assert not set(wanted) & set(options)
        options |= {key: values[key] for key in wanted}
    found = adopted(place, options, family=MODELS.template(family))
    # Their number is asked for, never guessed: no file tells how many heads there are.
    assert {key.partition(".")[2] for key in options} & {"head_num", "num_heads", "size_per_head"}
    made = served(found, tmp_path / "models")
    # A name, and what only the backend reads of a model without a table of positions.
    others = {"model_name", "_name_or_path", *(["max_pos_seq_len"] if family in ("bloom", "mpt") else [])}
    for key in keys_of(found.family):
        if key.partition(".")[2] not in others:
            assert made[key] == values[key], key


def test_keys_are_told_in_the_order_of_the_family_wherever_they_are_from(tmp_path: Path) -> None:
    model = Model("t5", MODELS.families["t5"].converters[-1])
    place = model.write(tmp_path)
    values = {key: value for key, value in model.values().items() if key != "structure.use_gated_activation"}
    weight_files.write_config(place, values)
    concluded = adopted(place).concluded
    assert concluded["structure.use_gated_activation"].source == "files that are there, or not"
    assert list(concluded) == [key for key in in_order("t5") if key in concluded]


WORDS = "geglu or gated-gelu or reglu or gated-relu or siglu or gated-silu"
HEADS_OF = "the files tell {0}.head_num * {0}.size_per_head = 64"


@pytest.mark.parametrize(
    ("family", "served_as", "missing"),
    [
        (
            "bloom", "gpt",
            {
                "gpt.head_num": HEADS_OF.format("gpt"), "gpt.size_per_head": HEADS_OF.format("gpt"),
                "gpt.start_id": "", "gpt.end_id": "", "gpt.use_attention_linear_bias": "",
                "gpt.activation_type": "", "gpt.layernorm_type": "",
            },
        ),
        (
            "llama", "gptneox",
            {
                "gptneox.head_num": HEADS_OF.format("gptneox"),
                "gptneox.size_per_head": HEADS_OF.format("gptneox"), "gptneox.rotary_embedding": "",
                "gptneox.start_id": "", "gptneox.end_id": "",
                "gptneox.activation_type": f"{WORDS}, by the files that are there",
            },
        ),
    ],
)  # fmt: skip
def test_what_no_file_tells_is_asked_for_in_one_message(
    family: str, served_as: str, missing: Mapping[str, str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as asked:
        adopted(without_config(family, tmp_path), family=served_as)
    lines = [f"{key}: {known}" if known else key for key, known in missing.items()]
    first = "neither the files nor config.ini nor config.pbtxt tell:"
    assert asked.value.what == "\n    ".join([first, *lines])
    assert asked.value.hint == " ".join(f"--ini {key}=VALUE" for key in missing)


def test_what_says_nothing_in_config_json_says_nothing_here(tmp_path: Path) -> None:
    folder = foreign_weights.fauxpilot(tmp_path / "m")
    place = folder / "fastertransformer/1/1-gpu"
    said = {
        "pruned_heads": "{}",
        "is_encoder_decoder": "False",
        "quantization_config": "None",
        "auto_map": "",
    }
    foreign_weights.replace_config(place, "gpt", {**config_ini.read(place).values, **said})
    assert adopted(folder).family == "gptj"


@pytest.mark.parametrize(
    ("change", "what", "hint"),
    [
        ({"n_layer": 3}, "there are files of 2 layers", "--ini gptj.num_layer=2"),
        ({"vocab_size": 500}, "model.wte.bin has 24576 bytes, not 128000", "--ini gptj.vocab_size=96"),
        ({"n_inner": 128}, "dense_h_to_4h", "--ini gptj.inter_size=256"),
        ({"weight_data_type": "fp16"}, "twice the bytes", "--ini gptj.weight_data_type=fp32"),
        ({"activation_function": "relu"}, "activation_function is relu", "whatever config.ini says"),
        ({"add_cross_attention": "True"}, "add_cross_attention is True", "whatever config.ini says"),
        (
            {"quantization_config": "{'bits': 4}"},
            "FasterTransformer assumes None",
            "whatever config.ini says",
        ),
        ({"rotary_dim": "7"}, "7 values of a head are rotated", ""),
        ({"scale_attn_weights": False}, "scale_attn_weights is False", "whatever config.ini says"),
        ({"n_head": 5}, "gptj.head_num * gptj.size_per_head = 64", "--ini gptj.size_per_head=VALUE"),
        ({"n_head": "x"}, "head_num is 'x'", ""),
        ({"rotary_dim": None, "n_head": None}, None, ""),
    ],
)
def test_what_config_ini_says_must_fit_the_files(
    change: Mapping[str, object], what: str | None, hint: str, tmp_path: Path
) -> None:
    folder = foreign_weights.fauxpilot(tmp_path / "m")
    place = folder / "fastertransformer/1/1-gpu"
    keys = config_ini.read(place).values
    foreign_weights.replace_config(place, "gpt", {**keys, **change})
    if what is None:  # config.pbtxt tells
        found = adopted(folder)
        assert found.concluded["gptj.head_num"].source == "config.pbtxt, head_num"
        assert found.concluded["gptj.rotary_embedding"].value == "8"
        return
    if "n_head" in change:
        (folder / "fastertransformer/config.pbtxt").unlink()
    with pytest.raises(ConfigError) as refused:
        adopted(folder)
    assert what in refused.value.what
    assert hint in (refused.value.hint or "")
    if options := re.findall(r"--ini (\S+)=(\d\S*|fp\d+)", refused.value.hint or ""):
        assert adopted(folder, dict(options)).family == "gptj"


def test_files_of_bf16_are_as_large_as_those_of_fp16(tmp_path: Path) -> None:
    folder = foreign_weights.fauxpilot(tmp_path / "m", data_type="fp16")
    place = folder / "fastertransformer/1/1-gpu"
    keys = {**config_ini.read(place).values, "weight_data_type": "bf16"}
    foreign_weights.replace_config(place, "gpt", keys)
    assert adopted(folder).concluded["gptj.weight_data_type"].value == "bf16"
    foreign_weights.replace_config(place, "gpt", {**keys, "n_layer": 3})
    with pytest.raises(ConfigError) as refused:
        adopted(folder)
    assert refused.value.hint == "if the files are right: --ini gptj.num_layer=2"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("head_num", "is not KEY=VALUE"), ("=3", "is not KEY=VALUE"), ("a b=3", "is not KEY=VALUE"),
        ("head_num=", "is not KEY=VALUE"), ("heads=3", "heads: gptj reads no such key"),
        ("gpt.head_num=4", "gpt.head_num: gptj reads no such key"),
    ],
)  # fmt: skip
def test_an_option_that_no_key_takes_is_refused(text: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(what)):
        adopted(foreign_weights.fauxpilot(tmp_path / "m"), adoption.parse_options([text]))


def test_an_option_comes_before_what_config_ini_says(tmp_path: Path) -> None:
    found = adopted(
        foreign_weights.fauxpilot(tmp_path / "m"), adoption.parse_options(["end_id=7", "gptj.start_id=8"])
    )
    assert (found.config["gptj"]["end_id"], found.config["gptj"]["start_id"]) == ("7", "8")


def test_files_that_are_missing_or_cut_are_refused(tmp_path: Path) -> None:
    folder = foreign_weights.fauxpilot(tmp_path / "m", gpus=2)
    place = folder / "fastertransformer/1/2-gpu"
    file = place / "model.layers.1.attention.dense.weight.1.bin"
    size = file.stat().st_size
    weight_files.sparse(place, [(file.name, size // 2)])
    with pytest.raises(ConfigError, match=re.escape(f"{file.name} has {size // 2} bytes, not {size}")):
        adopted(folder)
    file.unlink()
    with pytest.raises(ConfigError, match=re.escape(f"{file.name} is missing")):
        adopted(folder)
    for bias in place.glob("model.lm_head.bias.bin"):
        bias.unlink()
    with pytest.raises(ConfigError, match=r"gptj is nearest, but there is no model\.lm_head\.bias\.bin"):
        adopted(folder)


def test_where_files_contradict_each_other_no_option_helps(tmp_path: Path) -> None:
    folder = foreign_weights.fauxpilot(tmp_path / "m")
    file = folder / "fastertransformer/1/1-gpu/model.final_layernorm.weight.bin"
    weight_files.sparse(file.parent, [(file.name, file.stat().st_size - 4)])
    with pytest.raises(ConfigError, match=r"model\.final_layernorm\.weight\.bin has 252 bytes") as refused:
        adopted(folder)
    assert refused.value.hint == "copy or convert the weights again"


def test_a_folder_with_several_weights_asks_which(tmp_path: Path) -> None:
    for gpus in (1, 2):
        foreign_weights.gpt_of_5_0(tmp_path / "w", gpus)
    with pytest.raises(ConfigError, match="2 folders of weights, which\\?: 1-gpu, 2-gpu") as refused:
        adopted(tmp_path / "w")
    assert "choose with --gpus" in (refused.value.hint or "")
    assert adopted(tmp_path / "w", gpus=2).gpus == 2
    with pytest.raises(ConfigError, match="0 of them for 4 GPUs"):
        adopted(tmp_path / "w", gpus=4)


def test_the_number_of_gpus_is_that_of_the_shares(tmp_path: Path) -> None:
    place = foreign_weights.gpt_of_5_0(tmp_path / "w", 2)
    named = place.rename(tmp_path / "w" / "final")
    assert adopted(named).gpus == 2
    with pytest.raises(ConfigError, match="name has 4 GPUs, the names of its files 2"):
        adopted(named.rename(tmp_path / "w" / "4-gpu"))


def test_where_no_weights_are_it_says_what_to_look_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        adopted(tmp_path / "none")
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(ConfigError, match="no weight files of FasterTransformer") as refused:
        adopted(tmp_path / "checkpoint")
    assert "invoke convert" in (refused.value.hint or "")
    foreign_weights.config_pbtxt(tmp_path / "checkpoint", {"model_checkpoint_path": "/data/w/1-gpu"})
    with pytest.raises(ConfigError, match="no weight files") as refused:
        adopted(tmp_path / "checkpoint")
    assert refused.value.hint == "config.pbtxt says that they are in /data/w/1-gpu: --adopt that folder"


def test_files_that_fit_two_families_are_told_by_the_section(tmp_path: Path) -> None:
    serial = foreign_weights.model("gptneox", parallel=0)
    place = serial.write(tmp_path / "w")
    found = adopted(place)
    assert (found.family, found.because) == ("gptneox", "names of the files, and the section of config.ini")
    (place / "config.ini").unlink()
    with pytest.raises(ConfigError, match="fit gpt and gptneox") as refused:
        adopted(place)
    assert refused.value.hint == "--model gpt or --model gptneox"


def test_another_family_than_the_files_are_of_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="those of gptj, not of gpt") as refused:
        adopted(foreign_weights.fauxpilot(tmp_path / "m"), family="gpt")
    assert refused.value.hint == "leave out --model"


def test_a_link_among_the_weights_is_refused(tmp_path: Path) -> None:
    folder = foreign_weights.fauxpilot(tmp_path / "m")
    file = folder / "fastertransformer/1/1-gpu/model.wte.bin"
    file.rename(tmp_path / "wte")
    file.symlink_to(tmp_path / "wte")
    with pytest.raises(ConfigError):
        served(adopted(folder), tmp_path / "models")
    assert not (tmp_path / "models").exists()


def test_the_sample_adopts_it_as_well(tmp_path: Path) -> None:
    """Its GPT-J has three of upstream's files."""
    folder = foreign_weights.fauxpilot(tmp_path / "m", gpus=2)
    found = adoption.adopt(folder, loader.load(ROOT / "buildcfg/sample").models)
    assert (found.family, found.gpus) == ("gptj", 2)
    options = RepositoryOptions("gptj", found.folder, tmp_path / "models", bare=True)
    assert repository.adopt(template("gptj"), options, found).gpus == 2


def test_facts_of_the_fixture_are_those_of_a_model(tmp_path: Path) -> None:
    assert FACTS["hidden"] == FACTS["heads"] * FACTS["head_size"]
    found = MODELS.families["gptj"].loading
    assert found
    place = foreign_weights.model("gptj").write(tmp_path)
    assert proof.contradictions(place, found, 1) == []
