"""The store of downloaded files, with a real web server."""

from __future__ import annotations

import hashlib
import os
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ftbuild.errors import HostError, PinError
from ftbuild.sources import downloads
from ftbuild.sources.downloads import Download, fetch_all, held, link_into
from ftbuild.text import reporter
from testing import web as server
from testing.web import Web

CONTENT = random.Random(1).randbytes(3_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
OTHER = b"other bytes"


@pytest.fixture
def web() -> Iterator[Web]:
    with server.serving() as started:
        yield started


def quiet(_: str) -> None:
    pass


def only(sha256: str, cache: Path) -> bool:
    """Return whether the store has this file and nothing half."""
    return [path.name for path in (cache / "files").iterdir() if path.is_file()] == [sha256]


def test_a_file_is_fetched_once_and_then_without_network(web: Web, tmp_path: Path) -> None:
    wanted = [Download("a.whl", SHA256, (web.add("/a.whl", CONTENT),))]
    said: list[str] = []
    found = fetch_all(wanted, tmp_path, said.append)
    assert found[SHA256].read_bytes() == CONTENT
    assert only(SHA256, tmp_path)
    assert said == ["a.whl: fetching 3 MB from 127.0.0.1"]
    web.contents.clear()
    assert fetch_all(wanted, tmp_path, said.append) == found
    assert len(web.seen) == len(said) == 1


@pytest.mark.parametrize("sizes", [True, False])
def test_many_small_files_are_told_together(web: Web, tmp_path: Path, sizes: bool) -> None:
    contents = [b"x" * 1000 + bytes([number]) for number in range(30)]
    wanted = [
        Download(
            f"{number}.deb",
            hashlib.sha256(content).hexdigest(),
            (web.add(f"/{number}.deb", content),),
            len(content) if sizes else None,
        )
        for number, content in enumerate(contents)
    ]
    said: list[str] = []
    fetch_all(wanted[:1], tmp_path, quiet)
    fetch_all(wanted, tmp_path, said.append)
    assert said == ["fetching 29 files, 29 kB" if sizes else "fetching 29 files"]
    fetch_all(wanted, tmp_path, said.append)
    assert len(said) == 1


def test_of_many_files_a_large_one_and_the_count_are_told(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter, "REPORT_SECONDS", 0.0)
    monkeypatch.setattr(downloads, "LARGE_BYTES", len(CONTENT))
    contents = [CONTENT, *(b"x" * 1000 + bytes([number]) for number in range(12))]
    wanted = [
        Download(f"{number}.deb", hashlib.sha256(content).hexdigest(), (web.add(f"/{number}", content),))
        for number, content in enumerate(contents)
    ]
    said: list[str] = []
    fetch_all(wanted, tmp_path, said.append)
    assert said[0] == "fetching 13 files"
    assert "0.deb: fetching 3 MB from 127.0.0.1" in said
    assert not [line for line in said if line.startswith("1.deb: fetching")]
    assert "fetched 13 of 13 files" in said


def test_other_bytes_than_the_pinned_ones_are_refused(web: Web, tmp_path: Path) -> None:
    wanted = Download("a.whl", SHA256, (web.add("/a.whl", OTHER),))
    with pytest.raises(PinError, match="other content") as refused:
        fetch_all([wanted], tmp_path, quiet)
    assert SHA256 in str(refused.value)
    assert hashlib.sha256(OTHER).hexdigest() in str(refused.value)
    assert not held(SHA256, tmp_path)
    assert len(web.seen) == 1


def test_the_next_url_is_tried_and_each_failure_named(web: Web, tmp_path: Path) -> None:
    wrong, right = web.add("/wrong", OTHER), web.add("/right", CONTENT)
    absent, silent = f"{web.url}/absent", "http://user:secret@127.0.0.1:1/a"
    wanted = Download("a.whl", SHA256, (absent, wrong, right))
    assert fetch_all([wanted], tmp_path, quiet)[SHA256].read_bytes() == CONTENT
    with pytest.raises(PinError) as refused:
        fetch_all([Download("b.whl", "0" * 64, (absent, wrong, silent))], tmp_path, quiet)
    assert f"{absent}: 404" in str(refused.value)
    assert f"{wrong}: other content" in str(refused.value)
    assert "***@127.0.0.1:1/a: connection refused" in str(refused.value)
    assert "secret" not in str(refused.value)
    assert "invoke doctor" in str(refused.value)


def test_an_answer_that_breaks_off_is_continued(web: Web, tmp_path: Path) -> None:
    wanted = Download("a.whl", SHA256, (web.add("/a.whl", CONTENT),))
    web.cut += [2_000_000, 500_000]
    assert fetch_all([wanted], tmp_path, quiet)[SHA256].read_bytes() == CONTENT
    assert web.seen[0] == "/a.whl"
    begun = [int(line.removeprefix("/a.whl bytes=").rstrip("-")) for line in web.seen[1:]]
    assert 1_500_000 < begun[0] <= 2_000_000 < begun[1] <= 2_500_000


def test_a_half_file_of_a_killed_run_is_continued_or_if_wrong_fetched_anew(web: Web, tmp_path: Path) -> None:
    wanted = Download("a.whl", SHA256, (web.add("/a.whl", CONTENT),))
    half = tmp_path / "files" / f"{SHA256}.partial"
    half.parent.mkdir()
    half.write_bytes(CONTENT[:1000])
    fetch_all([wanted], tmp_path, quiet)
    assert web.seen == ["/a.whl bytes=1000-"]
    for left in (b"wrong", CONTENT, CONTENT + b"more"):
        downloads.place(SHA256, tmp_path).unlink()
        half.write_bytes(left)
        assert fetch_all([wanted], tmp_path, quiet)[SHA256].read_bytes() == CONTENT
        assert only(SHA256, tmp_path)


def test_a_damaged_file_of_the_store_is_fetched_again(web: Web, tmp_path: Path) -> None:
    wanted = Download("a.whl", SHA256, (web.add("/a.whl", CONTENT),))
    file = fetch_all([wanted], tmp_path, quiet)[SHA256]
    file.chmod(0o644)
    file.write_bytes(CONTENT[:-1] + b"!")
    said: list[str] = []
    assert fetch_all([wanted], tmp_path, said.append)[SHA256].read_bytes() == CONTENT
    assert "damaged" in said[0]


def test_several_runs_at_once_fetch_a_file_once(web: Web, tmp_path: Path) -> None:
    wanted = [Download("a.whl", SHA256, (web.add("/a.whl", CONTENT),))]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: fetch_all(wanted, tmp_path, quiet), range(4)))
    assert all(paths == found[0] for paths in found)
    assert len(web.seen) == 1


