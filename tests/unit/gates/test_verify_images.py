"""What verify runs in containers of its images, and how many it starts; real ones are in tests/engine."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from ftbuild.engine import container, daemon
from ftbuild.engine.container import ContainerError
from ftbuild.gates.verify import elf
from ftbuild.gates.verify.images import LIBRARIES, Images

TOOL = "/usr/local/cuda/bin/cuobjdump"
NCCL = "/usr/local/lib/libnccl.so.2"
CODE = "ELF file    1: libnccl.1.sm_80.cubin\n"


class Sh:
    """An engine whose containers run their script on this machine."""

    def __init__(self) -> None:
        self.started = 0
        self.containers = SimpleNamespace(create=self.create)
        self.api = SimpleNamespace(remove_container=lambda name, **_: None)

    def info(self) -> dict[str, int]:
        return {"MemTotal": 2**34}

    def create(self, *_: Any, entrypoint: Sequence[str], **__: Any) -> SimpleNamespace:
        done = subprocess.run([*entrypoint], capture_output=True, check=False)
        self.started += 1

        def logs(*, stderr: bool = True) -> bytes:
            return done.stdout + done.stderr if stderr else done.stdout

        return SimpleNamespace(start=int, wait=lambda **_: {"StatusCode": done.returncode}, logs=logs)


def test_scripts_in_one_container_have_their_outputs_apart() -> None:
    engine: Any = Sh()
    scripts = [
        "x=1; printf 'no line break'",
        "true",
        "cat <<'END'\nit's \"$x\"\nEND",
        "cd /; echo $x $PWD; exit",
    ]
    outputs = container.run_all(engine, "image", scripts)
    assert outputs == ["no line break", "", 'it\'s "$x"\n', "/\n"]
    assert engine.started == 1


def test_no_script_runs_after_one_that_fails() -> None:
    engine: Any = Sh()
    with pytest.raises(ContainerError) as caught:
        container.run_all(engine, "image", ["echo said; (exit 3); echo not this", "echo nor this"])
    assert caught.value.what == "a script ended with code 3\nsaid"


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        (128, "ended with code 128"),
        (137, "was ended by signal 9 (Killed)"),
        (139, "was ended by signal 11 (Segmentation fault)"),
        (255, "ended with code 255"),
    ],
)
def test_a_script_that_a_signal_ends_is_told_by_its_name(code: int, ending: str) -> None:
    engine: Any = Sh()
    with pytest.raises(ContainerError) as caught:
        container.run_all(engine, "image", [f"exit {code}"])
    assert caught.value.what == f"a script {ending}"


@dataclass
class Engine:
    """What each script answers, and the containers that were started: image, user, scripts, copied files."""

    answers: Callable[[str, str], str]
    started: list[tuple[str, str | None, list[str], list[tuple[str, str]]]] = field(default_factory=list)

    def run_all(
        self, client: Any, image: str, scripts: Sequence[str], *, user: str | None = None, copied: Any = ()
    ) -> list[str]:
        self.started.append((image, user, [*scripts], [*copied]))
        return [self.answers(image, script) for script in scripts]

    def run(self, client: Any, image: str, script: str, *, user: str | None = None, copied: Any = ()) -> str:
        return self.run_all(client, image, [script], user=user, copied=copied)[0]


@pytest.fixture
def under_test(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., tuple[Images, Engine]]:
    """Return what makes the images of a cell in an engine that has those of the base that are `here`."""

    def make(answers: Callable[[str, str], str], *here: str) -> tuple[Images, Engine]:
        engine = Engine(answers)
        monkeypatch.setattr(container, "run", engine.run)
        monkeypatch.setattr(container, "run_all", engine.run_all)
        monkeypatch.setattr(container, "available", lambda client, name, *_: name)
        monkeypatch.setattr(daemon, "image", lambda client, name: name in here)
        base = SimpleNamespace(local=None, name="open", serving="serving", devel="devel", tools="tools")
        subject: Any = SimpleNamespace(client=None, plan=SimpleNamespace(base=base))
        return Images(subject, {"runtime": "R", "sdk": "S"}), engine

    return make


Make = Callable[..., tuple[Images, Engine]]


def described(image: str, script: str) -> str:
    """Return what a compiler image says of a library of each product, and an image of NCCL."""
    if script == elf.FIND_TOOL:
        return f"{TOOL}\n"
    if image != "devel":
        return f"== {NCCL}\n{CODE}" if "--list-elf" in script else f"{script} in {image}\n"
    (folder,) = [folder for folder in LIBRARIES.values() if f"== {folder}/" in script]
    return f"== {folder}/libx.so\n"


def test_the_libraries_of_both_images_are_inspected_in_one_container(under_test: Make) -> None:
    images, engine = under_test(described)
    for product, folder in LIBRARIES.items():
        assert [library.path for library in images.libraries(product)] == [f"{folder}/libx.so"]
    ((image, user, _, copied),) = engine.started
    assert (image, user) == ("devel", "0")
    assert copied == [("R", LIBRARIES["runtime"]), ("S", LIBRARIES["sdk"])]


@pytest.mark.parametrize(
    ("here", "used"),
    [((), "devel"), (("devel",), "devel"), (("tools",), "tools"), (("devel", "tools"), "devel")],
)
def test_the_compiler_image_is_used_where_it_is_and_only_pulled_where_its_tools_are_not(
    under_test: Make, here: tuple[str, ...], used: str
) -> None:
    images, engine = under_test(lambda image, script: f"{script} in {image}\n", *here)
    images.libraries("runtime")
    assert engine.started[0][0] == used


def test_an_image_without_its_folder_hides_nothing_of_the_other(under_test: Make) -> None:
    def answers(image: str, script: str) -> str:
        if f"== {LIBRARIES['sdk']}/" in script:
            raise ContainerError(f"{LIBRARIES['sdk']} is not in the image")
        return described(image, script)

    images, _ = under_test(answers)
    assert len(images.libraries("runtime")) == 1
    with pytest.raises(ContainerError, match=f"{LIBRARIES['sdk']} is not in the image"):
        images.libraries("sdk")


def test_scripts_that_have_run_together_are_not_run_again(under_test: Make) -> None:
    images, engine = under_test(described)
    images.run_together("runtime", ["first", "second", images.listing(NCCL)])
    started = len(engine.started)
    assert [images.run("runtime", script) for script in ("first", "second")] == [
        "first in R\n",
        "second in R\n",
    ]
    assert images.inspect_in_place("runtime", NCCL) == elf.Library(NCCL, {"sm_80": 1}, {}, (), ())
    assert len(engine.started) == started
    image, user, _, copied = engine.started[-1]
    assert (image, user, copied) == ("R", None, [("devel", TOOL)])
    assert images.run("sdk", "first") == "first in S\n"


def test_of_scripts_that_fail_together_each_fails_or_succeeds_alone(under_test: Make) -> None:
    def answers(image: str, script: str) -> str:
        if script == "second":
            raise ContainerError("a script ended with code 1")
        return described(image, script)

    images, _ = under_test(answers)
    images.run_together("runtime", ["first", "second"])
    assert images.run("runtime", "first") == "first in R\n"
    with pytest.raises(ContainerError, match="a script ended with code 1"):
        images.run("runtime", "second")


def test_where_the_tool_does_not_run_the_library_goes_to_the_compiler_image(under_test: Make) -> None:
    def answers(image: str, script: str) -> str:
        if "--list-elf" in script and image == "devel":
            return f"== {NCCL}\n{CODE}"
        return "" if "--list-elf" in script else described(image, script)

    images, engine = under_test(answers)
    assert images.inspect_in_place("runtime", NCCL).sass == {"sm_80": 1}
    image, user, _, copied = engine.started[-1]
    assert (image, user, copied) == ("devel", "0", [("R", NCCL)])
