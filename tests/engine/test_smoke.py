"""The gate with a GPU on the sample images, which compute on the CPU: they pass, and spoilt ones fail."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from ftbuild.engine import daemon
from ftbuild.plan import PRODUCTS, Plan
from testing.sample import SAMPLE, Derive, Invoke, add_patch, build_arguments, only_gpt, sample_plan

if TYPE_CHECKING:
    import docker

CELL = ("--sm", "80", "--triton", "22.12")
FAMILIES = {"gpt", "gptj", "gptneox", "t5"}
# The miniature then always takes the second best token.
WRONG_TOKEN = """\
--- a/src/fastertransformer/layers/DynamicDecodeLayer.cc
+++ b/src/fastertransformer/layers/DynamicDecodeLayer.cc
@@ -56,2 +56,2 @@
-    const uint32_t token = order[param_.beam_width > 1 ? beam_ : draw(probabilities, sum)];
+    const uint32_t token = order[1];
     const double log_prob = logits[token] - all;
"""


def smoke(invoke: Invoke, folder: Path, *more: str) -> Any:
    return invoke("smoke", "--config", str(folder), *CELL, *more)


@pytest.fixture(scope="module")
def spoilt(client: docker.DockerClient) -> Any:
    """Puts another image in the place of a plan's runtime image; undone at the end."""
    originals: dict[str, str] = {}

    def put(plan: Plan, name: str) -> None:
        tag = plan.tag("runtime")
        originals.setdefault(tag, daemon.require_image(client, tag))
        daemon.tag(client, name, tag)

    yield put
    for tag, image in originals.items():
        daemon.tag(client, image, tag)


@pytest.fixture
def moving_tags(client: docker.DockerClient, built: Plan) -> Iterator[None]:
    """They point to the good images again at the end, whatever a test builds for the same cell."""
    tags = [built.tag(product, moving=True) for product in PRODUCTS]
    before = {tag: daemon.require_image(client, tag) for tag in tags}
    yield
    for tag, image in before.items():
        daemon.tag(client, image, tag)


def test_the_sample_images_pass_and_the_record_is_bound_to_them(
    client: docker.DockerClient, invoke: Invoke, built: Plan, work: Path
) -> None:
    done = smoke(invoke, SAMPLE)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    folder = built.folder(work)
    record = json.loads((folder / "smoke.json").read_text())
    assert record["passed"]
    assert (record["gate"], record["key"], record["device"], record["gpus"]) == (
        "smoke",
        built.key,
        "cpu",
        [],
    )
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
        "beams that are close change places in fp16",
        *(f"{family} computes its positions, so none is the last" for family in FAMILIES - {"gpt"}),
    }
    assert record["figures"]["gpt-fp32"]["tokens_per_second"] > 0
    cases = list(ElementTree.parse(folder / "smoke.xml").getroot().iter("testcase"))
    assert len(cases) == len(record["findings"])


def test_models_are_made_once(invoke: Invoke, built: Plan) -> None:
    first, again = (smoke(invoke, SAMPLE, "--prepare") for _ in range(2))
    assert first.returncode == again.returncode == 0, first.stderr + again.stderr
    assert "making" not in again.stderr


def test_a_server_that_dies_at_load_fails_with_its_own_words(
    invoke: Invoke,
    built: Plan,
    derive: Derive,
    spoilt: Callable[..., None],
    sample_copy: Path,
) -> None:
    only_gpt(sample_copy)
    library = "/opt/tritonserver/backends/fastertransformer/libtransformer-shared.so"
    spoilt(built, derive("runtime", f"RUN rm {library}"))
    done = smoke(invoke, sample_copy)
    assert done.returncode == 9
    assert "the server ended before it was ready" in done.stdout
    assert "libtransformer-shared.so: cannot open shared object file" in done.stdout
    assert "`invoke verify` finds missing libraries" in done.stdout


def test_a_wrong_token_is_caught_by_the_check_of_tokens(
    invoke: Invoke, built: Plan, moving_tags: None, sample_copy: Path
) -> None:
    only_gpt(sample_copy)
    add_patch(sample_copy, "ft", "0999-wrong-token.patch", WRONG_TOKEN)
    assert invoke(*build_arguments(sample_copy)).returncode == 0
    done = smoke(invoke, sample_copy)
    assert done.returncode == 9
    assert re.search(
        r"fail +greedy tokens are the references +runtime(?:.*\n)+? +-> a kernel, the converter or a patch",
        done.stdout,
    ), done.stdout
    assert "token 1 is" in done.stdout


def test_without_a_gpu_nothing_is_tested_and_nothing_passes(
    invoke: Invoke, built: Plan, work: Path, sample_copy: Path
) -> None:
    only_gpt(sample_copy, device="gpu")
    record = built.folder(work) / "smoke.json"
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
