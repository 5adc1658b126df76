"""SBOM, provenance, annotations and the manifests that carry them, from plans of the real configuration."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from ftbuild.build.objects import Taken
from ftbuild.config.schema import Config
from ftbuild.matrix import select
from ftbuild.plan import Plan, Revision
from ftbuild.planning import make_plan
from ftbuild.publishing.attest import inventory, manifests, provenance, sbom
from ftbuild.publishing.attest.annotations import of_index
from ftbuild.publishing.attest.bundled import BundledLibrary
from ftbuild.publishing.attest.inventory import DebianPackage, Inventory, PythonPackage
from ftbuild.publishing.attest.provenance import Run
from ftbuild.registry.client import Descriptor

REVISION = Revision(commit="a" * 40, time="2026-01-01T02:00:00+02:00", url="https://example.invalid/ftbuild")
NAME = "registry.example.com/team/triton_with_ft"
DIGEST = "sha256:" + "7" * 64
IMAGE = Descriptor("application/vnd.docker.distribution.manifest.v2+json", DIGEST, 1234)
INVENTORY = Inventory(
    system="debian",
    system_version="12",
    debian=(
        DebianPackage("g++", "4:12.2.0-3", "amd64", "gcc-defaults", "1.203", ("GPL-2+", "Expat")),
        DebianPackage("libopenmpi3", "4.1.4-3+b1", "amd64", "openmpi", "4.1.4-3", ()),
    ),
    python=(
        PythonPackage("Jinja2", "3.1.6", "BSD License", "/usr/local/lib/python3.11/dist-packages"),
        PythonPackage("numpy", "1.24.2", "BSD-3-Clause", "/usr/lib/python3/dist-packages"),
        PythonPackage("numpy", "1.24.2", "BSD-3-Clause", "/usr/local/lib/python3.11/dist-packages"),
        PythonPackage("odd", "1", "LicenseRef-Odd", "/usr/lib/python3/dist-packages"),
    ),
    bundled=(
        BundledLibrary("openssl", "3.0.2", "/opt/tritonserver/lib/libcrypto-b1e52613.so.3", "1" * 64),
        BundledLibrary("openssl", "", "/opt/tritonserver/lib/libssl-78f088e1.so.3", "2" * 64),
    ),
)
LISTED = """\
os\tid\tdebian
os\tversion\t"12"
has\tdpkg
debian\tii \tapt\t2.6.1\tamd64\tapt\t2.6.1
debian\trc \told\t1\tamd64\told\t1
debian\tii \tadduser\t3.134\tall\tadduser\t3.134
debian\tii \tca-certificates\t20230311\tall\tca-certificates\t20230311
licence\t/usr/share/doc/apt/copyright:License: GPL-2+
licence\t/usr/share/doc/apt/copyright:License: Expat
licence\t/usr/share/doc/apt/copyright:License: GPL-2+
has\tpython3
python\t{"name": "tqdm", "version": "4", "licence": "MIT\\n\\nThe text", "classifiers": [], "folder": "/f"}
python\t{"name": "six", "version": "1", "licence": "UNKNOWN", "classifiers": ["L :: MIT"], "folder": "/f"}
python\t{"name": null, "version": null, "licence": "", "classifiers": [], "folder": "/f"}
python\t{"name": "half", "version": null, "licence": "", "classifiers": [], "folder": "/f"}
python\t{"name": "six", "version": "1", "licence": "UNKNOWN", "classifiers": ["L :: MIT"], "folder": "/f"}
python\t{"name": "Six", "version": "1", "licence": "", "classifiers": ["L :: A", "L :: B"], "folder": "/e"}
"""


def plans(config: Config, base: str) -> list[Plan]:
    cells = [select(config, triton=[r], sms=["80"], bases=[base])[0] for r in ("22.03", "22.07", "22.12")]
    return [make_plan(config, cell, REVISION) for cell in cells]


def sbom_of(planned: Plan, product: str = "runtime", **changes: Any) -> dict[str, Any]:
    return sbom.document(planned, product, replace(INVENTORY, **changes), NAME, DIGEST)


def related(document: dict[str, Any], kind: str) -> set[tuple[str, str]]:
    """Pairs of package names of a kind of relationship."""
    names = {package["SPDXID"]: package["name"] for package in document["packages"]}
    names["SPDXRef-DOCUMENT"] = "the document"
    return {
        (names[r["spdxElementId"]], names[r["relatedSpdxElement"]])
        for r in document["relationships"]
        if r["relationshipType"] == kind
    }


def purls(document: dict[str, Any]) -> set[str]:
    return {ref["referenceLocator"] for p in document["packages"] for ref in p.get("externalRefs", ())}


def test_what_an_image_lists_becomes_an_inventory_in_a_fixed_order() -> None:
    found = inventory.parse(LISTED)
    assert found == Inventory(
        system="debian",
        system_version="12",
        debian=(
            DebianPackage("adduser", "3.134", "all", "adduser", "3.134", ()),
            DebianPackage("apt", "2.6.1", "amd64", "apt", "2.6.1", ("Expat", "GPL-2+")),
            DebianPackage("ca-certificates", "20230311", "all", "ca-certificates", "20230311", ()),
        ),
        python=(
            PythonPackage("Six", "1", "A; B", "/e"),
            PythonPackage("six", "1", "MIT", "/f"),
            PythonPackage("tqdm", "4", "MIT", "/f"),
        ),
        bundled=(),
        missing=(),
    )
    long = inventory.parse(LISTED.replace("MIT\\n", "MIT " * 100)).python[-1].licence
    assert long == "MIT " * 50
    lines = LISTED.splitlines()
    assert inventory.parse("\n".join(reversed(lines))) == found


def test_an_image_without_dpkg_or_python_says_so_in_its_sbom(config: Config) -> None:
    bare = inventory.parse("os\tid\tbusybox\n")
    assert (bare.debian, bare.python, bare.missing) == ((), (), ("dpkg", "python3"))
    assert (bare.system, bare.system_version, inventory.parse("").system) == ("busybox", "", "")
    document = sbom.document(plans(config, "ngc")[2], "runtime", bare, NAME, DIGEST)
    assert document["comment"].split(". ") == [
        "Debian packages as dpkg, Python packages as importlib.metadata of the image list them",
        "Of the libraries in wheels those that auditwheel put there, by their files' names",
        "The image has no dpkg: its Debian packages are not listed",
        "The image has no python3: its Python packages are not listed",
        "Sources, patches and build tools as pinned by ftbuild",
        "Licences as the packages state them.",
    ]


@pytest.mark.parametrize(
    ("package", "upstream"),
    [
        (DebianPackage("apt", "2.6.1", "amd64", "apt", "2.6.1", ()), ""),
        (DebianPackage("libc6", "2.36-9", "amd64", "glibc", "2.36-9", ()), "&upstream=glibc"),
        (DebianPackage("libc6", "2.36-9+b1", "amd64", "glibc", "2.36-9", ()), "&upstream=glibc%402.36-9"),
        (DebianPackage("apt", "2.6.1+b1", "amd64", "apt", "2.6.1", ()), "&upstream=apt%402.6.1"),
    ],
)
def test_a_debian_package_names_its_source_package_where_that_is_another_one(
    config: Config, package: DebianPackage, upstream: str
) -> None:
    """Databases know source packages: without the qualifier scanners take the name of the binary one."""
    packages = sbom_of(plans(config, "ngc")[2], debian=(package,))["packages"]
    (listed,) = (each for each in packages if each["name"] == package.name)
    version = package.version.replace("+", "%2B")
    assert listed["externalRefs"][0]["referenceLocator"] == (
        f"pkg:deb/debian/{package.name}@{version}?arch=amd64&distro=debian-12{upstream}"
    )


@pytest.mark.parametrize("base", ["ngc", "open"])
@pytest.mark.parametrize("product", ["runtime", "sdk"])
def test_the_sbom_of_every_release_is_valid_spdx(
    config: Config, tmp_path: Path, base: str, product: str
) -> None:
    for planned in plans(config, base):
        file = tmp_path / f"{planned.cell.triton}.spdx.json"
        file.write_bytes(manifests.canonical(sbom_of(planned, product)))
        messages = validate_full_spdx_document(parse_file(str(file)))
        assert [message.validation_message for message in messages] == []


def test_every_source_and_patch_of_the_plan_is_in_the_sbom_with_its_origin(config: Config) -> None:
    for planned in plans(config, "ngc"):
        document = sbom_of(planned)
        packages = {package["name"]: package for package in document["packages"]}
        generated = related(document, "GENERATED_FROM")
        for source in planned.sources:
            package = packages[source.repository]
            assert package["downloadLocation"] == f"git+{source.url}@{source.commit}"
            assert source.tree in package["sourceInfo"]
            assert (NAME, source.repository) in generated
        assert len(generated) == len(planned.sources)
        applied = related(document, "PATCH_APPLIED")
        for patch in planned.patches:
            name = f"{patch.component}/{patch.file}"
            assert patch.origin in packages[name]["sourceInfo"]
            assert patch.fingerprint in packages[name]["comment"]
            assert (name, patch.component) in applied
        assert len(applied) == len(planned.patches)


def test_the_sbom_tells_images_and_sources_from_what_runs(config: Config) -> None:
    """Scanners and policies select by purpose (SPDX 2.3, 7.24)."""
    planned = plans(config, "open")[2]
    document = sbom_of(planned)
    found: dict[str, set[str]] = {}
    for package in document["packages"]:
        found.setdefault(package.get("primaryPackagePurpose", ""), set()).add(package["name"])
    bases = {image.rpartition(":")[0] for image in (planned.base.serving, planned.base.devel)}
    assert found["CONTAINER"] == {NAME} | bases
    patches = {f"{patch.component}/{patch.file}" for patch in planned.patches}
    assert found["SOURCE"] == {source.repository for source in planned.sources} | patches
    assert found["LIBRARY"] == {"openssl"}
    assert found.keys() == {"CONTAINER", "SOURCE", "LIBRARY", ""}


def test_the_sbom_says_what_of_a_source_was_taken(config: Config) -> None:
    planned = plans(config, "open")[2]
    said = {package["name"]: package.get("sourceInfo") for package in sbom_of(planned)["packages"]}
    for source in planned.sources:
        where = f"at {source.path} below the source root"
        text = said[source.repository]
        assert text.startswith(f"commit {source.commit} ({source.ref}), tree {source.tree}; ")
        assert text.endswith(where)
        left = text.partition("; ")[2].removesuffix(where)
        assert bool(left) == bool(source.sparse or source.without)
        assert all(folder in left for folder in (*source.sparse, *source.without))


def test_a_patch_has_its_upstream_commit_for_a_version_or_none(config: Config) -> None:
    planned = plans(config, "ngc")[2]
    packages = {package["name"]: package for package in sbom_of(planned)["packages"]}
    for patch in planned.patches:
        package = packages[f"{patch.component}/{patch.file}"]
        if patch.file.endswith(".backport"):
            url, _, commit = patch.origin.removeprefix("backport, ").partition("/commit/")
            assert package["versionInfo"] == commit
            assert package["downloadLocation"] == f"git+{url}@{commit}"
            assert "commit and paths" in package["comment"]
            assert package["externalRefs"][0]["referenceLocator"].endswith(f"@{commit}")
        else:
            assert package["downloadLocation"] == "NOASSERTION"
            assert package["checksums"] == [{"algorithm": "SHA256", "checksumValue": patch.fingerprint}]
            assert package.keys().isdisjoint({"versionInfo", "externalRefs"})


def test_a_backport_names_its_upstream_commit_and_only_a_patch_of_ours_has_a_checksum(config: Config) -> None:
    patches = [p for p in sbom_of(plans(config, "ngc")[2])["packages"] if "/0" in p["name"]]
    backports = [p for p in patches if p["name"].endswith(".backport")]
    assert backports
    assert len(backports) < len(patches)
    for package in patches:
        location = re.fullmatch(r"git\+https://github\.com/\S+@[0-9a-f]{40}", package["downloadLocation"])
        assert bool(location) == (package in backports)
        assert ("checksums" in package) == (package not in backports)


def test_packages_have_the_purls_that_scanners_use(config: Config) -> None:
    document = sbom_of(plans(config, "open")[2])
    assert {
        "pkg:deb/debian/libopenmpi3@4.1.4-3%2Bb1?arch=amd64&distro=debian-12&upstream=openmpi%404.1.4-3",
        "pkg:deb/debian/g%2B%2B@4:12.2.0-3?arch=amd64&distro=debian-12&upstream=gcc-defaults%401.203",
        "pkg:pypi/jinja2@3.1.6",
        "pkg:pypi/nvidia-pytriton@0.7.0",
        "pkg:github/nvidia/fastertransformer@d21dc02bc5f70bc7dc0d18ba5801ae263565e68e",
    } <= purls(document)
    (image,) = (p for p in document["packages"] if p["name"] == NAME)
    assert image["checksums"] == [{"algorithm": "SHA256", "checksumValue": "7" * 64}]
    assert related(document, "DESCRIBES") == {("the document", NAME)}
    assert (NAME, "numpy") in related(document, "CONTAINS")


def test_licences_are_declared_only_where_they_are_spdx_expressions(config: Config) -> None:
    packages = {p["name"]: p for p in sbom_of(plans(config, "ngc")[2])["packages"]}
    assert packages["numpy"]["licenseDeclared"] == "BSD-3-Clause"
    for name, words in {"Jinja2": "BSD License", "odd": "LicenseRef-Odd", "g++": "GPL-2+, Expat"}.items():
        assert packages[name]["licenseDeclared"] == "NOASSERTION"
        assert words in packages[name]["licenseComments"]
    assert "licenseComments" not in packages["numpy"]


def test_locked_debian_packages_are_named_by_the_hash_of_their_files(config: Config) -> None:
    planned = plans(config, "open")[2]
    assert planned.base.debian is not None
    (mpi,) = (p for p in planned.base.debian.packages("serving") if p.name == "libopenmpi3")
    packages = (
        DebianPackage(mpi.name, mpi.version, mpi.architecture, "openmpi", mpi.version, ()),
        DebianPackage("unlocked", "1", "amd64", "unlocked", "1", ()),
    )
    document = sbom_of(planned, debian=packages)
    listed = {package["name"]: package.get("checksums", []) for package in document["packages"]}
    assert listed["libopenmpi3"] == [{"algorithm": "SHA256", "checksumValue": mpi.sha256}]
    assert listed["unlocked"] == []
    definition = predicate_of(planned)["buildDefinition"]
    assert definition["internalParameters"]["base"]["snapshot"] == planned.base.snapshot
    digests = {r["name"]: r.get("digest") for r in definition["resolvedDependencies"]}
    assert digests["debian/libopenmpi3"] == {"sha256": mpi.sha256}
    assert "debian/nvidia-cuda-toolkit" in digests


def test_a_pinned_base_is_named_by_its_digest(config: Config) -> None:
    digest = "sha256:" + "5" * 64
    planned = plans(config, "ngc")[2]
    pinned = f"nvcr.io/nvidia/tritonserver:22.12-py3@{digest}"
    planned = replace(planned, base=replace(planned.base, serving=pinned, devel=pinned, digest=digest))
    purl = f"pkg:oci/tritonserver@{digest}?repository_url=nvcr.io/nvidia/tritonserver&tag=22.12-py3"
    assert purl in purls(sbom_of(planned))
    assert (NAME, "nvcr.io/nvidia/tritonserver") in related(sbom_of(planned), "DESCENDANT_OF")
    (listed,) = (p for p in sbom_of(planned)["packages"] if p["name"] == "nvcr.io/nvidia/tritonserver")
    assert listed["checksums"] == [{"algorithm": "SHA256", "checksumValue": "5" * 64}]
    (base,) = (
        r for r in predicate_of(planned)["buildDefinition"]["resolvedDependencies"] if r["name"] == "base"
    )
    assert base["uri"] == purl
    assert base["digest"] == {"sha256": "5" * 64}


def test_the_same_inputs_give_the_same_bytes_and_others_another_namespace(config: Config) -> None:
    one, other = (manifests.canonical(sbom_of(plans(config, "ngc")[2])) for _ in range(2))
    assert one == other
    spaces = [
        sbom_of(plans(config, "ngc")[2], product, **changes)["documentNamespace"]
        for product in ("runtime", "sdk")
        for changes in ({}, {"debian": ()}, {"python": ()})
    ]
    assert len(set(spaces)) == len(spaces)
    where = re.compile(rf"https://ftbuild\.invalid/spdx/{NAME}/{'7' * 64}\b")
    assert all(where.match(space) for space in spaces)
    assert json.loads(one)["name"] == f"{NAME}@{DIGEST}"


def test_times_come_from_the_revision_or_the_caller_and_are_utc(config: Config) -> None:
    planned = plans(config, "ngc")[2]
    assert sbom_of(planned)["creationInfo"]["created"] == "2026-01-01T00:00:00Z"
    built = sbom.document(planned, "runtime", INVENTORY, NAME, DIGEST, "2025-05-05T05:05:05.123456789Z")
    assert built["creationInfo"]["created"] == "2025-05-05T05:05:05Z"
    assert "startedOn" not in json.dumps(predicate_of(planned))


def test_paths_of_this_machine_and_credentials_stay_out(config: Config) -> None:
    planned = plans(config, "ngc")[2]
    ft, *others = planned.sources
    for url, seen in (
        ("https://bob:secret@git.example.com/ft.git", "https://git.example.com/ft.git"),
        ("/home/bob/ft.git", ""),
    ):
        changed = replace(planned, sources=(replace(ft, url=url), *others))
        text = json.dumps([sbom_of(changed), predicate_of(changed)])
        assert "bob" not in text
        assert seen in text
        assert ft.commit in text


def predicate_of(planned: Plan, **run: Any) -> dict[str, Any]:
    return provenance.predicate(planned, "runtime", Run(**run))


def test_the_provenance_names_every_material_with_its_digest(config: Config) -> None:
    for planned in plans(config, "open"):
        resources = predicate_of(planned)["buildDefinition"]["resolvedDependencies"]
        found = {resource["name"]: resource for resource in resources}
        assert len(found) == len(resources)
        for source in planned.sources:
            resource = found[f"source/{source.repository}"]
            assert resource["uri"] == f"git+{source.url}@{source.commit}"
            assert resource["digest"] == {"gitCommit": source.commit, "gitTree": source.tree}
        for patch in planned.patches:
            about = found[f"patch/{patch.component}/{patch.file}"]["annotations"]
            assert about == {"origin": patch.origin, "fingerprint": patch.fingerprint}
        for file in planned.files:
            assert found[f"recipe/{file.role}"]["digest"] == {"sha256": file.sha256}
        assert found["pyt/torch"]["uri"] == "pkg:pypi/torch@2.0.1"


def test_the_provenance_holds_the_options_of_both_trees_and_the_records_of_the_gates(config: Config) -> None:
    planned = plans(config, "ngc")[2]
    record = b'{"passed": true}\n'
    predicate = predicate_of(
        planned, records={"verify.json": record}, versions={"docker": "26"}, finished="2026-01-01T00:00:00Z"
    )
    definition, run = predicate["buildDefinition"], predicate["runDetails"]
    assert definition["externalParameters"]["sms"] == [80]
    trees = definition["internalParameters"]["trees"]
    assert trees["backend"]["options"]["SM"] == "80"
    assert trees["pyt"]["targets"] == list(planned.trees[1].targets)
    assert run["metadata"] == {"invocationId": planned.key, "finishedOn": "2026-01-01T00:00:00Z"}
    assert run["builder"]["version"]["docker"] == "26"
    (byproduct,) = run["byproducts"]
    assert byproduct["digest"]["sha256"] == hashlib.sha256(record).hexdigest()


def test_the_provenance_says_who_chose_what(config: Config) -> None:
    """A verifier compares the caller's choices; the configuration decides the rest (SLSA v1, parameters)."""
    planned = plans(config, "open")[2]
    predicate = predicate_of(planned, started="2026-01-01T00:00:00Z", builder="https://ci.example.com/7")
    definition = predicate["buildDefinition"]
    assert definition["buildType"] == provenance.BUILD_TYPE
    assert definition["externalParameters"] == {
        "cell": planned.cell.id,
        "triton": "22.12",
        "sms": [80],
        "base": "open",
        "product": "runtime",
        "image": planned.image,
        "config": {"uri": REVISION.url, "revision": REVISION.commit},
    }
    internal, local = definition["internalParameters"], planned.base.local
    assert local is not None
    assert {name: internal[name] for name in ("server", "cuda", "key", "environment", "arguments")} == {
        "server": planned.server,
        "cuda": planned.cuda,
        "key": planned.key,
        "environment": dict(planned.toolchain.environment()),
        "arguments": planned.arguments(),
    }
    assert internal["base"] == {
        "system": f"Debian {local.debian.suite}",
        "snapshot": planned.base.snapshot,
        "arguments": dict(local.arguments),
    }
    assert [internal["trees"][tree.name]["source"] for tree in planned.trees] == [
        tree.source for tree in planned.trees
    ]
    assert predicate["runDetails"]["builder"]["id"] == "https://ci.example.com/7"
    assert predicate["runDetails"]["metadata"]["startedOn"] == "2026-01-01T00:00:00Z"
    assert predicate_of(planned)["runDetails"]["builder"]["id"] == provenance.BUILDER
    assert predicate_of(plans(config, "ngc")[2])["buildDefinition"]["internalParameters"]["base"] == {}


