"""The gate with a GPU on every real image of this machine that its GPU runs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ftbuild.cli import selection
from ftbuild.cli.selection import Selection
from ftbuild.config import loader
from ftbuild.engine import daemon
from ftbuild.errors import HostError
from ftbuild.gates.smoke import gate
from ftbuild.plan import Plan
from testing import ROOT

CONFIG = ROOT / "buildcfg"


def testable() -> list[Plan]:
    """The plans whose images are here and run on the GPU here; skips when there are none."""
    try:
        client = daemon.connect()
    except HostError as missing:
        pytest.skip(f"needs Docker Engine: {missing.what}")
    config = loader.load(CONFIG)
    planned = [
        plan for base in config.bases.bases for plan in selection.plans(config, Selection(CONFIG, base=base))
    ]
    built = [plan for plan in planned if daemon.image(client, plan.tag("runtime"))]
    if not built:
        pytest.skip("no image of the real sources is built here: invoke build")
    try:
        access = gate.find_gpus(client, built[0])
    except HostError as missing:
        pytest.skip(f"needs a GPU: {missing.what}")
    return [plan for plan in built if not gate.unfit(plan, access)]


def test_every_image_that_runs_here_passes() -> None:
    plans = testable()
    if not plans:
        pytest.skip("the GPU here runs none of the images built here")
    for plan in plans:
        arguments = ["--cell", plan.cell.id, "--base", plan.base.name]
        done = subprocess.run(
            [sys.executable, "-m", "invoke", "smoke", *arguments],
            cwd=ROOT,
            env=os.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
