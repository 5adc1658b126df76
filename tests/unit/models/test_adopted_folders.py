"""Folders of adopted weights: where they are looked for, what is told of them, what is made of them."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from ftbuild.config import loader
from ftbuild.errors import ConfigError
from ftbuild.models import adoption, config_ini, repository
from ftbuild.models.adoption import Adoption
from ftbuild.models.repository import RepositoryOptions
from testing import foreign_weights, weight_files
from tests.unit.models.test_repository import BARE

MODELS = loader.own_models()
TEMPLATES = {"fastertransformer": BARE}


def adopted(folder: Path) -> Adoption:
    return adoption.adopt(folder, MODELS)


def refusal(folder: Path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        adopted(folder)
    return caught.value


@pytest.fixture
def found(tmp_path: Path) -> Adoption:
    """GPT-J's weights for two GPUs."""
    return adopted(foreign_weights.fauxpilot(tmp_path / "m", gpus=2))


@pytest.fixture
def options(found: Adoption, tmp_path: Path) -> RepositoryOptions:
    return RepositoryOptions(found.family, found.folder, tmp_path / "models", bare=True)


def test_weights_are_found_three_folders_deep_and_no_deeper(tmp_path: Path) -> None:
    place = foreign_weights.gpt_of_5_0(tmp_path / "x/model/1")
    assert adopted(tmp_path / "x").folder == place
    assert "no weight files of FasterTransformer here" in refusal(tmp_path).what


def test_a_thousand_folders_are_looked_through_and_no_more(tmp_path: Path) -> None:
    for number in range(999):
        (tmp_path / str(number)).mkdir()
    assert "no weight files of FasterTransformer here" in refusal(tmp_path).what
    (tmp_path / "999").mkdir()
    error = refusal(tmp_path)
    assert (error.what, error.hint) == ("more than 1000 folders", "--adopt the weights' own folder")


def test_of_many_folders_of_weights_the_first_are_named(tmp_path: Path) -> None:
    for letter in "abcdef":
        (tmp_path / letter).mkdir()
        (tmp_path / letter / "model.wte.bin").touch()
    assert refusal(tmp_path).what == "there are 6 folders of weights, which?: a, b, c, d, e"


def test_of_many_missing_files_the_first_are_named(tmp_path: Path) -> None:
    (tmp_path / "model.wte.bin").touch()
    layer = "model.layers.{layers}"
    assert refusal(tmp_path).what == (
        "these are not all files of a family; gpt is nearest, but there is no "
        f"{layer}.input_layernorm.weight.bin, {layer}.input_layernorm.bias.bin, "
        f"{layer}.attention.query_key_value.bias.{{gpus}}.bin"
    )


def test_an_unknown_key_is_answered_with_those_of_the_family(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        adoption.adopt(foreign_weights.gpt_of_5_0(tmp_path), MODELS, options={"heads": "4"})
    assert caught.value.what == "--ini heads: gpt reads no such key"
    assert caught.value.hint == (
        "it reads model_name, head_num, size_per_head, inter_size, num_layer, vocab_size, max_pos_seq_len, "
        "start_id, end_id, weight_data_type, layernorm_eps, activation_type"
    )


def test_what_fastertransformer_reads_by_itself_may_differ_from_what_it_assumes(tmp_path: Path) -> None:
    place = foreign_weights.gpt_of_5_0(tmp_path)
    keys = {**config_ini.read(place).values, "activation_function": "relu", "tie_word_embeddings": "False"}
    foreign_weights.replace_config(place, "gpt", keys)
    weight_files.sparse(place, [("model.lm_head.weight.bin", (place / "model.wte.bin").stat().st_size)])
    concluded = adopted(place).concluded
    assert concluded["gpt.activation_type"].value == "relu"
    assert concluded["gpt.tie_word_embeddings"].value == "False"


def test_a_long_value_moves_no_other_line(tmp_path: Path) -> None:
    place = foreign_weights.gpt_of_5_0(tmp_path)
    name = "x" * 70
    foreign_weights.replace_config(place, "gpt", {**config_ini.read(place).values, "model_name": name})
    _, long, *others = adopted(place).render().splitlines()
    assert long == f"  gpt.model_name = {name}  config.ini, [gpt] model_name = {name}"
    sources = [re.split(r"  +", line)[2] for line in others]
    assert [line.index(source) for line, source in zip(others, sources, strict=True)] == [62 + 2] * len(
        others
    )


def test_adopted_weights_are_served_as_what_they_are_whatever_the_options_say(
    found: Adoption, tmp_path: Path
) -> None:
    options = RepositoryOptions("gpt", tmp_path, tmp_path / "models", gpus=1, bare=True)
    made = repository.adopt(TEMPLATES, options, found)
    assert (made.gpus, made.models) == (2, ("fastertransformer",))
    written = config_ini.all_values(made.folder / "fastertransformer/1/2-gpu/config.ini")
    assert written["gptj.tensor_para_size"] == "2"


def test_a_link_beside_the_weights_is_refused_before_they_are_copied(
    found: Adoption, options: RepositoryOptions
) -> None:
    (found.folder / "notes").symlink_to("config.ini")
    with pytest.raises(ConfigError, match="'notes' is neither a file nor a folder, but a link") as refused:
        repository.adopt(TEMPLATES, options, found)
    assert refused.value.hint == "adopt a folder with the files themselves"


def test_nothing_is_staged_for_an_output_that_cannot_be(
    found: Adoption, options: RepositoryOptions, tmp_path: Path
) -> None:
    options.out.mkdir()
    before = tmp_path.stat().st_mtime_ns
    with pytest.raises(ConfigError, match="the output exists"):
        repository.adopt(TEMPLATES, options, found)
    assert tmp_path.stat().st_mtime_ns == before
    nowhere = RepositoryOptions(found.family, found.folder, tmp_path / "none" / "models", bare=True)
    with pytest.raises(ConfigError, match="the parent folder of the output does not exist"):
        repository.adopt(TEMPLATES, nowhere, found)


def test_adopted_weights_are_staged_beside_the_output_where_links_to_them_work(
    found: Adoption, options: RepositoryOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    made = repository.adopt(TEMPLATES, options, found)
    served = made.folder / "fastertransformer/1/2-gpu/model.wte.bin"
    assert served.samefile(found.folder / "model.wte.bin")
