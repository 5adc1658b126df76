"""The gate without a GPU on the sample images: they pass, and each check fails on an image made for that."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ftbuild.engine import container, daemon
from ftbuild.errors import VerifyError
from ftbuild.gates.report import VERIFY, GateReport
from ftbuild.gates.subject import Subject
from ftbuild.gates.verify import gate
from ftbuild.gates.verify.checks import libraries
from ftbuild.gates.verify.images import Images
from ftbuild.host.paths import cache_folder
from ftbuild.plan import Plan
from ftbuild.sm import Sm
from ftbuild.text.reporter import Reporter
from ftbuild.text.results import State
from testing import ROOT, waiting
from testing.sample import SAMPLE, Derive, Invoke, command, environment, sample_plan
from testing.throw_away import containers_of

if TYPE_CHECKING:
    import docker

TOOLS = "/opt/ftbuild/fastertransformer_backend/tools"


def subject(
    client: docker.DockerClient, plan: Plan, folder: Path, report: Reporter = lambda message: None
) -> Subject:
    return Subject(client, plan, folder, cache_folder(), report)


def verified(client: docker.DockerClient, plan: Plan, images: Mapping[str, str]) -> GateReport:
    return gate.verify(subject(client, plan, Path("/nonexistent")), images=images)


def names(plan: Plan, **changed: str) -> dict[str, str]:
    return {"runtime": plan.tag("runtime"), "sdk": plan.tag("sdk"), **changed}


@dataclass(frozen=True)
class Fault:
    """What spoils an image, and the check that must fail for it, with its words."""

    product: str
    lines: str
    check: str
    detail: str
    hint: str


# Faults of one group are seen apart, so that one pair of images may have them all.
FAULTS = {
    "what is in the images": [
        Fault(
            "runtime",
            "RUN printf '#!/bin/sh\\n' > /usr/bin/gcc-11 && chmod 755 /usr/bin/gcc-11",
            "left-overs",
            "compiler or build tool: /usr/bin/gcc-11",
            "a stage of dockerfiles/triton-ft.Dockerfile leaves it",
        ),
        Fault(
            "runtime",
            "RUN echo '-----BEGIN PRIVATE KEY-----' > /opt/server.pem\n"
            "ENV https_proxy=http://user:secret@proxy:3128",
            "left-overs",
            "key or password: /opt/server.pem\npassword in a URL: environment",
            "must be revoked",
        ),
        Fault(
            "runtime",
            "LABEL io.ftbuild.cuda=99",
            "labels",
            "io.ftbuild.cuda is '99', in the plan '11.8'",
            "invoke build --rebuild",
        ),
        Fault(
            "runtime",
            "ENV NCCL_LAUNCH_MODE=PARALLEL",
            "environment",
            "NCCL_LAUNCH_MODE=GROUP is not set",
            "invoke build --rebuild",
        ),
        Fault("runtime", "USER root", "user", "the image runs as root", "USER"),
        Fault(
            "runtime",
            "RUN chown 4242 /opt/tritonserver/LICENSE",
            "owners",
            "/opt/tritonserver/LICENSE (owner 4242:0)",
            "COPY with --chown",
        ),
        Fault(
            "runtime",
            "RUN chmod u+s /usr/bin/env",
            "rights",
            "setuid or setgid: /usr/bin/env (mode 4755)",
            "chmod it",
        ),
        Fault(
            "runtime",
            "RUN rm /opt/tritonserver/bin/tritonserver",
            "server starts",
            "tritonserver",
            "the server must start",
        ),
        Fault(
            "sdk",
            f"RUN sed -i 's/astype(bool)/astype(np.bool)/' {TOOLS}/identity_test.py",
            "patches",
            "backend/0030-np-bool.patch: backend/tools/identity_test.py differs",
            "invoke build --rebuild",
        ),
    ],
    "what the images lack": [
        Fault(
            "runtime",
            "RUN rm /usr/lib/x86_64-linux-gnu/libcudart.so.11.0",
            "libraries resolve",
            "batchstrategy.so: libcudart.so.11.0 => not found",
            "the base lacks a package",
        ),
        Fault("runtime", "RUN rm /usr/bin/mpirun", "server starts", "mpirun", "the server must start"),
        # Two checks look at it.
        Fault(
            "runtime",
            "RUN rm /usr/local/lib/libnccl.so.2",
            "libraries resolve",
            "libnccl.so.2 => not found",
            "the base lacks a package",
        ),
        Fault("runtime", "", "NCCL", "there is no libnccl.so.2", "the base must contain NCCL"),
        Fault("runtime", "", "all libraries", "needs libnccl.so.2", "`without` leaves out"),
        # Its script shares a container with those of others.
        Fault(
            "runtime",
            "RUN rm -r /usr/local/lib/python3.11/dist-packages/tokenizers",
            "tokenization",
            "No module named 'tokenizers'",
            "by hand",
        ),
        Fault(
            "sdk",
            "RUN rm /usr/lib/x86_64-linux-gnu/libcudart.so.11.0",
            "python library",
            "libcudart.so.11.0",
            "by hand",
        ),
    ],
}


def test_the_built_images_pass_and_the_record_is_bound_to_them(
    client: docker.DockerClient, built: Plan, work: Path
) -> None:
    """A build ends with verify."""
    record = json.loads((built.folder(work) / VERIFY.record).read_text())
    assert record["passed"]
    assert {finding["state"] for finding in record["findings"]} == {"ok"}
    checked = {(finding["check"], finding["image"]) for finding in record["findings"]}
    assert checked == {(demand.check, demand.image) for demand in gate.demands()}
    for product in ("runtime", "sdk"):
        image = daemon.image(client, built.tag(product))
        assert image is not None
        assert record["images"][product]["id"] == image.id
    assert record["key"] == built.key
    facts = {(f["check"], f["image"]): f["facts"] for f in record["findings"]}
    assert set(facts["machine code", "runtime"]["sass"]) == {"sm_80"}
    assert facts["layers", "runtime"]["layers"]


def test_without_the_staged_sources_compiled_patches_are_skipped_and_nothing_is_left_behind(
    client: docker.DockerClient, built: Plan, derive: Derive
) -> None:
    image = derive("runtime", f"LABEL test={uuid.uuid4().hex}")
    report = verified(client, built, names(built, runtime=image))
    assert report.exit_code == 0
    skipped = [result for result in report.results if result.state is State.SKIP]
    assert [result.check for result in skipped] == ["patches"]
    assert "ft/0070-include-array.patch" in skipped[0].facts["patches"]
    assert client.containers.list(all=True, filters={"ancestor": image}) == []


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_the_right_checks_fail_and_name_a_next_step(
    client: docker.DockerClient, built: Plan, derive: Derive, faults: list[Fault]
) -> None:
    lines = {p: [f.lines for f in faults if f.product == p] for p in ("runtime", "sdk")}
    images = {product: derive(product, "\n".join(added)) for product, added in lines.items()}
    report = verified(client, built, images)
    failed = {(result.check, result.subject): result for result in report.failed}
    assert set(failed) == {(fault.check, fault.product) for fault in faults}, report.render()
    for fault in faults:
        result = failed[fault.check, fault.product]
        assert fault.detail in result.detail
        assert fault.hint in result.hint
    with pytest.raises(VerifyError, match=faults[0].check):
        report.require()


def test_no_container_can_do_more_than_its_check_needs_and_few_are_started(
    client: docker.DockerClient, built: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the server's container, server_container tells."""
    from docker.models.containers import Container, ContainerCollection

    create, start = ContainerCollection.create, Container.start
    made: list[Container] = []
    started: list[tuple[str, str]] = []

    def noted_create(self: ContainerCollection, *args: Any, **options: Any) -> Container:
        made.append(create(self, *args, **options))
        return made[-1]

    def noted_start(self: Container, **options: Any) -> None:
        started.append((self.attrs["Image"], self.attrs["Config"]["User"]))
        start(self, **options)

    monkeypatch.setattr(ContainerCollection, "create", noted_create)
    monkeypatch.setattr(Container, "start", noted_start)
    report = verified(client, built, names(built))
    assert not report.failed, report.render()
    runtime, sdk, devel = (
        daemon.require_image(client, name)
        for name in (built.tag("runtime"), built.tag("sdk"), built.base.devel)
    )
    checked = [one for one in made if one.labels[daemon.ROLE] == "verify"]
    # The files of both images, their machine code, what each runs itself, and the server.
    own = [(runtime, "1000:1000"), (sdk, "1000:1000"), (runtime, "1000:1000")]
    assert sorted(started) == sorted([(runtime, "0"), (sdk, "0"), (devel, "0"), *own])
    for attributes in (one.attrs for one in checked):
        rights = attributes["HostConfig"]
        assert rights["NetworkMode"] == "none"
        assert not attributes["Mounts"]
        assert not rights["Binds"]
        assert not rights["Privileged"]
        assert rights["CapDrop"] == ["ALL"]
        assert rights["CapAdd"] == (["DAC_OVERRIDE"] if attributes["Config"]["User"] == "0" else None)
        assert rights["SecurityOpt"] == ["no-new-privileges"]
        assert rights["PidsLimit"] == container.MAX_PROCESSES
        assert 0 < rights["Memory"] < client.info()["MemTotal"]


