"""Publishing to real registries: images, attestations, index and signatures that it leaves there."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests

from ftbuild.cli.selection import Selection, plans
from ftbuild.config.loader import load
from ftbuild.gates.report import SMOKE, VERIFY
from ftbuild.host import shell
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import compression, remote_image
from ftbuild.registry.client import Repository
from testing import needs, processor
from testing.publishing import CELL, Bench, bench, complete_ids, immutable, inspected, moving
from testing.registries import PASSWORD, Registry, basic, faulty, named, other_name, plain, tokens

if TYPE_CHECKING:
    import docker

ALL = ["plain", "basic", "tokens"]
# For what does not depend on how users log in.
one_registry = pytest.mark.parametrize("publication", ["plain"], indirect=True, scope="module")
# Eight sets of SMs, which all three releases of the sample stack can build.
RELEASES = ("22.03", "22.07", "22.12")
SMS = ["60", "70", "80", "86", "60,70", "70,80", "80,86", "70,80,86"]


@dataclass(frozen=True)
class Publication:
    """A registry, and a cell that was published to it."""

    bench: Bench
    registry: Registry
    plan: Plan
    images: dict[str, str]
    output: str

    def name(self, product: str) -> str:
        return f"{self.bench.repository(self.registry).name}:{moving(self.plan)[product]}"

    def written(self, file: str) -> str:
        folder = self.bench.repository(self.registry).name.replace(":", "_")
        return (self.bench.work / "published" / folder / file).read_text()


def registry(kind: str, folder: Path) -> AbstractContextManager[Registry]:
    """Return a registry, with TLS under a host name: buildx speaks plain HTTP to 127.0.0.1."""
    if kind == "plain":
        return plain(folder)
    return (basic if kind == "basic" else tokens)(folder, other_name())


@pytest.fixture(scope="module", params=ALL)
def publication(
    request: pytest.FixtureRequest, client: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Publication]:
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
        yield Publication(made, running, plan, images, done.stdout)


@pytest.fixture
def fresh_bench(client: docker.DockerClient, tmp_path: Path) -> Iterator[Bench]:
    with bench(client, tmp_path / "bench") as made:
        yield made


@pytest.fixture
def open_registry(tmp_path: Path) -> Iterator[Registry]:
    with plain(tmp_path / "registry") as running:
        yield running


@pytest.fixture
def counting_registry(tmp_path: Path) -> Iterator[Registry]:
    """Start a registry behind a proxy that counts requests."""
    with faulty(tmp_path / "registry") as running:
        yield running


@pytest.fixture
def forget_images(client: docker.DockerClient) -> Callable[[Plan], None]:
    """Remove a cell's images, as on a machine that never had them."""

    def forget(plan: Plan) -> None:
        for product in PRODUCTS:
            client.images.remove(plan.tag(product), force=True)

    return forget


# The registry


def test_immutable_and_moving_tags_refer_to_the_tested_image(publication: Publication) -> None:
    there = publication.bench.repository(publication.registry)
    for product, image in publication.images.items():
        fixed, moves = immutable(publication.plan)[product], moving(publication.plan)[product]
        assert there.head(fixed) == there.head(moves) is not None
        assert image in complete_ids(there, moves)
        assert f"{there.name}:{fixed}" in publication.output


def test_layers_are_compressed_by_zstandard(publication: Publication) -> None:
    there = publication.bench.repository(publication.registry)
    for product in PRODUCTS:
        found = remote_image.read(there, immutable(publication.plan)[product])
        assert found
        assert compression.has(found, "zstd")


def test_annotations_hold_the_labels_and_the_gates(publication: Publication) -> None:
    there = publication.bench.repository(publication.registry)
    for product in PRODUCTS:
        index = there.manifest(moving(publication.plan)[product])
        assert index
        annotations = index.content.annotations or {}
        labels = {
            key: value
            for key, value in publication.plan.labels(product).items()
            if key.startswith("io.ftbuild")
        }
        assert annotations.items() >= {key: value for key, value in labels.items() if value}.items()
        assert annotations["io.ftbuild.gates"] == "verify,smoke"
        assert (
            annotations["org.opencontainers.image.title"]
            == publication.plan.labels(product)["org.opencontainers.image.title"]
        )
        image = there.manifest(remote_image.parts(index)[0].digest)
        assert image
        assert there.config(image).labels.items() >= publication.plan.labels(product).items()


