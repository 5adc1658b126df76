"""Which of the images that an engine has are taken, and what is said when none will do.

The engine's answers are objects in this test: what is asked of a real one is tried in tests/engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from ftbuild.config.schema import Config
from ftbuild.engine import container, daemon, gpu
from ftbuild.engine.gpu import Access, Gpu
from ftbuild.errors import ConfigError, HostError
from ftbuild.sm import Sm
from ftserve import image_choice
from ftserve.image_choice import Image, ImageChoice
from tests.unit.ftserve.test_deployment import A10, A100, H100, access


@dataclass
class Found:
    """An image as the engine describes it."""

    tags: Sequence[str]
    labels: Mapping[str, str]
    user: str | None = "1000:1000"

    @property
    def attrs(self) -> Mapping[str, Any]:
        return {"Config": {"User": self.user} if self.user is not None else {}}


@dataclass
class Images:
    has: Sequence[Found]
    asked: list[Mapping[str, Any]] = field(default_factory=list)

    def list(self, **wanted: Any) -> Sequence[Found]:
        self.asked.append(wanted)
        return self.has


@dataclass
class Engine:
    images: Images


def built(cell: str, sm: str, *, triton: str = "22.12", base: str = "open", **more: Any) -> Found:
    labels = {
        "io.ftbuild.cell": cell,
        "io.ftbuild.sm": sm,
        "io.ftbuild.triton": triton,
        "io.ftbuild.base": base,
        "io.ftbuild.server": "2.51.0",
        "io.ftbuild.patches": "ft/1.patch",
    }
    return Found([f"triton_with_ft:{cell}", f"triton_with_ft:{cell}-0123456789ab"], labels, **more)


@pytest.fixture
def on_cpu(config: Config) -> Config:
    return replace(config, models=config.models.model_copy(update={"device": "cpu"}))


def find(
    config: Config, images: Sequence[Found], said: list[str] | None = None, **wanted: Any
) -> tuple[Image, Access | None, Images]:
    engine = Engine(Images(images))
    here = wanted.pop("here", True)
    indices = wanted.pop("indices", None)
    report = (said if said is not None else []).append
    found, access = image_choice.find(
        engine,  # type: ignore[arg-type]
        config,
        ImageChoice(**wanted),
        indices,
        here=here,
        report=report,
    )
    return found, access, engine.images


def test_an_image_is_known_by_its_cell_and_its_labels(on_cpu: Config) -> None:
    found, gpus, images = find(on_cpu, [built("22.12-sm80", "80", user="7:8")])
    assert found == Image(
        "triton_with_ft:22.12-sm80",
        "22.12",
        (Sm(80),),
        "open",
        (7, 8),
        "2.51.0",
        frozenset({"ft/1.patch"}),
    )
    assert gpus is None
    assert images.asked == [{"name": "triton_with_ft", "filters": {"label": ["io.ftbuild.product=runtime"]}}]


def test_an_image_whose_tag_has_moved_on_is_not_taken(on_cpu: Config) -> None:
    old = built("22.12-sm80", "80")
    old.tags = ["triton_with_ft:22.12-sm80-0123456789ab"]
    with pytest.raises(ConfigError, match="no local image of triton_with_ft matches any options") as caught:
        find(on_cpu, [old])
    assert caught.value.hint == "invoke build with these options, or --image"


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"triton": "22.07"}, "--triton 22.07"),
        ({"sm": "90"}, "--sm 90"),
        ({"base": "ngc"}, "--base ngc"),
        ({"triton": "22.12", "sm": "90", "base": "open"}, "--triton 22.12 --sm 90 --base open"),
    ],
)
def test_no_image_for_the_options_names_them(on_cpu: Config, wanted: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        find(on_cpu, [built("22.12-sm80", "80")], **wanted)
    assert caught.value.what == f"no local image of triton_with_ft matches {words}"


@pytest.mark.parametrize(
    ("user", "ids"),
    [
        ("1234:5", (1234, 5)),
        ("1234", (1234, 1234)),
        ("", (0, 0)),
        (None, (0, 0)),
        ("triton", (1000, 1000)),
        ("triton:5", (1000, 1000)),
        ("5:triton", (1000, 1000)),
    ],
)
def test_the_user_of_an_image_is_what_its_dockerfile_says(
    on_cpu: Config, user: str | None, ids: tuple[int, int]
) -> None:
    assert find(on_cpu, [built("22.12-sm80", "80", user=user)])[0].user == ids


@pytest.mark.parametrize(("user", "ids"), [(None, (0, 0)), ("7:8", (7, 8))])
@pytest.mark.parametrize("here", [True, False])
def test_a_named_image_is_pulled_where_it_is_served(
    on_cpu: Config, monkeypatch: pytest.MonkeyPatch, here: bool, user: str | None, ids: tuple[int, int]
) -> None:
    pulled: list[tuple[object, ...]] = []
    monkeypatch.setattr(container, "available", lambda client, *words: pulled.append(words))
    monkeypatch.setattr(daemon, "image", lambda client, name: built("22.12-sm90", "90", user=user))
    found, _, images = find(on_cpu, [], image="registry/x:1", here=here)
    assert (found.name, found.sms, found.user) == ("registry/x:1", (Sm(90),), ids)
    hint = "docker login, or invoke build and no --image"
    assert pulled == ([("registry/x:1", "serving", hint)] if here else [])
    assert images.asked == []


def test_a_named_image_that_is_not_here_has_no_facts(on_cpu: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "image", lambda client, name: None)
    found, _, _ = find(on_cpu, [], image="registry/x:1", here=False)
    assert found == Image("registry/x:1")
    assert found.runs_on([H100])
    assert not found.is_exact_for([H100])


def gpus_here(monkeypatch: pytest.MonkeyPatch, *here: Gpu) -> list[tuple[object, ...]]:
    asked: list[tuple[object, ...]] = []

    def looked(client: object, image: str, *, indices: object) -> Access | None:
        asked.append((image, indices))
        return access(*here) if here else None

    monkeypatch.setattr(gpu, "find", looked)
    return asked


@pytest.mark.parametrize(("indices", "words"), [(None, "a GPU"), ((0,), "GPU 0"), ((2, 3), "GPU 2, 3")])
def test_gpus_that_no_container_gets_are_named(
    config: Config, monkeypatch: pytest.MonkeyPatch, indices: tuple[int, ...] | None, words: str
) -> None:
    asked = gpus_here(monkeypatch)
    with pytest.raises(HostError) as caught:
        find(config, [built("22.12-sm80", "80")], indices=indices)
    assert caught.value.what == f"no container here gets {words}"
    assert "nvidia-smi lists the GPUs" in (caught.value.hint or "")
    assert asked == [("triton_with_ft:22.12-sm80", indices)]


def test_gpus_are_looked_for_where_they_decide(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    images = [built("22.12-sm80", "80"), built("22.12-sm90", "90")]
    asked = gpus_here(monkeypatch, H100)
    assert find(config, images, here=False)[0].name == "triton_with_ft:22.12-sm90"
    assert len(asked) == 1
    found, given, _ = find(config, images, here=False, sm="80")
    assert (found.name, given) == ("triton_with_ft:22.12-sm80", None)
    assert len(asked) == 1
    monkeypatch.setattr(daemon, "image", lambda client, name: None)
    assert find(config, images, here=False, image="x")[1] is None
    assert len(asked) == 1


def test_without_a_gpu_images_for_several_sms_are_a_choice_to_make(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus_here(monkeypatch)
    with pytest.raises(ConfigError) as caught:
        find(config, [built("22.12-sm90", "90"), built("22.12-sm80", "80")], here=False)
    assert caught.value.what == (
        "without a GPU on this machine, several images fit: triton_with_ft:22.12-sm80, "
        "triton_with_ft:22.12-sm90"
    )
    assert caught.value.hint == "choose with --sm or --image"


def test_an_image_that_runs_on_no_gpu_here_is_named_with_what_it_is_for(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus_here(monkeypatch, H100, H100)
    with pytest.raises(HostError) as caught:
        find(config, [built("22.12-sm80", "80"), built("22.12-sm75_86", "75,86")])
    assert caught.value.what == f"no image here runs on {H100}"
    assert caught.value.where == (
        "triton_with_ft:22.12-sm80 (sm_80), triton_with_ft:22.12-sm75_86 (sm_75, sm_86)"
    )
    assert caught.value.hint == "invoke build --sm <SM of the GPU>, or name an image: --image"


def test_images_that_are_as_good_are_told(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus_here(monkeypatch, A100)
    said: list[str] = []
    images = [built("22.12-sm80_90", "80,90"), built("22.12-sm80", "80"), built("22.12-sm70_80", "70,80")]
    assert find(config, images, said)[0].name == "triton_with_ft:22.12-sm80"
    assert said == [
        "triton_with_ft:22.12-sm80 is taken, by fewest SMs, then by name; triton_with_ft:22.12-sm70_80, "
        "triton_with_ft:22.12-sm80_90 would also do (--sm, --image)"
    ]


def test_only_a_choice_is_told(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus_here(monkeypatch, A100)
    said: list[str] = []
    both = [built("22.12-sm80", "80"), built("22.12-sm80_90", "80,90")]
    find(config, both[:1], said)
    assert said == []
    find(config, both, said)
    assert [line.partition(";")[2] for line in said] == [
        " triton_with_ft:22.12-sm80_90 would also do (--sm, --image)"
    ]


@pytest.mark.parametrize(
    ("choice", "words", "decides"),
    [
        (ImageChoice(), "any options", False),
        (ImageChoice(triton="22.12"), "--triton 22.12", False),
        (ImageChoice(base="ngc"), "--base ngc", False),
        (ImageChoice(sm="80"), "--sm 80", True),
        (ImageChoice(image="x"), "any options", True),
    ],
)
def test_a_choice_is_said_as_it_is_typed(choice: ImageChoice, words: str, decides: bool) -> None:
    assert (str(choice), choice.is_for_an_sm) == (words, decides)


def test_a_foreign_image_comes_after_ours_and_versions_are_compared_as_numbers() -> None:
    foreign, old, new = (
        Image("x:1"),
        Image("x:9.12-sm86", "9.12", (Sm(86),), "open"),
        Image("x:22.07-sm86", "22.07", (Sm(86),), "open"),
    )
    assert image_choice.choose([foreign, old, new], [A10], {}) == new
    assert image_choice.choose([foreign, old], [A10], {}) == old
    assert image_choice.choose([foreign], [A10], {}) == foreign
