"""The tool's own environment: its lock fits pyproject.toml, and bootstrap installs nothing else."""

from __future__ import annotations

import hashlib
import re
import runpy
import shutil
import subprocess
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from ftbuild.config import loader
from testing import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SERVING = tomllib.loads((ROOT / "ftserve" / "pyproject.toml").read_text())["project"]
FRONT = tomllib.loads((ROOT / "ftserve" / "front" / "pyproject.toml").read_text())["project"]
# Those that are not in an index.
OURS = ("ftbuild", "ftserve", "ftserve-front")
LOCKS = {"requirements.lock": ("build",), "requirements-test.lock": ("build", "dev", "test")}
VERSIONS = ("3.11", "3.12", "3.13", "3.14")


@dataclass(frozen=True)
class Pin:
    """One entry of a lock."""

    requirement: Requirement
    hashes: tuple[str, ...]

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str:
        (pin,) = self.requirement.specifier
        assert pin.operator == "=="
        return pin.version


def pins(lock: str) -> Iterator[Pin]:
    text = re.sub(r"^ *#.*\n", "", (ROOT / lock).read_text(), flags=re.M)
    for entry in text.replace("\\\n", " ").splitlines():
        requirement, *hashes = entry.split("--hash=")
        yield Pin(Requirement(requirement), tuple(map(str.strip, hashes)))


def holds(marker: Marker | None, python: str) -> bool:
    there = {"python_version": python, "python_full_version": f"{python}.9", "platform_machine": "x86_64"}
    return marker is None or marker.evaluate({**there, "sys_platform": "linux"})


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_of_the_lock_has_an_exact_version_and_hashes(lock: str) -> None:
    for pin in pins(lock):
        assert pin.version
        assert pin.hashes
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", text) for text in pin.hashes)


@pytest.mark.parametrize("python", VERSIONS)
@pytest.mark.parametrize("lock", LOCKS)
def test_the_lock_satisfies_the_project_on_every_supported_python(lock: str, python: str) -> None:
    wanted = [*PROJECT["dependencies"], *SERVING["dependencies"]]
    if "test" in LOCKS[lock] and SpecifierSet(FRONT["requires-python"]).contains(python):
        wanted += FRONT["dependencies"]
    for extra in LOCKS[lock]:
        wanted += PROJECT["optional-dependencies"][extra]
    locked = {pin.name: pin.version for pin in pins(lock) if holds(pin.requirement.marker, python)}
    for requirement in map(Requirement, wanted):
        if holds(requirement.marker, python) and requirement.name not in OURS:
            name = canonicalize_name(requirement.name)
            assert name in locked, f"{lock} lacks {name}: run the command in its second line"
            assert locked[name] in requirement.specifier, f"{lock} is older than pyproject.toml: {name}"


def test_tests_run_with_the_packages_that_users_get() -> None:
    users, tests = ({pin.name: pin for pin in pins(lock)} for lock in LOCKS)
    for name, pin in users.items():
        assert (tests[name].version, tests[name].hashes) == (pin.version, pin.hashes)


def test_bootstrap_takes_the_pythons_that_the_lock_is_for() -> None:
    first, last = (tuple(map(int, version.split("."))) for version in (VERSIONS[0], VERSIONS[-1]))
    text = (ROOT / "bootstrap").read_text()
    assert f"{first} <= sys.version_info[:2] <= {last}" in text
    assert all(f"--python-version={VERSIONS[0]} " in (ROOT / lock).read_text()[:400] for lock in LOCKS)


