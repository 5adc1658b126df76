"""The installation of locked Debian packages into a base."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftbuild.host import shell
from testing import ROOT, debian
from testing.sample import sample_plan

DOCKERFILE = """\
FROM {base} AS serving
RUN --network=none --mount=type=bind,from=steps,target=/steps --mount=type=bind,from=debian,target=/debian \\
    sh /steps/apt-install.sh
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with one package, and the list of what is installed afterwards."""
    if lacking := [name for name in debian.PROGRAMS if name == "dpkg-deb" and name in debian.missing()]:
        pytest.skip(f"needs {', '.join(lacking)}")
    plan = sample_plan()
    assert plan.base.debian is not None
    folder = tmp_path / "debian"
    folder.mkdir()
    content, _ = debian.build(tmp_path, "ftbuild-test", "1:2.0~rc1-1", "Depends: libc6")
    (folder / "ftbuild-test_2.0~rc1-1_amd64.deb").write_bytes(content)
    installed = [
        *(f"{p.name} {p.version} {p.architecture}\n" for p in plan.base.debian.installed("serving")),
        "ftbuild-test 1:2.0~rc1-1 amd64\n",
        # Provides the names of what the base does without.
        "ftbuild-without 1 all\n",
    ]
    (folder / "installed.txt").write_text("".join(sorted(installed)))
    return folder


@pytest.fixture
def image() -> Iterator[str]:
    name = f"ftbuild-test:{uuid.uuid4().hex}"
    yield name
    shell.run(["docker", "image", "rm", "--force", name], check=False)


def install(packages: Path, image: str) -> shell.Result:
    """Install the packages in the serving image of the open base."""
    dockerfile = DOCKERFILE.format(base=sample_plan().base.serving)
    contexts = {"steps": ROOT / "dockerfiles/steps", "debian": packages}
    options = [f"--build-context={name}={folder}" for name, folder in contexts.items()]
    command = ["docker", "buildx", "build", "--progress=plain", "--no-cache", f"--tag={image}", *options, "-"]
    return shell.run(command, stdin=dockerfile, check=False)


@pytest.mark.usefixtures("base")
def test_locked_packages_are_installed_without_a_network(packages: Path, image: str) -> None:
    done = install(packages, image)
    assert done.code == 0, done.stderr
    script = "dpkg-query --show ftbuild-test; find /tmp /var/log /var/lib/apt/lists -type f -size +0"
    listed = shell.run(["docker", "run", "--rm", "--entrypoint=sh", image, "-c", script]).stdout
    assert listed.split() == ["ftbuild-test", "1:2.0~rc1-1"]


@pytest.mark.usefixtures("base")
@pytest.mark.parametrize(
    ("locked", "instead", "said"),
    [
        ("ftbuild-test 1:2.0~rc1-1", "ftbuild-test 1:2.0", "+ftbuild-test 1:2.0~rc1-1 amd64"),
        ("openmpi-bin ", "openmpi-other ", "-openmpi-other"),
    ],
)
def test_a_base_that_differs_from_the_lock_fails(
    packages: Path, image: str, locked: str, instead: str, said: str
) -> None:
    file = packages / "installed.txt"
    file.write_text(file.read_text().replace(locked, instead))
    done = install(packages, image)
    assert done.code != 0
    assert said in done.stderr
    assert "differ from debian.lock.yaml" in done.stderr
