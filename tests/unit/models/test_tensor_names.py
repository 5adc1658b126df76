"""Tensors that a checkpoint lacks are named before anything is written, for every family."""

from __future__ import annotations

import json
import pickle
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ftbuild.config import loader
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.models import conversion, conversion_run, tensor_names
from ftbuild.models.conversion import Conversion, ConversionRequest
from ftbuild.models.converters import find_converter
from testing import ROOT
from testing.sample import SAMPLE

# What transformers v4.46.3 saves (recorded_names.py): config.json and the names, by kind.
RECORDED = Path(__file__).with_name("tensor_names.json")
KINDS: dict[str, tuple[dict[str, Any], list[str]]] = {
    kind: (settings, names.split()) for kind, (settings, names) in json.loads(RECORDED.read_text()).items()
}
# Of a GPT-2 of one layer.
ONE_LAYER = [name for name in KINDS["gpt"][1] if ".h.1." not in name]
# Of a head that makes no vectors.
SPARE = ("pooler.dense.weight", "pooler.dense.bias")


def family_of(kind: str, config: Config) -> str:
    return "t5" if kind == "mt5" else max((f for f in config.models.families if kind.startswith(f)), key=len)


def header(names: Iterable[str]) -> bytes:
    """A file of safetensors with a number for each name."""
    tensors = {
        name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * at, 4 * at + 4]}
        for at, name in enumerate(names)
    }
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text + bytes(4 * len(tensors))


def planned(config: Config, folder: Path, kind: str, files: Mapping[str, bytes]) -> Conversion:
    settings, _ = KINDS[kind]
    for name, content in {"config.json": json.dumps(settings).encode(), **files}.items():
        (folder / name).write_bytes(content)
    request = ConversionRequest(family_of(kind, config), folder, folder.parent / "converted")
    return conversion.plan_conversion(config, "22.12", request)


def faults(config: Config, folder: Path, kind: str, names: Iterable[str]) -> tuple[str, ...]:
    return planned(config, folder, kind, {"model.safetensors": header(names)}).tensor_faults


def pickled(file: Path, names: Iterable[str], storage: str = "FloatStorage") -> bytes:
    """What torch.save writes, as far as names and types are concerned."""
    tensors = pickle.dumps(dict.fromkeys(names, 0), protocol=2)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02ctorch\n" + storage.encode() + b"\n0" + tensors[2:])
    content = file.read_bytes()
    file.unlink()
    return content


@pytest.mark.parametrize("kind", KINDS)
def test_what_transformers_saves_is_whole(kind: str, config: Config, tmp_path: Path) -> None:
    assert faults(config, tmp_path, kind, KINDS[kind][1]) == ()


@pytest.mark.parametrize("kind", KINDS)
def test_every_tensor_that_is_missing_is_named(kind: str, config: Config, tmp_path: Path) -> None:
    _, names = KINDS[kind]
    unnoticed = []
    for name in names:
        if not name.endswith(SPARE):
            found = faults(config, tmp_path, kind, [other for other in names if other != name])
            # Where the saved names have no prefix, those of transformers' whole model are shown.
            begin = "" if kind == "bert" or kind.endswith("-base") else "missing: "
            if len(found) != 1 or not found[0].endswith(f"{begin}{name}"):
                unnoticed.append((name, found))
    assert unnoticed == []


@pytest.mark.parametrize("wrapper", ["_orig_mod.", "module.", "base_model.model."])
@pytest.mark.parametrize("kind", KINDS)
def test_names_below_what_wraps_a_model_are_not_those_of_the_model(
    kind: str, wrapper: str, config: Config, tmp_path: Path
) -> None:
    _, names = KINDS[kind]
    (found,) = faults(config, tmp_path, kind, [f"{wrapper}{name}" for name in names])
    assert "tensors of the model are missing" in found
    assert f"(it has '{wrapper}" in found


def test_the_names_in_a_pickle_are_read_without_running_it(config: Config, tmp_path: Path) -> None:
    _, names = KINDS["gptneox"]
    for held, missing in ((names, ()), (names[1:], ("embed_out.weight",))):
        files = {"pytorch_model.bin": pickled(tmp_path / "file", held)}
        found = planned(config, tmp_path, "gptneox", files).tensor_faults
        assert len(found) == len(missing)
        assert all(one.endswith(name) for one, name in zip(found, missing, strict=True))


@pytest.mark.parametrize("ending", [".gamma .beta", ".weight .bias"])
def test_norms_may_have_their_names_of_tensorflow(ending: str, config: Config, tmp_path: Path) -> None:
    weight, bias = ending.split()
    _, names = KINDS["bert"]
    older = [
        name.replace("Norm.weight", f"Norm{weight}").replace("Norm.bias", f"Norm{bias}") for name in names
    ]
    assert faults(config, tmp_path, "bert", older) == ()


def test_a_head_that_is_the_table_need_not_be_there(config: Config, tmp_path: Path) -> None:
    _, names = KINDS["llama"]
    without = [name for name in names if name != "lm_head.weight"]
    assert faults(config, tmp_path, "llama-tied", without) == ()
    assert faults(config, tmp_path, "llama", without)[0].endswith("missing: lm_head.weight")


def test_any_name_of_t5_s_table_will_do(config: Config, tmp_path: Path) -> None:
    _, names = KINDS["t5"]
    for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"):
        assert faults(config, tmp_path, "t5", [*names[:-1], name]) == ()
    assert names[-1] == "shared.weight"


