"""What Sentence Transformers' files say of a checkpoint's vectors: followed, or refused by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ftbuild.errors import ConfigError
from ftbuild.models import config_ini, sentence
from ftbuild.models.config_ini import ConvertedModel
from ftbuild.models.sentence import Sentence
from ftbuild.models.vector_models import Pooling, served_pooling

WIDTH = 8
MEAN = Sentence("mean", normalized=True)


def module(kind: str, path: str = "") -> dict[str, Any]:
    owner = "" if "." in kind else "sentence_transformers.models."
    return {"idx": 0, "name": "0", "path": path, "type": f"{owner}{kind}"}


USUAL = (module("Transformer"), module("Pooling", "1_Pooling"), module("Normalize", "2_Normalize"))


def write(folder: Path, pooling: Mapping[str, Any], modules: Any = USUAL, **files: Any) -> Path:
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
    if modules is not None:
        (folder / "modules.json").write_text(json.dumps(modules))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def modes(**true: bool) -> dict[str, Any]:
    """A pooling's config.json as version 3 writes it."""
    names = (
        "cls_token",
        "mean_tokens",
        "max_tokens",
        "mean_sqrt_len_tokens",
        "weightedmean_tokens",
        "lasttoken",
    )
    return {
        "word_embedding_dimension": WIDTH,
        **{f"pooling_mode_{name}": true.get(name, False) for name in names},
    }


@pytest.mark.parametrize(
    ("pooling", "found"),
    [
        (modes(cls_token=True), "cls"),
        (modes(mean_tokens=True), "mean"),
        (modes(max_tokens=True), "max"),
        (modes(mean_sqrt_len_tokens=True), "mean_sqrt_len"),
        (modes(weightedmean_tokens=True), "weightedmean"),
        (modes(lasttoken=True), "lasttoken"),
        (modes(cls_token=True, max_tokens=True), "cls+max"),
        (modes(), "none"),
        # The mean is the default of the class, and stays one beside others.
        ({"word_embedding_dimension": WIDTH}, "mean"),
        ({"pooling_mode_cls_token": True}, "cls+mean"),
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode": "mean_sqrt_len_tokens"}, "mean_sqrt_len"),
        ({"pooling_mode": ["cls"]}, "cls"),
        ({"pooling_mode": ["cls", "max"]}, "cls+max"),
        ({"pooling_mode": 7}, "7"),
        ({"pooling_mode": None}, "mean"),
        ({**modes(mean_tokens=True), "pooling_mode_attention": True}, "mean+pooling_mode_attention"),
    ],
)
def test_a_pooling_is_followed_or_refused_by_name(
    pooling: Mapping[str, Any], found: str, tmp_path: Path
) -> None:
    said = sentence.read(write(tmp_path / "checkpoint", pooling))
    assert said is not None
    assert (said.pooling, said.normalized) == (found, True)
    if found in sentence.SERVED:
        assert served_pooling(Pooling(), said, WIDTH) == (Pooling(found, True), ())  # type: ignore[arg-type]
    else:
        with pytest.raises(ConfigError, match=f"has the pooling {found.replace('+', '.')}") as refused:
            served_pooling(Pooling(), said, WIDTH)
        assert "--pooling mean or cls" in (refused.value.hint or "")


