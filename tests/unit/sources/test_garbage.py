"""Downloaded files that no lock needs any more."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ftbuild.config.schema import Config
from ftbuild.host import locks, marker
from ftbuild.host.garbage import Garbage, removal
from ftbuild.sources import downloads, garbage, requirements, wheels
from ftbuild.sources.downloads import Download

OLD, DAYS = "0" * 64, 86400


def put(cache: Path, name: str, *, days: float = 2) -> Path:
    """Make a file of the store that was last used some days ago."""
    file = cache / downloads.FOLDER / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"content")
    used = time.time() - days * DAYS
    os.utime(file, (used, used))
    return file


def found(config: Config, cache: Path) -> list[Garbage]:
    return list(garbage.downloaded(config, cache))


def test_downloaded_files_that_no_lock_names_are_removed(config: Config, tmp_path: Path) -> None:
    assert found(config, tmp_path) == []
    [*_, file] = wheels.files(config)
    pinned = {package.sha256 for base in config.debian_lock.bases.values() for package in base.every()}
    pinned |= {each.sha256 for each in requirements.read(file).requirements}
    kept = [put(tmp_path, sha256) for sha256 in pinned]
    kept.append(put(tmp_path, f"{min(pinned)}.partial"))  # a download that the next build continues
    old = [put(tmp_path, OLD), put(tmp_path, f"{'1' * 64}.partial")]
    [one] = found(config, tmp_path)
    assert (one.kind, one.name) == ("downloads", str(tmp_path / "files"))
    assert one.size == 2 * len(b"content")
    assert removal(one, dry_run=True).state == "to remove"
    assert all(path.exists() for path in old)
    assert removal(one, dry_run=False).state == "removed"
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in kept)
    assert found(config, tmp_path) == []


def test_what_was_used_today_stays(config: Config, tmp_path: Path) -> None:
    sha256 = downloads.sha256_of(put(tmp_path, "any"))
    file = put(tmp_path, sha256)
    before = file.stat().st_mtime
    (tmp_path / "files" / "any").unlink()
    assert len(found(config, tmp_path)) == 1
    assert downloads.held(sha256, tmp_path) == file
    assert found(config, tmp_path) == []
    # A builder takes a file with another time for another one, and asks for its gigabytes again.
    assert file.stat().st_mtime == before


def test_what_a_work_folder_holds_frees_nothing_and_stays(config: Config, tmp_path: Path) -> None:
    file = put(tmp_path, OLD)
    downloads.link_into(tmp_path / "work", [Download("a.whl", OLD)], tmp_path)
    assert (tmp_path / "work" / "a.whl").samefile(file)
    assert found(config, tmp_path) == []


def test_what_another_command_fetches_is_left_alone(config: Config, tmp_path: Path) -> None:
    file, other = put(tmp_path, f"{OLD}.partial"), put(tmp_path, "1" * 64)
    [one] = found(config, tmp_path)
    folder = file.parent / "locks"
    folder.mkdir()
    with locks.held(folder / OLD, pytest.fail, ""):
        assert removal(one, dry_run=False).state == "in use"
    assert file.exists()
    assert not other.exists()
    assert removal(one, dry_run=False).state == "removed"
    assert not file.exists()


def test_what_is_no_download_is_left_alone(config: Config, tmp_path: Path) -> None:
    put(tmp_path, "README")
    assert found(config, tmp_path) == []


def test_the_folder_of_a_killed_fetch_is_unfinished_work(config: Config, tmp_path: Path) -> None:
    left = tmp_path / ".wheels.abc.partial"
    left.mkdir()
    (left / "torch.whl").write_bytes(b"content")
    assert found(config, tmp_path) == []  # another program's
    marker.put(left)
    [one] = found(config, tmp_path)
    assert (one.kind, one.name, one.size) == ("unfinished", str(left), 7 + len(marker.TEXT))
    assert removal(one, dry_run=False).state == "removed"
    assert not left.exists()
