"""The gate with a GPU on every real image of this machine that its GPU runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ftbuild import config as configuration
from ftbuild import engine, options
from ftbuild.errors import HostError
from ftbuild.options import Selection
from ftbuild.plan import Plan
from ftbuild.smoke import gate

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "buildcfg"


def testable() -> list[Plan]:
    """The plans whose images are here and run on the GPU here; skips when there are none."""
    try:
        client = engine.connect()
    except HostError as missing:
        pytest.skip(f"needs Docker Engine: {missing.what}")
    config = configuration.load(CONFIG)
    planned = [
        plan for base in config.bases.bases for plan in options.plans(config, Selection(CONFIG, base=base))
    ]
    built = [plan for plan in planned if engine.image(client, plan.tag("runtime"))]
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