def test_the_provenance_names_the_image_or_the_objects_that_came_from_elsewhere(config: Config) -> None:
    planned = plans(config, "open")[2]
    taken = Taken(f"{NAME}@{DIGEST}", "the key ours.pub", {"ft": ("a.cu",)}, {"ft": ()})
    definition = predicate_of(planned, objects=taken, substituted=f"{NAME}@{DIGEST}")["buildDefinition"]
    (resource,) = (each for each in definition["resolvedDependencies"] if each["name"] == "objects")
    assert resource["digest"] == {"sha256": "7" * 64}
    assert resource["uri"] == f"pkg:oci/triton_with_ft@{DIGEST}?repository_url={NAME}"
    assert resource["annotations"] == {
        "signer": taken.signer,
        "found": taken.found,
        "compiled": taken.compiled,
    }
    assert definition["internalParameters"]["substitutedFrom"] == f"{NAME}@{DIGEST}"
    built = predicate_of(planned)["buildDefinition"]
    assert "substitutedFrom" not in built["internalParameters"]
    assert "objects" not in {each["name"] for each in built["resolvedDependencies"]}


@pytest.mark.parametrize(
    ("changed", "is_it"),
    [
        ({}, True),
        ({"predicateType": "https://slsa.dev/provenance/v0.2"}, True),
        ({"predicateType": "https://spdx.dev/Document"}, False),
        ({"subject": [{"digest": {"sha256": "8" * 64}}]}, False),
        ({"subject": [{"digest": {"sha256": "7" * 64}}, {"digest": {"sha256": "8" * 64}}]}, False),
        ({"subject": []}, False),
        ({"subject": None}, False),
        ({"subject": [{}]}, False),
    ],
)
def test_a_statement_is_believed_about_one_manifest_alone(changed: dict[str, Any], is_it: bool) -> None:
    stated = json.loads(manifests.statement("x", DIGEST, provenance.PREDICATE, {})) | changed
    assert provenance.is_about(json.dumps(stated).encode(), DIGEST) is is_it
    assert not provenance.is_about(b"{", DIGEST)


