"""The family of a checkpoint, which conversion finds where nobody names it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.models import checkpoint

FAMILIES = {
    "gpt2": "gpt",
    "opt": "opt",
    "bloom": "bloom",
    "mpt": "mpt",
    "gptj": "gptj",
    "codegen": "codegen",
    "gpt_neox": "gptneox",
    "t5": "t5",
    "mt5": "t5",
    "llama": "llama",
    "bert": "bert",
}


def described(folder: Path, **settings: str) -> Path:
    folder.mkdir()
    (folder / checkpoint.CONFIG).write_text(json.dumps(settings))
    return folder


def test_each_family_is_known_by_the_type_of_its_models(config: Config, tmp_path: Path) -> None:
    found = {
        kind: checkpoint.family_of(described(tmp_path / kind, model_type=kind), config.models)
        for kind in FAMILIES
    }
    assert found == FAMILIES


def test_shards_of_mesh_transformer_are_gpt_j(config: Config, tmp_path: Path) -> None:
    folder = described(tmp_path / "step_1", model_type="llama")
    (folder / "shard_0").mkdir()
    assert checkpoint.family_of(folder, config.models) == "gptj"


def test_a_model_of_no_family_is_refused_by_its_type(config: Config, tmp_path: Path) -> None:
    folder = described(tmp_path / "m", model_type="mamba")
    with pytest.raises(ConfigError) as refused:
        checkpoint.family_of(folder, config.models)
    assert refused.value.what == "the checkpoint is a mamba model, which no family supports"
    assert refused.value.where == str(folder / "config.json")
    assert refused.value.hint == f"families: {', '.join(config.models.families)}"


def test_a_link_out_of_the_folder_is_refused_before_anything_is_read(config: Config, tmp_path: Path) -> None:
    folder = described(tmp_path / "m", model_type="gpt2")
    (folder / "other.json").symlink_to("/etc/hostname")
    with pytest.raises(ConfigError, match=r"other\.json.*link"):
        checkpoint.family_of(folder, config.models)


def test_a_byte_order_mark_is_refused_as_transformers_reads_none(config: Config, tmp_path: Path) -> None:
    folder = described(tmp_path / "m", model_type="gpt2")
    file = folder / checkpoint.CONFIG
    file.write_text(file.read_text(), encoding="utf-8-sig")
    with pytest.raises(ConfigError, match="a byte order mark in front of the JSON") as refused:
        checkpoint.family_of(folder, config.models)
    assert (refused.value.where, refused.value.hint) == (str(file), "save it as UTF-8 without that mark")


def test_a_folder_that_is_not_there_is_named(config: Config, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the folder of the checkpoint does not exist") as refused:
        checkpoint.family_of(tmp_path / "none", config.models)
    assert (refused.value.where, refused.value.hint) == (str(tmp_path / "none"), "check --checkpoint")


def test_a_checkpoint_is_a_file_when_its_weights_are_nowhere_else(tmp_path: Path) -> None:
    folder = described(tmp_path / "m", model_type="gpt2")
    found = checkpoint.Checkpoint(folder, {}, {}, (folder / "config.json",))
    assert found.size == len('{"model_type": "gpt2"}')
    assert found.is_file("config.json")
    assert not found.is_file("other.json")
    two = checkpoint.Checkpoint(folder, {}, {}, (folder / "config.json", folder / "other.json"))
    assert not two.is_file("config.json")
