"""The command line of a server, by what its version can close to clients."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ftbuild import triton
from ftbuild.plan import LABELS
from ftserve import image_choice
from ftserve.deployment import Options, decide
from ftserve.requirements import Needs


def command(server: str | None) -> tuple[str, ...]:
    """Return how an image whose label names this server is served."""
    labels = {f"{LABELS}.server": server} if server else {}
    image = image_choice.described("triton_with_ft:22.12-sm80", labels)
    return decide(Options(None), Needs(), image, "cpu").command


@pytest.mark.parametrize("server", [None, "2.20.0", "2.36.0", "2.39.9"])
def test_a_server_that_cannot_close_anything_gets_no_option_for_it(server: str | None) -> None:
    assert command(server) == triton.COMMAND


@pytest.mark.parametrize("server", ["2.40.0", "2.51.0", "2.100.0"])
def test_what_harms_others_answers_to_a_header_that_nobody_knows(server: str, tmp_path: Path) -> None:
    """The command runs with a program in place of the launcher that prints what it gets."""
    launcher = tmp_path / "mpirun"
    launcher.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    launcher.chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    first, second = (
        subprocess.run(
            [*command(server), "--http-port=9"], env=path, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for _ in range(2)
    )
    assert first[:-3] == list(triton.COMMAND[1:])
    assert first[-1] == "--http-port=9", "what a platform appends reaches the server"
    form = r"--(\S+)=shared-memory,trace,logging:([0-9a-f-]{36})=([0-9a-f-]{36})"
    closed = [re.findall(form, argument)[0] for argument in first[-3:-1]]
    assert [option for option, *_ in closed] == ["http-restricted-api", "grpc-restricted-protocol"]
    assert len({secret for _, *secrets in closed for secret in secrets}) == 4
    assert first[-3:-1] != second[-3:-1]


def test_a_killed_server_leaves_nothing_that_keeps_the_next_one_from_starting(tmp_path: Path) -> None:
    """Open MPI 5 refuses a session folder that is there; those of other processes may be in use."""
    launcher = tmp_path / "mpirun"
    launcher.write_text("#!/bin/sh\nls -d /tmp/prterun.*\n")
    launcher.chmod(0o755)
    host = os.uname().nodename
    left, others = Path(f"/tmp/prterun.{host}.1.ftbuild"), Path(f"/tmp/prterun.{host}.19.ftbuild")
    try:
        for folder in (left, others):
            (folder / "0").mkdir(parents=True)
        path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        found = subprocess.run(command("2.70.0"), env=path, capture_output=True, text=True, check=True).stdout
        assert str(others) in found.splitlines()
        assert str(left) not in found.splitlines()
    finally:
        for folder in (left, others):
            shutil.rmtree(folder, ignore_errors=True)
