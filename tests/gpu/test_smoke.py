"""The gate with a GPU on every real image of this machine that its GPU runs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ftbuild.config import loader
from ftbuild.engine import daemon
from ftbuild.errors import HostError
from ftbuild.gates.smoke import gate
from ftbuild.plan import LABELS, Plan
from testing import ROOT, built_images

CONFIG = ROOT / "buildcfg"


def plans_that_run() -> list[Plan]:
    """The plans whose images are here and run on the GPU here; skips when there are none."""
    try:
        client = daemon.connect()
    except HostError as missing:
        pytest.skip(f"needs Docker Engine: {missing.what}")
    images = client.images.list(filters={"label": f"{LABELS}.product=runtime"})
    planned = built_images.plans(loader.load(CONFIG), (image.labels for image in images))
    built = [plan for plan in planned if daemon.image(client, plan.tag("runtime"))]
    if not built:
        pytest.skip("no image of the real sources is built here: invoke build")
    try:
        access = gate.find_gpus(client, built[0])
    except HostError as missing:
        pytest.skip(f"needs a GPU: {missing.what}")
    return [plan for plan in built if not gate.unfit(plan, access)]


def test_every_image_that_runs_here_passes() -> None:
    plans = plans_that_run()
    if not plans:
        pytest.skip("the GPU here runs none of the images built here")
    for plan in plans:
        done = subprocess.run(
            [sys.executable, "-m", "invoke", "smoke", *built_images.options(plan)],
            cwd=ROOT,
            env=os.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
