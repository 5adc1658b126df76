"""Two products and a package: their versions, what the front's image has of it, and that it runs alone."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import ftbuild
import ftserve
from ftbuild.config import loader
from ftbuild.sources import requirements
from ftserve import front, front_image
from ftserve.front import settings
from testing import ROOT, needs

FRONT = ROOT / "ftserve" / "front"
# Debian's, in the images that the front's stands on.
OF_THE_BASE = {"jinja2", "numpy"}


def project(folder: Path) -> tuple[list[Requirement], dict[str, object]]:
    found = tomllib.loads((folder / "pyproject.toml").read_text())
    return [Requirement(each) for each in found["project"]["dependencies"]], found["tool"]["setuptools"]


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """The files of the image, where it has them."""
    for file in front_image.package_files():
        target = tmp_path / "ftserve" / "front" / file.relative_to(FRONT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    return tmp_path


def test_all_have_one_version() -> None:
    assert ftbuild.__version__ == ftserve.__version__ == front.__version__


def test_the_image_has_the_whole_package_and_nothing_that_python_left() -> None:
    files = {file.relative_to(FRONT).as_posix() for file in front_image.package_files()}
    tracked = {"__init__.py", "__main__.py", "pyproject.toml", "errors.py", "texts.py", "declared.py"}
    assert tracked <= files
    assert {Path(file).suffix for file in files} == {".py", ".toml"}
    assert files == {path.name for path in FRONT.iterdir() if path.suffix in (".py", ".toml")}


def test_its_image_opens_the_port_that_it_listens_on() -> None:
    assert f"\nEXPOSE {settings.PORT}\n" in (ROOT / "dockerfiles" / "openai.Dockerfile").read_text()


def test_the_front_runs_where_nothing_else_of_ours_is(alone: Path) -> None:
    needs.package("ftserve.front.app")
    modules = sorted(file.stem for file in (alone / "ftserve" / "front").glob("[a-z]*.py"))
    script = (
        "import importlib, sys\n"
        f"for name in {modules}: importlib.import_module(f'ftserve.front.{{name}}')\n"
        "import ftserve.front\n"
        "print(ftserve.front.__file__, *(name for name in sys.modules if name.startswith('ftbuild')))"
    )
    environment = {**os.environ, "PYTHONPATH": str(alone)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=alone, env=environment, capture_output=True, text=True
    )
    assert done.stdout.split() == [str(alone / "ftserve" / "front" / "__init__.py")], done.stderr


def test_what_the_front_shares_with_ftbuild_are_links_to_modules_that_need_no_other() -> None:
    links = {path.name: path.resolve() for path in FRONT.iterdir() if path.is_symlink()}
    assert links == {
        "errors.py": ROOT / "ftbuild" / "errors.py",
        **{name: ROOT / "ftbuild/models/tokenization" / name for name in ("declared.py", "texts.py")},
    }
    assert not [name for name, path in links.items() if "ftbuild" in _imports(path)]


def _imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
    return found


def test_each_list_of_packages_is_complete() -> None:
    """Of what is not in the image's base, its file of requirements has all that the front's project names."""
    wanted, _ = project(FRONT)
    config = loader.load(ROOT / "buildcfg")
    for described in config.bases.bases.values():
        if described.openai:
            pinned = {one.name: one for one in requirements.read(config.path(described.openai)).locked()}
            for one in wanted:
                if one.name not in OF_THE_BASE:
                    assert pinned[one.name].version in one.specifier
    # The distribution's name where it is not the module's.
    modules = {one.name: one.name for one in wanted}
    imported = set().union(*(_imports(file) for file in FRONT.glob("*.py")))
    strangers = imported - sys.stdlib_module_names - {"ftserve", "declared"}
    # tritonclient brings them.
    assert strangers - {"google", "grpc", "pydantic_core"} <= set(modules)


def test_the_distributions_hold_every_module() -> None:
    _, serving = project(ROOT / "ftserve")
    folders = {path.parent for path in (ROOT / "ftserve").rglob("__init__.py")} - {FRONT}
    assert serving["packages"] == [".".join(path.relative_to(ROOT).parts) for path in sorted(folders)]
    _, alone = project(FRONT)
    assert alone["packages"] == ["ftserve.front"]
