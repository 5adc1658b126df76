"""The gate with a GPU on the sample images, which compute on the CPU: they pass, and spoilt ones fail."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from ftbuild.engine import daemon
from ftbuild.plan import Plan
from testing import ROOT, waiting
from testing.nightly import SHORT_SMOKE
from testing.sample import (
    SAMPLE,
    Derive,
    Invoke,
    add_patch,
    build_arguments,
    command,
    environment,
    only_gpt,
    sample_plan,
    wrong_token,
)
from testing.throw_away import containers_of

if TYPE_CHECKING:
    import docker

CELL = ("--sm", "80", "--triton", "22.12")
FAMILIES = {"gpt", "mpt", "gptj", "gptneox", "t5"}
# Those whose positions are numbered.
LIMITED = {"gpt", "mpt"}


def smoke(invoke: Invoke, folder: Path, *more: str, **extra: str) -> Any:
    return invoke("smoke", "--config", str(folder), *CELL, *more, **extra)


def name_images(client: docker.DockerClient, folder: Path, runtime: str, sdk: str) -> None:
    """Give two images the names that the cell has in a copied configuration."""
    plan = sample_plan(folder)
    daemon.tag(client, runtime, plan.tag("runtime"))
    daemon.tag(client, sdk, plan.tag("sdk"))


def test_the_sample_images_pass_and_the_record_is_bound_to_them(
    client: docker.DockerClient, invoke: Invoke, built: Plan, work: Path
) -> None:
    done = smoke(invoke, SAMPLE, "--servers", "2")
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert re.search(r"\d+ of \d+ tests in .*, about .* left", done.stderr)
    folder = built.folder(work)
    record = json.loads((folder / "smoke.json").read_text())
    assert record["passed"]
    assert (record["gate"], record["key"], record["device"], record["gpus"]) == (
        "smoke",
        built.key,
        "cpu",
        [],
    )
    assert record["servers"] == 2
    for product in ("runtime", "sdk"):
        image = daemon.image(client, built.tag(product))
        assert image is not None
        assert record["images"][product]["id"] == image.id
    states = {(f["check"], f["facts"]["variant"].split("-")[0]): f["state"] for f in record["findings"]}
    assert {family for _, family in states} >= FAMILIES
    # Nothing is skipped but for a reason that holds for the sample.
    reasons = {f["detail"] for f in record["findings"] if f["state"] == "skip"}
    assert {reason.rpartition(": ")[2] for reason in reasons} <= {
        "this release does not stream t5",
        "this release launches kernel by kernel, or there is no GPU",
        "beams that are close change places in fp16",
        "the image is built with beams",
        "the sample's backend computes without weights",
        *(f"{family} computes its positions, so none is the last" for family in FAMILIES - LIMITED),
    }
    assert record["figures"]["gpt-fp32"]["tokens_per_second"] > 0
    cases = list(ElementTree.parse(folder / "smoke.xml").getroot().iter("testcase"))
    assert len(cases) == len(record["findings"])


def test_no_server_outlives_an_interrupt(client: docker.DockerClient, built: Plan, work: Path) -> None:
    arguments = command("smoke", "--config", str(SAMPLE), *CELL, "--servers", "2")
    with subprocess.Popen(
        arguments, cwd=ROOT, env=environment(work), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as child:
        assert waiting.until(
            lambda: len(containers_of(client, child.pid, "server")) == 2, seconds=300, pause=0.5
        )
        owned = containers_of(client, child.pid, "server")
        child.send_signal(signal.SIGINT)
        assert child.wait(300) == 130
    left = {each.name for each in client.containers.list(all=True, ignore_removed=True)}
    assert not left & owned


def test_models_are_made_once(invoke: Invoke, built: Plan, work: Path) -> None:
    first, again = (smoke(invoke, SAMPLE, "--prepare") for _ in range(2))
    assert first.returncode == again.returncode == 0, first.stderr + again.stderr
    assert "making" not in again.stderr
    assert all(f"models are in {built.folder(work)}/smoke" in each.stderr for each in (first, again))


def test_a_server_that_dies_at_load_fails_with_its_own_words(
    client: docker.DockerClient, invoke: Invoke, built: Plan, derive: Derive, sample_copy: Path
) -> None:
    only_gpt(sample_copy)
    library = "/opt/tritonserver/backends/fastertransformer/libtransformer-shared.so"
    name_images(client, sample_copy, derive("runtime", f"RUN rm {library}"), built.tag("sdk"))
    done = smoke(invoke, sample_copy)
    assert done.returncode == 9
    assert "the server ended before it was ready" in done.stdout
    assert "libtransformer-shared.so: cannot open shared object file" in done.stdout
    assert f"`invoke verify --config {sample_copy}` finds missing libraries" in done.stdout


def test_a_patch_to_one_file_compiles_that_file_only_and_its_wrong_token_is_caught(
    invoke: Invoke, built: Plan, work: Path, sample_copy: Path
) -> None:
    only_gpt(sample_copy)
    add_patch(sample_copy, "ft", "0999-wrong-token.patch", wrong_token())
    done = invoke(*build_arguments(sample_copy))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    statistics = (sample_plan(sample_copy).folder(work) / "info" / "backend" / "ccache.txt").read_text()
    misses = re.search(r"Misses:\s+(\d+)", statistics)
    assert misses, statistics
    assert int(misses[1]) == 1

    done = smoke(invoke, sample_copy, **SHORT_SMOKE)
    assert done.returncode == 9
    assert re.search(
        r"fail +answers equal the references +runtime(?:.*\n)+? +-> a kernel, the converter or a patch",
        done.stdout,
    ), done.stdout
    assert "token 1 is" in done.stdout


def test_without_a_gpu_nothing_is_tested_and_nothing_passes(
    client: docker.DockerClient, invoke: Invoke, built: Plan, work: Path, sample_copy: Path
) -> None:
    only_gpt(sample_copy, device="gpu")
    name_images(client, sample_copy, built.tag("runtime"), built.tag("sdk"))
    record = sample_plan(sample_copy).folder(work) / "smoke.json"
    record.unlink(missing_ok=True)
    done = smoke(invoke, sample_copy)
    assert done.returncode == 4
    assert "no GPU: nothing was tested, and nothing passed" in done.stderr
    assert not record.exists()


def test_an_image_that_is_not_built_is_named(invoke: Invoke, built: Plan) -> None:
    done = invoke("smoke", "--config", str(SAMPLE), "--sm", "90", "--triton", "22.12")
    assert done.returncode == 9
    assert f"there is no image {sample_plan(sm='90').tag('runtime')}" in done.stderr
    assert "invoke build" in done.stderr
