"""A real Docker Engine and the sample stack; without an engine these tests skip, and say so."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from ftbuild.cli import demo
from ftbuild.config import loader
from ftbuild.engine import buildx, daemon
from ftbuild.errors import HostError
from ftbuild.host import shell
from ftbuild.plan import Plan
from testing import ROOT
from testing.registries import (  # noqa: F401  fixtures
    basic_registry,
    faulty_registry,
    named_registry,
    plain_registry,
    token_registry,
)
from testing.sample import (
    SAMPLE,
    Derive,
    Invoke,
    build_arguments,
    command,
    copy_of_sample,
    environment,
    sample_plan,
)

if TYPE_CHECKING:
    import docker


# The first test of a run on a bare machine makes the base images.
TIMEOUT_SECONDS = 1200


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def client() -> docker.DockerClient:
    try:
        client = daemon.connect()
        buildx.version()
    except HostError as missing:
        pytest.skip(f"needs Docker Engine and buildx: {missing.what}")
    return client


@pytest.fixture(scope="session")
def sample_repositories() -> None:
    demo.sample_repositories(ROOT)


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


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


@pytest.fixture(scope="session")
def tidy(client: docker.DockerClient) -> Iterator[None]:
    """At the end the sample images that the tests made are gone; those that were there before stay."""
    before = sample_tags(client)
    yield
    for tag in sample_tags(client) - before:
        client.images.remove(tag, force=True)


def sample_tags(client: docker.DockerClient) -> set[str]:
    return {tag for image in client.images.list(name="triton_with_ft_sample") for tag in image.tags}


@pytest.fixture(scope="session")
def built(client: docker.DockerClient, sample_repositories: None, work: Path, tidy: None) -> Plan:
    """The sample cell 22.12-sm80, built once for all tests."""
    done = subprocess.run(
        command(*build_arguments(SAMPLE, "--rebuild")),
        cwd=ROOT,
        env=environment(work),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    return sample_plan()


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    """sample/reference.py, which makes checkpoints and says what they answer."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "sample" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def sample_copy(tmp_path: Path) -> Path:
    """The sample configuration with its patches in a folder that a test may change."""
    folder = copy_of_sample(tmp_path)
    loader.load(folder)
    return folder


@pytest.fixture
def derive(client: docker.DockerClient, built: Plan) -> Iterator[Derive]:
    """Images that change a built one by a few lines of a Dockerfile; removed at the end."""
    names = []

    def make(product: str, lines: str = "", labels: Mapping[str, str] | None = None) -> str:
        name = f"ftbuild-test:{uuid.uuid4().hex}"
        labelled = [f"--label={key}={value}" for key, value in (labels or {}).items()]
        dockerfile = f"FROM {built.tag(product)}\nUSER root\n{lines}\n"
        if "USER" not in lines:
            dockerfile += "USER 1000:1000\n"
        shell.run(["docker", "buildx", "build", "--tag", name, *labelled, "-"], stdin=dockerfile)
        names.append(name)
        return name

    yield make
    for name in names:
        client.images.remove(name, force=True)
