"""Publishing to real registries: what is there afterwards, for Docker's tools, for people, for programs."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ftbuild.cli.selection import Selection, plans
from ftbuild.config.loader import load
from ftbuild.gates.report import SMOKE, VERIFY
from ftbuild.host import shell
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import remote_image
from ftbuild.registry.client import Repository
from testing.publishing import CELL, Bench, bench, immutable, inspected, moving, whole
from testing.registries import PASSWORD, Registry, basic, faulty, other_name, plain, tokens

if TYPE_CHECKING:
    import docker

ALL = ["plain", "basic", "tokens"]
# Eight sets of SMs, which all three releases of the sample stack can build.
SMS = ["60", "70", "80", "86", "60,70", "70,80", "80,86", "70,80,86"]


@dataclass(frozen=True)
class Shelf:
    """A registry, and a cell that has been published to it."""

    bench: Bench
    registry: Registry
    plan: Plan
    images: dict[str, str]
    said: str

    def name(self, product: str) -> str:
        return f"{self.bench.repository(self.registry).name}:{moving(self.plan)[product]}"

    def written(self, file: str) -> str:
        folder = self.bench.repository(self.registry).name.replace(":", "_")
        return (self.bench.work / "published" / folder / file).read_text()


def registry(kind: str, folder: Path) -> AbstractContextManager[Registry]:
    """Those with TLS under a name, since buildx speaks plain HTTP with 127.0.0.1."""
    if kind == "plain":
        return plain(folder)
    return (basic if kind == "basic" else tokens)(folder, other_name())


@pytest.fixture(scope="module", params=ALL)
def shelf(
    request: pytest.FixtureRequest, client: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shelf]:
    folder = tmp_path_factory.mktemp(request.param)
    with (
        pytest.MonkeyPatch.context() as patch,
        registry(request.param, folder / "registry") as running,
        bench(client, folder / "bench") as made,
    ):
        for name, value in running.environment.items():
            patch.setenv(name, value)
        plan, images = made.tested()
        done = made.publish(running)
        assert done.returncode == 0, done.stderr
        yield Shelf(made, running, plan, images, done.stdout)


@pytest.fixture
def own(client: docker.DockerClient, tmp_path: Path) -> Iterator[Bench]:
    with bench(client, tmp_path / "bench") as made:
        yield made


@pytest.fixture
def open_registry(tmp_path: Path) -> Iterator[Registry]:
    with plain(tmp_path / "registry") as running:
        yield running


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Registry]:
    """Behind a proxy that counts."""
    with faulty(tmp_path / "registry") as running:
        yield running


@pytest.fixture
def forgetting(client: docker.DockerClient) -> Callable[[Plan], None]:
    """Make the engine one on another machine, which has never had the images of a cell."""

    def forget(plan: Plan) -> None:
        for product in PRODUCTS:
            client.images.remove(plan.tag(product), force=True)

    return forget


# What lies in the registry


def test_the_immutable_and_the_moving_tag_mean_the_tested_image(shelf: Shelf) -> None:
    there = shelf.bench.repository(shelf.registry)
    for product, image in shelf.images.items():
        fixed, moves = immutable(shelf.plan)[product], moving(shelf.plan)[product]
        assert there.head(fixed) == there.head(moves) is not None
        assert image in whole(there, moves)
        assert f"{there.name}:{fixed}" in shelf.said


def test_annotations_hold_the_labels_and_the_gates(shelf: Shelf) -> None:
    there = shelf.bench.repository(shelf.registry)
    for product in PRODUCTS:
        index = there.manifest(moving(shelf.plan)[product])
        assert index
        said = index.content["annotations"]
        labels = {
            key: value for key, value in shelf.plan.labels(product).items() if key.startswith("io.ftbuild")
        }
        assert said.items() >= {key: value for key, value in labels.items() if value}.items()
        assert said["io.ftbuild.gates"] == "verify,smoke"
        assert (
            said["org.opencontainers.image.title"]
            == shelf.plan.labels(product)["org.opencontainers.image.title"]
        )
        image = there.manifest(index.content["manifests"][0]["digest"])
        assert image
        assert there.config(image)["config"]["Labels"].items() >= shelf.plan.labels(product).items()


def test_docker_shows_the_sbom_and_the_provenance(shelf: Shelf) -> None:
    for product in PRODUCTS:
        bill = inspected(shelf.name(product), "{{json .SBOM}}", shelf.registry)["SPDX"]
        assert bill["spdxVersion"] == "SPDX-2.3"
        assert any(package["SPDXID"].startswith("SPDXRef-patch-") for package in bill["packages"])
        origin = inspected(shelf.name(product), "{{json .Provenance}}", shelf.registry)["SLSA"]
        assert shelf.plan.key in json.dumps(origin)
        assert shelf.plan.source("ft").commit in json.dumps(origin)


def test_a_pull_by_digest_gives_the_very_image_that_was_tested(
    shelf: Shelf, client: docker.DockerClient
) -> None:
    digest = shelf.bench.repository(shelf.registry).head(moving(shelf.plan)["runtime"])
    assert digest
    name = f"{shelf.bench.repository(shelf.registry).name}@{digest.digest}"
    pulled = shell.run(["docker", "pull", name], env=shelf.registry.environment, timeout=60)
    assert digest.digest in pulled.stdout
    assert client.images.get(name).id == shelf.images["runtime"]


def test_what_was_published_is_written_down(shelf: Shelf) -> None:
    there = shelf.bench.repository(shelf.registry)
    (cell,) = json.loads(shelf.written("digests.json"))
    for product in PRODUCTS:
        head = there.head(immutable(shelf.plan)[product])
        assert head
        assert cell["products"][product] == {
            "reference": f"{there.name}:{immutable(shelf.plan)[product]}",
            "moving": f"{there.name}:{moving(shelf.plan)[product]}",
            "digest": head.digest,
        }
        assert head.digest in shelf.written("INDEX.md")
    index = json.loads(shelf.written("index.json"))
    assert [image["tag"] for image in index["images"]] == sorted(moving(shelf.plan).values())
    assert [name.partition("@")[0] for name in index["gpus"]["8.6"]] == [shelf.name("runtime")]
    assert index["gpus"]["7.0"] == []


def test_the_second_time_everything_is_there(shelf: Shelf) -> None:
    done = shelf.bench.publish(shelf.registry, "--format", "json")
    (outcome,) = json.loads(done.stdout)
    assert (done.returncode, outcome["state"], outcome["error"]) == (0, "present", None)


def test_a_night_with_nothing_to_publish_takes_under_two_seconds(own: Bench, watched: Registry) -> None:
    """24 cells, each with four tags, behind a proxy that is written in Python."""
    own.tested()
    assert own.publish(watched).returncode == 0
    there = own.repository(watched)
    published = {product: there.manifest(tag) for product, tag in moving(own.plan(*CELL)).items()}
    cells = plans(load(own.config), Selection(own.config, sm=SMS))
    assert len(cells) == 24
    for plan in cells:
        for product, index in published.items():
            assert index
            for tag in (immutable(plan)[product], moving(plan)[product]):
                there.put_manifest(tag, index.raw, index.descriptor.media_type)
    chosen = [word for sm in SMS for word in ("--sm", sm)]
    assert own.publish(watched, cell=tuple(chosen)).returncode == 0  # writes the catalogue
    watched.knobs.seen.clear()
    seconds = []
    for _ in range(3):
        start = time.monotonic()
        done = own.publish(watched, "--format", "json", cell=tuple(chosen))
        seconds.append(time.monotonic() - start)
        assert {outcome["state"] for outcome in json.loads(done.stdout)} == {"present"}
    print(f"24 cells, nothing to do: {min(seconds):.2f} s")
    assert min(seconds) < 2.0
    assert {line.partition(" ")[0] for line in watched.knobs.seen} <= {"HEAD", "GET"}


def test_a_new_image_takes_the_moving_tag_over_and_leaves_the_old_one_its_own(
    own: Bench, open_registry: Registry
) -> None:
    plan, first = own.tested()
    assert own.publish(open_registry).returncode == 0
    there = own.repository(open_registry)
    own.change()
    newer, second = own.tested()
    assert newer.key != plan.key
    done = own.publish(open_registry)
    assert done.returncode == 0, done.stderr
    for product in PRODUCTS:
        assert first[product] in whole(there, immutable(plan)[product])
        assert second[product] in whole(there, moving(plan)[product])


# Images that no GPU has tested


def test_what_no_gpu_has_tested_is_published_beside_the_tested(own: Bench, open_registry: Registry) -> None:
    plan = own.plan(*CELL)
    images = own.build(plan)
    own.judge(plan, images, VERIFY)
    there = own.repository(open_registry)
    done = own.publish(open_registry, "--allow-unsmoked")
    assert done.returncode == 0, done.stderr
    assert "no GPU has tested these images" in done.stderr
    for tag in immutable(plan).values():
        index = there.manifest(f"{tag}-unsmoked")
        assert index
        assert index.content["annotations"]["io.ftbuild.unsmoked"] == "true"
        assert index.content["annotations"]["io.ftbuild.gates"] == "verify"
        image = there.manifest(index.content["manifests"][0]["digest"])
        assert image
        assert there.config(image)["config"]["Labels"]["io.ftbuild.unsmoked"] == "true"
    assert not {*immutable(plan).values(), *moving(plan).values()} & {*there.tags()}
    assert own.run(open_registry, "which", "--registry", open_registry.prefix, "--sm", "86").returncode == 3

    again = own.publish(open_registry, "--allow-unsmoked", "--format", "json")
    assert json.loads(again.stdout)[0]["state"] == "present"

    own.judge(plan, images, SMOKE)
    assert own.publish(open_registry, "--allow-unsmoked").returncode == 0
    for product, image_id in images.items():
        assert image_id in whole(there, immutable(plan)[product])
        assert there.head(moving(plan)[product]) == there.head(immutable(plan)[product])


# Staging


def test_staged_images_are_released_from_where_they_wait(own: Bench, open_registry: Registry) -> None:
    plan, images = own.tested()
    done = own.publish(open_registry, "--stage", "waiting")
    assert done.returncode == 0, done.stderr
    waiting, there = own.repository(open_registry, "waiting"), own.repository(open_registry)
    assert sorted(waiting.tags()) == sorted(immutable(plan).values())
    assert sorted(there.tags()) == sorted([*immutable(plan).values(), *moving(plan).values()])
    for product, image in images.items():
        staged = remote_image.read(waiting, immutable(plan)[product])
        assert staged
        assert image in staged.ids & whole(there, moving(plan)[product])


def test_three_machines_build_test_and_publish_one_image(
    own: Bench,
    open_registry: Registry,
    forgetting: Callable[[Plan], None],
    client: docker.DockerClient,
    tmp_path: Path,
) -> None:
    where = ("--registry", open_registry.prefix, "--stage", "waiting", *CELL)
    plan = own.plan(*CELL)
    images = own.build(plan)
    own.judge(plan, images, VERIFY)
    done = own.run(open_registry, "stage", *where)
    assert done.returncode == 0, done.stderr
    assert own.repository(open_registry).tags() == []

    forgetting(plan)
    tester = replace(own, work=tmp_path / "tester")
    done = tester.run(open_registry, "pull", *where)
    assert done.returncode == 0, done.stderr
    for product, image in images.items():
        assert (
            client.images.get(plan.tag(product)).id
            == client.images.get(plan.tag(product, moving=True)).id
            == image
        )
    tester.judge(plan, images, SMOKE)

    own.forget()
    publisher = replace(own, work=tmp_path / "publisher")
    publisher.folder(plan).mkdir(parents=True)
    for record in (*own.folder(plan).iterdir(), *tester.folder(plan).iterdir()):
        shutil.copy(record, publisher.folder(plan))
    done = publisher.run(open_registry, "publish", *where)
    assert done.returncode == 0, done.stderr
    for product, image in images.items():
        assert image in whole(own.repository(open_registry), moving(plan)[product])


def test_only_verified_images_are_staged(own: Bench, open_registry: Registry) -> None:
    own.build(own.plan(*CELL))
    done = own.run(open_registry, "stage", "--registry", open_registry.prefix, *CELL)
    assert done.returncode == 10
    assert "there is no record of verify" in done.stderr
    assert own.repository(open_registry).tags() == []


def test_what_nobody_has_staged_cannot_be_pulled(own: Bench, open_registry: Registry) -> None:
    done = own.run(open_registry, "pull", "--registry", open_registry.prefix, *CELL)
    assert done.returncode == 10
    assert "neither built here nor staged" in done.stderr


# Signatures


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A folder with cosign.key and cosign.pub."""
    if shutil.which("cosign") is None:
        pytest.skip("needs cosign (Debian's package of that name)")
    shell.run(["cosign", "generate-key-pair"], cwd=tmp_path, env={"COSIGN_PASSWORD": PASSWORD})
    return tmp_path


