"""A real Docker Engine and the sample stack; without an engine these tests skip, and say so."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from ftbuild.cli import demo
from ftbuild.engine import buildx, daemon
from ftbuild.errors import HostError
from ftbuild.host import shell
from ftbuild.host.paths import cache_folder
from ftbuild.plan import Plan
from ftbuild.sources import downloads
from testing import ROOT, built_images, forked, needs, once, patience
from testing import base_registry as one_registry
from testing.registries import (  # noqa: F401  fixtures
    Registry,
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
    copy_of_sample,
    environment,
    sample_plan,
    use_small_base,
)
from testing.serving import sample_image, sample_models, wanted  # noqa: F401  fixtures

if TYPE_CHECKING:
    import docker


USERS_CACHE = cache_folder()
# The first test of a run on a bare machine makes the base images.
TIMEOUT_SECONDS = 1200


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    patience.give(items, Path(__file__).parent, TIMEOUT_SECONDS)


@pytest.fixture(scope="session")
def client() -> docker.DockerClient:
    try:
        client = daemon.connect()
        buildx.version()
    except HostError as missing:
        needs.absent(needs.ENGINE, f"needs Docker Engine and buildx: {missing.what}")
    return client


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this test run share."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session", autouse=True)
def cache(shared: Path) -> Iterator[Path]:
    """A cache for this run alone: nobody else has its sources, and each checkout has other ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FTBUILD_CACHE", str(folder := new_cache(shared)))
        yield folder


def new_cache(parent: Path) -> Path:
    """Make a cache below a folder, with the user's downloads: gigabytes, and the same everywhere."""
    folder, files = parent / "cache", USERS_CACHE.absolute() / downloads.FOLDER
    folder.mkdir(exist_ok=True)
    files.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):  # another process of this run was first
        (folder / downloads.FOLDER).symlink_to(files)
    return folder


@pytest.fixture(scope="session")
def users_cache() -> Path:
    """The cache in which the user may have the real sources."""
    return USERS_CACHE


@pytest.fixture(scope="session")
def sample_repositories(shared: Path) -> Iterator[Path]:
    """The miniature upstreams; where the checkout is another user's, git takes them from a folder of ours."""
    ours = os.access(ROOT, os.W_OK) and ROOT.stat().st_uid == os.geteuid()
    folder = (ROOT if ours else shared) / demo.REPOSITORIES

    def make() -> None:
        shell.run([sys.executable, str(ROOT / "sample" / "make_repositories.py"), str(folder)])

    with pytest.MonkeyPatch.context() as patch:
        if not ours:
            number = int(os.environ.get("GIT_CONFIG_COUNT", "0"))
            patch.setenv("GIT_CONFIG_COUNT", str(number + 1))
            patch.setenv(f"GIT_CONFIG_KEY_{number}", f"url.{folder}/.insteadOf")
            patch.setenv(f"GIT_CONFIG_VALUE_{number}", f"{ROOT / demo.REPOSITORIES}/")
        with once.made(shared, "repositories", make):
            yield folder


@pytest.fixture(scope="session")
def work(shared: Path) -> Path:
    """The work folder of all commands that a test gives no other."""
    return shared / "work"


@pytest.fixture
def invoke(work: Path, sample_repositories: None) -> Invoke:
    def run(*arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        return invoked(work, *arguments, **extra)

    return run


def invoked(work: Path, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    return forked.invoke(*arguments, env=environment(work, **extra), timeout=TIMEOUT_SECONDS)


@pytest.fixture(scope="session")
def base(client: docker.DockerClient, sample_repositories: None, shared: Path, work: Path) -> Iterator[None]:
    """The open base, which stays on the machine."""

    def make() -> None:
        done = invoked(work, "base", "--config", str(SAMPLE))
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr

    with once.made(shared, "base", make):
        yield


@pytest.fixture(scope="session")
def built(client: docker.DockerClient, base: None, shared: Path, work: Path) -> Iterator[Plan]:
    """The sample cell 22.12-sm80, built once for all tests, which leave it as it is."""
    image = sample_plan().image

    def make() -> str:
        before = built_images.tags(client, image)
        done = invoked(work, *build_arguments(SAMPLE, "--rebuild"))
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr
        return "\n".join(before)

    def remove(before: str) -> None:
        built_images.remove(client, image, keep=before.split())

    with once.made(shared, "built", make, remove):
        yield sample_plan()


@pytest.fixture(scope="session")
def small_base(client: docker.DockerClient, base: None, shared: Path, work: Path) -> Iterator[None]:
    """The base of copies of the sample configuration, which stays on the machine as well."""

    def make() -> None:
        shutil.rmtree(shared / "small-base", ignore_errors=True)  # of workers that have ended
        folder = copy_of_sample(shared / "small-base")
        use_small_base(folder)
        done = invoked(work, "base", "--config", str(folder))
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr

    with once.made(shared, "small-base", make):
        yield


@pytest.fixture(scope="session")
def base_registry(
    client: docker.DockerClient, small_base: None, shared: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Registry]:
    """A registry that has the layers of the small base; a test publishes below a name of its own."""
    base = sample_plan(shared / "small-base" / "buildcfg").base.serving
    credentials = tmp_path_factory.mktemp("credentials")
    with one_registry.running(shared, client, base, credentials) as running:
        yield running


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
def sample_copy(
    client: docker.DockerClient, small_base: None, sample_repositories: None, tmp_path: Path
) -> Iterator[Path]:
    """A copy of the sample configuration that a test may change, whose images have a name of their own."""
    image = f"ftbuild-test-{uuid.uuid4().hex[:12]}"
    folder = copy_of_sample(tmp_path, image)
    use_small_base(folder)
    yield folder
    built_images.remove(client, image)


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