@pytest.mark.parametrize(("used", "named"), [("remote", "remote"), ("", None)])
def test_the_provenance_says_whether_other_machines_may_have_compiled(
    config: Config, used: str, named: str | None
) -> None:
    planned = plans(config, "ngc")[0]
    definition = predicate_of(planned, compiler_cache=used)["buildDefinition"]
    assert definition["internalParameters"].get("compilerCache") == named
    if not named:
        assert definition == predicate_of(planned)["buildDefinition"], "it is said only if it is known"


def test_the_provenance_has_the_shape_that_slsa_prescribes(config: Config) -> None:
    digest = {"type": "object", "additionalProperties": {"type": "string", "pattern": "^[0-9a-f]{40,64}$"}}
    resource = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "uri": {"pattern": "^(git\\+|pkg:)"}, "digest": digest},
        "anyOf": [{"required": ["uri"]}, {"required": ["digest"]}],
    }
    resources = {"type": "array", "items": resource}
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": ["buildDefinition", "runDetails"],
        "properties": {
            "buildDefinition": {
                "required": ["buildType", "externalParameters"],
                "properties": {"buildType": {"pattern": "^https://"}, "resolvedDependencies": resources},
            },
            "runDetails": {
                "required": ["builder"],
                "properties": {
                    "builder": {"required": ["id"], "properties": {"id": {"pattern": "^https://"}}},
                    "byproducts": resources,
                },
            },
        },
    }
    for base in ("ngc", "open"):
        for planned in plans(config, base):
            jsonschema.validate(predicate_of(planned, records={"smoke.json": b"{}"}), schema)


