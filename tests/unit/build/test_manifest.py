from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ftbuild.build import manifest


def staged(tmp_path: Path) -> tuple[Path, Path]:
    folder, file = tmp_path / "sources", tmp_path / "sources.json"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.cu").write_text("kernel")
    (folder / "run.sh").write_text("run")
    (folder / "link").symlink_to("run.sh")
    manifest.write(file, manifest.take(folder))
    return folder, file


def test_what_is_as_it_was_has_not_changed(tmp_path: Path) -> None:
    folder, file = staged(tmp_path)
    (folder / "run.sh").touch()
    assert manifest.changed(folder, file) == []


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda folder: (folder / "src/a.cu").write_text("other"), "src/a.cu"),
        (lambda folder: (folder / "src/a.cu").write_text(""), "src/a.cu"),
        (lambda folder: (folder / "src/a.cu").unlink(), "src/a.cu"),
        (lambda folder: (folder / "src/b.cu").write_text("more"), "src/b.cu"),
        (lambda folder: (folder / "run.sh").chmod(0o755), "run.sh"),
        (lambda folder: (folder / "link").unlink() or (folder / "link").symlink_to("/etc/passwd"), "link"),
        (lambda folder: (folder / "link").unlink() or (folder / "link").write_text("run"), "link"),
    ],
)
def test_every_change_is_found(tmp_path: Path, change: Callable[[Path], object], path: str) -> None:
    folder, file = staged(tmp_path)
    change(folder)
    assert manifest.changed(folder, file) == [path]


@pytest.mark.parametrize("content", ["", "[]", "{}", None])
def test_without_a_manifest_everything_counts_as_changed(tmp_path: Path, content: str | None) -> None:
    folder, file = staged(tmp_path)
    file.unlink() if content is None else file.write_text(content)
    assert manifest.changed(folder, file) == ["link", "run.sh", "src", "src/a.cu"]
