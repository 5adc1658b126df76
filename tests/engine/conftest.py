"""A real Docker Engine and the sample stack; without an engine these tests skip, and say so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftbuild import config as configuration
from ftbuild import demo, engine
from ftbuild.commands import Selection, plans
from ftbuild.errors import HostError
from ftbuild.plan import Plan

if TYPE_CHECKING:
    import docker

ROOT = Path(__file__).parents[2]
Invoke = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def client() -> docker.DockerClient:
    try:
        client = engine.connect()
        engine.buildx_version()
    except HostError as missing:
        pytest.skip(f"needs Docker Engine and buildx: {missing.what}")
    return client


@pytest.fixture(scope="session")
def sample_repositories() -> None:
    demo.sample_repositories(ROOT)


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "invoke", *arguments]


def environment(work: Path, **extra: str) -> dict[str, str]:
    return {**os.environ, "FTBUILD_WORK": str(work), "PYTHONUNBUFFERED": "1", **extra}


@pytest.fixture
def invoke(work: Path, sample_repositories: None) -> Invoke:
    def run(*arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments),
            cwd=ROOT,
            env=environment(work, **extra),
            capture_output=True,
            text=True,
            check=False,
            timeout=1200,
        )

    return run


def build_arguments(folder: Path, *more: str) -> tuple[str, ...]:
    return ("build", "--config", str(folder), "--sm", "80", "--triton", "22.12", "--progress", "plain", *more)


def sample_plan(folder: Path = ROOT / "buildcfg" / "sample", sm: str = "80") -> Plan:
    (plan,) = plans(Selection(folder, ["22.12"], [sm]))
    return plan


@pytest.fixture(scope="session")
def built(client: docker.DockerClient, sample_repositories: None, work: Path) -> Plan:
    """The sample cell 22.12-sm80, built once for all tests."""
    done = subprocess.run(
        command(*build_arguments(ROOT / "buildcfg" / "sample")),
        cwd=ROOT,
        env=environment(work),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    return sample_plan()


@pytest.fixture
def sample_copy(tmp_path: Path) -> Path:
    """The sample configuration with its patches in a folder that a test may change."""
    folder = tmp_path / "buildcfg"
    folder.mkdir()
    source = ROOT / "buildcfg" / "sample"
    shutil.copytree(ROOT / "sample" / "patches", tmp_path / "patches")
    for file in source.glob("*.yaml"):
        text = file.read_text().replace("../../sample/patches", "../patches").replace("../../", f"{ROOT}/")
        (folder / file.name).write_text(text)
    configuration.load(folder)
    return folder


def add_patch(folder: Path, component: str, name: str, diff: str) -> None:
    """Append a patch to the series of a copied sample configuration."""
    header = "Description: made by a test\nAuthor: ftbuild\nForwarded: no\nLast-Update: 2026-01-01\n\n"
    series = folder.parent / "patches" / component
    (series / name).write_text(header + diff)
    with (series / "series").open("a") as file:
        file.write(f"{name}\n")
    ranges = folder / "patches.yaml"
    lines = ranges.read_text().splitlines()
    at = lines.index(f"  {component}:") + 1
    ranges.write_text("\n".join([*lines[:at], f'    "{name}": {{versions: ">=1"}}', *lines[at:]]) + "\n")
