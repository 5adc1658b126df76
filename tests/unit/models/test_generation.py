"""What a checkpoint says of how answers are generated: refused by name, or told, for every family."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.models import conversion
from ftbuild.models.conversion import Conversion, ConversionRequest
from tests.unit.models.test_tensor_names import KINDS, family_of, header

VECTORS = ("bert", "t5-encoder")
GENERATING = ("gpt", "opt", "bloom", "mpt", "gptj", "codegen", "gptneox", "t5", "mt5", "llama")
# Values with which transformers generates other tokens, whatever a request says.
FORCING: dict[str, Any] = {
    "forced_bos_token_id": 3,
    "forced_eos_token_id": [2, 3],
    "forced_decoder_ids": [[1, 3]],
    "begin_suppress_tokens": [4],
    "no_repeat_ngram_size": 3,
    "encoder_no_repeat_ngram_size": 3,
    "encoder_repetition_penalty": 1.2,
    "exponential_decay_length_penalty": [5, 1.1],
    "force_words_ids": [[3]],
    "sequence_bias": [[[3], 2.0]],
    "guidance_scale": 1.5,
    "penalty_alpha": 0.6,
}
# As transformers v4.46.3 saves them where nobody has chosen any (GenerationConfig().to_dict()).
USUAL = {
    "forced_bos_token_id": None, "forced_eos_token_id": None, "forced_decoder_ids": None,
    "begin_suppress_tokens": None, "suppress_tokens": None, "bad_words_ids": None, "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0, "encoder_repetition_penalty": 1.0, "repetition_penalty": 1.0,
    "exponential_decay_length_penalty": None, "force_words_ids": None, "constraints": None,
    "sequence_bias": None, "guidance_scale": None, "penalty_alpha": None, "min_length": 0, "max_length": 20,
    "min_new_tokens": None, "num_beams": 1, "num_beam_groups": 1, "length_penalty": 1.0, "do_sample": False,
    "temperature": 1.0, "top_k": 50, "top_p": 1.0, "min_p": None, "typical_p": 1.0, "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0, "early_stopping": False, "stop_strings": None, "token_healing": False,
    "dola_layers": None, "watermarking_config": None, "transformers_version": "4.46.3",
}  # fmt: skip


def planned(config: Config, folder: Path, family: str, said: object, **settings: Any) -> Conversion:
    usual, names = KINDS[family]
    (folder / "config.json").write_text(json.dumps({**usual, **settings}))
    (folder / "model.safetensors").write_bytes(header(names))
    if said is not None:
        (folder / "generation_config.json").write_text(json.dumps(said))
    return conversion.plan_conversion(
        config, "22.12", ConversionRequest(family_of(family, config), folder, folder / "out")
    )


def refusal(config: Config, folder: Path, family: str, said: object, **settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        planned(config, folder, family, said, **settings)
    return caught.value.what


@pytest.mark.parametrize("key", FORCING)
@pytest.mark.parametrize("family", GENERATING)
def test_what_no_request_can_ask_for_is_refused_by_its_name(
    family: str, key: str, config: Config, tmp_path: Path
) -> None:
    said = refusal(config, tmp_path, family, {**USUAL, key: FORCING[key]})
    assert f"{key} is " in said
    assert " in generation_config.json" in said
    assert len(said.splitlines()) == 2


@pytest.mark.parametrize("key", ["forced_eos_token_id", "begin_suppress_tokens", "no_repeat_ngram_size"])
@pytest.mark.parametrize("family", GENERATING)
def test_config_json_counts_where_there_is_no_other_file(
    family: str, key: str, config: Config, tmp_path: Path
) -> None:
    assert f"{key} is " in refusal(config, tmp_path, family, None, **{key: FORCING[key]})
    assert planned(config, tmp_path, family, USUAL, **{key: FORCING[key]})


def test_the_first_token_of_t5_is_refused_once(config: Config, tmp_path: Path) -> None:
    assert refusal(config, tmp_path, "t5", None, forced_bos_token_id=3).count("forced_bos_token_id") == 1


@pytest.mark.parametrize("family", [*GENERATING, *VECTORS])
def test_what_transformers_saves_by_itself_is_no_matter(family: str, config: Config, tmp_path: Path) -> None:
    assert [line for line in planned(config, tmp_path, family, USUAL).warnings if "defaults" in line] == []
    empty: dict[str, Any] = {"bad_words_ids": [], "suppress_tokens": [], "begin_suppress_tokens": []}
    assert [line for line in planned(config, tmp_path, family, empty).warnings if "defaults" in line] == []


@pytest.mark.parametrize("family", VECTORS)
def test_a_model_of_vectors_generates_nothing(family: str, config: Config, tmp_path: Path) -> None:
    said = {**FORCING, "do_sample": True, "temperature": 0.5}
    assert planned(config, tmp_path, family, said).warnings == ()


@pytest.mark.parametrize("family", GENERATING)
def test_defaults_of_requests_are_told_in_one_sentence(family: str, config: Config, tmp_path: Path) -> None:
    said = {
        **USUAL, "do_sample": True, "temperature": 0.6, "top_p": 0.9, "typical_p": 0.5,
        "bad_words_ids": [[3], [4, 5]], "repetition_penalty": 1.1,
    }  # fmt: skip
    (line,) = planned(config, tmp_path, family, said).warnings
    place, _, told = line.partition(", which the server does not take over: ")
    assert place == "generation_config.json has defaults for requests"
    assert told == ", ".join(
        [
            "bad_words_ids [[3], [4, 5]] (send bad_words_list)",
            "repetition_penalty 1.1 (send repetition_penalty)",
            "temperature 0.6 (send temperature)",
            "top_k 50 (send runtime_top_k)",
            "top_p 0.9 (send runtime_top_p)",
            "typical_p 0.5 (no request has that)",
        ]
    )


def test_every_family_is_tried(config: Config) -> None:
    assert {family_of(kind, config) for kind in (*GENERATING, *VECTORS)} == set(config.models.families)


def test_what_only_sampling_takes_is_not_told_of_who_does_not_sample(config: Config, tmp_path: Path) -> None:
    said = {**USUAL, "temperature": 0.6, "top_p": 0.9}
    assert planned(config, tmp_path, "llama", said).warnings == ()


@pytest.mark.parametrize("content", ["[]", "{", '"x"', '{"a": NaN}'])
def test_a_file_that_is_none_is_refused_with_its_place(content: str, config: Config, tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(content)
    with pytest.raises(ConfigError, match=r"not a generation_config\.json") as caught:
        planned(config, tmp_path, "gpt", None)
    assert caught.value.where == str(tmp_path / "generation_config.json")


@pytest.mark.parametrize("family", GENERATING)
def test_another_end_is_told_where_no_tokenizer_is_there_to_show_it(
    family: str, config: Config, tmp_path: Path
) -> None:
    own = KINDS[family][0]["eos_token_id"]
    assert planned(config, tmp_path, family, {"eos_token_id": own}).warnings == ()
    (line,) = planned(config, tmp_path, family, {"eos_token_id": [own, 7]}).warnings
    assert line == (
        f"eos_token_id is [{own}, 7] in generation_config.json; the server takes config.json's {own}, "
        "clients can send the others as stop words"
    )


def test_another_first_token_of_t5_is_told(config: Config, tmp_path: Path) -> None:
    (line,) = planned(config, tmp_path, "t5", {"decoder_start_token_id": 5}).warnings
    assert line == ("decoder_start_token_id is 5 in generation_config.json; the server takes config.json's 0")
    assert planned(config, tmp_path, "gpt", {"decoder_start_token_id": 5}).warnings == ()
