"""The Compose file of the sample stack, brought up by Docker Compose."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftserve.deployment import Deployment
from ftserve.targets import compose
from testing import needs
from testing.serving import KILL, RIGHT, add_models, answer, expect_strict, inside, open_to_all
from testing.waiting import until

if TYPE_CHECKING:
    import docker
    from docker.models.containers import Container

SECONDS = 60


@pytest.fixture
def up(client: docker.DockerClient, wanted: Deployment, tmp_path: Path) -> Iterator[Container]:
    """The server of the file, once Compose calls it healthy; asked more often, so that tests are short.

    One of its models is Python, one streams.
    """
    assert wanted.models is not None
    add_models(wanted.models)
    open_to_all(wanted.models)
    file = tmp_path / "compose.yaml"
    file.write_text(compose.render(wanted).replace("interval: 10s", "interval: 1s"))
    program = [*needs.compose(), "--file", str(file)]
    try:
        begin = [*program, "up", "--detach", "--wait", "--wait-timeout", str(SECONDS)]
        done = subprocess.run(begin, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        yield client.containers.get(f"{wanted.name}-{compose.SERVICE}-1")
    finally:
        subprocess.run([*program, "down", "--timeout", "1"], capture_output=True, check=True)


def test_a_killed_server_is_started_again_and_answers(up: Container, wanted: Deployment) -> None:
    assert answer(wanted.ports.http) == RIGHT
    expect_strict(up, wanted)
    assert up.attrs["State"]["Health"]["Log"][-1]["Output"] == "answers: ensemble streamed\n"
    inside(up, "sh", "-c", KILL)

    def restarted() -> bool:
        up.reload()
        return (up.attrs["RestartCount"], up.attrs["State"].get("Health", {}).get("Status")) == (1, "healthy")

    assert until(restarted, SECONDS), up.attrs["State"]
    assert answer(wanted.ports.http) == RIGHT
