"""Which image serves: by its labels, and by the GPU that is here."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from ftbuild.config.schema import Config
from ftbuild.engine import gpu
from ftbuild.engine.gpu import Access, Gpu
from ftbuild.errors import ConfigError, HostError
from ftbuild.features import LeftOut
from ftbuild.sm import Sm
from ftserve import image_choice
from ftserve.image_choice import Image, ImageChoice
from tests.unit.ftserve.test_deployment import A10, A100, H100, access

BUILT = [Image("x:22.07-sm80", "22.07", (Sm(80),), "ngc"), Image("x:22.12-sm80", "22.12", (Sm(80),), "ngc")]
DEFAULTS = {"22.07": "ngc", "22.12": "ngc"}
OTHER = Image("x:22.12-sm90", "22.12", (Sm(90),), "ngc")


def test_the_image_for_the_very_sm_comes_first_then_the_newest_release() -> None:
    def image(triton: str, *sms: int, base: str = "ngc") -> Image:
        return Image(f"x:{triton}-{sms}-{base}", triton, tuple(map(Sm, sms)), base)

    old, new, both, open_base = (
        image("22.07", 86), image("22.12", 80), image("22.12", 80, 86), image("22.12", 80, base="open"),
    )  # fmt: skip
    assert image_choice.choose([new, old], [A10], DEFAULTS) == old
    assert image_choice.choose([new, old, both], [A10], DEFAULTS) == both
    assert image_choice.choose([open_base, new, old], [A100], DEFAULTS) == new
    assert image_choice.choose([new, open_base], [A100], {"22.12": "open"}) == open_base
    assert image_choice.choose([old, both], [A100, A10], DEFAULTS) == both
    with pytest.raises(HostError, match=r"no image here runs on H100") as caught:
        image_choice.choose([old, new], [H100], DEFAULTS)
    assert "sm_86" in (caught.value.where or "")


def test_of_images_that_are_as_good_the_one_with_the_fewest_sms_is_taken_then_by_name(
    config: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    several = Image("x:22.12-sm60_80", "22.12", (Sm(60), Sm(80)), "ngc")
    alike = [Image(f"x:22.12-sm{sm}", "22.12", (Sm(sm),), "ngc") for sm in (60, 70, 80, 86)]
    on_cpu = replace(config, models=config.models.model_copy(update={"device": "cpu"}))
    for built in itertools.permutations([several, *alike, BUILT[0]]):
        monkeypatch.setattr(image_choice, "_built", lambda *arguments, built=built: iter(built))
        assert find(on_cpu, here=True)[0] == alike[0]
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("x:22.12-sm60 is taken, by fewest SMs, then by name; x:22.12-sm70, ")
    assert "x:22.07-sm80" not in said
    monkeypatch.setattr(image_choice, "_built", lambda *arguments: iter([*BUILT]))
    assert find(on_cpu, here=True)[0] == BUILT[1]
    assert capsys.readouterr().err == ""


def test_an_image_is_what_its_labels_say() -> None:
    labels = {"io.ftbuild.sm": "80,86", "io.ftbuild.triton": "22.12", "io.ftbuild.base": "ngc"}
    found = image_choice.described("x", labels, "1234:5")
    assert found == Image("x", "22.12", (Sm(80), Sm(86)), "ngc", (1234, 5))
    assert ImageChoice(sm="86,80").takes(found)
    assert ImageChoice(triton="22.12", base="ngc").takes(found)
    assert not ImageChoice(sm="80").takes(found)
    assert not ImageChoice(base="open").takes(found)
    assert image_choice.described("y", {}).user == (0, 0)
    assert image_choice.described("y", {}).patches is None
    assert image_choice.described(
        "y", {"io.ftbuild.patches": "ft/1.patch server/2.patch"}
    ).patches == frozenset({"ft/1.patch", "server/2.patch"})


def test_an_image_that_leaves_something_out_is_taken_where_there_is_no_other() -> None:
    lean = image_choice.described(
        "x:22.12-sm80-without-beams-heads-64",
        {
            "io.ftbuild.sm": "80",
            "io.ftbuild.triton": "22.12",
            "io.ftbuild.base": "ngc",
            "io.ftbuild.without": "beams",
            "io.ftbuild.head-sizes": "64",
        },
    )
    assert lean.left_out == LeftOut(("beams",), (64,))
    assert image_choice.choose([lean, *BUILT], [A100], DEFAULTS) == BUILT[1]
    assert image_choice.choose([lean, BUILT[0]], [A100], DEFAULTS) == BUILT[0]
    assert image_choice.choose([lean], [A100], DEFAULTS) == lean


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What is built on a machine, and the GPUs that its containers get."""

    def has(built: list[Image], *gpus: Gpu) -> None:
        monkeypatch.setattr(
            image_choice, "_built", lambda client, config, wanted: filter(wanted.takes, built)
        )
        monkeypatch.setattr(gpu, "find", lambda *a, **k: access(*gpus) if gpus else None)

    return has


def find(config: Config, here: bool, **wanted: str) -> tuple[Image, Access | None]:
    return image_choice.find(None, config, ImageChoice(**wanted), None, here=here)  # type: ignore[arg-type]


def test_the_gpu_that_is_here_chooses_the_image(config: Config, machine: Callable[..., None]) -> None:
    machine([*BUILT, OTHER], H100)
    assert find(config, here=True) == (OTHER, access(H100))
    assert find(config, here=False) == (OTHER, access(H100))
    with pytest.raises(HostError, match="no image here runs on H100"):
        find(config, here=True, sm="80")


def test_what_is_served_elsewhere_is_not_judged_by_the_gpu_that_is_here(
    config: Config, machine: Callable[..., None]
) -> None:
    machine([*BUILT, OTHER], H100)
    assert find(config, here=False, sm="80") == (BUILT[1], None)


def test_without_a_gpu_nothing_is_served_and_no_sm_is_guessed(
    config: Config, machine: Callable[..., None]
) -> None:
    machine([*BUILT, OTHER])
    with pytest.raises(HostError, match="no container here gets a GPU"):
        find(config, here=True)
    with pytest.raises(ConfigError, match=r"several images fit: x:22\.07-sm80, "):
        find(config, here=False)
    machine(BUILT)
    assert find(config, here=False) == (BUILT[1], None)
