"""Text of others on the way to a terminal: nothing in it does anything there."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ftbuild import triton
from ftbuild.cli import streams
from ftbuild.errors import ConversionError, PinError
from ftbuild.models import conversion_run
from ftbuild.sources import downloads
from ftbuild.sources.downloads import Download
from testing import ROOT, osv_files, sources
from testing import web as server
from testing.osv_files import record

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil"
_ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def test_what_commands_print_passes_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever prints, and in how many parts."""
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.StringIO())
    shown = sys.stdout, sys.stderr
    streams.prepare()
    print(EVIL, "one\ttwo")
    print("half \x1b", end="")
    print("]0;owned\x07", file=sys.stderr)
    sys.stderr.write("\r\x1b[2K")
    for stream in shown:
        assert isinstance(stream, io.StringIO)
        assert not _ACTS.search(stream.getvalue()), stream.getvalue()
    assert isinstance(shown[0], io.StringIO)
    assert "evil one\ttwo\n" in shown[0].getvalue()


def test_nothing_goes_round_that_place() -> None:
    """A program that draws on a terminal of its own is shown as it is, and so is our own bar."""
    around = re.compile(r"sys\.(?:__)?std(?:out|err)|os\.write\(|\bconsole\b|/dev/tty")
    found = {
        file.relative_to(ROOT).as_posix()
        for file in sources()
        if any(around.search(line) for line in file.read_text().splitlines() if "file=sys.stderr" not in line)
    }
    known = {
        "ftbuild/build/display.py",  # quotes words of ours, and what the log says passes the same filter
        "ftbuild/cli/early.py",  # says in words of its own that a signal came
        "ftbuild/cli/streams.py",
        "ftbuild/host/shell.py",
        "ftbuild/host/signals.py",  # says in words of its own that a signal came
        "ftbuild/models/progress.py",
        "ftbuild/text/reporter.py",
        "ftbuild/text/screen.py",  # its colours alone: the rest passes the same filter
    }
    # Programs that run alone.
    alone = ("ftserve/front/", "ftbuild/gates/", "ftbuild/models/vectors/")
    assert {file for file in found if not file.startswith(alone)} <= known


def test_the_names_in_records_of_holes_and_sboms_are_shown_without_codes(tmp_path: Path) -> None:
    database = osv_files.write(
        tmp_path / "x.zip", record(f"CVE-{EVIL}", "Debian:12", "openssl", {"introduced": "0"})
    )
    urls = ["pkg:deb/debian/openssl@3.0?distro=debian-12", "pkg:generic/a%1b%5b2Jb"]
    packages = [
        {"SPDXID": f"P{n}", "externalRefs": [{"referenceType": "purl", "referenceLocator": url}]}
        for n, url in enumerate(urls)
    ]
    bill = tmp_path / "sbom.json"
    bill.write_text(json.dumps({"spdxVersion": "SPDX-2.3", "name": EVIL, "packages": packages}))
    command = [sys.executable, "-m", "invoke", "--search-root", str(ROOT), "audit.holes", "--sbom", str(bill)]
    done = subprocess.run(
        [*command, "--database", str(database)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 8, done.stderr
    assert "CVE-" in done.stdout
    assert not _ACTS.search(done.stdout + done.stderr)


def test_what_a_converter_and_a_server_say_is_quoted_without_codes(tmp_path: Path) -> None:
    for code, output in ((1, f"{EVIL}\n"), (0, f"[ERROR] {EVIL}")):
        with pytest.raises(ConversionError) as failed:
            conversion_run._check_output(code, output, tmp_path / "a" / "b", tmp_path / "log")
        assert not _ACTS.search(str(failed.value))
    assert not _ACTS.search(triton.log_excerpt(f"{EVIL}\nE1121 {EVIL}\n".encode()).replace("\n", " "))


@pytest.mark.parametrize("length", ["12abc", "-5", "1" * 30, "\u0663", "5, 6", ""])
def test_a_mirror_may_state_any_size(length: str) -> None:
    """What it sends is compared with the pin; its size is shown only where it is one."""
    assert downloads._stated(length) == 0
    assert downloads._stated("12") == 12
    assert downloads._stated(None) == 0


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 404 " + EVIL.encode("latin-1", "replace") + b"\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 12abc\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello",
        b"HTTP/1.0 " + b"9" * 100 + b"\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
)
def test_an_odd_answer_of_a_mirror_ends_with_a_message(answer: bytes, tmp_path: Path) -> None:
    with server.answering(answer) as url, pytest.raises(PinError) as refused:
        downloads.fetch_all([Download("x.deb", "0" * 64, (f"{url}/x",), 5)], tmp_path, lambda line: None)
    assert not _ACTS.search(str(refused.value))
