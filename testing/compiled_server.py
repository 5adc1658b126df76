"""The image whose server is compiled from pinned sources, for tests of that server."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ftbuild.cli.selection import Selection, plans
from ftbuild.config import loader
from ftbuild.engine import daemon
from testing import ROOT

if TYPE_CHECKING:
    import docker

# Names another image, such as a cell's or a base of other patches.
VARIABLE = "FTBUILD_SERVER_IMAGE"
RELEASE, BASE = "26.06", "open-trixie"


def image(client: docker.DockerClient) -> str:
    """Return its name; the test skips where nobody has built it, since that takes half an hour."""
    given = os.environ.get(VARIABLE)
    config = loader.load(ROOT / "buildcfg")
    plan = plans(config, Selection(config.folder, [RELEASE], ["90"], base=[BASE]))[0]
    name = given or plan.base.serving
    if daemon.image(client, name) is None:
        pytest.skip(f"needs the server compiled from sources (invoke base --base {BASE}, half an hour)")
    return name
