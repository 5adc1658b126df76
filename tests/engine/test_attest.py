"""What an image holds, listed by itself; and attestations that Docker's own tools find in a real registry."""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from ftbuild.host import shell
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing.attest import inventory, manifests, materials, provenance, purl, sbom, vex
from ftbuild.publishing.attest.annotations import of_index
from ftbuild.publishing.attest.inventory import Inventory
from ftbuild.publishing.attest.provenance import Run
from ftbuild.publishing.attest.upload import upload
from ftbuild.registry.client import Descriptor, Manifest, Repository
from testing import ROOT, osv_files
from testing.registries import Registry, plain
from testing.sample import SAMPLE

if TYPE_CHECKING:
    import docker

TAG = "22.12-sm80"


@dataclass(frozen=True)
class Published:
    """A small image in a registry, with the statements about it."""

    repository: Repository
    image_id: str
    image: Manifest
    index: Descriptor
    sbom: dict[str, Any]
    provenance: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.repository.name}:{TAG}"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with plain(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def inventories(client: docker.DockerClient, built: Plan) -> dict[str, Inventory]:
    return {product: inventory.read(client, built.tag(product)) for product in PRODUCTS}


@pytest.fixture(scope="module")
def published(
    client: docker.DockerClient, registry: Registry, built: Plan, inventories: dict[str, Inventory]
) -> Published:
    """An image of a few bytes stands for the built one: what is attached does not depend on its size."""
    name = f"{registry.prefix}/{built.image}"
    dockerfile = f"FROM scratch\nLABEL made={uuid.uuid4().hex}\nCOPY <<EOF /file\n{uuid.uuid4().hex}\nEOF\n"
    shell.run(["docker", "buildx", "build", "--tag", f"{name}:pushed", "-"], stdin=dockerfile)
    image_id = str(client.images.get(f"{name}:pushed").id)
    for line in client.images.push(name, tag="pushed", stream=True, decode=True):
        assert "error" not in line, line
    client.images.remove(f"{name}:pushed")
    repository = Repository(name)
    image = repository.manifest("pushed")
    assert image is not None
    digest = image.descriptor.digest
    bill = sbom.document(built, "runtime", inventories["runtime"], name, digest)
    origin = provenance.predicate(built, "runtime", Run(records={"verify.json": b"{}"}))
    subject = purl.image(name, digest, TAG)
    known = vex.document(built, name, digest, sbom.package_urls(bill))
    assert known
    statements = [
        manifests.statement(subject, digest, sbom.PREDICATE, bill),
        manifests.statement(subject, digest, provenance.PREDICATE, origin),
        manifests.statement(subject, digest, vex.PREDICATE, known),
    ]
    said = of_index(built, "runtime")
    index = upload(repository, image.descriptor, repository.config(image).platform, statements, said, [TAG])
    again = upload(repository, image.descriptor, repository.config(image).platform, statements, said, [TAG])
    assert again == index
    return Published(repository, image_id, image, index, bill, origin)


def inspected(published: Published, template: str) -> Any:
    command = ["docker", "buildx", "imagetools", "inspect", published.name, "--format", template]
    return json.loads(shell.run(command, timeout=60).stdout)


def test_an_image_lists_its_debian_and_python_packages(inventories: dict[str, Inventory]) -> None:
    for found in inventories.values():
        assert (found.system, found.missing) == ("debian", ())
        assert {"libopenmpi3", "python3-numpy", "libc6"} <= {p.name for p in found.debian}
        folders = {p.name: p.folder for p in found.python}
        assert folders["numpy"] == "/usr/lib/python3/dist-packages"
        assert folders["tokenizers"].startswith("/usr/local/lib/")
        (mpi,) = (p for p in found.debian if p.name == "libopenmpi3")
        assert (mpi.source, mpi.architecture) == ("openmpi", "amd64")


def test_what_the_recipe_pins_is_listed_in_that_version(
    inventories: dict[str, Inventory], built: Plan
) -> None:
    for product, roles in {"runtime": ["runtime"], "sdk": ["runtime", "sdk"]}.items():
        listed = {(p.name.lower(), p.version) for p in inventories[product].python}
        pinned = {(wheel.name, wheel.version) for role in roles for wheel in materials.wheels(built, role)}
        assert pinned
        assert pinned <= listed


def test_the_libraries_in_the_servers_wheel_are_listed_with_their_releases(
    inventories: dict[str, Inventory],
) -> None:
    for found in inventories.values():
        server = {b.project: b for b in found.bundled if b.folder == "/opt/tritonserver/lib" and b.version}
        assert {"openssl", "curl", "libarchive", "libssh", "libxml2", "nghttp2", "xz"} <= set(server)
        assert re.fullmatch(r"3\.\d+\.\d+", server["openssl"].version)
        assert len(server["curl"].sha256) == 64


