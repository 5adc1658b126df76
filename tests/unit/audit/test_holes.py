"""Open holes of images: databases matched with plans and SBOMs, our statements, reports and exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ftbuild import triton
from ftbuild.audit import contents, holes, osv, report
from ftbuild.audit.contents import Component, Contents
from ftbuild.audit.holes import Finding, Report
from ftbuild.cli.selection import Selection
from ftbuild.cli.selection import plans as select
from ftbuild.config.holes import HolesConfig
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.publishing.attest import manifests, materials, sbom
from ftbuild.publishing.attest.inventory import Inventory
from testing import osv_files
from testing.osv_files import commits, record
from tests.unit.config.test_holes import described
from tests.unit.publishing.test_attest import DIGEST, INVENTORY, NAME, plans

FIXED = ({"introduced": "0"}, {"fixed": "3.0.2-2"})
OPENSSL = Component("Debian:12", "openssl", "3.0.2-1", ("pkg:deb/debian/libssl3", "pkg:deb/debian/openssl"))
NUMPY = Component("PyPI", "numpy", "1.0", ("pkg:pypi/numpy",))
BUNDLED = Component("", "openssl", "3.0.2", ("pkg:generic/openssl",))
SERVER = Component("", "triton-inference-server/server", "v2.36.0", (triton.PURL,))
NOTHING = HolesConfig()
CRITICAL = {"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}


def image(*components: Component) -> Contents:
    return Contents(("image",), components, True)


@pytest.fixture
def searched(tmp_path: Path) -> Any:
    """Search an image for the holes of records."""

    def search(found: Contents, *records: Any, config: HolesConfig = NOTHING) -> Report:
        file = osv_files.write(tmp_path / "all.zip", *records)
        return holes.search(found, [osv.read(file, holes.Names([found]))], config)

    return search


def ids(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.id for finding in findings]


def test_a_source_package_of_debian_has_the_holes_of_its_release(searched: Any) -> None:
    found = searched(
        image(OPENSSL),
        record("CVE-2000-0001", "Debian:12", "openssl", *FIXED),
        record("CVE-2000-0002", "Debian:13", "openssl", *FIXED),
        record("CVE-2000-0003", "Debian:12", "openssl", {"introduced": "0"}, {"fixed": "3.0.2-1"}),
        record("CVE-2000-0004", "Debian", "openssl", *FIXED),
        record("CVE-2000-0005", "PyPI", "openssl", *FIXED),
    )
    assert ids(found.open) == ["CVE-2000-0001", "CVE-2000-0004"]
    assert (found.open[0].component, found.open[0].version, found.open[0].fixed) == (
        "openssl",
        "3.0.2-1",
        "3.0.2-2",
    )


@pytest.mark.parametrize(
    ("ecosystem", "matches"),
    [
        ("Debian:12", True),
        ("Debian", True),
        ("Debian:12:extra", True),
        ("Debian:120", False),
        ("Debian:1", False),
        ("Debian:13", False),
        ("Debian:", False),
    ],
)
def test_a_record_is_about_the_release_of_a_package_or_about_all(
    searched: Any, ecosystem: str, matches: bool
) -> None:
    found = searched(image(OPENSSL), record("CVE-2000-0001", ecosystem, "openssl", *FIXED))
    assert ids(found.open) == ["CVE-2000-0001"] * matches
    assert found.unchecked == ({} if matches else {"Debian:12": 1})


def test_records_of_one_hole_become_one_finding_under_its_cve(searched: Any) -> None:
    found = searched(
        image(OPENSSL),
        record("DEBIAN-CVE-2000-0001", "Debian:12", "openssl", {"introduced": "0"},
               upstream=["CVE-2000-0001"]),
        record("DSA-1-1", "Debian:12", "openssl", *FIXED, upstream=["CVE-2000-0001", "CVE-2000-0002"],
               severity=[CRITICAL]),
        record("DLA-1-1", "Debian:12", "openssl", *FIXED),
    )  # fmt: skip
    assert ids(found.open) == ["CVE-2000-0001", "CVE-2000-0002", "DLA-1-1"]
    first = found.open[0]
    assert first.by == ("DEBIAN-CVE-2000-0001", "DSA-1-1")
    assert (first.score, first.severity, first.fixed) == (9.8, "critical", "3.0.2-2")


def test_an_alias_gives_a_record_of_pypi_its_cve(searched: Any) -> None:
    found = searched(
        image(NUMPY),
        record("GHSA-a-b-c", "PyPI", "NumPy", versions=["1.0"], aliases=["CVE-2000-0001", "PYSEC-1"]),
        record("PYSEC-1", "PyPI", "numpy", versions=["1.0"], aliases=["CVE-2000-0001", "GHSA-a-b-c"]),
    )
    assert ids(found.open) == ["CVE-2000-0001"]
    assert found.open[0].by == ("GHSA-a-b-c", "PYSEC-1")


def test_a_library_of_a_wheel_and_a_server_are_known_by_their_repository(searched: Any) -> None:
    found = searched(
        image(BUNDLED, SERVER),
        commits("CVE-2000-0001", "https://github.com/openssl/openssl", "openssl-3.0.2"),
        commits("CVE-2000-0002", "https://github.com/openssl/openssl"),
        commits("CVE-2000-0003", "https://github.com/Triton-Inference-Server/server.git/", "v2.36.0"),
        commits("CVE-2000-0004", "https://github.com/nextcloud/server", "v2.36.0"),
    )
    assert ids(found.open) == ["CVE-2000-0001", "CVE-2000-0003"]
    assert found.open[0].component == "openssl (in a wheel)"
    assert found.undecided == {"openssl (in a wheel)": 1}


def test_what_no_database_is_about_is_said(searched: Any) -> None:
    found = searched(image(OPENSSL, NUMPY, BUNDLED), record("A", "PyPI", "other", versions=["1"]))
    assert found.unchecked == {"Debian:12": 1, "projects (GIT, OSS-Fuzz)": 1}
    assert holes.search(image(NUMPY), [], NOTHING).unchecked == {"PyPI": 1}


def test_a_statement_of_ours_rules_a_finding_out_where_it_is_about_the_same_component(searched: Any) -> None:
    absent = {"bases": "any", "justification": "component_not_present", "reason": "not linked"}
    config = described({"not_affected": [absent]}, purl="pkg:deb/debian/openssl")
    records = (
        record("DEBIAN-CVE-2000-0001", "Debian:12", "openssl", *FIXED, upstream=["CVE-2000-0001"]),
        record("PYSEC-1", "PyPI", "numpy", versions=["1.0"], aliases=["CVE-2000-0001"]),
    )
    found = searched(image(OPENSSL, NUMPY), *records, config=config)
    assert [(f.id, f.component) for f in found.open] == [("CVE-2000-0001", "numpy")]
    assert [(f.id, f.component) for f in found.stated] == [("CVE-2000-0001", "openssl")]
    assert found.stated[0].text == "not linked"


def test_a_hole_that_we_and_a_database_know_is_one_finding(searched: Any) -> None:
    config = described({"score": 9.8, "fixed": "2.59.1"}, {"score": 5.0})
    stated = commits("CVE-2000-0001", "https://github.com/triton-inference-server/server", "v2.36.0")
    found = searched(image(SERVER), stated, config=config)
    assert ids(found.open) == ["CVE-2000-0001", "CVE-2000-0002"]
    assert found.open[0].by == ("CVE-2000-0001", "holes.yaml")
    assert (found.open[0].score, found.open[0].fixed) == (9.8, "2.59.1")
    assert found.open[1].by == ("holes.yaml",)


def test_our_own_holes_are_open_without_any_database(config: Config) -> None:
    (_, _, newest) = plans(config, "open")
    found = holes.search(contents.of_plan(newest, "runtime"), [], config.holes)
    assert "CVE-2025-23310" in ids(found.open)
    assert "CVE-2025-23268" not in ids(found.open)  # no DALI backend


def test_a_hole_that_a_patch_of_the_image_closes_is_not_open(config: Config) -> None:
    """Of 26.06, whose packages are those of Debian 13."""
    chosen = Selection(config.folder, ["26.06"], ["90"], base=["open-trixie"])
    (plan,) = select(config, chosen)
    patched = contents.of_plan(plan, "runtime")
    assert not [name for name in ids(holes.search(patched, [], config.holes).open) if "FTBUILD" in name]
    bare = replace(patched, patches=())
    assert "FTBUILD-2026-7" in ids(holes.search(bare, [], config.holes).open)
    families = {each.ecosystem for each in patched.components if each.ecosystem.startswith("Debian")}
    assert families == {"Debian:13"}


# Contents


def test_a_plan_lists_server_wheels_and_debian_sources(config: Config) -> None:
    (_, _, newest) = plans(config, "open")
    runtime, sdk = (contents.of_plan(newest, product) for product in ("runtime", "sdk"))
    assert runtime.images == ("22.12-sm80 runtime",)
    assert runtime.local
    names = {(component.ecosystem, component.name) for component in runtime.components}
    assert {
        ("", "triton-inference-server/server"),
        ("PyPI", "tokenizers"),
        ("PyPI", "nvidia-pytriton"),
    } <= names
    assert ("Debian:12", "openmpi") in names
    assert ("PyPI", "torch") not in names
    assert ("PyPI", "torch") in {(component.ecosystem, component.name) for component in sdk.components}
    (mpi,) = (component for component in runtime.components if component.name == "openmpi")
    assert mpi.version == "4.1.4-3"  # of the package 4.1.4-3+b1
    assert "pkg:deb/debian/libopenmpi3" in mpi.urls
    assert not contents.of_plan(plans(config, "ngc")[0], "runtime").local


def sbom_file(folder: Path, config: Config, base: str = "open", listed: Inventory = INVENTORY) -> Path:
    file = folder / "sbom.json"
    document = sbom.document(plans(config, base)[2], "runtime", listed, NAME, DIGEST)
    file.write_bytes(manifests.canonical(document))
    return file


def test_an_sbom_lists_what_the_image_holds_and_not_what_it_was_made_of(
    config: Config, tmp_path: Path
) -> None:
    found = contents.of_sbom(sbom_file(tmp_path, config))
    plan = plans(config, "open")[2]
    assert found.images == (f"{NAME}@{DIGEST}",)
    assert found.local
    listed = {(c.ecosystem, c.name, c.version) for c in found.components}
    assert listed == {
        ("", "openssl", "3.0.2"),
        ("", "triton-inference-server/server", f"v{plan.server}"),
        ("Debian:12", "gcc-defaults", "1.203"),
        ("Debian:12", "openmpi", "4.1.4-3"),
        ("PyPI", "jinja2", "3.1.6"),
        ("PyPI", "numpy", "1.24.2"),
        *(("PyPI", wheel.name, wheel.version) for wheel in materials.wheels(plan, "server")),
    }
    assert found.unversioned == ()  # libcrypto tells the release of libssl too
    bare = replace(INVENTORY, bundled=INVENTORY.bundled[1:])
    assert contents.of_sbom(sbom_file(tmp_path, config, listed=bare)).unversioned == ("openssl",)
    assert not contents.of_sbom(sbom_file(tmp_path, config, "ngc")).local


def test_plan_and_sbom_name_the_same_patches(config: Config, tmp_path: Path) -> None:
    """So that a hole that a patch closes is open by neither."""
    plan = plans(config, "open")[2]
    found = contents.of_sbom(sbom_file(tmp_path, config)).patches
    assert found == contents.of_plan(plan, "runtime").patches == tuple(sorted(plan.patch_names()))
    assert found


def test_an_sbom_of_another_tool_is_read_as_far_as_its_package_urls_go(tmp_path: Path) -> None:
    urls = ["pkg:deb/ubuntu/libc6@2.31-0?arch=amd64&distro=ubuntu-20.04&upstream=glibc", "pkg:npm/x@1"]
    refs = [
        {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": u} for u in urls
    ]
    packages = [{"SPDXID": "SPDXRef-a", "name": "libc6", "externalRefs": refs}, {"SPDXID": "SPDXRef-b"}]
    file = tmp_path / "sbom.json"
    file.write_text(json.dumps({"spdxVersion": "SPDX-2.3", "name": "other", "packages": packages}))
    (libc,) = contents.of_sbom(file).components
    assert (libc.ecosystem, libc.name, libc.version) == ("Ubuntu:20.04", "glibc", "2.31-0")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"spdxVersion": "SPDX-3.0"}', '{"spdxVersion": "SPDX-2.3", "packages": 1}',
     '{"spdxVersion": "SPDX-2.3", "packages": [{"SPDXID": "a", "externalRefs": [{}]}]}',
     '{"spdxVersion": "SPDX-2.3", "packages": [{"SPDXID": "a", "externalRefs":'
     ' [{"referenceType": "purl", "referenceLocator": "nonsense"}]}]}'],
)  # fmt: skip
def test_what_is_no_sbom_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "sbom.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match="not an SBOM in SPDX 2 as JSON"):
        contents.of_sbom(file)


def sbom_of(*urls: str) -> str:
    packages = [
        {"SPDXID": f"P{n}", "externalRefs": [{"referenceType": "purl", "referenceLocator": url}]}
        for n, url in enumerate(urls)
    ]
    return json.dumps({"spdxVersion": "SPDX-2.3", "name": "other", "packages": packages})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"packages": ' + "[" * 100_000, "nested too deeply"),
        ("[" + "{}," * contents.MAX_VALUES + "{}]", "more than 2000000 values"),
        (sbom_of("pkg:generic/" + "a" * 3000 + "@1"), "more than 2000 characters"),
        (sbom_of(*(f"pkg:pypi/numpy@{n}" for n in range(contents.MAX_VERSIONS + 1))), "100 versions of one"),
        (sbom_of(*(f"pkg:pypi/p{n}@1" for n in range(101))), "more than 100 packages"),
    ],
)
def test_an_sbom_of_more_than_an_image_can_hold_is_refused(
    tmp_path: Path, text: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason.endswith("packages"):
        monkeypatch.setattr(contents, "MAX_COMPONENTS", 100)
    file = tmp_path / "sbom.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=reason):
        contents.of_sbom(file)


def test_a_source_package_may_have_any_number_of_packages(tmp_path: Path) -> None:
    urls = [f"pkg:deb/debian/lib{n}@1-1?distro=debian-12&upstream=gcc-12" for n in range(300)]
    file = tmp_path / "sbom.json"
    file.write_text(sbom_of(*urls))
    (gcc,) = contents.of_sbom(file).components
    assert len(gcc.urls) == 300


def test_images_that_hold_the_same_are_reported_once() -> None:
    one, other = image(NUMPY), replace(image(NUMPY), images=("other",))
    different = replace(image(OPENSSL), images=("different",))
    found = contents.merged([one, different, other])
    assert [each.images for each in found] == [("image", "other"), ("different",)]


# Reports


def reported(*scores: float | None) -> Report:
    findings = tuple(Finding(f"CVE-2000-000{n}", "numpy", "1.0", s, "", ("A",)) for n, s in enumerate(scores))
    return Report(image(NUMPY), findings, ())


@pytest.mark.parametrize(
    ("scores", "fail_on", "code"),
    [
        ((), "any", 0),
        ((None,), "any", 8),
        ((None,), "low", 0),
        ((0.0,), "any", 8),
        ((0.0,), "low", 0),
        ((8.9,), "critical", 0),
        ((8.9,), "high", 8),
        ((9.0, 1.0), "critical", 8),
        ((9.8,), "none", 0),
    ],
)
def test_the_exit_code_says_whether_a_bad_hole_is_open(
    scores: tuple[float | None, ...], fail_on: report.FailOn, code: int
) -> None:
    assert report.exit_code([reported(), reported(*scores)], fail_on) == code


def test_a_report_names_holes_counts_and_what_was_not_looked_at(searched: Any, tmp_path: Path) -> None:
    config = described({"score": 9.8, "fixed": "2.59.1"})
    found = searched(image(SERVER, NUMPY, BUNDLED), record("A", "Debian:12", "x", *FIXED), config=config)
    database = osv.read(tmp_path / "all.zip", holes.Names([found.contents]))
    text = report.render([found], [database], "2026-02-01")
    assert "all.zip: records: 1" in text
    assert "bulletins up to 2026-02-01" in text
    (line,) = (line for line in text.splitlines() if line.startswith("CVE-2000-0001"))
    assert line.split() == [
        "CVE-2000-0001", "critical", "triton-inference-server/server", "v2.36.0", "2.59.1", "holes.yaml"
    ]  # fmt: skip
    assert "components: 3, open holes: 1: critical: 1" in text
    assert "no database is about PyPI: 1, projects (GIT, OSS-Fuzz): 2" in text
    data = json.loads(report.as_json([found], [database], "2026-02-01"))
    (listed,) = data["images"]
    assert listed["counts"] == {"critical": 1}
    assert (listed["images"], listed["components"]) == (["image"], 3)
    assert listed["open"][0]["severity"] == "critical"
    assert listed["open"][0]["text"].endswith("has the fix")
    assert data["databases"] == [
        {"file": str(tmp_path / "all.zip"), "records": 1, "matching": 0, "skipped": {}}
    ]


def test_a_report_counts_every_class_and_names_what_tells_no_release() -> None:
    made = reported(9.0, 7.0, 4.0, 0.1, 0.0, None)
    text = report.render([made], [], "2026-02-01")
    assert "open holes: 6: critical: 1, high: 1, medium: 1, low: 1, none: 1, unknown: 1" in text
    assert "of unknown release" not in text
    made = replace(made, contents=replace(made.contents, unversioned=("brotli", "krb5")))
    assert "\nof unknown release: brotli, krb5" in report.render([made], [], "2026-02-01")


def test_without_a_database_the_report_says_so() -> None:
    assert "no database: only what holes.yaml knows" in report.render([reported()], [], "2026-02-01")