def test_buildkits_own_provenance_is_taken_where_bake_wrote_it() -> None:
    old: dict[str, Any] = {"buildType": "x"}
    new: dict[str, Any] = {"buildDefinition": {}}
    metadata = {
        "old": {"buildx.build.provenance": old},
        "new": {"buildx.build.provenance": new},
        "none": {"buildx.build.ref": "default/x"},
        "buildx.build.warnings": [],
    }
    assert provenance.from_buildkit(metadata, "old") == ("https://slsa.dev/provenance/v0.2", old)
    assert provenance.from_buildkit(metadata, "new") == ("https://slsa.dev/provenance/v1", new)
    assert provenance.from_buildkit(metadata, "none") is None
    assert provenance.from_buildkit(metadata, "absent") is None
    assert provenance.from_buildkit({"odd": []}, "odd") is None
    assert provenance.from_buildkit([], "odd") is None


def test_the_records_that_a_provenance_names_are_found_in_it(config: Config) -> None:
    made = predicate_of(plans(config, "ngc")[2], records={"smoke.json": b"{}", "verify.json": b"[]"})
    assert provenance.records(made) == {
        "smoke.json": hashlib.sha256(b"{}").hexdigest(),
        "verify.json": hashlib.sha256(b"[]").hexdigest(),
    }
    for odd in ({}, {"runDetails": None}, {"runDetails": {"byproducts": [{"name": "x"}]}}):
        assert provenance.records(odd) == {}


