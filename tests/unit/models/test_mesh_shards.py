"""GPT-J's original checkpoint, put together with numpy alone: every number, against Hugging Face's form."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.models import conversion, mesh_shards
from ftbuild.models.conversion import Conversion, ConversionRequest
from testing import mesh_checkpoint
from testing.mesh_checkpoint import SETTINGS

Array = np.ndarray[Any, Any]
# More layers than ten: "layer_10" comes before "layer_2".
DEEP = {**SETTINGS, "n_layer": 12}


def planned(config: Config, folder: Path, release: str = "22.12", **options: Any) -> Conversion:
    request = ConversionRequest("gptj", folder, folder.parent / "out", **options)
    return conversion.plan_conversion(config, release, request)


def refused(config: Config, folder: Path, release: str = "22.12") -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        planned(config, folder, release)
    assert caught.value.exit_code == 2
    return caught.value


def together(found: Conversion) -> dict[str, Array]:
    names = [str(file.relative_to(found.checkpoint.folder)) for file in found.checkpoint.files]
    read = mesh_shards.read(found.checkpoint.folder, names, found.checkpoint.facts["layers"])
    return dict(mesh_shards.put_together(read))


@pytest.mark.parametrize("data_type", [ml_dtypes.bfloat16, np.float16, np.float32])
@pytest.mark.parametrize("settings", [SETTINGS, DEEP], ids=["2-layers", "12-layers"])
def test_every_number_is_the_one_that_hugging_face_has(
    settings: dict[str, Any], data_type: Any, config: Config, tmp_path: Path
) -> None:
    wanted = mesh_checkpoint.write(tmp_path / "step_1", settings, np.dtype(data_type))
    found = together(planned(config, tmp_path / "step_1"))
    assert found.keys() == wanted.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(mesh_shards.as_fp32(array), wanted[name], err_msg=name, strict=True)


def test_bfloat16_becomes_the_very_same_number() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    numbers = bits.view(ml_dtypes.bfloat16).astype(np.float32)
    found = mesh_shards.as_fp32(bits.view(mesh_shards.BFLOAT16))
    np.testing.assert_array_equal(found, numbers)


def test_what_no_sum_is_made_of_stays_as_small_as_it_was(config: Config, tmp_path: Path) -> None:
    mesh_checkpoint.write(tmp_path / "step_1")
    found = together(planned(config, tmp_path / "step_1"))
    sums = {name for name, array in found.items() if array.dtype != mesh_shards.BFLOAT16}
    biases = {f"transformer.h.{layer}.mlp.fc_out.bias" for layer in range(2)}
    assert sums == {"transformer.wte.weight", *biases}


def test_the_checkpoint_is_converted_by_the_releases_own_converter(config: Config, tmp_path: Path) -> None:
    folder = tmp_path / "step_1"
    mesh_checkpoint.write(folder)
    found = planned(config, folder, gpus=2)
    facts = {"layers": 2, "heads": 8, "hidden": 256, "inner": 1024, "rotary": 4, "vocabulary": 48}
    assert found.checkpoint.facts == {**facts, "start": 46, "end": 47}
    first, second = found.commands()
    assert first[:5] == [
        "python3", "/convert/scripts/mesh_shards.py", "huggingface", "/convert/checkpoint",
        "/convert/out/.checkpoint",
    ]  # fmt: skip
    assert sorted(first[5:]) == sorted(str(file.relative_to(folder)) for file in folder.rglob("*.npz"))
    assert second[1].endswith("/huggingface_gptj_ckpt_convert.py")
    assert second[-1] == "2"
    assert found.relayout_script
    assert found.relayout_script.is_file()


GPTJ_6B = {"hidden": 4096, "inner": 16384, "vocabulary": 50400}


def headers_only(folder: Path, layers: int, facts: dict[str, int]) -> Path:
    """A large checkpoint, of which each file has the headers of its arrays and none of their numbers."""
    tensors = list(mesh_shards.tensors(layers))
    for core in range(8):
        (folder / f"shard_{core}").mkdir(parents=True)
        for part, chosen in enumerate(np.array_split(np.arange(len(tensors)), 16)):
            with zipfile.ZipFile(folder / f"shard_{core}" / f"{part}.npz", "w") as archive:
                for number in chosen:
                    array = np.broadcast_to(np.float16(0), tensors[number].part(facts, 8))
                    with archive.open(f"arr_{number}.npy", "w") as member:
                        header = np.lib.format.header_data_from_array_1_0(array)
                        np.lib.format.write_array_header_1_0(member, header)
    return folder


@pytest.mark.parametrize("release", ["22.03", "22.07", "22.12"])
def test_without_a_config_it_is_gpt_j_6b(release: str, config: Config, tmp_path: Path) -> None:
    folder = headers_only(tmp_path / "step_383500", 28, GPTJ_6B)
    found = planned(config, folder, release, gpus=4)
    assert found.size == 4 * 6_050_882_784
    assert len(found.checkpoint.files) == 8 * 16
    first, second = found.commands()
    (given,) = [word for word in first if word.startswith("--config=")]
    settings = json.loads(given.removeprefix("--config="))
    assert (settings["n_layer"], settings["n_head"], settings["rotary_dim"]) == (28, 16, 64)
    old = release == "22.03"
    assert first[2] == ("named" if old else "huggingface")
    assert second[1].endswith("/gptj_ckpt_convert.py" if old else "/huggingface_gptj_ckpt_convert.py")
    assert second[3] == "/convert/out/.checkpoint" + ("/checkpoint.pt" if old else "")
    assert ("head_num" in found.converter.config["gptj"]) == old, "5.0 writes no config.ini"


def test_the_release_that_knows_gpt_j_6b_only_says_so(config: Config, tmp_path: Path) -> None:
    mesh_checkpoint.write(tmp_path / "step_1")
    error = refused(config, tmp_path / "step_1", "22.03")
    assert "layers is 2; the converter assumes 28 = 28" in error.what
    assert error.hint == "--triton 22.12 can"


def test_a_model_of_another_size_needs_a_config(config: Config, tmp_path: Path) -> None:
    mesh_checkpoint.write(tmp_path / "step_1", configured=False)
    error = refused(config, tmp_path / "step_1")
    assert error.what == "27 arrays, not 286 and the step, of a model with 28 layers"
    assert error.where == str(tmp_path / "step_1" / "shard_0")
    assert "config.json" in (error.hint or "")


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"n_embd": 512}, "transformer.wte.bias has the shape [256], not [512]"),
        ({"vocab_size": 56}, "transformer.wte.weight has the shape [6, 256], not [7, 256]"),
        ({"n_layer": 3}, "27 arrays, not 36 and the step, of a model with 3 layers"),
        ({"n_layer": 2**31 - 1}, "27 arrays, not 21474836476 and the step"),
        ({"model_type": "gpt2"}, "the checkpoint is a gpt2 model, not gptj"),
        ({"rotary_dim": None}, "config.json has no rotary"),
    ],
)
def test_a_config_that_does_not_fit_the_shards_is_refused(
    changed: dict[str, Any], what: str, config: Config, tmp_path: Path
) -> None:
    folder = tmp_path / "step_1"
    mesh_checkpoint.write(folder)
    (folder / "config.json").write_text(json.dumps({**SETTINGS, **changed}))
    assert what in refused(config, folder).what


def test_the_state_of_an_optimizer_is_named(config: Config, tmp_path: Path) -> None:
    mesh_checkpoint.write(tmp_path / "step_1", optimizer=True)
    error = refused(config, tmp_path / "step_1")
    assert error.what == "the checkpoint begins with the state of its optimizer"
    assert "slim_model.py" in (error.hint or "")


def test_every_part_must_be_there_and_whole(config: Config, tmp_path: Path) -> None:
    folder = tmp_path / "step_1"
    mesh_checkpoint.write(folder)
    part = folder / "shard_5" / "1.npz"
    whole = part.read_bytes()
    part.write_bytes(whole[:-30])
    assert "truncated" in refused(config, folder).what
    part.write_bytes(whole.replace(b"NUMPY", b"NUMPI"))
    assert "truncated or damaged" in refused(config, folder).what
    part.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert "Git LFS pointer" in refused(config, folder).what
    part.unlink()
    assert "missing: shard_5/1.npz" in refused(config, folder).what
    for core in range(8):
        (folder / f"shard_{core}" / "notes.npz").write_bytes(whole)
        (folder / f"shard_{core}" / "1.npz").write_bytes(whole)
    assert "'notes.npz' is not part of a checkpoint" in refused(config, folder).what
    shutil.rmtree(folder / "shard_0")
    (folder / "config.json").unlink()
    assert "no checkpoint here" in refused(config, folder).what


def test_it_is_no_other_model(config: Config, tmp_path: Path) -> None:
    mesh_checkpoint.write(tmp_path / "step_1")
    request = ConversionRequest("codegen", tmp_path / "step_1", tmp_path / "out")
    with pytest.raises(ConfigError, match=r"converts no codegen from a checkpoint of Mesh Transformer JAX"):
        conversion.plan_conversion(config, "22.12", request)


def test_shards_that_end_early_end_the_script(tmp_path: Path) -> None:
    mesh_checkpoint.write(tmp_path)
    names = [f"shard_{core}/{part}.npz" for core in range(8) for part in range(16)]
    with pytest.raises(SystemExit, match=r"the checkpoint ends before transformer\.h\.2\.attn"):
        list(mesh_shards.read(tmp_path, [name for name in names if name[-6:] not in ("15.npz", "14.npz")], 3))