def test_cosign_finds_its_signatures(own: Bench, open_registry: Registry, keys: Path) -> None:
    plan, _ = own.tested()
    done = own.publish(open_registry, *signed(keys), COSIGN_PASSWORD=PASSWORD)
    assert done.returncode == 0, done.stderr
    assert_signed(own.repository(open_registry), plan, keys)


def test_what_could_not_be_signed_gets_its_moving_tags_once_it_is(
    own: Bench, open_registry: Registry, keys: Path
) -> None:
    plan, _ = own.tested()
    there = own.repository(open_registry)
    done = own.publish(open_registry, *signed(keys), COSIGN_PASSWORD="wrong")
    assert done.returncode == 10
    assert "cosign did not sign" in done.stderr
    assert "COSIGN_PASSWORD holds the key's password" in done.stderr
    assert not {*moving(plan).values()} & {*there.tags()}
    done = own.publish(open_registry, *signed(keys), COSIGN_PASSWORD=PASSWORD)
    assert done.returncode == 0, done.stderr
    assert_signed(there, plan, keys)


def signed(keys: Path) -> tuple[str, ...]:
    return ("--sign-key", str(keys / "cosign.key"), "--no-sign-log")


def assert_signed(there: Repository, plan: Plan, keys: Path) -> None:
    for tag in moving(plan).values():
        argv = ["cosign", "verify", "--key", str(keys / "cosign.pub"), "--insecure-ignore-tlog"]
        signatures = json.loads(shell.run([*argv, f"{there.name}:{tag}"], timeout=60).stdout)
        head = there.head(tag)
        assert head
        assert {one["critical"]["image"]["docker-manifest-digest"] for one in signatures} == {head.digest}


