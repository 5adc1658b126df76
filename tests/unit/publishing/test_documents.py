"""Attestations, whole: SPDX, package URLs, provenance, the manifests that carry them, stored inventories."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from ftbuild import __version__
from ftbuild.config.schema import Config
from ftbuild.plan import Plan
from ftbuild.publishing import inventories
from ftbuild.publishing.attest import manifests, materials, provenance, purl, spdx
from ftbuild.publishing.attest.bundled import BundledLibrary
from ftbuild.publishing.attest.inventory import DebianPackage, Inventory, PythonPackage
from ftbuild.publishing.attest.provenance import Run
from ftbuild.registry.client import Descriptor
from tests.unit.publishing import test_attest
from tests.unit.publishing.test_attest import predicate_of, related, sbom_of
from tests.unit.publishing.test_publish import plan_of

DIGEST = "sha256:" + "7" * 64


@pytest.fixture
def cell(config: Config) -> Plan:
    return plan_of(config)


@pytest.fixture(scope="module")
def debian(config: Config) -> Plan:
    return test_attest.plans(config, "open")[2]


# SPDX


def test_a_package_has_the_keys_of_spdx() -> None:
    package = spdx.Package(
        "SPDXRef-x",
        "x",
        "1",
        purl="pkg:pypi/x@1",
        location="git+https://x@y",
        sha256="7" * 64,
        purpose="SOURCE",
        licence="my own words",
        source_info="found",
        comment="said",
    )
    assert package.element() == {
        "SPDXID": "SPDXRef-x",
        "name": "x",
        "versionInfo": "1",
        "downloadLocation": "git+https://x@y",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "licenseComments": "Stated by the package: my own words",
        "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": "SOURCE",
        "sourceInfo": "found",
        "comment": "said",
        "checksums": [{"algorithm": "SHA256", "checksumValue": "7" * 64}],
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": "pkg:pypi/x@1",
            }
        ],
    }
    bare = spdx.Package("SPDXRef-x", "x").element()
    assert bare == {
        "SPDXID": "SPDXRef-x",
        "name": "x",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
    }


def test_a_document_names_its_maker_and_links_its_packages() -> None:
    made = spdx.document(
        "n",
        "https://x.invalid",
        "2026-01-01T02:00:00+02:00",
        "c",
        [spdx.Package("SPDXRef-x", "x")],
        [spdx.Relationship("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-x")],
    )
    space = made.pop("documentNamespace")
    assert space.startswith("https://x.invalid/")
    assert len(space) == len("https://x.invalid/") + 12
    assert [made.pop("packages")[0]["name"]] == ["x"]
    assert made == {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": "n",
        "creationInfo": {"created": "2026-01-01T00:00:00Z", "creators": [f"Tool: ftbuild-{__version__}"]},
        "comment": "c",
        "relationships": [
            {
                "spdxElementId": "SPDXRef-DOCUMENT",
                "relationshipType": "DESCRIBES",
                "relatedSpdxElement": "SPDXRef-x",
            }
        ],
    }


def test_an_identifier_holds_what_its_grammar_allows_and_a_hash_of_all() -> None:
    assert spdx.identifier("wheel", "a_b/c.d-", "1").startswith("SPDXRef-wheel-a-b-c.d-")
    assert spdx.identifier("wheel", "a", "1") != spdx.identifier("wheel", "a", "2")
    assert len(spdx.identifier("wheel", "a", "1")) == len("SPDXRef-wheel-a-") + 12


def test_an_identifier_is_the_same_in_the_documents_of_every_release_of_ftbuild() -> None:
    """SBOMs of two images are compared by their ids, also where an older ftbuild made one of them."""
    assert spdx.identifier("wheel", "torch", "2.0.1", "pyt") == "SPDXRef-wheel-torch-8736587ed05a"


def test_an_id_in_the_sbom_says_what_it_stands_for(debian: Plan) -> None:
    """Relationships have ids only: a reader of them sees a base, a source, a wheel."""
    document = sbom_of(debian)
    kinds: dict[str, set[str]] = {}
    for package in document["packages"]:
        kinds.setdefault(package["name"], set()).add(package["SPDXID"].split("-")[1])
    patches = {f"{patch.component}/{patch.file}": {"patch"} for patch in debian.patches}
    assert kinds == patches | {source.repository: {"source"} for source in debian.sources} | {
        test_attest.NAME: {"image"},
        "ftbuild-base-open": {"base"},
        "Triton Inference Server": {"server"},
        **{wheel.name: {"wheel"} for wheel in debian.wheels if wheel.role in ("server", "toolchain")},
        "openssl": {"bundled"},
        **{package.name: {"debian"} for package in test_attest.INVENTORY.debian},
        **{package.name: {"python"} for package in test_attest.INVENTORY.python},
    }


def test_wheels_of_the_toolchain_are_tools_of_the_build(debian: Plan) -> None:
    document = sbom_of(debian)
    listed = {package["name"]: package for package in document["packages"]}
    tools = [wheel for wheel in debian.wheels if wheel.role == "toolchain"]
    assert {"cmake", "ninja"} <= {wheel.name for wheel in tools}
    for wheel in tools:
        assert (wheel.name, test_attest.NAME) in related(document, "BUILD_TOOL_OF")
        assert listed[wheel.name]["sourceInfo"] == f"{wheel.file}, pinned by the toolchain requirements"


def test_the_sbom_tells_what_an_image_holds_is_based_on_and_was_made_with(debian: Plan) -> None:
    runtime, sdk = sbom_of(debian), sbom_of(debian, "sdk")
    packages = {package["name"]: package for package in runtime["packages"]}
    image = packages[test_attest.NAME]
    assert (image["versionInfo"], image["primaryPackagePurpose"]) == (
        f"22.12-sm80-{debian.key}",
        "CONTAINER",
    )
    assert image["comment"] == debian.labels("runtime")["org.opencontainers.image.description"]
    base = next(p for p in runtime["packages"] if p["name"] == "ftbuild-base-open")
    assert (base["sourceInfo"], base["comment"]) == (debian.base.origin, "Its system: debian 12.")
    assert base["primaryPackagePurpose"] == "CONTAINER"
    assert (test_attest.NAME, "ftbuild-base-open") in related(runtime, "DESCENDANT_OF")
    assert {
        ("ftbuild-base-open", name) for name in ("nvidia-pytriton", "Triton Inference Server")
    } <= related(runtime, "CONTAINS")
    assert packages["Triton Inference Server"]["sourceInfo"] == (
        "the base's server, which says this version of itself; its files are in the base"
    )
    assert packages["libopenmpi3"]["sourceInfo"] == "built from the source package openmpi 4.1.4-3"
    assert packages["Jinja2"]["sourceInfo"] == "found in /usr/local/lib/python3.11/dist-packages"
    ft = packages["ft"]
    assert (ft["versionInfo"], ft["primaryPackagePurpose"]) == ("5.3", "SOURCE")
    assert "without docs/images/*, " in ft["sourceInfo"]
    assert ft["sourceInfo"].endswith("; at ft below the source root")
    cutlass = packages["cutlass"]["sourceInfo"]
    assert "only the folders include, tools/util/include; at ft/3rdparty/cutlass below" in cutlass
    tools = {name for name, _ in related(runtime, "BUILD_TOOL_OF")}
    assert "ftbuild-base-open" in tools, "the image to compile in"
    assert related(runtime, "BUILD_DEPENDENCY_OF") == set()
    assert ("torch", test_attest.NAME) in related(sdk, "BUILD_DEPENDENCY_OF")
    wheel = next(p for p in sdk["packages"] if p["name"] == "torch")
    assert wheel["sourceInfo"].endswith(", pinned by the pyt requirements")
    assert wheel["checksums"][0]["checksumValue"]
    unknown = sbom_of(debian, system="", system_version="")["packages"]
    assert [p.get("comment") for p in unknown if p["name"] == "ftbuild-base-open"] == [
        "Its system: unknown.",
        None,
    ]


def test_only_wheels_of_the_image_give_its_python_packages_a_checksum(debian: Plan) -> None:
    (runtime,) = [wheel for wheel in debian.wheels if wheel.role == "runtime"]
    sdk = next(wheel for wheel in debian.wheels if wheel.role == "sdk" and wheel.name == "torch")
    python = tuple(PythonPackage(w.name.upper(), w.version, "", "/f") for w in (runtime, sdk))

    def checksums(product: str) -> list[Any]:
        listed = {p["name"]: p for p in sbom_of(debian, product, python=python)["packages"]}
        return [listed[p.name].get("checksums") for p in python]

    of = [[{"algorithm": "SHA256", "checksumValue": wheel.sha256}] for wheel in (runtime, sdk)]
    assert checksums("runtime") == [of[0], None]
    assert checksums("sdk") == of


# Package URLs


@pytest.mark.parametrize(
    ("made", "url"),
    [
        (purl.debian("ubuntu", "22", "a", "1:2", "all"), "pkg:deb/ubuntu/a@1:2?arch=all&distro=ubuntu-22"),
        (purl.debian("", "", "a", "1", "all"), "pkg:deb/debian/a@1?arch=all"),
        (purl.python("Jinja_2", "1"), "pkg:pypi/jinja-2@1"),
        (purl.image("r.example/Team/X", DIGEST), f"pkg:oci/x@{DIGEST}?repository_url=r.example/Team/X"),
        (purl.git("https://github.com/A/B.git", "c0", "n"), "pkg:github/a/b@c0"),
        (purl.git("https://x.example/A/B.git", "c0", "n"), "pkg:generic/n@c0?vcs_url=git%2Bhttps://x.example/A/B.git%40c0"),
        (purl.git("", "c0", "n"), "pkg:generic/n@c0"),
    ],
)  # fmt: skip
def test_package_urls_are_those_of_their_types(made: str, url: str) -> None:
    assert made == url


# Provenance


def test_the_provenance_of_a_whole_build(debian: Plan) -> None:
    record = b"{}"
    predicate = predicate_of(
        debian,
        records={"verify.json": record, "smoke.json": record},
        versions={"docker": "26"},
        compiler_cache="remote",
        started="2026-01-01T00:00:00Z",
        builder="https://ci.example/runner",
    )
    definition = predicate["buildDefinition"]
    assert definition["buildType"] == "https://ftbuild.invalid/recipe/v2"
    assert definition["externalParameters"] == {
        "cell": "22.12-sm80",
        "triton": "22.12",
        "sms": [80],
        "base": "open",
        "product": "runtime",
        "image": "triton_with_ft",
        "config": {"uri": "https://example.invalid/ftbuild", "revision": "a" * 40},
    }
    local, internal = debian.base.local, dict(definition["internalParameters"])
    assert local is not None
    trees = internal.pop("trees")
    assert {name: tree["source"] for name, tree in trees.items()} == {
        tree.name: tree.source for tree in debian.trees
    }
    assert trees["backend"]["targets"] == list(debian.trees[0].targets)
    assert internal == {
        "server": "2.51.0",
        "cuda": "11.8",
        "key": debian.key,
        "environment": {"CC": "gcc-11", "CXX": "g++-11", "CUDAHOSTCXX": "g++-11"},
        "arguments": debian.arguments(),
        "base": {
            "system": "Debian bookworm",
            "snapshot": debian.base.snapshot,
            "arguments": dict(local.arguments),
        },
        "compilerCache": "remote",
    }
    digest = {"sha256": hashlib.sha256(record).hexdigest()}
    assert predicate["runDetails"] == {
        "builder": {
            "id": "https://ci.example/runner",
            "version": {"ftbuild": __version__, "docker": "26"},
        },
        "metadata": {"invocationId": debian.key, "startedOn": "2026-01-01T00:00:00Z"},
        "byproducts": [
            {"name": name, "mediaType": "application/json", "digest": digest}
            for name in ("smoke.json", "verify.json")
        ],
    }
    assert provenance.predicate(debian, "sdk", Run())["runDetails"]["builder"]["id"] == (
        "https://ftbuild.invalid/builder"
    )


def test_the_materials_of_a_build_are_named_by_kind(debian: Plan) -> None:
    found = {r["name"]: r for r in predicate_of(debian)["buildDefinition"]["resolvedDependencies"]}
    ft = debian.source("ft")
    assert found["source/ft"]["annotations"] == {"ref": ft.ref, "version": "5.3"}
    assert found["source/cutlass"]["annotations"] == {"ref": debian.source("cutlass").ref}
    ours = found["patch/ft/0040-sm-89.patch"]
    assert set(ours) == {"name", "digest", "annotations"}
    assert ours["digest"] == {"sha256": ours["annotations"]["fingerprint"]}
    backport = found["patch/ft/0100-custom-ar-threshold.backport"]
    commit = backport["annotations"]["origin"].rpartition("/")[2]
    assert backport["digest"] == {"gitCommit": commit}
    assert backport["uri"] == f"git+https://github.com/NVIDIA/FasterTransformer@{commit}"
    serving, devel = debian.base.serving.rpartition(":")[2], debian.base.devel.rpartition(":")[2]
    assert found["base"] == {
        "name": "base",
        "uri": f"pkg:generic/ftbuild-base-open@{serving}",
        "annotations": {"origin": debian.base.origin},
    }
    assert found["toolchain base"]["uri"] == f"pkg:generic/ftbuild-base-open@{devel}"
    assert found["debian/libopenmpi3"]["uri"].startswith("pkg:deb/debian/libopenmpi3@")
    assert found["debian/libopenmpi3"]["uri"].endswith("?arch=amd64&distro=debian-bookworm")
    assert found["server/nvidia-pytriton"]["uri"] == "pkg:pypi/nvidia-pytriton@0.7.0"
    for wheel in debian.wheels:
        assert found[f"{wheel.role}/{wheel.name}"]["digest"] == {"sha256": wheel.sha256}


@pytest.mark.parametrize("scheme", ["https", "http", "ssh", "git"])
def test_a_source_has_a_location_where_others_can_fetch_it(debian: Plan, scheme: str) -> None:
    ft = debian.source("ft")
    remote = materials.source(replace(ft, url=f"{scheme}://host/team/ft.git"))
    assert remote.uri == f"git+{scheme}://host/team/ft.git@{ft.commit}"
    for url in ("/srv/ft.git", "file:///srv/ft.git", "../ft.git"):
        assert materials.source(replace(ft, url=url)).uri == ""


def test_a_base_from_a_registry_has_no_system_of_ours(config: Config) -> None:
    planned = test_attest.plans(config, "ngc")[2]
    definition = predicate_of(planned)["buildDefinition"]
    assert definition["internalParameters"]["base"] == {}
    names = [resource["name"] for resource in definition["resolvedDependencies"]]
    assert "toolchain base" not in names
    assert not [name for name in names if name.startswith("debian/")]


# Manifests


def test_the_manifests_of_attestations_have_the_types_that_buildx_reads() -> None:
    text = manifests.statement("x", DIGEST, "https://example.invalid/p", {})
    made = manifests.attestation([text])
    content = json.loads(made.manifest.data)
    assert (content["schemaVersion"], content["mediaType"]) == (
        2,
        "application/vnd.oci.image.manifest.v1+json",
    )
    assert content["config"]["mediaType"] == "application/vnd.oci.image.config.v1+json"
    assert content["layers"][0]["mediaType"] == "application/vnd.in-toto+json"
    config = json.loads(made.blobs[0].data)
    assert (config["config"], config["rootfs"]["type"]) == ({}, "layers")
    image = Descriptor("a/b", DIGEST, 1)
    full = {"architecture": "amd64", "os": "windows", "os.version": "10", "os.features": ["x"], "variant": ""}
    index_of = json.loads(manifests.index(image, full, made.manifest.descriptor, {"a": "b"}).data)
    assert index_of["schemaVersion"] == 2
    assert index_of["annotations"] == {"a": "b"}
    assert index_of["manifests"][0]["platform"] == {
        "architecture": "amd64",
        "os": "windows",
        "os.version": "10",
        "os.features": ["x"],
    }


# Inventories


def test_an_inventory_is_read_back_for_its_image_only(cell: Plan, tmp_path: Any) -> None:
    listed = Inventory(
        "debian",
        "12",
        (DebianPackage("apt", "1", "amd64", "apt", "1", ("MIT",)),),
        (PythonPackage("x", "1", "MIT", "/f"),),
        (BundledLibrary("curl", "7", "/f/libcurl-00000000.so.4", "1" * 64),),
        ("dpkg",),
    )
    stored = inventories.StoredInventory("sha256:1", listed)
    (tmp_path / "inventory-sdk.json").write_bytes(inventories._STORED.dump_json(stored))
    assert inventories.read(tmp_path, "sdk", ["sha256:0", "sha256:1"]) == listed
    assert inventories.read(tmp_path, "sdk", ["sha256:2"]) is None
    assert inventories.read(tmp_path, "runtime", ["sha256:1"]) is None
    (tmp_path / "inventory-sdk.json").write_text("{}")
    assert inventories.read(tmp_path, "sdk", ["sha256:1"]) is None
    assert replace(listed, missing=()) != listed
