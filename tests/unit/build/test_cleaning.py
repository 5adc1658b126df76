"""`invoke clean` beside another one, on a disk with folders of others, and stopped in the middle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftbuild.build import garbage as builds
from ftbuild.cli import clean
from ftbuild.cli.options import ROOT
from ftbuild.host import garbage, marker
from ftbuild.host.garbage import Garbage, Removal, removal
from testing import needs

SAMPLE = ROOT / "buildcfg" / "sample"
PROGRAM = """
import sys
from pathlib import Path
from ftbuild.build import garbage
from ftbuild.host.garbage import removal
sys.stdin.readline()
print({removal(found, dry_run=False).state for found in garbage.folders(Path(sys.argv[1]), [], 0)})
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for number in range(100):
        folder = tmp_path / "22.12-sm80" / f"{number:012x}"
        folder.mkdir(parents=True)
        marker.put(folder)
        (folder / "build.log").write_text("compiled")
    return tmp_path


def of_work_folder(work: Path) -> Iterator[Removal]:
    return (removal(found, dry_run=False) for found in builds.folders(work, [], 0))


def test_several_at_once_remove_everything_and_none_fails(work: Path) -> None:
    program = [sys.executable, "-c", PROGRAM, str(work)]
    running = [
        subprocess.Popen(
            program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for _ in range(3)
    ]
    for each in running:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    ended = [each.communicate(timeout=60) for each in running]
    assert [each.returncode for each in running] == [0, 0, 0], ended
    assert list((work / "22.12-sm80").iterdir()) == []


def test_what_another_one_has_removed_since_it_was_found_is_removed(work: Path) -> None:
    first, *_ = found = list(builds.folders(work, [], 0))
    assert {each.state for each in of_work_folder(work)} == {"removed"}
    assert removal(first, dry_run=False).state == "removed"
    assert len(found) == 100
    assert list((work / "22.12-sm80").iterdir()) == []


def test_a_key_whose_earlier_removal_was_killed_is_removed(tmp_path: Path) -> None:
    cell, key = tmp_path / "22.12-sm80", f"{0:012x}"
    for folder in (cell / key, cell / f".{key}.removed.partial"):
        folder.mkdir(parents=True)
        marker.put(folder)
        (folder / "build.log").write_text("compiled")
    assert {each.state for each in of_work_folder(tmp_path)} == {"removed"}
    assert list(cell.iterdir()) == []


def test_a_folder_that_may_not_be_read_is_passed_over(work: Path) -> None:
    # Root may read everything, unless it has given its rights up.
    setpriv = [needs.program("setpriv", "util-linux"), "--inh-caps=-all", "--bounding-set=-all"]
    (work / "lost+found").mkdir(mode=0)
    program = [*(setpriv if os.geteuid() == 0 else []), sys.executable, "-c", PROGRAM, str(work)]
    ended = subprocess.run(program, input="go\n", capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "{'removed'}\n"), ended.stderr


def refused() -> None:
    raise PermissionError(1, "Operation not permitted")


def gone() -> None:
    return None


def found(*removes: object) -> Iterator[Garbage]:
    for number, remove in enumerate(removes):
        yield Garbage("work folder", f"folder {number}", 10, remove)  # type: ignore[arg-type]


def test_what_may_not_be_removed_is_left_alone_and_the_rest_is_not() -> None:
    states = [removal(each, dry_run=False).state for each in found(refused, gone)]
    assert states == ["Operation not permitted", "removed"]


@pytest.mark.parametrize("stopped_by", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_one_that_is_stopped_still_tells_what_it_has_removed(
    stopped_by: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopping(*arguments: object) -> Iterator[Garbage]:
        yield from found(gone)
        raise stopped_by

    monkeypatch.setattr(clean, "_garbage", stopping)
    with pytest.raises(SystemExit):
        clean.clean(None, config=SAMPLE, format="json")
    (told,) = json.loads(capsys.readouterr().out)
    assert told == {"kind": "work folder", "name": "folder 0", "size": 10, "state": garbage.REMOVED}


def test_a_registry_that_cannot_be_is_refused_before_anything_is_removed(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FTBUILD_WORK", str(work))
    monkeypatch.setenv("FTBUILD_CACHE", str(work / "cache"))
    with pytest.raises(SystemExit) as ended:
        clean.clean(None, config=SAMPLE, registry="no host/", keep=0)
    assert ended.value.code == 2
    assert len(list((work / "22.12-sm80").iterdir())) == 100
    assert "--registry" in capsys.readouterr().err
