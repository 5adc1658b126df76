"""Every key of config.json that changes what transformers computes is carried over, or refused by its name.

key_effects.json beside this file is what transformers 4 and 5 computed (testing/key_effects.py); that carried
values compute the same in FasterTransformer is for tests/upstream/test_key_effects.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.models import conversion
from ftbuild.models.conversion import Conversion, ConversionRequest
from testing.model_files import HEADER, safetensors

EFFECTS: Mapping[str, Any] = json.loads(Path(__file__).with_name("key_effects.json").read_text())
# What is converted differs by version: 22.03 has FasterTransformer 5.0, 22.07 5.2, 22.12 5.3.
RELEASES = ("22.03", "22.07", "22.12")
# FasterTransformer has one GELU, the tanh form; the exact one differs from it by 1e-3 at most.
GELUS = {None, "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"}
ACTIVATIONS = {"activation_function", "hidden_act", "dense_act_fn"}


def family_of(kind: str) -> str:
    return {"t5-encoder": kind, "mt5": "t5"}.get(kind, kind.partition("-")[0])


def planned(
    config: Config, release: str, kind: str, folder: Path, settings: dict[str, Any]
) -> Conversion | str:
    """The conversion, or why there is none."""
    (folder / "config.json").write_text(json.dumps(settings))
    request = ConversionRequest(family_of(kind), folder, folder / "out")
    try:
        return conversion.plan_conversion(config, release, request)
    except ConfigError as refused:
        return refused.what


def carried(config: Config, found: Conversion) -> dict[str, Any]:
    """All of a checkpoint that reaches FasterTransformer, but for its tensors."""
    described = config.models.families[found.request.family].checkpoint
    # Those that our own converters follow, and texts that stand for numbers.
    named = [key for key in (*ACTIVATIONS, "tie_word_embeddings") if found.converter.own_script]
    told = {key: found.checkpoint.settings.get(key) for key in (*named, *described.texts)}
    return {**found.checkpoint.facts, **found.checkpoint.reals, **told}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("kind", EFFECTS)
def test_what_changes_transformers_numbers_is_carried_over_or_refused(
    kind: str, release: str, config: Config, tmp_path: Path
) -> None:
    base, changes = EFFECTS[kind]["base"], EFFECTS[kind]["changes"]
    (tmp_path / "model.safetensors").write_bytes(safetensors(json.dumps(HEADER).encode()))
    usual = planned(config, release, kind, tmp_path, base)
    if isinstance(usual, str):
        assert "converts no" in usual or kind in ("t5", "t5-own head", "mt5"), usual
        return
    before, silent = carried(config, usual), []
    for key, value, versions in changes:
        if key in ACTIVATIONS and {value, base.get(key)} <= GELUS:
            continue
        found = planned(config, release, kind, tmp_path, {**base, key: value})
        if isinstance(found, str):
            assert any(word in found for word in (key, *NAMED_OTHERWISE.get(key, ()))), (key, value, found)
        elif carried(config, found) == before:
            silent.append((key, value, versions))
    assert silent == []


# Keys whose refusal speaks of what they are for.
NAMED_OTHERWISE = {
    **dict.fromkeys(
        ("n_head", "n_heads", "num_heads", "num_attention_heads"), ("a head has", "heads cannot be")
    ),
    **dict.fromkeys(("n_inner", "expansion_ratio"), ("inner is",)),
    "rope_parameters": ("rope_scaling", "rotary_emb_base"),
}


def test_the_effects_are_of_both_versions_and_of_every_family(config: Config) -> None:
    assert {family_of(kind) for kind in EFFECTS} == set(config.models.families)
    for kind, content in EFFECTS.items():
        versions = {version.partition(".")[0] for _, _, each in content["changes"] for version in each}
        assert versions == {"4", "5"}, kind
        assert len(content["changes"]) > 5, kind
