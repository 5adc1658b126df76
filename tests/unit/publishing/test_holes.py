"""What a published image says of its holes: libraries of wheels in the SBOM, and the OpenVEX document."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ftbuild import __version__, triton
from ftbuild.audit import contents
from ftbuild.config.schema import Config
from ftbuild.plan import Plan
from ftbuild.publishing.attest import bundled, inventory, sbom, vex
from tests.unit.publishing.test_attest import DIGEST, NAME, plans, sbom_of


@pytest.fixture(scope="module")
def debian(config: Config) -> Plan:
    return plans(config, "open")[2]


def server_of(plan: Plan) -> str:
    return f"{triton.PURL}@v{plan.server}"


def row(file: str, *told: str) -> str:
    return json.dumps({"path": f"/lib/{file}", "sha256": "1" * 64, "told": told})


@pytest.mark.parametrize(
    ("file", "told", "project", "version"),
    [
        ("libcrypto-b1e52613.so.3", ["3.0.2"], "openssl", "3.0.2"),
        ("libcurl-17fa0db4.so.4.7.0", [], "curl", ""),
        ("libnghttp2-fdcf1344.so.14.20.1", ["1.43.0", "1.44.0"], "nghttp2", ""),
        ("liblzma-493cb401.so.5.2.5", [], "xz", "5.2.5"),
        ("libcudart-9335f6a2.so.12.1.105", [], "libcudart", "12.1.105"),
        ("libcudart-d0da41ae.so.11.0", [], "libcudart", ""),
        ("libicuuc-4683f362.so.70.1", [], "icu", "70.1"),
        ("libicudata-4683f362.so.70.1", [], "icu", "70.1"),
        ("libdcgm-00000000.so.3.1.7", [], "libdcgm", "3.1.7"),
        ("liblz4-00000000.so.1.9.4", [], "lz4", "1.9.4"),
        ("libxml2-00000000.so.2.9.14", [], "libxml2", "2.9.14"),
        ("libz-00000000.so.1.2.13", [], "zlib", "1.2.13"),
        ("libzstd-00000000.so.1.5.5", [], "zstd", "1.5.5"),
        ("libldap-2-d0d387bd.5.so.0.1.9", [], "openldap", ""),
        ("libopenblas64_p-r0-0cf96a72.3.23.dev.so", [], "libopenblas64_p-r0.3.23.dev", ""),
        ("libbrotlicommon-00000000.so.1.0.9", [], "brotli", ""),
        ("libbrotlidec-00000000.so.1.0.9", [], "brotli", ""),
        ("libbrotlienc-00000000.so.1.0.9", [], "brotli", ""),
        ("libbz2-00000000.so.1.0.4", ["1.0.8"], "bzip2", "1.0.8"),
        ("libgssapi_krb5-00000000.so.2.2", [], "krb5", ""),
        ("libhogweed-00000000.so.6.4", [], "nettle", ""),
        ("libk5crypto-00000000.so.3.1", [], "krb5", ""),
        ("libkeyutils-00000000.so.1.9", ["1.6.1"], "keyutils", "1.6.1"),
        ("libkrb5-00000000.so.3.3", [], "krb5", ""),
        ("libkrb5support-00000000.so.0.1", [], "krb5", ""),
        ("liblber-2-00000000.4.so.2.10.9", [], "openldap", ""),
        ("liblber-2-00000000.5.so.0.1.9", [], "openldap", ""),
        ("libldap-2-00000000.4.so.2.10.9", [], "openldap", ""),
        ("libnettle-00000000.so.8.4", [], "nettle", ""),
        ("libre2-00000000.so.9.0.0", [], "re2", ""),
        ("libsasl2-00000000.so.2.0.25", ["2.1.27"], "cyrus-sasl", "2.1.27"),
        ("libssl-00000000.so.3", [], "openssl", ""),
    ],
)
def test_a_library_of_a_wheel_has_a_release_only_where_it_is_certain(
    file: str, told: list[str], project: str, version: str
) -> None:
    (found,) = bundled.parse([row(file, *told)])
    assert (found.project, found.version, found.folder) == (project, version, "/lib")


@pytest.mark.parametrize(
    ("stem", "content", "told"),
    [
        ("libarchive", "libarchive 3.6.0", "3.6.0"),
        ("libbz2", "1.0.8, 13-Jul-2019", "1.0.8"),
        ("libcrypto", "OpenSSL 1.1.1k  FIPS 25 Mar 2021", ""),
        ("libcrypto", "OpenSSL 3.0.2 15 Mar 2022", "3.0.2"),
        ("libcurl", "CLIENT libcurl 7.81.0", "7.81.0"),
        ("libgmp", "\0006.2.1\0", "6.2.1"),
        ("libkeyutils", "keyutils-1.6.1\0", "1.6.1"),
        ("libnghttp2", "\0001.43.0\0", "1.43.0"),
        ("libpsl", "\0000.21.0 (+libidn2)", "0.21.0"),
        ("libsasl2", "\0002.1.27\0", "2.1.27"),
        ("libssh", "SSH-2.0-libssh_0.9.6", "0.9.6"),
        ("libtasn1", "\0004.18.0\0", "4.18.0"),
        ("libz", "deflate 1.2.11 Copyright", "1.2.11"),
        ("libother", "\0001.2.3\0", ""),
    ],
)
def test_a_library_tells_its_release_in_its_own_words(
    stem: str, content: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the script in an image reads it; what `find` lists of the image is this one file here."""
    library = tmp_path / f"{stem}-0123abcd.so.9"
    library.write_bytes(b"\x7fELF" + content.encode() + b"\0")
    find = tmp_path / "find"
    find.write_text(f"#!/bin/sh\nprintf '%s\\0' {library}\n")
    find.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    script = f"import json, subprocess\n{bundled.SCRIPT}"
    printed = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    kind, _, fields = printed.stdout.strip().partition("\t")
    assert kind == "bundled"
    (found,) = bundled.parse([fields])
    assert (found.path, found.version) == (str(library), told)
    assert found.sha256 == hashlib.sha256(library.read_bytes()).hexdigest()


