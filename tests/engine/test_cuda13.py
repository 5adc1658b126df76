"""The base with CUDA 13: what its nvcc makes of the sample stack for a GPU that CUDA 11.8 does not know."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftbuild.cli.demo import ask, model_repository
from ftbuild.cli.selection import Selection, plans
from ftbuild.client import server_container
from ftbuild.config import loader
from testing import built_images, nvcc_names
from testing.sample import Invoke, copy_of_sample

if TYPE_CHECKING:
    import docker

TRITON, SM, BASE = "24.10", "120", "open-cuda13"


@pytest.fixture
def folder(client: docker.DockerClient, tmp_path: Path) -> Iterator[Path]:
    """The sample configuration, with a name of its own for the images; the base stays on the machine."""
    image = f"ftbuild-test-{uuid.uuid4().hex[:12]}"
    yield copy_of_sample(tmp_path, image)
    built_images.remove(client, image)


def test_cuda_13_compiles_for_a_blackwell_gpu_alone_and_what_it_made_passes_verify_and_serves(
    folder: Path, invoke: Invoke, work: Path, tmp_path: Path
) -> None:
    cell = ("--triton", TRITON, "--sm", SM, "--base", BASE)
    done = invoke("build", "--config", str(folder), *cell, "--progress", "plain")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    (plan,) = plans(loader.load(folder), Selection(folder, [TRITON], [SM], base=[BASE]))
    findings = json.loads((plan.folder(work) / "verify.json").read_text())["findings"]
    codes = [found["facts"] for found in findings if found["check"] == "machine code"]
    # SASS and PTX of both images.
    assert [set(sms) for facts in codes for sms in facts.values()] == [{f"sm_{SM}"}] * 4
    with server_container.serve(plan.tag("runtime"), model_repository(tmp_path / "models")) as running:
        ask(running)


def test_what_its_nvcc_makes_depends_neither_on_the_time_of_a_source_nor_on_the_tree(
    client: docker.DockerClient, folder: Path, invoke: Invoke
) -> None:
    done = invoke("base", "--config", str(folder), "--triton", TRITON, "--base", BASE)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    (plan,) = plans(loader.load(folder), Selection(folder, [TRITON], [SM], base=[BASE]))
    nvcc_names.assert_fixed(client, plan)