def test_no_more_than_the_known_size_is_taken(web: Web, tmp_path: Path) -> None:
    wanted = Download("a.whl", "0" * 64, (web.add("/a.whl", CONTENT),), size=2_000_000)
    with pytest.raises(PinError, match="more than the 2000000 bytes"):
        fetch_all([wanted], tmp_path, quiet)


@pytest.mark.parametrize(("name", "sha256"), [("../a", SHA256), ("a/b", SHA256), ("", SHA256), ("a", "0")])
def test_what_would_leave_the_store_is_no_download(name: str, sha256: str) -> None:
    with pytest.raises(PinError):
        Download(name, sha256)


def test_a_folder_holds_exactly_the_files_asked_for(web: Web, tmp_path: Path) -> None:
    other = hashlib.sha256(OTHER).hexdigest()
    first = Download("a.whl", SHA256, (web.add("/a", CONTENT),))
    second = Download("b.whl", other, (web.add("/b", OTHER),))
    fetch_all([first, second], tmp_path, quiet)
    folder = tmp_path / "staged"
    link_into(folder, [first, second], tmp_path)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"a.whl": CONTENT, "b.whl": OTHER}
    link_into(folder, [Download("a.whl", other)], tmp_path)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"a.whl": OTHER}
    with pytest.raises(PinError, match="has not been downloaded"):
        link_into(folder, [Download("c.whl", "0" * 64)], tmp_path)
    with pytest.raises(PinError, match=r"the name a\.whl"):
        link_into(folder, [Download("a.whl", other), first], tmp_path)


def test_a_file_of_this_machine_enters_only_with_its_hash(tmp_path: Path) -> None:
    file = tmp_path / "a.whl"
    file.write_bytes(OTHER)
    with pytest.raises(PinError, match=SHA256):
        downloads.adopt(file, SHA256, tmp_path)
    other = hashlib.sha256(OTHER).hexdigest()
    assert downloads.adopt(file, other, tmp_path, quiet).read_bytes() == OTHER
    assert held(other, tmp_path)
    assert not file.exists()


def test_a_store_that_cannot_be_written_is_named(web: Web, tmp_path: Path) -> None:
    if sys.platform != "linux" or os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (tmp_path / "files").mkdir(mode=0o500)
    with pytest.raises(HostError, match="cannot be written"):
        fetch_all([Download("a", SHA256, (web.add("/a", CONTENT),))], tmp_path, quiet)