def test_a_package_of_two_architectures_is_listed_in_one_order() -> None:
    rows = [f"debian\tii \tlibc6\t2.36-9\t{name}\tglibc\t2.36-9" for name in ("i386", "amd64")]
    found, turned = (inventory.parse("\n".join(lines)).debian for lines in (rows, rows[::-1]))
    assert found == turned
    assert [package.architecture for package in found] == ["amd64", "i386"]


def test_what_an_image_lists_of_wheels_is_in_its_inventory() -> None:
    lines = [f"bundled\t{row('libz-00000000.so.1.2.13')}", f"bundled\t{row('libb-11111111.so.1')}"]
    found = inventory.parse("\n".join(lines)).bundled
    assert [library.path for library in found] == ["/lib/libb-11111111.so.1", "/lib/libz-00000000.so.1.2.13"]
    assert (found[1].project, found[1].version) == ("zlib", "1.2.13")


def test_the_sbom_lists_libraries_of_wheels_with_their_sha256(debian: Plan) -> None:
    document = sbom_of(debian)
    crypto, ssl = (p for p in document["packages"] if p["name"] == "openssl")
    assert (crypto["versionInfo"], ssl["versionInfo"]) == ("3.0.2", "NOASSERTION")
    assert crypto["checksums"][0]["checksumValue"] == "1" * 64
    assert "/opt/tritonserver/lib/libcrypto-b1e52613.so.3" in crypto["sourceInfo"]
    urls = sbom.package_urls(document)
    assert {"pkg:generic/openssl@3.0.2", "pkg:generic/openssl"} <= set(urls)


