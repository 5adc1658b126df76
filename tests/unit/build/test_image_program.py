"""The program that an image runs without a command."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from ftbuild import triton
from testing import ROOT
from testing.sample import sample_plan

PROGRAM = ROOT / "dockerfiles" / "steps" / "ftbuild-image"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CLOSING = "  --http-restricted-api <string>\n"


def run(
    tmp_path: Path, *arguments: str, options: str = "", about: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run it with an mpirun that prints its arguments and a server that has these options."""
    programs = {
        "mpirun": 'for word in "$@"; do echo "$word"; done',
        "tritonserver": f"cat <<'END'\nusage\n{options}END",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "FTBUILD_ABOUT": about}
    return subprocess.run(
        ["sh", str(PROGRAM), *arguments], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("version", "options"), [("2.29.0", ""), ("2.51.0", CLOSING), ("2.70.0", CLOSING)])
def test_it_serves_as_ftbuild_does(tmp_path: Path, version: str, options: str) -> None:
    """Its command is that of deployments (ftbuild/triton.py), whose random words differ."""
    own = run(tmp_path, "serve", "--log-verbose=1", "a b", options=options)
    argv = [*triton.command(version), "--log-verbose=1", "a b"]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    theirs = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    assert own.returncode == 0, own.stderr
    assert own.stdout.splitlines()[-2:] == ["--log-verbose=1", "a b"]
    # Each pair of header and value is one word, in both options of ours the same one.
    assert sorted(UUID.sub("x", own.stdout).splitlines()) == sorted(UUID.sub("x", theirs.stdout).splitlines())
    assert bool(UUID.search(own.stdout)) == bool(options)


def test_the_line_that_it_prints_has_what_a_server_needs(tmp_path: Path) -> None:
    said = run(tmp_path, about="22.12-sm80: a server").stdout
    assert said.startswith("22.12-sm80: a server\n")
    line = said[said.index("docker run") : said.index("ftbuild-image serve") + len("ftbuild-image serve")]
    words = shlex.split(line.replace("\\\n", " "))
    assert f"--shm-size={triton.SHARED_MEMORY}" in words
    assert [f"{name}={value}" for name, value in triton.LIMITS.items()] == [
        words[place + 1] for place, word in enumerate(words) if word == "--ulimit"
    ]
    published = {words[place + 1] for place, word in enumerate(words) if word == "--publish"}
    assert published == {
        f"127.0.0.1:{port}:{port}" for port in (triton.HTTP_PORT, triton.GRPC_PORT, triton.METRICS_PORT)
    }
    assert words[-3:] == ["IMAGE", "ftbuild-image", "serve"]
    page = (ROOT / "docs" / "run-an-image.md").read_text()
    assert all(word in page for word in words if word.startswith(("--shm", "127.")))


def test_an_unknown_word_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "server")
    assert (done.returncode, done.stdout) == (2, "")
    assert "server is unknown" in done.stderr


def test_a_plan_says_what_the_images_are() -> None:
    plan = sample_plan()
    assert plan.about() == (
        "22.12-sm80: Triton Inference Server 2.51.0 with the FasterTransformer backend 1.4, for GPUs of "
        "SM 80, CUDA 11.8, driver 525 or later; fixes until 2028-06-30"
    )
    assert plan.arguments()["ABOUT"] == plan.about()