def test_annotations_are_the_labels_without_empty_ones(config: Config) -> None:
    planned = replace(plans(config, "ngc")[2], revision=replace(REVISION, url=""))
    found = of_index(planned, "sdk", **{"io.ftbuild.smoked": "yes", "io.ftbuild.cuda": ""})
    assert found["io.ftbuild.cell"] == planned.cell.id
    assert found["io.ftbuild.product"] == "sdk"
    assert found["org.opencontainers.image.revision"] == "a" * 40
    assert found["io.ftbuild.smoked"] == "yes"
    assert list(found) == sorted(found)
    assert all(found.values())
    assert found.keys().isdisjoint(
        {"org.opencontainers.image.url", "org.opencontainers.image.ref.name", "io.ftbuild.cuda"}
    )


def test_a_statement_is_about_the_manifest_and_names_its_predicate() -> None:
    text = manifests.statement("pkg:oci/x", DIGEST, "https://example.invalid/p", {"b": 1, "a": 2})
    assert text.endswith(b'"subject":[{"digest":{"sha256":"' + b"7" * 64 + b'"},"name":"pkg:oci/x"}]}')
    assert json.loads(text) == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "pkg:oci/x", "digest": {"sha256": "7" * 64}}],
        "predicateType": "https://example.invalid/p",
        "predicate": {"a": 2, "b": 1},
    }