def with_room(
    tmp_path: Path, gib: int, *arguments: str, engine: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run the check of bootstrap that comes before anything is installed, on a disk with so much room."""
    programs = {"df": f"printf 'Avail\\n {gib}\\n'", **({"dockerd": "true"} if engine else {})}
    for name, line in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    for name in ("bash", "tail", "dirname", "readlink"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    script = (
        f'source {ROOT}/bootstrap && if needs_engine "$@"; then require_room "${{1-}}"; fi && echo went on'
    )
    return subprocess.run(
        ["bash", "-c", script, "bootstrap", *arguments],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("task", "needed"), [("demo", 12), ("test", 12), ("base", 16), ("build", 16), ("nightly", 16)]
)
def test_a_bare_machine_without_room_for_the_base_is_told_before_anything_is_installed(
    tmp_path: Path, task: str, needed: int
) -> None:
    done = with_room(tmp_path, needed - 1, task)
    assert (done.returncode, done.stdout) == (4, "")
    assert f"needs {needed} GiB of disk, {needed - 1} GiB are free" in done.stderr
    assert "nothing has been installed" in done.stderr


@pytest.mark.parametrize(
    ("gib", "arguments", "engine"),
    [
        (12, ["demo"], False),
        (16, ["build"], False),
        (11, ["demo"], True),  # the base may be there
        (15, ["matrix"], False),
        (15, ["build", "--dry-run"], False),
        (15, [], False),
    ],
)
def test_what_has_room_or_needs_none_goes_on(
    tmp_path: Path, gib: int, arguments: list[str], engine: bool
) -> None:
    done = with_room(tmp_path, gib, *arguments, engine=engine)
    assert (done.returncode, done.stdout) == (0, "went on\n"), done.stderr


def test_bootstrap_and_readme_ask_for_as_much_room_as_builds_do() -> None:
    sample, real = (
        loader.load(ROOT / folder).bases.bases.values() for folder in ("buildcfg/sample", "buildcfg")
    )
    most = {name: max(base.base_gib for base in bases) for name, bases in (("s", sample), ("r", real))}
    text = (ROOT / "bootstrap").read_text()
    assert f"readonly SAMPLE_BASE_GIB={most['s']} BASE_GIB={most['r']}\n" in text
    demo = max(base.base_gib + base.cell_gib for base in sample)
    assert f"{demo} GiB of free disk" in (ROOT / "README.md").read_text()
    (cell, base) = max((base.cell_gib, base.base_gib) for base in real)
    needs = f"{cell} GiB for a cell (layers and compiler cache) and {base} GiB for the open base"
    assert needs in (ROOT / "docs" / "requirements.md").read_text()


BACKEND = """
import pathlib, zipfile

def get_requires_for_build_editable(config_settings=None):
    return []

def build_editable(folder, config_settings=None, metadata_directory=None):
    return make(folder, pathlib.Path.cwd().name)

def make(folder, name, content=""):
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": content,
        f"{info}/METADATA": f"Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nGenerator: me\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        f"{info}/RECORD": "",
    }
    wheel = pathlib.Path(folder) / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel.name
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Two products with one dependency, whose wheel is in a folder, and the bootstrap of this checkout."""
    folder = tmp_path / "mine"
    for product in (folder, folder / "ftserve"):
        product.mkdir()
        (product / "backend.py").write_text(BACKEND)
        (product / "pyproject.toml").write_text(
            f'[project]\nname = "{product.name}"\nversion = "1.0"\ndependencies = ["theirs"]\n'
            '[build-system]\nrequires = ["not-there"]\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        )
    shutil.copy(ROOT / "bootstrap", folder)
    (tmp_path / "wheels").mkdir()
    runpy.run_path(str(folder / "backend.py"))["make"](tmp_path / "wheels", "theirs")
    digest = hashlib.sha256((tmp_path / "wheels" / "theirs-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    (folder / "requirements.lock").write_text(f"theirs==1.0 --hash=sha256:{digest}\n")
    return folder


def environment(checkout: Path) -> subprocess.CompletedProcess[str]:
    """Run the part of bootstrap that makes .venv, with the folder of wheels as its only index."""
    settings = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(checkout),
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(checkout.parent / "wheels"),
        "PIP_CONSTRAINT": str(checkout.parent / "constraints.txt"),
    }
    script = f"source {checkout}/bootstrap && mkdir -p .ftbuild && make_environment ''"
    return subprocess.run(["bash", "-c", script], env=settings, capture_output=True, text=True, timeout=100)


def test_bootstrap_installs_what_the_lock_has_whatever_the_index_offers(checkout: Path) -> None:
    (checkout.parent / "constraints.txt").write_text("theirs<1\n")
    python = checkout / ".venv" / "bin" / "python"
    done = environment(checkout)
    assert (done.returncode, done.stderr.count("bootstrap: ")) == (0, 4)
    assert list(checkout.glob(".venv/lib/*/site-packages/__pycache__/theirs.*.pyc"))
    subprocess.run([python, "-c", "import theirs, mine, ftserve"], check=True)
    # Made again under the same name and version, with other content.
    wheel = checkout.parent / "wheels" / "theirs-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("more.py", "")
    subprocess.run([python, "-m", "pip", "uninstall", "--quiet", "--yes", "theirs"], check=True)
    with (checkout / "requirements.lock").open("a") as lock:
        lock.write("# changed\n")
    done = environment(checkout)
    assert done.returncode == 4
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert subprocess.run([python, "-c", "import theirs"], capture_output=True).returncode == 1
    (checkout / "requirements.lock").write_text("theirs==1.0\n")
    done = environment(checkout)
    assert done.returncode == 4
    assert "Hashes are required" in done.stderr
