from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ftbuild.errors import ConfigError, HostError
from ftbuild.host.reading import read_bytes, read_text


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


def test_text_is_read_with_and_without_a_byte_order_mark(file: Path) -> None:
    for encoding in ("utf-8", "utf-8-sig"):
        file.write_text("größe: 1\r\n", encoding=encoding, newline="")
        assert read_text(file) == "größe: 1\r\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("one\ntwo: caf\xe9\n".encode("latin-1"), "not UTF-8 text\n  where: .*/file:2"),
        ("one: 1\n".encode("utf-16"), "not UTF-8 text\n  where: .*/file:1"),
        (b"one\n\ntwo\x00\n", r"control character '\\x00'\n  where: .*/file:3"),
        (b"one\x1b[2J\n", r"control character '\\x1b'\n  where: .*/file:1"),
    ],
)
def test_other_encodings_and_control_characters_are_refused_with_their_line(
    file: Path, content: bytes, message: str
) -> None:
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_text(file)


def test_a_pipe_without_a_writer_is_refused_at_once(file: Path) -> None:
    os.mkfifo(file)
    with pytest.raises(ConfigError, match="it is not a file"):
        read_bytes(file)


@pytest.mark.parametrize("path", ["/", ".", "/tmp/.."])
def test_whatever_is_refused_is_named(path: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_bytes(Path(path))
    assert not refused.value.what.startswith(" "), "the root has no name of its own"


def test_folders_devices_sockets_and_missing_files_are_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it is not a file"):
        read_bytes(tmp_path)
    with pytest.raises(ConfigError, match="it is not a file"):
        read_bytes(Path("/dev/zero"))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        with pytest.raises(ConfigError, match="it is not a file"):
            read_bytes(tmp_path / "socket")
    with pytest.raises(ConfigError, match="it does not exist"):
        read_bytes(file)
    file.touch()
    with pytest.raises(ConfigError, match="a part of its path is a file"):
        read_bytes(file / "below")
    with pytest.raises(ConfigError, match="null byte"):
        read_bytes(tmp_path / "a\0b")
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(ConfigError, match="circle"):
        read_bytes(tmp_path / "circle")


def test_a_file_over_the_limit_is_refused_without_reading_the_rest(file: Path) -> None:
    with file.open("wb") as sparse:
        sparse.truncate(10**12)
    with pytest.raises(ConfigError, match=r"more than 1 MB"):
        read_bytes(file)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_of_somebody_else_is_the_machines_fault(file: Path) -> None:
    file.touch(mode=0)
    with pytest.raises(HostError, match="Permission denied"):
        read_bytes(file)