def test_docker_shows_the_sbom_and_the_provenance(publication: Publication) -> None:
    for product in PRODUCTS:
        bill = inspected(publication.name(product), "{{json .SBOM}}", publication.registry)["SPDX"]
        assert bill["spdxVersion"] == "SPDX-2.3"
        assert any(package["SPDXID"].startswith("SPDXRef-patch-") for package in bill["packages"])
        origin = inspected(publication.name(product), "{{json .Provenance}}", publication.registry)["SLSA"]
        assert publication.plan.key in json.dumps(origin)
        assert publication.plan.source("ft").commit in json.dumps(origin)


def test_a_pull_by_digest_gets_the_tested_image(
    publication: Publication, client: docker.DockerClient
) -> None:
    digest = publication.bench.repository(publication.registry).head(moving(publication.plan)["runtime"])
    assert digest
    name = f"{publication.bench.repository(publication.registry).name}@{digest.digest}"
    pulled = shell.run(["docker", "pull", name], env=publication.registry.environment, timeout=60)
    assert digest.digest in pulled.stdout
    assert client.images.get(name).id == publication.images["runtime"]


def test_published_digests_and_the_index_are_written(publication: Publication) -> None:
    there = publication.bench.repository(publication.registry)
    (cell,) = json.loads(publication.written("digests.json"))
    for product in PRODUCTS:
        head = there.head(immutable(publication.plan)[product])
        assert head
        assert cell["products"][product] == {
            "reference": f"{there.name}:{immutable(publication.plan)[product]}",
            "moving": f"{there.name}:{moving(publication.plan)[product]}",
            "digest": head.digest,
        }
        assert head.digest in publication.written("INDEX.md")
    index = json.loads(publication.written("index.json"))
    assert [image["tag"] for image in index["images"]] == sorted(moving(publication.plan).values())
    assert [name.partition("@")[0] for name in index["gpus"]["8.6"]] == [publication.name("runtime")]
    assert index["gpus"]["7.0"] == []


def test_a_second_run_finds_everything_present(publication: Publication) -> None:
    done = publication.bench.publish(publication.registry, "--format", "json")
    (outcome,) = json.loads(done.stdout)
    assert (done.returncode, outcome["state"], outcome["error"]) == (0, "present", None)


def test_nothing_to_publish_takes_little_processor_time(
    fresh_bench: Bench, counting_registry: Registry
) -> None:
    """Publish 24 cells, each with four tags, behind a proxy that is written in Python."""
    fresh_bench.tested()
    assert fresh_bench.publish(counting_registry).returncode == 0
    there = fresh_bench.repository(counting_registry)
    published = {product: there.manifest(tag) for product, tag in moving(fresh_bench.plan(*CELL)).items()}
    cells = plans(load(fresh_bench.config), Selection(fresh_bench.config, RELEASES, SMS))
    assert len(cells) == 24
    for plan in cells:
        for product, index in published.items():
            assert index
            for tag in (immutable(plan)[product], moving(plan)[product]):
                there.put_manifest(tag, index.raw, index.descriptor.media_type)
    chosen = [word for sm in SMS for word in ("--sm", sm)]
    chosen += [word for release in RELEASES for word in ("--triton", release)]
    assert fresh_bench.publish(counting_registry, cell=tuple(chosen)).returncode == 0  # writes the index
    counting_registry.proxy_faults.seen.clear()

    def publish_nothing() -> None:
        options = ("--registry", counting_registry.prefix, *chosen, "--format", "json")
        with fresh_bench.start(counting_registry, "publish", *options) as process:
            output, _ = process.communicate(timeout=300)
        assert {outcome["state"] for outcome in json.loads(output)} == {"present"}

    # The least of three, as that of the yardstick is: a busy machine only ever adds.
    taken = min(processor.seconds(publish_nothing) for _ in range(3))
    print(f"24 cells, nothing to do: {taken:.2f} s, {len(counting_registry.proxy_faults.seen) // 3} requests")
    assert taken < 12 * processor.start_seconds()
    assert {line.partition(" ")[0] for line in counting_registry.proxy_faults.seen} <= {"HEAD", "GET"}


