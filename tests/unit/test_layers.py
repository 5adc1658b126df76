"""The contracts between rooms: kept as the tree stands, broken by each forbidden import."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testing import PRODUCTS, ROOT, needs

needs.package("importlinter")

LINT = (str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--no-logo")
# Line to add, module that gets it, and the line of the report that names it.
FORBIDDEN = (
    ("import ftbuild.text", "ftbuild/errors.py", "ftbuild.errors -> ftbuild.text (l."),
    ("import ftbuild.pipeline", "ftbuild/config/__init__.py", "ftbuild.config -> ftbuild.pipeline (l."),
    ("import ftbuild.client", "ftbuild/models/__init__.py", "ftbuild.models -> ftbuild.client (l."),
    ("import ftbuild.audit", "ftbuild/ci/__init__.py", "ftbuild.ci -> ftbuild.audit (l."),
    ("import ftbuild.publishing", "ftbuild/gates/__init__.py", "ftbuild.gates -> ftbuild.publishing (l."),
    ("import ftbuild.nightly", "ftserve/targets/__init__.py", "ftserve.targets -> ftbuild.nightly (l."),
    ("import ftserve", "ftbuild/client/__init__.py", "ftbuild.client -> ftserve (l."),
    ("import ftserve.front.limits", "ftbuild/matrix.py", "ftbuild.matrix -> ftserve.front.limits (l."),
    ("import ftbuild.matrix", "ftserve/front/limits.py", "ftserve.front.limits -> ftbuild.matrix (l."),
    ("import ftserve.targets", "ftserve/deployment.py", "ftserve.deployment -> ftserve.targets (l."),
    ("import tests", "testing/__init__.py", "testing -> tests (l."),
    ("import testing", "ftbuild/build/__init__.py", "ftbuild.build -> testing (l."),
    ("if 1:\n    import benchmarks", "ftbuild/plan.py", "ftbuild.plan -> benchmarks (l."),
    ("import subprocess", "ftbuild/engine/__init__.py", "ftbuild.engine -> subprocess (l."),
    ("import ftbuild.host.circle", "ftbuild/host/files.py", "No cycles are allowed in ftbuild.host."),
    ("import ftbuild.host.files", "ftbuild/host/circle.py", "No cycles are allowed in ftbuild.host."),
)


def copy(folder: Path) -> Path:
    for package in (*PRODUCTS, "testing", "tests", "benchmarks"):
        for source in (ROOT / package).rglob("*.py"):
            target = folder / source.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    shutil.copyfile(ROOT / "pyproject.toml", folder / "pyproject.toml")
    return folder


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(LINT, cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = copy(tmp_path_factory.mktemp("forbidden"))
    for line, module, _ in FORBIDDEN:
        with (folder / module).open("a") as source:
            source.write(f"\n{line}\n")
    done = lint(folder)
    assert done.returncode == 1
    return done.stdout


def test_the_contracts_are_kept() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("line", "module", "reported"), FORBIDDEN)
def test_a_forbidden_import_is_reported(report: str, line: str, module: str, reported: str) -> None:
    assert reported in report


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_room_without_a_place_in_the_layers_is_refused(tmp_path: Path, product: str) -> None:
    folder = copy(tmp_path)
    (folder / product / "attic.py").touch()
    done = lint(folder)
    assert done.returncode == 1
    assert f"- {product}.attic" in done.stdout


def test_no_program_has_the_name_of_a_module_of_python() -> None:
    """The folder of a program comes first where it and its neighbours look for modules."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    programs = [path for path in files if not (path.parent / "__init__.py").exists()]
    assert programs
    assert [path for path in programs if path.stem in sys.stdlib_module_names] == []