def test_a_tensor_in_two_files_is_refused(config: Config, tmp_path: Path) -> None:
    _, names = KINDS["gpt"]
    index = {"weight_map": dict.fromkeys(names, "1.safetensors") | {names[0]: "2.safetensors"}}
    files = {
        "model.safetensors.index.json": json.dumps(index).encode(),
        "1.safetensors": header(names),
        "2.safetensors": header(names[:1]),
    }
    (found,) = planned(config, tmp_path, "gpt", files).tensor_faults
    assert found == f"'{names[0]}' is in 1.safetensors and in 2.safetensors, and only one can count"


def test_a_conversion_without_all_tensors_ends_before_it_begins(config: Config, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    found = planned(config, folder, "llama", {"model.safetensors": header(KINDS["llama"][1][1:])})
    assert (
        "  refused     1 of 21 tensors of the model are missing: lm_head.weight"
        in found.render().splitlines()
    )
    nothing: Any = None  # no engine is asked
    with pytest.raises(ConfigError, match="tensors of the model are missing: lm_head") as caught:
        conversion_run.convert(nothing, found, "", print)
    assert caught.value.where == str(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_every_family_is_recorded(config: Config) -> None:
    assert {family_of(kind, config) for kind in KINDS} == set(config.models.families)


@pytest.mark.parametrize("family", ["gpt", "mpt", "gptj", "gptneox", "t5"])
def test_a_family_of_the_sample_is_left_to_its_converter(family: str, tmp_path: Path) -> None:
    """Its models read sizes and a few tensors alone, and its configuration knows fewer numbers."""
    sample = loader.load(SAMPLE)
    settings = {**KINDS[family][0], "tie_word_embeddings": False}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "model.safetensors").write_bytes(header(["transformer.wte.weight", "h.0.more.weight"]))
    request = ConversionRequest(family, tmp_path, tmp_path / "out")
    planned = conversion.plan_conversion(sample, "22.12", request)
    assert planned.tensor_faults == ()
    assert not any("does not use" in warning for warning in planned.warnings)


def test_a_pickle_with_int8_is_quantized_and_one_with_masks_is_not(config: Config, tmp_path: Path) -> None:
    _, names = KINDS["gptj"]
    for storage, faulty in (("CharStorage", True), ("ByteStorage", False), ("BFloat16Storage", False)):
        files = {"pytorch_model.bin": pickled(tmp_path / "file", names, storage)}
        found = planned(config, tmp_path, "gptj", files).tensor_faults
        assert found == (
            ("pytorch_model.bin has tensors of int8: the weights are quantized",) if faulty else ()
        )


# A tensor that a layer of the family could have, and does not; of its first layer.
EXTRA = {
    "gpt": "transformer.h.0.attn.q_norm.weight", "opt": "model.decoder.layers.0.fc3.weight",
    "bloom": "transformer.h.0.mlp.gate.weight", "mpt": "transformer.blocks.0.attn.Wqkv.bias",
    "gptj": "transformer.h.0.attn.q_proj.bias", "codegen": "transformer.h.0.attn.qkv_proj.bias",
    "gptneox": "gpt_neox.layers.0.attention.q_norm.weight", "t5": "decoder.block.0.layer.0.lora_A.weight",
    "mt5": "encoder.block.0.layer.1.DenseReluDense.wi.weight",
    "llama": "model.layers.0.self_attn.q_proj.bias", "bert": "encoder.layer.0.adapter.weight",
    "t5-encoder": "encoder.block.0.layer.0.lora_A.weight",
}  # fmt: skip


def told(config: Config, folder: Path, kind: str, *more: str) -> list[str]:
    files = {"model.safetensors": header([*KINDS[kind][1], *more])}
    return [line for line in planned(config, folder, kind, files).warnings if "does not use" in line]


@pytest.mark.parametrize("kind", EXTRA)
def test_tensors_of_layers_that_nothing_reads_are_told(kind: str, config: Config, tmp_path: Path) -> None:
    (line,) = told(config, tmp_path, kind, EXTRA[kind])
    assert line.endswith(EXTRA[kind].removeprefix("transformer.")[-20:])
    deeper = [name.replace(".1.", ".2.", 1) for name in KINDS[kind][1] if ".1." in name]
    assert " more" in told(config, tmp_path, kind, *(set(deeper) - set(KINDS[kind][1])))[0]


@pytest.mark.parametrize("kind", KINDS)
def test_masks_and_positions_of_older_versions_are_no_matter(
    kind: str, config: Config, tmp_path: Path
) -> None:
    buffers = (
        "transformer.h.0.attn.bias", "h.1.attn.masked_bias", "transformer.h.0.attn.causal_mask",
        "gpt_neox.layers.0.attention.bias", "gpt_neox.layers.0.attention.masked_bias",
        "gpt_neox.layers.1.attention.rotary_emb.inv_freq", "model.layers.0.self_attn.rotary_emb.inv_freq",
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight", "embeddings.position_ids",
        "cls.predictions.bias", "lm_head.extra",
    )  # fmt: skip
    assert told(config, tmp_path, kind, *buffers) == []


def test_whatever_counts_names_counts_weight_files_too_whose_number_is_limited() -> None:
    """Else a number in config.json would make names without an end before anything refuses it."""
    config = loader.load(ROOT / "buildcfg")
    for release in config.matrix.releases:
        for family in config.models.served(config.version(release, "ft") or ""):
            if needed := tensor_names._FAMILIES.get(family):
                switched = (name for names in needed.when.values() for name in names)
                names = [*needed.names, *needed.outside, *switched]
                files = find_converter(config, release, family).files
                assert counters(names) <= counters(files), (release, family)


def counters(patterns: Iterable[str]) -> set[str]:
    return {name for pattern in patterns for name in re.findall(r"{(\w+)}", pattern)}