def test_a_new_image_gets_the_moving_tag_and_the_old_one_keeps_its_own(
    fresh_bench: Bench, open_registry: Registry
) -> None:
    plan, first = fresh_bench.tested()
    assert fresh_bench.publish(open_registry).returncode == 0
    there = fresh_bench.repository(open_registry)
    fresh_bench.change()
    newer, second = fresh_bench.tested()
    assert newer.key != plan.key
    done = fresh_bench.publish(open_registry)
    assert done.returncode == 0, done.stderr
    for product in PRODUCTS:
        assert first[product] in complete_ids(there, immutable(plan)[product])
        assert second[product] in complete_ids(there, moving(plan)[product])


# Untested images


def test_untested_images_are_published_beside_tested_ones(
    fresh_bench: Bench, open_registry: Registry
) -> None:
    plan = fresh_bench.plan(*CELL)
    images = fresh_bench.build(plan)
    fresh_bench.judge(plan, images, VERIFY)
    there = fresh_bench.repository(open_registry)
    done = fresh_bench.publish(open_registry, "--allow-unsmoked")
    assert done.returncode == 0, done.stderr
    assert "no GPU has tested these images" in done.stderr
    for tag in immutable(plan).values():
        index = there.manifest(f"{tag}-unsmoked")
        assert index
        annotations = index.content.annotations or {}
        assert annotations["io.ftbuild.unsmoked"] == "true"
        assert annotations["io.ftbuild.gates"] == "verify"
        image = there.manifest(remote_image.parts(index)[0].digest)
        assert image
        assert there.config(image).labels["io.ftbuild.unsmoked"] == "true"
    assert not {*immutable(plan).values(), *moving(plan).values()} & {*there.tags()}
    assert (
        fresh_bench.run(open_registry, "which", "--registry", open_registry.prefix, "--sm", "86").returncode
        == 3
    )

    again = fresh_bench.publish(open_registry, "--allow-unsmoked", "--format", "json")
    assert json.loads(again.stdout)[0]["state"] == "present"

    fresh_bench.judge(plan, images, SMOKE)
    assert fresh_bench.publish(open_registry, "--allow-unsmoked").returncode == 0
    for product, image_id in images.items():
        assert image_id in complete_ids(there, immutable(plan)[product])
        assert there.head(moving(plan)[product]) == there.head(immutable(plan)[product])


# Staging


def test_staged_images_are_published_from_the_staging_repository(
    fresh_bench: Bench, open_registry: Registry
) -> None:
    plan, images = fresh_bench.tested()
    done = fresh_bench.publish(open_registry, "--stage", "waiting")
    assert done.returncode == 0, done.stderr
    waiting, there = fresh_bench.repository(open_registry, "waiting"), fresh_bench.repository(open_registry)
    assert sorted(named(waiting.tags())) == sorted(immutable(plan).values())
    assert sorted(named(there.tags())) == sorted([*immutable(plan).values(), *moving(plan).values()])
    for product, image in images.items():
        staged = remote_image.read(waiting, immutable(plan)[product])
        assert staged
        assert image in staged.ids & complete_ids(there, moving(plan)[product])


def test_three_machines_build_test_and_publish_one_image(
    fresh_bench: Bench,
    open_registry: Registry,
    forget_images: Callable[[Plan], None],
    client: docker.DockerClient,
    tmp_path: Path,
) -> None:
    where = ("--registry", open_registry.prefix, "--stage", "waiting", *CELL)
    plan = fresh_bench.plan(*CELL)
    images = fresh_bench.build(plan)
    fresh_bench.judge(plan, images, VERIFY)
    done = fresh_bench.run(open_registry, "registry.stage", *where)
    assert done.returncode == 0, done.stderr
    assert fresh_bench.repository(open_registry).tags() == []

    forget_images(plan)
    tester = replace(fresh_bench, work=tmp_path / "tester")
    done = tester.run(open_registry, "registry.pull", *where)
    assert done.returncode == 0, done.stderr
    for product, image in images.items():
        assert (
            client.images.get(plan.tag(product)).id
            == client.images.get(plan.tag(product, moving=True)).id
            == image
        )
    tester.judge(plan, images, SMOKE)

    fresh_bench.forget()
    publisher = replace(fresh_bench, work=tmp_path / "publisher")
    publisher.folder(plan).mkdir(parents=True)
    for record in (*fresh_bench.folder(plan).iterdir(), *tester.folder(plan).iterdir()):
        shutil.copy(record, publisher.folder(plan))
    done = publisher.run(open_registry, "publish", *where)
    assert done.returncode == 0, done.stderr
    for product, image in images.items():
        assert image in complete_ids(fresh_bench.repository(open_registry), moving(plan)[product])


