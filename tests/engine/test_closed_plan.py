"""A plan is closed: what is edited after it was made changes nothing of what is staged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ftbuild.build import context
from ftbuild.cli.selection import Selection, plans
from ftbuild.config import loader
from ftbuild.plan import Plan
from ftbuild.sources import taking
from testing import ROOT
from testing.sample import SAMPLE


@pytest.fixture
def copy(sample_repositories: Path, tmp_path: Path) -> Path:
    """A copy of the sample configuration with all that it names, patches, Dockerfiles and steps included."""
    root = tmp_path / "checkout"
    shutil.copytree(SAMPLE, root / "buildcfg" / "sample")
    for folder in ("dockerfiles", "sample"):
        shutil.copytree(ROOT / folder, root / folder, symlinks=True)
    sources = root / "buildcfg" / "sample" / "sources.yaml"
    sources.write_text(sources.read_text().replace("../../.sample-upstream", str(sample_repositories)))
    return root


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that has the sources once the first test has staged a plan."""
    return tmp_path_factory.mktemp("cache")


def planned(root: Path) -> Plan:
    folder = root / "buildcfg" / "sample"
    (plan,) = plans(loader.load(folder), Selection(folder, ["22.12"], ["80"]))
    return plan


def staged(plan: Plan, cache: Path, folder: Path) -> dict[str, bytes]:
    """Stage a plan; return every file but the record of the plan."""
    folder.mkdir()
    context.stage(plan, cache, folder, report=lambda line: None)
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.name != "plan.json"}


def append(*names: str) -> Callable[[Path], None]:
    def edit(root: Path) -> None:
        for name in names:
            with (root / name).open("a") as file:
                file.write("# edited\n")

    return edit


def of_patch(root: Path) -> None:
    """Change what a patch of ours adds."""
    patches = sorted((root / "sample" / "patches").glob("*/*.patch"))
    for patch in patches:
        lines = patch.read_text().splitlines(keepends=True)
        at = next(n for n, line in enumerate(lines) if line.startswith("+") and not line.startswith("+++"))
        lines[at] = lines[at].rstrip("\n") + " edited\n"
        patch.write_text("".join(lines))


def without_series(root: Path) -> None:
    for series in (root / "sample" / "patches").glob("*/series"):
        series.unlink()


def of_lock(root: Path) -> None:
    lock = root / "buildcfg" / "sample" / "sources.lock.yaml"
    lock.write_text(lock.read_text().replace("commit: ", "commit: 0000 #"))


def gone(*names: str) -> Callable[[Path], None]:
    def edit(root: Path) -> None:
        for name in names:
            path = root / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return edit


CONFIGURATION = "buildcfg/sample"
EDITS: dict[str, Callable[[Path], None]] = {
    "a patch": of_patch,
    "the series": without_series,
    "ranges of patches": gone(f"{CONFIGURATION}/patches.yaml"),
    "a step": append("dockerfiles/steps/compile.sh"),
    "all steps": gone("dockerfiles/steps"),
    "the Dockerfile": append("dockerfiles/triton-ft.Dockerfile"),
    "requirements": append("sample/requirements/pyt.txt", "dockerfiles/requirements/open-runtime.txt"),
    "the lock": of_lock,
    "sources": append(f"{CONFIGURATION}/sources.yaml"),
    "what is exported": gone(f"{CONFIGURATION}/sources.yaml"),
    "the matrix": gone(f"{CONFIGURATION}/matrix.yaml"),
    "bases": append(f"{CONFIGURATION}/bases.yaml"),
    "everything": gone("buildcfg", "dockerfiles", "sample"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_is_edited_between_planning_and_staging_changes_nothing(
    copy: Path, filled: Path, tmp_path: Path, edit: str
) -> None:
    plan = planned(copy)
    before = staged(plan, filled, tmp_path / "before")
    assert any(name.startswith("sources/ft/") for name in before)
    EDITS[edit](copy)
    # With an empty cache, too: places are in the plan.
    assert staged(plan, tmp_path / "another cache", tmp_path / "after") == before


@pytest.mark.parametrize("edit", ["a patch", "a step", "the Dockerfile", "requirements"])
def test_an_edit_is_in_the_next_plan(copy: Path, edit: str) -> None:
    before = planned(copy).key
    EDITS[edit](copy)
    assert planned(copy).key != before


def test_what_verify_compares_with_is_that_of_the_plan(copy: Path, filled: Path) -> None:
    plan = planned(copy)
    before = taking.diffs(plan.patches, filled, report=lambda line: None)
    EDITS["everything"](copy)
    assert taking.diffs(plan.patches, filled, report=lambda line: None) == before


def test_the_record_of_a_plan_has_neither_addresses_nor_diffs(copy: Path, tmp_path: Path) -> None:
    record = json.dumps(planned(copy).as_dict())
    assert "+++ b/" not in record
    assert '"urls"' not in record
