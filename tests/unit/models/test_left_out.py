"""What converted weights need of an image that may be built without it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound

from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.features import NOTHING, LeftOut
from ftbuild.models import config_ini, left_out, placement, repository
from ftbuild.models.left_out import Needed

EVERYTHING = LeftOut(("beams", "experts", "int8"), (64, 128))
SECTIONS = {
    "gpt": "[gpt]\nsize_per_head=80\n",
    "gptj": "[gptj]\nsize_per_head=80\n",
    "gptneox": "[gptneox]\nsize_per_head=80\n",
    "t5": "[encoder]\nd_kv=64\n[decoder]\nd_kv=80\n",
    "5.0": "[gpt]\nn_head=2\nn_embd=160\n",
}
ENCODERS = {"bert": "[bert]\nsize_per_head=80\n", "t5-encoder": "[encoder]\nd_kv=80\n[decoder]\n"}


def weights(folder: Path, ini: str) -> Path:
    made = folder / "1-gpu"
    made.mkdir(parents=True, exist_ok=True)
    (made / "config.ini").write_text(ini)
    return made


@pytest.mark.parametrize("family", SECTIONS)
def test_a_model_that_generates_needs_kernels_for_its_heads(tmp_path: Path, family: str) -> None:
    found = left_out.of_weights(config_ini.read(weights(tmp_path, SECTIONS[family])), int8=False)
    assert found == Needed(head_size=80)
    (reason,) = left_out.refusals(EVERYTHING, found)
    assert reason == "it is built for heads of 64 and 128, and the model has heads of 80"
    assert not list(left_out.refusals(LeftOut((), (80,)), found))
    assert not list(left_out.refusals(NOTHING, found))


@pytest.mark.parametrize("family", ENCODERS)
def test_an_encoder_needs_none(tmp_path: Path, family: str) -> None:
    found = left_out.of_weights(config_ini.read(weights(tmp_path, ENCODERS[family])), int8=False)
    assert found == Needed()


def test_every_reason_is_told_at_once(tmp_path: Path) -> None:
    ini = "[gpt]\nsize_per_head=96\n[structure]\nmoe_layers=[0]\n"
    found = left_out.of_weights(config_ini.read(weights(tmp_path, ini)), int8=True)
    with pytest.raises(ConfigError) as refused:
        left_out.require(EVERYTHING, found, "x:lean", "here")
    for word in ("x:lean cannot serve", "without int8", "without experts", "heads of 96"):
        assert word in refused.value.what
    assert "--without and --head-sizes" in (refused.value.hint or "")
    left_out.require(LeftOut(("beams",)), found, "x:lean", "here")


@pytest.mark.parametrize(
    ("labels", "int8", "refusal"),
    [
        ({"io.ftbuild.without": "beams,int8"}, True, "without int8"),
        ({"io.ftbuild.without": "beams,int8"}, False, None),
        ({"io.ftbuild.head-sizes": "64,128"}, False, "heads of 80"),
        ({"io.ftbuild.head-sizes": "64,80"}, False, None),
        ({}, True, None),
        (None, True, None),
    ],
)
def test_model_repo_refuses_by_the_labels_of_the_sdk_image(
    tmp_path: Path, labels: dict[str, str] | None, int8: bool, refusal: str | None
) -> None:
    def get(name: str) -> Any:
        if labels is None:
            raise ImageNotFound(name)
        return SimpleNamespace(labels=labels)

    client: Any = SimpleNamespace(images=SimpleNamespace(get=get))
    folder = weights(tmp_path, SECTIONS["gpt"])
    if refusal is None:
        repository.check_left_out(client, "x:sdk", folder, None, int8=int8)
    else:
        with pytest.raises(ConfigError, match=refusal):
            repository.check_left_out(client, "x:sdk", folder, None, int8=int8)


def test_a_plan_for_a_model_refuses_beams_that_the_image_lacks(config: Config, tmp_path: Path) -> None:
    load = placement.load_of(config, "gpt", 1, 8, 8, 4)
    with pytest.raises(ConfigError, match="built without beams, and a row is to have 4"):
        placement.place(config, "22.12", "gpt", tmp_path, load, 1, (), left_out=LeftOut(("beams",)))