def test_without_cosign_nothing_is_signed_and_nothing_published(
    own: Bench, open_registry: Registry, tmp_path: Path
) -> None:
    own.tested()
    programs = tmp_path / "programs"
    programs.mkdir()
    for program in ("git", "docker"):
        found = shutil.which(program)
        assert found
        (programs / program).symlink_to(found)
    done = own.publish(open_registry, "--sign-key", "cosign.key", PATH=str(programs))
    assert done.returncode == 4
    assert "cosign is not installed" in done.stderr
    assert own.repository(open_registry).tags() == []


# What is published, and which image is for a GPU


def test_a_dry_run_says_what_is_to_do_and_changes_nothing(own: Bench, watched: Registry) -> None:
    plan, _ = own.tested()
    assert own.publish(watched).returncode == 0
    watched.knobs.seen.clear()
    done = own.publish(watched, "--dry-run", cell=(*CELL, "--sm", "80"))
    assert done.returncode == 0
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip().startswith("22.12")}
    assert "nothing: published" in rows["22.12-sm86"]
    assert plan.key in rows["22.12-sm86"]
    assert "push, attest, set all tags" in rows["22.12-sm80"]
    assert {line.partition(" ")[0] for line in watched.knobs.seen} <= {"HEAD", "GET"}


@pytest.mark.parametrize("sm", ["86", "8.6"])
def test_which_names_the_image_for_a_gpu_and_its_driver(shelf: Shelf, sm: str) -> None:
    done = ask(shelf, "--registry", shelf.registry.prefix, "--sm", sm)
    head = shelf.bench.repository(shelf.registry).head(moving(shelf.plan)["runtime"])
    assert head
    assert done.returncode == 0, done.stderr
    assert "compute capability 8.6" in done.stdout
    assert f"driver {shelf.plan.driver}" in done.stdout
    assert head.digest in done.stdout.replace("\n", "")