def test_nccl_is_listed_also_where_the_compilers_tool_does_not_run(
    client: docker.DockerClient, built: Plan, derive: Derive
) -> None:
    """As where its image has a newer system than the server's; here the tool needs a file of its image."""
    devel = derive(
        "runtime",
        f"FROM {built.base.devel}\n"
        "RUN mv /usr/bin/cuobjdump /usr/bin/listing \\\n"
        "    && printf '#!/bin/sh\\nexec /usr/bin/listing \"$@\"\\n' > /usr/bin/cuobjdump \\\n"
        "    && chmod 755 /usr/bin/cuobjdump",
    )
    ids = {product: daemon.require_image(client, name) for product, name in names(built).items()}
    listed = []
    for plan in (built, replace(built, base=replace(built.base, devel=devel))):
        images = Images(subject(client, plan, Path("/nonexistent")), ids)
        (verdict,) = libraries.collectives(images, "runtime")
        assert verdict.state is State.OK
        listed.append(verdict)
    assert listed[0] == listed[1]
    assert images.run("runtime", images.listing("/usr/local/lib/libnccl.so.2")) == ""


def test_an_nccl_without_code_for_an_sm_fails(client: docker.DockerClient, built: Plan) -> None:
    older = replace(built, cell=replace(built.cell, sms=(Sm(35),)))  # NCCL 2.21 for CUDA 12 begins with sm_50
    ids = {product: daemon.require_image(client, name) for product, name in names(built).items()}
    images = Images(subject(client, older, Path("/nonexistent")), ids)
    (verdict,) = libraries.collectives(images, "runtime")
    assert verdict.state is State.FAIL
    assert "has no machine code for sm_35, only for sm_50, sm_60" in verdict.detail
    assert "an NCCL built for that SM" in verdict.hint