OTHERS: Mapping[str, tuple[Any, Mapping[str, Any], str]] = {
    "a dense layer": (
        (*USUAL[:2], module("Dense", "2_Dense"), USUAL[2]),
        {},
        "has a dense layer behind the pooling",
    ),
    "another module": ((*USUAL[:2], module("LayerNorm", "2_LayerNorm")), {}, "has a module LayerNorm"),
    "code of its own": ((module("custom.Transformer"), *USUAL[1:]), {}, "has a module custom.Transformer"),
    "no pooling": ((USUAL[0], USUAL[2]), {}, "has 0 modules Pooling"),
    "two models": ((USUAL[0], *USUAL), {}, "has 2 modules Transformer"),
    "another order": ((USUAL[0], USUAL[2], USUAL[1]), {}, "in the order Transformer, Normalize, Pooling"),
    "small letters": (USUAL, {"sentence_bert_config": {"do_lower_case": True}}, "has do_lower_case"),
    "prompts that are left out by null": (
        USUAL,
        {
            "config_sentence_transformers": {"prompts": {"query": "query: "}},
            "1_Pooling/config": {**modes(mean_tokens=True), "include_prompt": None},
        },
        "leaves the tokens of prompts out",
    ),
    "prompts that are left out": (
        USUAL,
        {"config_sentence_transformers": {"prompts": {"query": "query: "}}},
        "leaves the tokens of prompts out",
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_not_computed_is_refused_unless_a_pooling_is_chosen(case: str, tmp_path: Path) -> None:
    modules, files, what = OTHERS[case]
    said = sentence.read(
        write(tmp_path / "in", {**modes(mean_tokens=True), "include_prompt": False}, modules, **files)
    )
    assert said is not None
    with pytest.raises(ConfigError, match=what):
        served_pooling(Pooling(), said, WIDTH)
    _, warnings = served_pooling(Pooling("mean"), said, WIDTH)
    assert [one for one in warnings if one.startswith("not served: ") and what in one]


def test_vectors_have_a_length_as_the_checkpoint_says(tmp_path: Path) -> None:
    said = sentence.read(write(tmp_path / "in", modes(mean_tokens=True), USUAL[:2]))
    assert said is not None
    assert served_pooling(Pooling(), said, WIDTH)[0].normalized is False
    alone = sentence.read(write(tmp_path / "alone", modes(cls_token=True), None))
    assert alone is not None
    assert served_pooling(Pooling(), alone, WIDTH) == (Pooling("cls", True), ())
    assert served_pooling(Pooling(), None, WIDTH) == (Pooling("mean", True), ())


def test_a_choice_that_contradicts_the_checkpoint_is_served_with_a_warning_that_names_both() -> None:
    found, (pooling, length) = served_pooling(Pooling("cls", normalized=False), MEAN, WIDTH)
    assert found == Pooling("cls", normalized=False)
    assert pooling == "the checkpoint has the pooling mean, --pooling is cls: the latter is served"
    assert "embeddings of length 1, the options ask for embeddings of any length" in length
    assert served_pooling(Pooling("mean", normalized=True), MEAN, WIDTH)[1] == ()


def test_a_choice_where_the_checkpoint_has_no_pooling_is_told_so(tmp_path: Path) -> None:
    said = sentence.read(write(tmp_path / "in", {}, (USUAL[0], USUAL[2])))
    _, warnings = served_pooling(Pooling("mean"), said, WIDTH)
    assert warnings == (
        "not served: modules.json has 0 modules Pooling",
        "the checkpoint has the pooling none, --pooling is mean: the latter is served",
    )


def test_states_of_another_width_are_those_of_another_model() -> None:
    with pytest.raises(ConfigError, match="states of 9 values, the weights have 8"):
        served_pooling(Pooling(), replace(MEAN, width=9), WIDTH)


def test_the_states_are_as_wide_as_the_pooling_says(tmp_path: Path) -> None:
    said = sentence.read(write(tmp_path / "in", modes(mean_tokens=True)))
    with pytest.raises(ConfigError, match="states of 8 values, the weights have 6"):
        served_pooling(Pooling(), said, 6)


def test_a_width_and_a_length_of_one_are_numbers_and_none_at_all_is_refused(tmp_path: Path) -> None:
    def read(name: str, width: int, longest: int) -> Sentence | None:
        pooling = {"word_embedding_dimension": width}
        return sentence.read(
            write(tmp_path / name, pooling, sentence_bert_config={"max_seq_length": longest})
        )

    assert read("one", 1, 1) == replace(MEAN, width=1, longest=1)
    with pytest.raises(ConfigError, match=r"^word_embedding_dimension is 0, not a whole number from 1 to "):
        read("no values", 0, 1)
    with pytest.raises(ConfigError, match=r"^max_seq_length is 0, not a whole number from 1 to "):
        read("no tokens", 1, 0)


def test_a_prompt_without_text_is_none(tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "", "document": None}, "default_prompt_name": "document"}
    pooling = {**modes(mean_tokens=True), "include_prompt": False}
    said = sentence.read(write(tmp_path / "in", pooling, config_sentence_transformers=prompts))
    assert said == replace(MEAN, width=WIDTH)


def test_a_text_is_as_long_as_the_checkpoint_says_and_prompts_are_told(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "in",
        modes(mean_tokens=True),
        sentence_bert_config={"max_seq_length": 5, "do_lower_case": False},
        config_sentence_transformers={"prompts": {"query": "query: "}, "default_prompt_name": "query"},
    )
    said = sentence.read(folder)
    assert said is not None
    pooling, (told,) = served_pooling(Pooling(), said, WIDTH)
    assert pooling.longest == 5
    assert "puts 'query: ' in front of every text; here clients have to do it" in told


def test_the_folder_of_the_transformer_alone_finds_its_modules(tmp_path: Path) -> None:
    modules = (module("Transformer", "0_Transformer"), *USUAL[1:])
    inner = write(tmp_path / "in", modes(cls_token=True), modules) / "0_Transformer"
    inner.mkdir()
    (inner / "sentence_bert_config.json").write_text('{"max_seq_length": 7}')
    said = sentence.read(inner)
    assert said is not None
    assert (said.pooling, said.longest) == ("cls", 7)
    (tmp_path / "in/other").mkdir()
    assert sentence.read(tmp_path / "in/other") is None
    # It is beside the Transformer, and no checkpoint.
    assert sentence.read(tmp_path / "in/1_Pooling") is None


@pytest.mark.parametrize(
    ("modules", "what"),
    [
        ({}, "is not a JSON list"),
        ([], "not a list of modules"),
        ([5], "not a list of modules"),
        ([module("Transformer"), module("Pooling", "../1_Pooling")], "is not a folder beside the list"),
        ([module("Transformer"), module("Pooling", "3_Pooling")], "the pooling has no config.json"),
    ],
)
def test_malformed_files_are_refused(modules: Any, what: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=what):
        sentence.read(write(tmp_path / "in", modes(mean_tokens=True), modules))


@pytest.mark.parametrize("name", ["modules.json", "sentence_bert_config.json", "1_Pooling/config.json"])
def test_a_link_that_leads_out_of_the_checkpoint_is_not_followed(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "in", modes(mean_tokens=True), sentence_bert_config={"max_seq_length": 5})
    (folder / name).rename(tmp_path / "outside.json")
    (folder / name).symlink_to(tmp_path / "outside.json")
    with pytest.raises(ConfigError, match=f"'{Path(name).name}' is a link that leads out of the folder"):
        sentence.read(folder)


@pytest.mark.parametrize(
    "said", [MEAN, Sentence("max", False, 256, obstacles=("a", "b")), Sentence("cls", None)]
)
def test_weights_carry_what_the_checkpoint_says(said: Sentence, tmp_path: Path) -> None:
    (tmp_path / "config.ini").write_text("[bert]\nhidden_size = 8\n")
    weights = ConvertedModel(tmp_path, "bert", 1, {})
    assert sentence.carried(weights) is None
    config_ini.add(tmp_path, {sentence.SECTION: said.values()})
    assert sentence.carried(weights) == said


def test_what_no_file_says_is_not_carried() -> None:
    assert Sentence("cls", obstacles=("a",)).values() == {"pooling": "cls", "obstacles": "a"}
    assert Sentence("cls", True, 5).values() == {"pooling": "cls", "normalized": "1", "longest": "5"}


@pytest.mark.parametrize(
    ("written", "longest"), [("999999999", 999999999), ("9999999999", None), ("many", None), ("-5", None)]
)
def test_a_length_that_somebody_has_written_into_weights_is_a_number_or_none(
    written: str, longest: int | None, tmp_path: Path
) -> None:
    (tmp_path / "config.ini").write_text(f"[{sentence.SECTION}]\npooling = mean\nlongest = {written}\n")
    carried = sentence.carried(ConvertedModel(tmp_path, "bert", 1, {}))
    assert carried == Sentence("mean", longest=longest)