def test_which_asks_the_gpu_that_is_here_and_says_when_its_driver_is_too_old(
    shelf: Shelf, tmp_path: Path
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA A10, 8.6, 470.82.01'\n")
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = shelf.bench.run(shelf.registry, "which", "--registry", shelf.registry.prefix, PATH=path)
    assert done.returncode == 0, done.stderr
    assert "compute capability 8.6, driver 470.82.01" in done.stdout
    assert f"driver {shelf.plan.driver}, which is newer than this one" in done.stdout


def test_which_reads_the_index_that_publishing_wrote(shelf: Shelf, tmp_path: Path) -> None:
    index = tmp_path / "index.json"
    index.write_text(shelf.written("index.json"))
    done = ask(shelf, "--index", str(index), "--sm", "86", "--sdk", "--format", "json")
    (entry,) = json.loads(done.stdout)["86"]
    assert (entry["tag"], entry["product"], entry["driver"]) == (
        moving(shelf.plan)["sdk"],
        "sdk",
        shelf.plan.driver,
    )


def test_which_ends_with_three_where_no_image_fits(shelf: Shelf) -> None:
    done = ask(shelf, "--registry", shelf.registry.prefix, "--sm", "70", "--sm", "86")
    assert done.returncode == 3
    assert "compute capability 7.0: none" in done.stdout
    assert shelf.name("runtime").rpartition(":")[2] in done.stdout
    assert "no published image runs on compute capability 7.0" in done.stderr


def test_which_says_what_is_wrong_with_its_options(shelf: Shelf) -> None:
    for wrong, message in {"ampere": "'ampere' is not an SM", "": "is not an SM"}.items():
        done = ask(shelf, "--registry", shelf.registry.prefix, "--sm", wrong)
        assert done.returncode == 2, done.stdout + done.stderr
        assert message in done.stderr


def test_which_refuses_a_file_that_is_no_index(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text("[]")
    done = ask(shelf, "--index", str(tmp_path / "index.json"), "--sm", "86")
    assert done.returncode == 2
    assert "the index cannot be read" in done.stderr


def ask(shelf: Shelf, *options: str) -> Any:
    return shelf.bench.run(shelf.registry, "which", *options)