def test_of_two_images_of_which_the_registry_has_lost_a_part_of_one_none_is_here(
    fresh_bench: Bench,
    open_registry: Registry,
    forget_images: Callable[[Plan], None],
    client: docker.DockerClient,
) -> None:
    where = ("--registry", open_registry.prefix, "--stage", "waiting", *CELL)
    plan, images = fresh_bench.tested()
    done = fresh_bench.run(open_registry, "registry.stage", *where)
    assert done.returncode == 0, done.stderr
    waiting = fresh_bench.repository(open_registry, "waiting")
    sdk = remote_image.read(waiting, immutable(plan)["sdk"])
    assert sdk
    lost = (sdk.image.content.layers or [])[-1].digest
    host, _, path = waiting.name.partition("/")
    assert requests.delete(f"http://{host}/v2/{path}/blobs/{lost}", timeout=10).status_code == 202

    forget_images(plan)
    done = fresh_bench.run(open_registry, "registry.pull", *where)
    assert done.returncode == 10, done.stderr
    assert "cannot pull" in done.stderr
    known = {image.id for image in client.images.list(all=True)}
    assert not known & set(images.values())


def test_only_verified_images_are_staged(fresh_bench: Bench, open_registry: Registry) -> None:
    fresh_bench.build(fresh_bench.plan(*CELL))
    done = fresh_bench.run(open_registry, "registry.stage", "--registry", open_registry.prefix, *CELL)
    assert done.returncode == 10
    assert "there is no record of verify" in done.stderr
    assert fresh_bench.repository(open_registry).tags() == []


def test_images_that_are_not_staged_cannot_be_pulled(fresh_bench: Bench, open_registry: Registry) -> None:
    done = fresh_bench.run(open_registry, "registry.pull", "--registry", open_registry.prefix, *CELL)
    assert done.returncode == 10
    assert "neither built here nor staged" in done.stderr