def test_the_sbom_names_the_server_and_debians_source_packages(debian: Plan) -> None:
    urls = sbom.package_urls(sbom_of(debian))
    assert server_of(debian) in urls
    (mpi,) = (url for url in urls if "libopenmpi3" in url)
    assert mpi.endswith("&upstream=openmpi%404.1.4-3")


def test_the_audit_finds_in_an_sbom_which_patches_were_compiled_in(debian: Plan, tmp_path: Path) -> None:
    """A hole that a patch of ours cures is none."""
    (tmp_path / "sbom.json").write_text(json.dumps(sbom_of(debian)))
    found = contents.of_sbom(tmp_path / "sbom.json")
    assert found.patches == tuple(sorted(debian.patch_names()))
    assert found.local


def vex_of(plan: Plan) -> dict[str, Any]:
    document = vex.document(plan, NAME, DIGEST, sbom.package_urls(sbom_of(plan)))
    assert document
    return document


def test_every_known_hole_of_the_server_has_a_statement(debian: Plan) -> None:
    document = vex_of(debian)
    stated = {each["vulnerability"]["name"]: each for each in document["statements"]}
    assert list(stated) == [hole.id for hole in debian.holes.statements]
    for each in stated.values():
        (product,) = each["products"]
        assert product["@id"].startswith("pkg:oci/triton_with_ft@sha256")
        assert product["subcomponents"] == [{"@id": server_of(debian)}]
    overflow, absent = stated["CVE-2025-23310"], stated["CVE-2025-23268"]
    assert overflow["status"] == "affected"
    assert "25.07 (2.59.1) has the fix" in overflow["action_statement"]
    assert "bulletin 5687" in overflow["status_notes"]
    (known,) = (hole for hole in debian.holes.statements if hole.id == "CVE-2025-23310")
    assert overflow["vulnerability"] == {"@id": known.url, "name": known.id, "description": known.what}
    assert known.url.startswith("https://")
    assert (absent["status"], absent["justification"]) == ("not_affected", "component_not_present")
    assert absent["status_notes"].startswith("the bases built here have no DALI backend; NVIDIA")
    assert not {"action_statement", "impact_statement"} & absent.keys()


def test_a_server_with_the_fix_says_so(config: Config, debian: Plan) -> None:
    fixed = replace(debian.holes.statements[0], status="fixed", text="25.07 has it")
    plan = replace(debian, holes=replace(debian.holes, statements=(fixed,)))
    (stated,) = vex_of(plan)["statements"]
    assert stated["status"] == "fixed"
    assert stated["status_notes"].startswith("25.07 has it; NVIDIA security bulletin")


def test_the_document_is_that_of_openvex_and_the_same_each_time(config: Config, debian: Plan) -> None:
    document = vex_of(debian)
    assert document == vex_of(debian)
    assert document["@context"] == "https://openvex.dev/ns/v0.2.0"
    assert document["timestamp"] == f"{config.holes.known}T00:00:00Z"
    assert re.fullmatch(r"https://ftbuild\.invalid/vex/[0-9a-f]+", document["@id"])
    assert (document["author"], document["tooling"]) == ("ftbuild", f"ftbuild-{__version__}")
    required = {"@context", "@id", "author", "timestamp", "version", "statements"}
    assert required <= document.keys()
    other = replace(debian, holes=replace(debian.holes, day="2099-01-01"))
    assert vex_of(other)["@id"] != document["@id"]


def test_nothing_is_said_of_what_the_sbom_does_not_list(debian: Plan) -> None:
    assert vex.document(debian, NAME, DIGEST, ["pkg:pypi/other@1"]) is None
    assert vex.document(debian, NAME, DIGEST, [f"{server_of(debian)}.1"]) is None


def test_a_component_is_known_by_its_purl_without_qualifiers(debian: Plan) -> None:
    """They say where a package was found and not what it is (purl-spec)."""
    document = vex.document(debian, NAME, DIGEST, [f"{server_of(debian)}?arch=amd64"])
    assert document == vex_of(debian)
