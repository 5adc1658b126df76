"""The commit that labels name: that of the files which make the images, or `-dirty`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ftbuild.cli import selection
from ftbuild.host import shell
from ftbuild.plan import Revision


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("patches/ft/series", "docs/page.md", "ftbuild/plan.py", "dockerfiles/a.Dockerfile"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("committed\n")
    (tmp_path / ".gitignore").write_text("__pycache__/\n")
    named = ("-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false")
    for arguments in (["init", "-q"], ["add", "."], [*named, "commit", "-q", "-m", "first"]):
        shell.run(["git", *arguments], cwd=tmp_path)
    monkeypatch.setattr(selection, "ROOT", tmp_path)
    return tmp_path


def seen() -> Revision:
    return selection.revision.__wrapped__()


def test_a_clean_checkout_is_its_commit(checkout: Path) -> None:
    head = shell.run(["git", "rev-parse", "HEAD"], cwd=checkout).stdout.strip()
    (checkout / "ftbuild/__pycache__").mkdir()
    (checkout / "ftbuild/__pycache__/x.pyc").touch()
    (checkout / "docs/page.md").write_text("no image is made of it\n")
    assert seen().commit == head


CHANGES: dict[str, Callable[[Path], object]] = {
    "changed": lambda root: (root / "patches/ft/series").write_text("other\n"),
    "new": lambda root: (root / "patches/ft/9000-new.patch").write_text("new\n"),
    "new folder": lambda root: shutil.copytree(root / "patches", root / "buildcfg"),
    "gone": lambda root: (root / "dockerfiles/a.Dockerfile").unlink(),
    "staged": lambda root: (
        (root / "ftbuild/plan.py").write_text("other\n"),
        shell.run(["git", "add", "."], cwd=root),
    ),
    "mode": lambda root: (root / "dockerfiles/a.Dockerfile").chmod(0o755),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_label_never_names_a_commit_that_the_files_are_not_of(
    checkout: Path, change: Callable[[Path], object]
) -> None:
    clean = seen()
    change(checkout)
    assert seen() == Revision(f"{clean.commit}-dirty", clean.time)


def test_a_change_that_git_cannot_look_for_counts_as_one(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = selection._git

    def fails(*arguments: str) -> shell.Result:
        return shell.Result((), 128, "", "fatal") if arguments[0] == "status" else real(*arguments)

    monkeypatch.setattr(selection, "_git", fails)
    assert seen().commit.endswith("-dirty")
