"""Messages about rights, groups, folders and missing repositories name the true cause."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from ftbuild.errors import HostError, PinError
from ftbuild.host import failures
from ftbuild.sources.store import Store
from testing import ROOT


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_place_that_cannot_be_written_is_named_with_the_variables_that_move_ours(number: int) -> None:
    with pytest.raises(HostError) as refused, failures.reported():
        raise OSError(number, os.strerror(number), "/srv/ftbuild/.ftbuild")
    assert refused.value.exit_code == 4
    assert refused.value.where == "/srv/ftbuild/.ftbuild"
    assert "FTBUILD_WORK" in (refused.value.hint or "")


def test_repositories_that_are_folders_and_not_there_are_no_fault_of_the_network(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache", "ft", [str(tmp_path / "FasterTransformer.git")])
    with pytest.raises(PinError) as refused:
        store.resolve(["refs/heads/main"])
    hint = refused.value.hint or ""
    assert "does not exist" in hint
    assert "invoke demo" in hint
    assert "network" not in hint


def bootstrap(folder: Path, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "bootstrap").write_bytes((ROOT / "bootstrap").read_bytes())
    return subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_bootstrap_says_that_it_cannot_write_its_folder(tmp_path: Path) -> None:
    done = bootstrap(tmp_path, "bash bootstrap matrix", FTBUILD_WORK="/proc/nowhere/work")
    assert done.returncode == 4
    assert "cannot write into /proc/nowhere/work" in done.stderr
    assert "FTBUILD_WORK" in done.stderr


@pytest.mark.parametrize(
    ("named", "place"), [("/a/b/", "/a/b"), ("/a/b", "/a/b"), ("mine", "{}/mine"), ("", "{}/.ftbuild")]
)
def test_bootstrap_names_its_log_by_its_whole_path(tmp_path: Path, named: str, place: str) -> None:
    done = bootstrap(tmp_path, "source ./bootstrap; echo $LOG", FTBUILD_WORK=named)
    assert done.stdout.strip() == f"{place.format(tmp_path)}/bootstrap.log", done.stderr
    assert "$PWD/$LOG" not in (ROOT / "bootstrap").read_text()