def test_machine_code_and_layers_are_judged_whatever_the_labels_say(
    client: docker.DockerClient, built: Plan, derive: Derive
) -> None:
    """Images for another SM on another base fail although they carry the right labels."""
    plan = sample_plan(sm="90")
    wanted = replace(plan, base=replace(plan.base, serving=derive("runtime", "RUN touch /moved")))
    images = {product: derive(product, labels=wanted.labels(product)) for product in ("runtime", "sdk")}
    report = verified(client, wanted, images)
    failed = {result.check: result for result in report.failed}
    assert set(failed) == {"machine code", "layers"}, report.render()
    assert "SASS for sm_80, the cell needs sm_90" in failed["machine code"].detail
    assert "PTX for sm_80, the cell needs sm_90" in failed["machine code"].detail
    assert "build the cell again" in failed["machine code"].hint
    assert "is not built on" in failed["layers"].detail


def test_an_image_that_does_not_exist_is_named(client: docker.DockerClient, built: Plan) -> None:
    with pytest.raises(VerifyError, match="no image ftbuild-test-verify:absent") as caught:
        verified(client, built, names(built, sdk="ftbuild-test-verify:absent"))
    assert "invoke build" in (caught.value.hint or "")


def test_a_build_verifies_again_only_when_the_image_has_changed(
    client: docker.DockerClient, built: Plan, work: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    cell = subject(client, built, tmp_path, said.append)
    record = Path(shutil.copy(built.folder(work) / VERIFY.record, tmp_path))
    gate.require(cell)
    assert said == []
    image = daemon.image(client, built.tag("sdk"))
    assert image is not None
    record.write_text(record.read_text().replace(str(image.id), "sha256:0"))
    gate.require(cell)
    assert said.count("verifying both images") == 1


def test_the_command_prints_nothing_but_the_record(invoke: Invoke, built: Plan, work: Path) -> None:
    done = invoke("verify", "--config", str(SAMPLE), "--sm", "80", "--triton", "22.12", "--format", "json")
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    assert record["passed"]
    assert json.loads((built.folder(work) / VERIFY.record).read_text()) == record


def test_the_command_goes_on_after_a_cell_without_images(invoke: Invoke, base: None) -> None:
    done = invoke("verify", "--config", str(SAMPLE), "--sm", "60,70", "--sm", "70", "--triton", "22.12")
    assert done.returncode == 8
    for cell in ("22.12-sm60_70", "22.12-sm70"):
        assert f"there is no image triton_with_ft_sample:{cell}-" in done.stderr


def test_ctrl_c_ends_what_runs_side_by_side_and_starts_nothing_else(
    client: docker.DockerClient, built: Plan, tmp_path: Path
) -> None:
    arguments = command("verify", "--config", str(SAMPLE), "--sm", "80", "--triton", "22.12")
    with subprocess.Popen(
        arguments,
        cwd=ROOT,
        env=environment(tmp_path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert waiting.until(lambda: containers_of(client, child.pid, "verify"))
        made = containers_of(client, child.pid, "verify")
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=100)
        assert child.returncode == 130
        assert "Traceback" not in said
        # As it does where cleaning up takes too long.
        assert "some of it may still run" not in said
    left = {each.name for each in client.containers.list(all=True, ignore_removed=True)}
    assert not left & made
