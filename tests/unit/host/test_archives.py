"""Archives of others: nothing of theirs leaves the folder, with every Python that ftbuild runs on."""

from __future__ import annotations

import ast
import io
import tarfile
from pathlib import Path

import pytest

from ftbuild.host import archives
from testing import ROOT

UNPACKING = {"extract", "extractall", "unpack_archive"}


def archive(*entries: tarfile.TarInfo) -> io.BytesIO:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for entry in entries:
            tar.addfile(entry, io.BytesIO(b"x" * entry.size))
    content.seek(0)
    return content


def entry(name: str, kind: bytes = tarfile.REGTYPE, to: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, to, int(kind == tarfile.REGTYPE)
    return made


def test_files_folders_and_links_within_are_unpacked(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    archives.unpack(archive(entry("a/b"), entry("a/link", tarfile.SYMTYPE, "b")), folder)
    assert (folder / "a/link").read_bytes() == b"x"


@pytest.mark.parametrize(
    "entries",
    [
        [entry("../outside")],
        [entry("a/../../outside")],
        [entry("link", tarfile.SYMTYPE, "../outside")],
        [entry("link", tarfile.SYMTYPE, "/etc")],
        [entry("link", tarfile.SYMTYPE, ".."), entry("link/outside")],
        [entry("link", tarfile.LNKTYPE, "../outside")],
        [entry("device", tarfile.CHRTYPE)],
        [entry("pipe", tarfile.FIFOTYPE)],
    ],
    ids=lambda entries: " ".join(f"{each.name}->{each.linkname}" for each in entries),
)
def test_what_leaves_the_folder_or_is_no_file_is_refused(
    tmp_path: Path, entries: list[tarfile.TarInfo]
) -> None:
    (tmp_path / "outside").write_text("mine")
    with pytest.raises(archives.Unsound):
        archives.unpack(archive(*entries), tmp_path / "out")
    assert (tmp_path / "outside").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) in (["out", "outside"], ["outside"])


@pytest.mark.parametrize("content", [b"", b"x" * 2000, b"\x1f\x8b" + b"\0" * 600])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(archives.Unsound):
        archives.unpack(io.BytesIO(content), tmp_path)


def test_nothing_else_unpacks_archives() -> None:
    """Python's own filters are missing in 3.11.2, Debian 12's: whatever passes them ends there."""
    texts = {
        file.relative_to(ROOT).as_posix(): file.read_text()
        for folder in ("ftbuild", "ftserve", "benchmarks", "testing", "tests", "docs")
        for file in (ROOT / folder).rglob("*.py")
    }
    unpacking = {
        name
        for name, text in texts.items()
        if any(word in text for word in UNPACKING)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in UNPACKING
    }
    assert unpacking == {"ftbuild/host/archives.py"}