def test_the_holes_of_a_real_image_are_found_by_its_sbom(
    built: Plan, inventories: dict[str, Inventory], tmp_path: Path
) -> None:
    """The installed openssl is older than a fix, the installed MPI is that fix."""
    listed = inventories["runtime"]
    file = tmp_path / "sbom.json"
    bill = sbom.document(built, "runtime", listed, "registry.example.com/x", "sha256:" + "1" * 64)
    file.write_bytes(manifests.canonical(bill))
    (ssl,) = (p for p in listed.debian if p.name == "libssl3")
    (mpi,) = (p for p in listed.debian if p.name == "libopenmpi3")
    curl = next(b for b in listed.bundled if b.project == "curl" and b.version)
    database = osv_files.write(
        tmp_path / "all.zip",
        *(
            osv_files.record(
                f"DEBIAN-{cve}",
                "Debian:12",
                package.source,
                {"introduced": "0"},
                {"fixed": fixed},
                upstream=[cve],
            )
            for cve, package, fixed in (
                ("CVE-2000-0001", ssl, f"{ssl.source_version}+deb12u99"),
                ("CVE-2000-0002", mpi, mpi.source_version),
            )
        ),
        osv_files.commits("CVE-2000-0003", "https://github.com/curl/curl", f"curl-{curl.version}"),
    )
    argv = [sys.executable, "-m", "invoke", "audit.holes", "--config", str(SAMPLE), "--format", "json"]
    argv += ["--sbom", str(file), "--database", str(database), "--fail-on"]
    done = shell.run([*argv, "any"], cwd=ROOT, check=False)
    (image,) = json.loads(done.stdout)["images"]
    found = {finding["id"]: finding for finding in image["open"]}
    assert done.code == 8
    assert (found["CVE-2000-0001"]["component"], found["CVE-2000-0001"]["version"]) == (
        ssl.source,
        ssl.source_version,
    )
    assert "CVE-2000-0002" not in found
    assert found["CVE-2000-0003"]["component"] == "curl (in a wheel)"
    assert {hole.id for hole in built.holes.open()} == set(found) - {"CVE-2000-0001", "CVE-2000-0003"}
    assert shell.run([*argv, "none"], cwd=ROOT).code == 0


def test_an_image_without_python_is_listed_as_far_as_it_goes(
    client: docker.DockerClient, derive: Any
) -> None:
    image = derive("runtime", "RUN rm -f /usr/bin/python3* /usr/bin/dpkg-query")
    found = inventory.read(client, image)
    assert (found.debian, found.python, found.bundled) == ((), (), ())
    assert found.missing == ("dpkg", "python3")


@pytest.mark.parametrize("product", PRODUCTS)
def test_the_sbom_of_a_built_image_is_valid_spdx(
    built: Plan, inventories: dict[str, Inventory], product: str, tmp_path: Path
) -> None:
    name, digest = "registry.example.com/team/sample", "sha256:" + "1" * 64
    file = tmp_path / "sbom.spdx.json"
    file.write_bytes(manifests.canonical(sbom.document(built, product, inventories[product], name, digest)))
    messages = validate_full_spdx_document(parse_file(str(file)))
    # The miniature upstreams' domain is reserved; spdx-tools knows no top-level domain beyond five letters.
    told = [message.validation_message for message in messages]
    assert [message for message in told if "https://sample.invalid/" not in message] == []


def test_imagetools_shows_the_sbom_and_the_provenance(published: Published) -> None:
    assert inspected(published, "{{json .SBOM}}") == {"SPDX": published.sbom}
    assert inspected(published, "{{json .Provenance}}") == {"SLSA": published.provenance}


def test_imagetools_shows_image_attestation_and_annotations(published: Published, built: Plan) -> None:
    index = json.loads(
        shell.run(["docker", "buildx", "imagetools", "inspect", published.name, "--raw"], timeout=60).stdout
    )
    image, attestation = index["manifests"]
    assert image["digest"] == published.image.descriptor.digest
    assert image["platform"]["os"] == "linux"
    assert attestation["platform"]["os"] == "unknown"
    assert index["annotations"]["io.ftbuild.key"] == built.key
    assert published.repository.head(TAG) == published.index


def test_a_pull_of_the_index_gets_the_very_image(client: docker.DockerClient, published: Published) -> None:
    try:
        shell.run(["docker", "pull", "--quiet", published.name], timeout=120)
        assert client.images.get(published.name).id == published.image_id
    finally:
        client.images.remove(published.name)
