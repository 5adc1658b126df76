"""Compiled objects as files: what is packed, what is refused, and what a build is said to have taken."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from ftbuild.build import objects
from ftbuild.build.objects import Taken
from ftbuild.errors import BuildError, PublishError

NAMES = ("11/91oei8lgai3dosnn9pa0adsptng7mj8", "3f/adniahi1d9gl1pv8akhqfur73108i10")
NAME = "registry.example.com/team/image@sha256:" + "0" * 64


def tar(name: str, kind: bytes = tarfile.REGTYPE, size: int = 3) -> io.BytesIO:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.type, entry.size = kind, size if kind == tarfile.REGTYPE else 0
        entry.linkname = "/etc/passwd"
        archive.addfile(entry, io.BytesIO(b"x" * size))
    out.seek(0)
    return out


def storage(folder: Path) -> Path:
    """Make a folder as ccache's file storage leaves it."""
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(name)
    (folder / "CACHEDIR.TAG").touch()
    return folder


def test_objects_come_back_as_they_were_packed_and_nothing_else_is(tmp_path: Path) -> None:
    made = storage(tmp_path / "made")
    packed = objects.pack(made)
    assert objects.unpack(io.BytesIO(packed), tmp_path / "there") == len(NAMES)
    there = tmp_path / "there"
    assert {str(f.relative_to(there)) for f in there.rglob("*") if f.is_file()} == set(NAMES)
    assert all((there / name).read_text() == name for name in NAMES)
    (made / NAMES[0]).touch()  # at another time
    assert objects.pack(made) == packed


def test_a_build_without_objects_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="has left no objects"):
        objects.pack(tmp_path)


@pytest.mark.parametrize(
    "archive",
    [
        tar("../../etc/passwd"),
        tar(f"/{NAMES[0]}"),
        tar("11/../../../etc/passwd"),
        tar("CACHEDIR.TAG"),
        tar(NAMES[0], tarfile.SYMTYPE),
        tar(NAMES[0], tarfile.LNKTYPE),
        tar(NAMES[0], tarfile.DIRTYPE),
        tar(NAMES[0], tarfile.FIFOTYPE),
        io.BytesIO(b"no tar at all" * 100),
    ],
)
def test_what_is_no_object_is_refused_and_leaves_nothing(archive: io.BytesIO, tmp_path: Path) -> None:
    with pytest.raises(PublishError, match="cannot be unpacked"):
        objects.unpack(archive, tmp_path / "there")
    assert not [*tmp_path.iterdir()]


def test_more_objects_than_any_cell_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "MAX_BYTES", 2)
    with pytest.raises(PublishError, match="more of them than any cell has"):
        objects.unpack(tar(NAMES[0]), tmp_path / "there")


def test_ccaches_own_account_says_which_sources_were_compiled(tmp_path: Path) -> None:
    for tree, text in {
        "backend": "# /src/a.cc\ndirect_cache_hit\nlocal_storage_miss\nremote_storage_hit\n"
        "# /src/b.cu\ncache_miss\nremote_storage_miss\nremote_storage_write\n",
        "pyt": "# /src/a.cc\nremote_storage_hit\n# /src/CMakeFiles/probe.c\ncalled_for_link\n",
    }.items():
        (tmp_path / tree).mkdir()
        (tmp_path / tree / "ccache.statslog").write_text(text)
    taken = objects.taken(NAME, "the key ours.pub", tmp_path, ["backend", "pyt", "gone"])
    assert taken.found == {"backend": ("/src/a.cc",), "pyt": ("/src/a.cc",), "gone": ()}
    assert taken.compiled == {"backend": ("/src/b.cu",), "pyt": (), "gone": ()}
    assert "backend: 1 objects were there, 1 compiled" in taken.sentence()


def test_what_was_taken_is_read_back_and_forgotten(tmp_path: Path) -> None:
    taken = Taken(NAME, "the key ours.pub", {"backend": ("/src/a.cc",)}, {"backend": ()})
    assert objects.RECORD.read(tmp_path) is None
    objects.RECORD.write(tmp_path, taken)
    assert objects.RECORD.read(tmp_path) == taken
    (tmp_path / objects.RECORD.name).write_text("{}")
    with pytest.raises(BuildError, match="is damaged"):
        objects.RECORD.read(tmp_path)
    objects.RECORD.discard(tmp_path)
    assert objects.RECORD.read(tmp_path) is None
