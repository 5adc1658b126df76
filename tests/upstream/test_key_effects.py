"""Values of config.json's keys that are carried over: FasterTransformer computes what transformers computes.

Each change of tests/unit/models/key_effects.json that is not refused: a checkpoint with it is converted, and
what FasterTransformer's formulas make of the weights and of config.ini is compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.models import conversion
from ftbuild.models.conversion import ConversionRequest
from testing.key_effects import FAMILIES, PROMPT
from testing.model_files import HEADER, safetensors
from tests.unit.models.test_key_effects import EFFECTS, family_of

from . import ft_gpt, ft_gptj, ft_gptneox, ft_t5
from .conversions import Array, TorchWorker, carry_out

ANSWER = PROMPT[:7]
# Below what a wrong epsilon does to models that transformers draws, above roundings.
TOLERANCE = 1e-4


def _gpt(made: Path, slopes: Callable[[int], Array]) -> Array:
    return ft_gpt.Gpt(made, slopes).logits(PROMPT)


def alibi(heads: int) -> Array:
    """Slopes for a number of heads that is a power of two (Press et al., Train Short, Test Long, 3)."""
    return np.array([2.0 ** (-8 * (head + 1) / heads) for head in range(heads)])


COMPUTED: Mapping[str, Callable[[Path], Array]] = {
    **{family: lambda made: _gpt(made, alibi) for family in ("gpt", "opt", "bloom", "mpt")},
    **{family: lambda made: ft_gptj.GptJ(made).logits(PROMPT) for family in ("gptj", "codegen")},
    **{family: lambda made: ft_gptneox.GptNeoX(made).logits(PROMPT) for family in ("gptneox", "llama")},
    "t5": lambda made: ft_t5.T5(made).logits(PROMPT, ANSWER),
}


def cases() -> Iterator[tuple[str, str | None, Any]]:
    for kind, content in EFFECTS.items():
        if family_of(kind) in COMPUTED:
            yield kind, None, None
            for key, value, versions in content["changes"]:
                if any(version.startswith("4.") for version in versions):
                    yield kind, key, value


@pytest.mark.parametrize("release", ["22.07", "22.12"])
@pytest.mark.parametrize(("kind", "key", "value"), list(cases()), ids=str)
def test_what_is_carried_over_computes_the_same(
    kind: str,
    key: str | None,
    value: Any,
    release: str,
    config: Config,
    worker: TorchWorker,
    tree: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    _, model_class, config_class, base = FAMILIES[kind]
    settings = {**base, **({} if key is None else {key: value})}
    checkpoint = tmp_path / "hf"
    family = family_of(kind)
    if refused(config, release, family, tmp_path, {**EFFECTS[kind]["base"], **settings}):
        return
    worker("draw", model_class, config_class, json.dumps(settings), str(checkpoint))
    planned = conversion.plan_conversion(config, release, request(family, checkpoint))
    found = COMPUTED[family](carry_out(planned, worker, tree(release), tmp_path))
    if family == "t5":
        worker("decoded", str(checkpoint), json.dumps(PROMPT), json.dumps(ANSWER), str(tmp_path / "out.npy"))
    else:
        worker("logits", str(checkpoint), json.dumps(PROMPT), str(tmp_path / "out.npy"))
    wanted = np.load(tmp_path / "out.npy")
    assert np.abs(found - wanted).max() < TOLERANCE * np.abs(wanted).max()


def request(family: str, folder: Path) -> ConversionRequest:
    return ConversionRequest(family, folder, folder.parent / "not there", jobs=1)


def refused(config: Config, release: str, family: str, folder: Path, settings: Mapping[str, Any]) -> bool:
    """Whether a checkpoint with these settings is refused, before one is made."""
    probe = folder / "probe"
    probe.mkdir()
    (probe / "config.json").write_text(json.dumps(settings))
    (probe / "model.safetensors").write_bytes(safetensors(json.dumps(HEADER).encode()))
    try:
        conversion.plan_conversion(config, release, request(family, probe))
    except ConfigError:
        return True
    return False