def test_the_attestation_manifest_points_to_what_it_brings() -> None:
    statements = [manifests.statement("x", DIGEST, f"https://example.invalid/{n}", {"n": n}) for n in (2, 1)]
    attestation = manifests.attestation(statements)
    content = json.loads(attestation.manifest.data)
    brought = {blob.descriptor.digest: blob for blob in attestation.blobs}
    named = [content["config"], *content["layers"]]
    assert [brought[entry["digest"]].media_type for entry in named] == [entry["mediaType"] for entry in named]
    assert [brought[entry["digest"]].data for entry in content["layers"]] == statements
    assert [entry["annotations"] for entry in content["layers"]] == [
        {"in-toto.io/predicate-type": f"https://example.invalid/{n}"} for n in (2, 1)
    ]
    config = json.loads(brought[content["config"]["digest"]].data)
    assert (config["os"], config["architecture"]) == ("unknown", "unknown")
    assert config["rootfs"]["diff_ids"] == [entry["digest"] for entry in content["layers"]]


def test_the_index_binds_the_attestation_to_the_image() -> None:
    attached = manifests.attestation([manifests.statement("x", DIGEST, "https://example.invalid/p", {})])
    config = {"architecture": "arm64", "os": "linux", "variant": "v8", "config": {"Env": ["A=b"]}}
    index = manifests.index(IMAGE, config, attached.manifest.descriptor, {"b": "1", "a": "2"})
    content = json.loads(index.data)
    image, attestation = content["manifests"]
    assert image == {**IMAGE.as_dict(), "platform": {"architecture": "arm64", "os": "linux", "variant": "v8"}}
    assert attestation["platform"] == {"architecture": "unknown", "os": "unknown"}
    assert attestation["annotations"]["vnd.docker.reference.type"] == "attestation-manifest"
    assert attestation["annotations"]["vnd.docker.reference.digest"] == DIGEST
    assert content["mediaType"] == index.media_type == "application/vnd.oci.image.index.v1+json"
    assert (
        index.data == manifests.index(IMAGE, config, attached.manifest.descriptor, {"a": "2", "b": "1"}).data
    )
