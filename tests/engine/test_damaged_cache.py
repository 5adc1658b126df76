"""BuildKit's cache lists layers that are gone: a build makes them again, and needs nobody's help."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftbuild.build import bake
from ftbuild.build.machine import Host
from ftbuild.host import shell
from testing.engines import Engine, engine

IMAGE = "ftbuild-test-damaged:1"
DOCKERFILE = "FROM scratch\nCOPY file /first\n"
DEFINITION = {
    "group": {"default": {"targets": ["made"]}},
    "target": {"made": {"context": "context", "target": "", "tags": [IMAGE]}},
}


@pytest.fixture
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engine(tmp_path_factory.mktemp("far"), "ftb-damaged", "192.0.2.65/26") as running:
        yield running


@pytest.fixture
def job(far: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bake.Job:
    """A build of one step on that engine."""
    monkeypatch.setenv("DOCKER_HOST", far.address)
    made = bake.Job(tmp_path, DEFINITION)
    context = tmp_path / "context"
    context.mkdir()
    (context / "file").write_text(tmp_path.name)
    (context / "Dockerfile").write_text(DOCKERFILE)
    bake.write(made, Host(jobs=1))
    return made


def built(job: bake.Job) -> list[str]:
    """Build and remove the image; return what was told."""
    said: list[str] = []
    bake.run(job, Host(jobs=1, progress="plain"), report=said.append)
    shell.run(["docker", "image", "rm", IMAGE])
    return said


def layers_of_steps() -> list[str]:
    """Return the ids of the cached layers that steps have made."""
    told = shell.run(["docker", "buildx", "du", "--verbose"]).stdout
    return re.findall(r"^ID:\s+(\S+)$(?:\n.+)*?\nType:\s+regular$", told, re.M)


def test_an_engine_that_lets_go_of_a_layer_twice(far: Engine, job: bake.Job) -> None:
    """Two steps have made one layer; after a restart, the engine drops it with the first of them."""
    built(job)
    shell.run([*bake.command_line(job, "plain", Host(jobs=1)), "--no-cache"], cwd=job.folder)
    far.restart()
    shell.run(["docker", "image", "rm", IMAGE])
    either, _ = layers_of_steps()
    shell.run(["docker", "buildx", "prune", "--all", "--force", "--filter", f"id={either}"])
    said = built(job)
    assert [line for line in said if "layer does not exist): trying again without cached layers" in line]
    assert not [line for line in built(job) if "trying again" in line]


@pytest.mark.parametrize("of", ["Dockerfile", "first"], ids=["what is sent", "a step"])
def test_a_layers_folder_is_gone(far: Engine, job: bake.Job, of: str) -> None:
    built(job)
    for found in (far.folder / "data" / "overlay2").glob(f"*/diff/{of}"):
        shutil.rmtree(found.parent.parent)
    (job.folder / "context" / "Dockerfile").write_text(f"{DOCKERFILE}COPY file /third\n")
    said = built(job)
    assert [line for line in said if "no such file or directory): trying again without" in line]
    assert not [line for line in built(job) if "trying again" in line]
