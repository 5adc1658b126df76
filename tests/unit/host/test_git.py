from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ftbuild.errors import HostError
from ftbuild.host.git import NO_REPOSITORY, REMOTE, git, last_line, remote
from ftbuild.host.shell import CommandFailed
from testing.tokens import running


@pytest.fixture
def logins() -> Iterator[tuple[str, list[str]]]:
    """A server that wants a login and refuses every one: its `host:port`, and the logins it was sent."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.extend(filter(None, [self.headers.get("Authorization")]))
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with running(server):
        yield f"127.0.0.1:{server.server_address[1]}", seen


def test_a_password_reaches_the_server_and_no_command_line(
    logins: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    host, seen = logins
    lines: set[str] = set()
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    lines.add(file.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
                except OSError:
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with pytest.raises(CommandFailed):
            git(
                "ls-remote",
                REMOTE,
                "HEAD",
                env={**NO_REPOSITORY, **remote(f"http://me:s3cr%40et@{host}/x.git")},
            )
    finally:
        stop.set()
        watcher.join()
    assert "Basic bWU6czNjckBldA==" in seen  # me:s3cr@et
    assert any("ls-remote" in line for line in lines)
    assert not [line for line in lines if "s3cr" in line]


def test_settings_that_the_user_passes_by_variables_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream = tmp_path / "upstream"
    subprocess.run(["git", "init", "--quiet", str(upstream)], check=True)
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.{upstream}.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://example.invalid/x.git")
    env = {**NO_REPOSITORY, **remote("https://example.invalid/x.git")}
    assert git("ls-remote", REMOTE, env=env).code == 0


@pytest.mark.parametrize("count", ["abc", "-1", "1e3", "99999", "\u0663", " 1"])
def test_a_number_of_settings_that_is_none_ends_with_a_message(
    count: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", count)
    with pytest.raises(HostError, match=r"the variable GIT_CONFIG_COUNT is .*, not a number"):
        remote("https://example.invalid/x.git")


def test_the_cause_of_a_failure_is_named_and_not_its_consequence(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    git("init", "--quiet", str(repository))
    # Whatever the user's own settings say of safe.directory.
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}
    with pytest.raises(CommandFailed) as failed:
        git("ls-remote", repository.as_uri(), env=own)
    assert "dubious ownership" in last_line(failed.value)
    with pytest.raises(CommandFailed) as failed:
        git("ls-remote", (tmp_path / "nowhere").as_uri())
    assert "does not appear to be a git repository" in last_line(failed.value)


def test_a_full_disk_is_the_one_that_git_names_and_not_that_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "fatal: cannot mkdir /small/ft.git: No space left on device"
    program = tmp_path / "git"
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 128\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(HostError, match="the disk is full") as failed:
        git("init", "--bare", "/small/ft.git")
    assert failed.value.where == said
    assert "MB are free" not in failed.value.what


def test_other_failures_of_git_are_no_full_disk_wherever_the_user_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No byte is free in /proc."""
    monkeypatch.chdir("/proc")
    with pytest.raises(CommandFailed, match="not appear to be a git repository"):
        git("ls-remote", "/nowhere/at.git")
