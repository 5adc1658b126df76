"""What a killed command leaves in the engine, and the next one that removes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftbuild import pipeline
from ftbuild.build.run import BuildOptions
from ftbuild.engine import container, daemon
from testing import ROOT
from testing.sample import sample_plan

if TYPE_CHECKING:
    import docker

PROGRAM = """
import sys, time
from ftbuild.engine import container, daemon
with container.created(daemon.connect(), sys.argv[1], "sleep 600", role="convert") as made:
    made.start()
    print(made.id, flush=True)
    time.sleep(600)
"""


@pytest.mark.usefixtures("base")
def test_the_container_of_a_killed_command_is_removed_by_the_next_one(
    client: docker.DockerClient, tmp_path: Path
) -> None:
    image = sample_plan().base.serving
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, image],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as command:
        assert command.stdout is not None
        orphan = client.containers.get(command.stdout.readline().strip())
        said: list[str] = []

        def build() -> None:
            pipeline.build_cells([], BuildOptions(tmp_path, tmp_path), report=said.append)

        def about_it() -> list[str]:
            return [line for line in said if str(orphan.name) in line]

        build()
        assert about_it() == []  # its command still runs
        command.kill()
        command.wait()
        with container.created(client, image, "true", role="verify") as ours:
            build()
            # A command of another test may have been the next one.
            assert about_it() in ([], [f"removed {orphan.name} (convert), left behind by a killed command"])
            left = client.containers.list(all=True, filters={"label": daemon.OWNER}, ignore_removed=True)
            assert orphan.id not in [each.id for each in left]
            assert ours.id in [each.id for each in left]