# Signatures


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Return a folder with cosign.key and cosign.pub."""
    needs.program("cosign")
    shell.run(["cosign", "generate-key-pair"], cwd=tmp_path, env={"COSIGN_PASSWORD": PASSWORD})
    return tmp_path


def test_cosign_finds_its_signatures(fresh_bench: Bench, open_registry: Registry, keys: Path) -> None:
    plan, _ = fresh_bench.tested()
    done = fresh_bench.publish(open_registry, *signed(keys), COSIGN_PASSWORD=PASSWORD)
    assert done.returncode == 0, done.stderr
    assert_signed(fresh_bench.repository(open_registry), plan, keys)


def test_moving_tags_wait_for_the_signature(
    fresh_bench: Bench, open_registry: Registry, keys: Path, tmp_path: Path
) -> None:
    plan, _ = fresh_bench.tested()
    there = fresh_bench.repository(open_registry)
    real, program = needs.program("cosign"), tmp_path / "cosign"
    program.write_text(f'#!/bin/sh\n[ "$1 $2" = "sign --yes" ] && exit 1\nexec {real} "$@"\n')
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = fresh_bench.publish(open_registry, *signed(keys), COSIGN_PASSWORD=PASSWORD, PATH=path)
    assert done.returncode == 10
    assert "cosign could not sign" in done.stderr
    assert {*immutable(plan).values()} <= {*there.tags()}
    assert not {*moving(plan).values()} & {*there.tags()}
    done = fresh_bench.publish(open_registry, *signed(keys), COSIGN_PASSWORD=PASSWORD)
    assert done.returncode == 0, done.stderr
    assert_signed(there, plan, keys)


def test_a_wrong_password_is_told_before_anything_is_pushed(
    fresh_bench: Bench, open_registry: Registry, keys: Path
) -> None:
    fresh_bench.tested()
    done = fresh_bench.publish(open_registry, *signed(keys), COSIGN_PASSWORD="wrong")
    assert done.returncode == 10
    assert "cosign cannot read the key" in done.stderr
    assert "COSIGN_PASSWORD holds the key's password" in done.stderr
    assert fresh_bench.repository(open_registry).tags() == []


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
    fresh_bench: Bench, open_registry: Registry, tmp_path: Path
) -> None:
    fresh_bench.tested()
    programs = tmp_path / "programs"
    programs.mkdir()
    for program in ("git", "docker"):
        found = shutil.which(program)
        assert found
        (programs / program).symlink_to(found)
    done = fresh_bench.publish(open_registry, "--sign-key", "env://KEY", PATH=str(programs))
    assert done.returncode == 4
    assert "cosign is not installed" in done.stderr
    assert fresh_bench.repository(open_registry).tags() == []


# What is published, and which image is for a GPU


def test_a_dry_run_says_what_is_to_do_and_changes_nothing(
    fresh_bench: Bench, counting_registry: Registry
) -> None:
    plan, _ = fresh_bench.tested()
    assert fresh_bench.publish(counting_registry).returncode == 0
    counting_registry.proxy_faults.seen.clear()
    done = fresh_bench.publish(counting_registry, "--dry-run", cell=(*CELL, "--sm", "80"))
    assert done.returncode == 10
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip().startswith("22.12")}
    assert "nothing: published" in rows["22.12-sm86"]
    assert plan.key in rows["22.12-sm86"]
    assert "refused: " in rows["22.12-sm80"]
    assert "[22.12-sm80] would be refused: " in done.stderr
    as_json = fresh_bench.publish(counting_registry, "--dry-run", "--format", "json")
    assert json.loads(as_json.stdout) == [
        {"cell": "22.12-sm86", "key": plan.key, "action": "nothing: published"}
    ]
    assert {line.partition(" ")[0] for line in counting_registry.proxy_faults.seen} <= {"HEAD", "GET"}


@pytest.mark.parametrize("sm", ["86", "8.6"])
def test_which_names_the_image_for_a_gpu_and_its_driver(publication: Publication, sm: str) -> None:
    done = ask(publication, "--registry", publication.registry.prefix, "--sm", sm)
    head = publication.bench.repository(publication.registry).head(moving(publication.plan)["runtime"])
    assert head
    assert done.returncode == 0, done.stderr
    assert "compute capability 8.6" in done.stdout
    assert f"driver {publication.plan.driver}" in done.stdout
    assert head.digest in done.stdout.replace("\n", "")


@one_registry
def test_which_queries_the_local_gpu_and_reports_an_old_driver(
    publication: Publication, tmp_path: Path
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA A10, 8.6, 470.82.01, 23028 MiB'\n")
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = publication.bench.run(
        publication.registry, "which", "--registry", publication.registry.prefix, PATH=path
    )
    assert done.returncode == 0, done.stderr
    assert "compute capability 8.6, driver 470.82.01" in done.stdout
    assert f"driver {publication.plan.driver}, newer than the installed one" in done.stdout


@one_registry
def test_which_reads_the_index_that_publish_wrote(publication: Publication, tmp_path: Path) -> None:
    index = tmp_path / "index.json"
    index.write_text(publication.written("index.json"))
    done = ask(publication, "--index", str(index), "--sm", "86", "--sdk", "--format", "json")
    (entry,) = json.loads(done.stdout)["86"]
    assert (entry["tag"], entry["product"], entry["driver"]) == (
        moving(publication.plan)["sdk"],
        "sdk",
        publication.plan.driver,
    )


@one_registry
def test_which_ends_with_three_if_no_image_fits(publication: Publication) -> None:
    done = ask(publication, "--registry", publication.registry.prefix, "--sm", "70", "--sm", "86")
    assert done.returncode == 3
    assert "compute capability 7.0: none" in done.stdout
    assert publication.name("runtime").rpartition(":")[2] in done.stdout
    assert "no published image for amd64 runs on compute capability 7.0" in done.stderr


@one_registry
def test_which_explains_wrong_options(publication: Publication) -> None:
    for wrong, message in {"ampere": "'ampere' is not an SM", "": "--sm needs a value"}.items():
        done = ask(publication, "--registry", publication.registry.prefix, "--sm", wrong)
        assert done.returncode == 2, done.stdout + done.stderr
        assert message in done.stderr


@one_registry
def test_which_refuses_a_file_that_is_not_an_index(publication: Publication, tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text("[]")
    done = ask(publication, "--index", str(tmp_path / "index.json"), "--sm", "86")
    assert done.returncode == 2
    assert "the index cannot be read" in done.stderr


def ask(publication: Publication, *options: str) -> Any:
    return publication.bench.run(publication.registry, "which", *options)
