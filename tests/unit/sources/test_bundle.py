"""Files that only look like a bundle."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ftbuild.config.schema import Config
from ftbuild.errors import PinError
from ftbuild.sources.bundle import MANIFEST, read_bundle

Fill = Callable[[tarfile.TarFile], None]
NAMES = json.dumps({"format": 1, "repositories": ["ft"]}).encode()


def add(tar: tarfile.TarFile, name: str, content: bytes = b"", **facts: object) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    for fact, value in facts.items():
        setattr(entry, fact, value)
    tar.addfile(entry, io.BytesIO(content))


def link(tar: tarfile.TarFile, name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> None:
    add(tar, name, type=kind, linkname=target)


def circle(tar: tarfile.TarFile) -> None:
    link(tar, "ft.pack", "b", tarfile.LNKTYPE)
    link(tar, "b", "ft.pack", tarfile.LNKTYPE)


def names_then(fill: Fill) -> Fill:
    def both(tar: tarfile.TarFile) -> None:
        add(tar, MANIFEST, NAMES)
        fill(tar)

    return both


FALSE: dict[str, Fill] = {
    "a manifest that links to itself": lambda tar: link(tar, MANIFEST, MANIFEST),
    "a pack that links to itself": names_then(lambda tar: link(tar, "ft.pack", "ft.pack")),
    "packs that link in a circle": names_then(circle),
    "a pack that links outside": names_then(lambda tar: link(tar, "ft.pack", "/etc/passwd")),
    "a folder as pack": names_then(lambda tar: add(tar, "ft.pack", type=tarfile.DIRTYPE)),
    "a device as pack": names_then(lambda tar: add(tar, "ft.pack", type=tarfile.CHRTYPE)),
    "a sparse file as pack": names_then(
        lambda tar: add(
            tar, "ft.pack", pax_headers={"GNU.sparse.size": str(10**15), "GNU.sparse.map": f"{10**15},0"}
        )
    ),
    "deep JSON": lambda tar: add(tar, MANIFEST, b"[" * 100_000),
    "a huge number": lambda tar: add(tar, MANIFEST, b'{"format": ' + b"1" * 10_000 + b"}"),
    "a list": lambda tar: add(tar, MANIFEST, b"[]"),
    "no names": lambda tar: add(tar, MANIFEST, b'{"format": 1, "repositories": null}'),
    "lists as names": lambda tar: add(tar, MANIFEST, b'{"format": 1, "repositories": [[]]}'),
    "a repository a thousand times": names_then(
        lambda tar: add(tar, MANIFEST, json.dumps({"format": 1, "repositories": ["ft"] * 1000}).encode())
    ),
    "a later format": lambda tar: add(tar, MANIFEST, b'{"format": 2, "repositories": []}'),
    "bytes that are no text": lambda tar: add(tar, MANIFEST, b"\xff\xfe\x00"),
    "a huge manifest": lambda tar: add(tar, MANIFEST, b" " * 2_000_000 + NAMES),
    "no pack": names_then(lambda tar: None),
    "garbage as pack": names_then(lambda tar: add(tar, "ft.pack", b"PACK\0\0\0\2\0\0\0\1garbage")),
}


def write(file: Path, fill: Fill, mode: str = "w") -> Path:
    with tarfile.open(file, mode, format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
        fill(tar)
    return file


def assert_refused(config: Config, file: Path, cache: Path) -> None:
    with pytest.raises(PinError) as refused:
        read_bundle(config, file, cache, report=lambda message: None)
    assert str(file) in str(refused.value)


@pytest.mark.parametrize("what", FALSE)
def test_an_archive_that_is_no_bundle_is_refused(config: Config, tmp_path: Path, what: str) -> None:
    assert_refused(config, write(tmp_path / "bundle.tar", FALSE[what]), tmp_path / "cache")


@pytest.mark.parametrize("packed", ["xz", "gz", "bz2"])
def test_a_compressed_archive_is_refused_damaged_or_not(config: Config, tmp_path: Path, packed: str) -> None:
    file = write(tmp_path / "bundle.tar", FALSE["no pack"], f"w:{packed}")
    assert_refused(config, file, tmp_path / "cache")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)
    assert_refused(config, file, tmp_path / "cache")


def test_what_is_no_archive_is_refused(config: Config, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("not an archive\n" * 1000)
    os.mkfifo(tmp_path / "pipe")
    for name in ("empty", "text", "pipe", "nowhere", "."):
        assert_refused(config, tmp_path / name, tmp_path / "cache")
