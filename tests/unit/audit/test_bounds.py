"""Where databases, SBOMs and versions end: the last that is read, the first that is not, and what is said."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ftbuild.audit import contents, debian_versions, holes, osv, ranges, severity
from ftbuild.audit.contents import Component, Contents
from ftbuild.config import holes as known_holes
from ftbuild.config.holes import HolesConfig
from ftbuild.errors import ConfigError
from testing import osv_files
from testing.osv_files import commits, record
from tests.unit.config.test_holes import described

FIXED = ({"introduced": "0"}, {"fixed": "2"})


def everything(ecosystem: str, name: str) -> bool:
    return True


def read(file: Path) -> osv.Database:
    return osv.read(file, everything)


# CVSS v3: each value of each metric, and scores of FIRST's own calculator


@pytest.mark.parametrize(
    ("fields", "score"),
    [
        ("AV:N/AC:L/PR:N/UI:N/S:C/C:H/I:H/A:H", 10.0),
        ("AV:A/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", 8.8),
        ("AV:L/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", 8.4),
        ("AV:P/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", 6.8),
        ("AV:N/AC:H/PR:N/UI:N/S:U/C:H/I:H/A:H", 8.1),
        ("AV:N/AC:L/PR:L/UI:N/S:U/C:H/I:H/A:H", 8.8),
        ("AV:N/AC:L/PR:H/UI:N/S:U/C:H/I:H/A:H", 7.2),
        ("AV:N/AC:L/PR:L/UI:N/S:C/C:H/I:H/A:H", 9.9),
        ("AV:N/AC:L/PR:H/UI:N/S:C/C:H/I:H/A:H", 9.1),
        ("AV:N/AC:L/PR:N/UI:R/S:U/C:H/I:H/A:H", 8.8),
        ("AV:N/AC:L/PR:N/UI:N/S:U/C:L/I:N/A:N", 5.3),
        ("AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:L/A:N", 5.3),
        ("AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:L", 5.3),
        ("AV:N/AC:L/PR:N/UI:N/S:C/C:L/I:L/A:N", 7.2),
        ("AV:N/AC:L/PR:N/UI:R/S:C/C:L/I:L/A:N", 6.1),
        ("AV:L/AC:L/PR:L/UI:N/S:U/C:H/I:H/A:H", 7.8),
        ("AV:P/AC:H/PR:H/UI:R/S:U/C:L/I:N/A:N", 1.6),
        ("AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:N/A:N", 7.5),
        ("AV:N/AC:L/PR:N/UI:N/S:C/C:N/I:N/A:N", 0.0),
    ],
)
def test_each_metric_counts_as_in_the_standard(fields: str, score: float) -> None:
    for version in ("3.0", "3.1"):
        assert severity.base_score(f"CVSS:{version}/{fields}") == score


WHOLE = ["AV:N", "AC:L", "PR:N", "UI:N", "S:U", "C:H", "I:H", "A:H"]


@pytest.mark.parametrize("metric", WHOLE)
def test_a_vector_without_a_metric_or_with_a_strange_value_of_it_has_no_score(metric: str) -> None:
    fields = [field for field in WHOLE if field != metric]
    assert severity.base_score("/".join(["CVSS:3.1", *fields])) is None
    assert severity.base_score("/".join(["CVSS:3.1", *fields, f"{metric[:-1]}X"])) is None
    assert severity.base_score("/".join(["CVSS:3.1", *fields, metric, "E:X:Y", "odd"])) == 9.8


@pytest.mark.parametrize(
    ("word", "score"),
    [("CRITICAL", 9.0), ("high", 7.0), ("Moderate", 4.0), ("MEDIUM", 4.0), ("LOW", 0.1), ("bad", None)],
)
def test_words_stand_for_the_lowest_score_of_their_class(word: str, score: float | None) -> None:
    assert severity.of_record({"database_specific": {"severity": word}}) == score


def test_the_worst_score_of_all_parts_counts() -> None:
    low = {"severity": [{"score": "CVSS:3.1/AV:P/AC:H/PR:H/UI:R/S:U/C:L/I:N/A:N"}]}
    high = {"severity": [{"score": 7}, "odd", {"score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:N/A:N"}]}
    assert severity.of_record(low, high) == severity.of_record(high, low) == 7.5
    assert severity.of_record({"database_specific": 7, "ecosystem_specific": 7}) is None
    assert severity.of_record(high, {"ecosystem_specific": {"urgency": "unimportant"}}) == 0.0


# Versions


@pytest.mark.parametrize(
    "text",
    ["", "-", "1-", ":1", "1:", "a:1", "1:2:3-", "1_2", "1-2_", "1 2", "1-2-é", "1234567890:1", "9" * 256],
)
def test_what_is_no_version_of_debian_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a version of Debian: '"):
        debian_versions.key(text)


@pytest.mark.parametrize(
    "text", ["1", "0:1", "999999999:1", "1:2:3-4", "1-2-3", "1.0~rc1+dfsg-1", "9" * 255, "a"]
)
def test_versions_of_debian_are_read(text: str) -> None:
    assert debian_versions.compare(text, text) == 0


def test_a_long_text_that_is_no_version_is_quoted_by_its_beginning() -> None:
    with pytest.raises(ValueError, match="'" + "_" * 80 + "'$"):
        debian_versions.Version("_" * 300)


@pytest.mark.parametrize(
    ("lesser", "greater"),
    [
        ("1~", "1"),
        ("1~~", "1~"),
        ("1", "1a"),
        ("1a", "1+"),
        ("1.9", "1.10"),
        ("1-9", "1-10"),
        ("9", "1:1"),
        ("1:9", "2:1"),
        ("1", "1-1"),
        ("1.2", "1.2.0a"),
        ("a", "b"),
        ("1Z", "1a"),
        ("1-1~bpo", "1-1"),
    ],
)
def test_debians_order_of_versions(lesser: str, greater: str) -> None:
    assert debian_versions.compare(lesser, greater) == -1
    assert debian_versions.compare(greater, lesser) == 1
    assert sorted([greater, lesser], key=debian_versions.key) == [lesser, greater]


@pytest.mark.parametrize(("one", "other"), [("1", "0:1"), ("1.0", "1.00"), ("1-0", "1"), ("1a", "1a0")])
def test_versions_that_differ_in_writing_alone_are_the_same(one: str, other: str) -> None:
    assert debian_versions.compare(one, other) == 0


@pytest.mark.parametrize(
    ("tag", "version"),
    [
        ("openssl-3.0.2", "3.0.2"),
        ("OpenSSL_1_1_1w", "1.1.1w"),
        ("curl-7_81_0", "7.81.0"),
        ("v2.36.0", "2.36.0"),
        ("release-1-2", "1.2"),
        ("1", "1"),
        ("main", "main"),
        ("1.0-", "1.0-"),
        ("x" * 254 + "1", "1"),
        ("x" * 255 + "1", "x" * 255 + "1"),
    ],
)
def test_the_version_of_a_tag_is_at_its_end(tag: str, version: str) -> None:
    assert ranges.release(tag) == version


@pytest.mark.parametrize(
    ("events", "version", "answer"),
    [
        ([{"introduced": "1"}], "1", True),
        ([{"introduced": "1"}], "0.9", False),
        ([{"introduced": "0"}, {"limit": "2"}], "2", False),
        ([{"introduced": "0"}, {"limit": "2"}], "1.9", True),
        ([{"introduced": "1"}, {"fixed": "2"}, {"introduced": "2"}], "2", False),
        ([{"introduced": "0"}, {"fixed": "2"}, {"introduced": "3"}], "3", True),
        ([{"introduced": "0"}, {"last_affected": "2"}, {"introduced": "3"}], "2.5", False),
        ([{"fixed": "2"}], "1", False),
    ],
)
@pytest.mark.parametrize("kind", ["ECOSYSTEM", "SEMVER"])
def test_a_range_is_from_introduced_to_its_end(
    kind: str, events: list[dict[str, str]], version: str, answer: bool
) -> None:
    assert ranges.affected({"ranges": [{"type": kind, "events": events}]}, "PyPI", version) is answer


def test_an_order_that_is_not_known_decides_nothing_unless_another_range_does() -> None:
    unknown = {"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}
    semver = {"type": "SEMVER", "events": [*FIXED]}
    assert ranges.affected({"ranges": [unknown]}, "Alpine", "1") is None
    assert ranges.affected({"ranges": [unknown, semver]}, "Alpine", "1") is True
    assert ranges.affected({"ranges": [unknown, semver]}, "Alpine", "3") is None
    assert ranges.affected({"ranges": [semver]}, "Alpine", "3") is False
    assert ranges.affected({"ranges": [unknown], "versions": ["2"]}, "Alpine", "1") is False
    assert list(ranges.fixes({"ranges": [unknown, semver]}, "Alpine", "1")) == ["2"]


@pytest.mark.parametrize("version", ["1" * 256, "one"])
def test_a_version_of_pypi_that_is_none_is_compared_as_text(version: str) -> None:
    assert ranges.affected({"versions": [version]}, "PyPI", version) is True
    assert ranges.affected({"versions": ["1"]}, "PyPI", version) is False
    with pytest.raises(ValueError, match=r"too long for a version|Invalid version"):
        ranges.affected({"ranges": [{"type": "ECOSYSTEM", "events": [*FIXED]}]}, "PyPI", version)


# Databases


@pytest.mark.parametrize(
    ("constant", "limit", "last", "first", "message"),
    [
        (
            "MAX_RECORDS",
            2,
            [record("A", "PyPI", "a")] * 2,
            [record("A", "PyPI", "a")] * 3,
            "it has more than 2 records",
        ),
        (
            "MAX_ECOSYSTEMS",
            2,
            [record("A", "PyPI", "a"), record("B", "Debian:12", "a")],
            [record("A", "PyPI", "a"), record("B", "Debian:12", "a"), record("C", "Debian:13", "a")],
            "its records are about more than 2 ecosystems",
        ),
        (
            "MAX_KEPT",
            21,  # 10 for each, and one version
            [record("A", "PyPI", "a"), record("B", "PyPI", "a", versions=["1"])],
            [record("A", "PyPI", "a", aliases=["X"]), record("B", "PyPI", "a", versions=["1"])],
            "its records about what is asked for have more than 21 values",
        ),
        (
            "MAX_KEPT",
            10 + 4 * (2 + 1) + 3,
            [record("A", "PyPI", "a", *FIXED, aliases=["X"], upstream=["Y"], severity=[{}])],
            [record("A", "PyPI", "a", *FIXED, aliases=["X"], upstream=["Y"], severity=[{}, {}])],
            "its records about what is asked for have more than 25 values",
        ),
        (
            "MAX_UNPACKED_BYTES",
            1_000_000,
            [{**record("A", "PyPI", "a"), "x": "y" * 900_000}],
            [{**record("A", "PyPI", "a"), "x": "y" * 1_100_000}],
            "its records would unpack to 1 MB",
        ),
    ],
)
def test_a_database_has_limits(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    constant: str,
    limit: int,
    last: list[Any],
    first: list[Any],
    message: str,
) -> None:
    monkeypatch.setattr(osv, constant, limit)
    assert read(osv_files.write(tmp_path / "last.zip", *last)).records == len(last)
    file = osv_files.write(tmp_path / "first.zip", *first)
    with pytest.raises(ConfigError) as caught:
        read(file)
    assert caught.value.what == f"not a database of OSV: {message}"
    assert caught.value.where == str(file)
    assert caught.value.hint == f"one is at {osv.WHERE}"


def test_records_that_are_too_large_or_odd_are_skipped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(osv, "MAX_BYTES", 2**20)
    monkeypatch.setattr(osv, "MAX_VALUES", 100)
    good = record("A", "PyPI", "a", versions=["1"])
    large = json.dumps({**good, "x": "y" * 2**20}).encode()
    exact = json.dumps({**good, "x": ""}).encode()
    exact = json.dumps({**good, "x": "y" * (2**20 - len(exact))}).encode()
    odd = {
        "no_id": b'{"affected": []}',
        "a_number": json.dumps({**good, "id": 7}).encode(),
        "a_list": b"[]",
        "no_name": json.dumps({"id": "B", "affected": [{"package": {"ecosystem": "PyPI"}}]}).encode(),
        "long_name": json.dumps(record("C", "PyPI", "a" * 1001)).encode(),
        "versions": json.dumps({**good, "affected": [{**good["affected"][0], "versions": "1"}]}).encode(),
    }
    withdrawn = {**good, "withdrawn": "2026-01-01T00:00:00Z"}
    file = osv_files.write(
        tmp_path / "all.zip",
        good,
        withdrawn,
        record("D", "PyPI", "a" * 1000),
        large=large,
        exact=exact,
        broken=b"{",
        many=json.dumps({**good, "x": [1] * 101}).encode(),
        **odd,
    )
    found = read(file)
    assert found.records == 7 + len(odd)
    assert found.skipped == {
        "withdrawn": 1,
        "larger than 1 MiB": 1,
        "not JSON": 1,
        "more than 100 values": 1,
        "not of OSV's schema": len(odd),
    }
    assert [entry.name[:2] for entry in found.entries] == ["a", "aa", "a"]


def test_a_database_of_which_nothing_can_be_read_is_refused_unless_all_was_withdrawn(tmp_path: Path) -> None:
    gone = {**record("A", "PyPI", "a"), "withdrawn": "2026-01-01T00:00:00Z"}
    assert read(osv_files.write(tmp_path / "gone.zip", gone)).entries == []
    for name, members, message in [
        ("empty", {}, "it holds no record (*.json)"),
        (
            "broken",
            {"a": b"{", "b": b"[]"},
            "none of its 2 records can be read (not JSON: 1, not of OSV's schema: 1)",
        ),
    ]:
        with pytest.raises(ConfigError) as caught:
            read(osv_files.write(tmp_path / f"{name}.zip", **members))
        assert caught.value.what == f"not a database of OSV: {message}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no such file"),
        (b"SQLite format 3\0 and more", "it is an SQLite file, maybe Grype's: only OSV's zip files are read"),
        (b"", "File is not a zip file"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "all.zip"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read(file)
    assert caught.value.what == f"not a database of OSV: {message}"


def test_a_large_directory_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what the end of a zip file says of it, in both of its forms."""
    file = osv_files.write(tmp_path / "all.zip", record("A", "PyPI", "a"))
    whole = file.read_bytes()
    (stated,) = struct.unpack_from("<I", whole, whole.rfind(b"PK\5\6") + 12)
    monkeypatch.setattr(osv, "MAX_DIRECTORY_BYTES", stated)
    assert read(file).records == 1
    large = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, 1, 1, stated + 1, 0)
    file.write_bytes(whole[: whole.rfind(b"PK\5\6")] + large + whole[whole.rfind(b"PK\5\6") :])
    with pytest.raises(ConfigError, match="more than 500000 records"):
        read(file)
    file.write_bytes(whole)
    monkeypatch.setattr(osv, "MAX_DIRECTORY_BYTES", stated - 1)
    with pytest.raises(ConfigError, match="more than 500000 records"):
        read(file)


END = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 1, 1, 77, 0, 0)
LARGE = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, 1, 1, 99, 0)


@pytest.mark.parametrize(
    ("content", "size"),
    [
        (END, 77),
        (END[:-1], 0),
        (b"more" + END, 77),
        (b"more" + END[:-1], 0),
        (b"no directory at all", 0),
        (LARGE[:48] + END, 99),
        (b"more" + LARGE + END, 99),
        (LARGE.replace(bytes([99]), bytes([55])) + END, 77),
        (LARGE + END[:12] + b"\xff" * 4 + END[16:], 99),
        (END + LARGE, 77),
    ],
)
def test_a_directory_is_as_large_as_its_end_says(content: bytes, size: int) -> None:
    assert osv._directory_bytes(io.BytesIO(content)) == size


def test_records_may_unpack_to_a_hundred_times_the_file_and_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = record("A", "PyPI", "a", summary="x" * 100_000)
    file = osv_files.write(tmp_path / "all.zip", long)
    unpacked, packed = len(json.dumps(long)), file.stat().st_size
    assert unpacked > packed * 50
    monkeypatch.setattr(osv, "_ALWAYS_UNPACKED_BYTES", 0)
    monkeypatch.setattr(osv, "MAX_RATIO", unpacked // packed + 1)
    assert read(file).records == 1
    monkeypatch.setattr(osv, "MAX_UNPACKED_BYTES", unpacked)
    assert read(file).records == 1
    monkeypatch.setattr(osv, "MAX_UNPACKED_BYTES", unpacked - 1)
    with pytest.raises(ConfigError, match="its records would unpack to 0 MB"):
        read(file)
    monkeypatch.undo()
    monkeypatch.setattr(osv, "_ALWAYS_UNPACKED_BYTES", 0)
    monkeypatch.setattr(osv, "MAX_RATIO", unpacked // packed)
    with pytest.raises(ConfigError, match="its records would unpack to"):
        read(file)


def test_a_database_with_one_record_that_holds_is_read_whatever_was_withdrawn(tmp_path: Path) -> None:
    gone = record("A", "PyPI", "a", *FIXED, withdrawn="2026-01-01T00:00:00Z")
    database = read(osv_files.write(tmp_path / "all.zip", gone, record("B", "PyPI", "b", *FIXED)))
    assert ([entry.name for entry in database.entries], database.skipped) == (["b"], {"withdrawn": 1})


def test_a_record_about_a_package_goes_by_its_name_alone(tmp_path: Path) -> None:
    """Not by the repository of one of its ranges, which has other packages too."""
    both = record("A", "PyPI", "numpy", *FIXED)
    both["affected"][0]["ranges"] += commits("A", "https://github.com/numpy/numpy")["affected"][0]["ranges"]
    entries = read(osv_files.write(tmp_path / "all.zip", both)).entries
    assert [(entry.ecosystem, entry.name) for entry in entries] == [("PyPI", "numpy")]


def test_members_that_are_no_records_do_not_count(tmp_path: Path) -> None:
    file = osv_files.write(tmp_path / "all.zip", record("A", "PyPI", "a"))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("README", "{")
    assert read(file).records == 1


def test_what_is_kept_of_a_record_is_what_is_shown_or_compared(tmp_path: Path) -> None:
    described_ = record(
        "A",
        "Debian:12",
        "a",
        *FIXED,
        versions=["1"],
        aliases=["B"],
        upstream=["C"],
        details="long",
        severity=[{"score": "x"}],
        database_specific={"severity": "HIGH", "more": 1},
        ecosystem_specific={"urgency": "u" * 1000},
    )
    described_["affected"][0]["ecosystem_specific"] = {"urgency": "low", "binaries": []}
    (entry,) = read(osv_files.write(tmp_path / "all.zip", described_)).entries
    assert entry.record == {
        "id": "A",
        "aliases": ["B"],
        "upstream": ["C"],
        "severity": [{"score": "x"}],
        "database_specific": {"severity": "HIGH"},
    }
    assert entry.affected == {
        "ranges": [{"type": "ECOSYSTEM", "events": [*FIXED]}],
        "versions": ["1"],
        "severity": [],
        "ecosystem_specific": {"urgency": "low"},
    }
    assert (entry.family, entry.ecosystem, entry.name) == ("Debian", "Debian:12", "a")


@pytest.mark.parametrize(
    ("repository", "names"),
    [
        ("https://github.com/OpenSSL/openssl", ["openssl", "openssl/openssl"]),
        ("https://git.example/Group/Project.git/", ["project", "group/project"]),
        ("project", ["project", "/project"]),
    ],
)
def test_a_record_about_commits_goes_by_its_repository(
    tmp_path: Path, repository: str, names: list[str]
) -> None:
    database = read(osv_files.write(tmp_path / "all.zip", commits("A", repository, "1")))
    assert [(entry.ecosystem, entry.name) for entry in database.entries] == [("", name) for name in names]
    assert database.ecosystems == {""}


# SBOMs


def refs(*urls: str) -> list[dict[str, str]]:
    return [{"referenceType": "purl", "referenceLocator": url} for url in urls]


def listed(folder: Path, packages: list[dict[str, Any]], links: list[tuple[str, str, str]] = ()) -> Contents:  # type: ignore[assignment]
    document = {
        "spdxVersion": "SPDX-2.3",
        "packages": packages,
        "relationships": [
            {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
            for one, kind, other in links
        ],
    }
    file = folder / "sbom.json"
    file.write_text(json.dumps(document))
    return contents.of_sbom(file)


@pytest.mark.parametrize(
    ("url", "component"),
    [
        ("pkg:pypi/Jinja2@3.1", Component("PyPI", "jinja2", "3.1", ("pkg:pypi/jinja2",))),
        (
            "pkg:deb/debian/libssl3@3.0-1?arch=amd64&distro=debian-12&upstream=openssl%403.0-0",
            Component("Debian:12", "openssl", "3.0-0", ("pkg:deb/debian/libssl3",)),
        ),
        (
            "pkg:deb/ubuntu/libc6@2.31?distro=ubuntu-20.04",
            Component("Ubuntu:20.04", "libc6", "2.31", ("pkg:deb/ubuntu/libc6",)),
        ),
        ("pkg:generic/OpenSSL@3.0#lib/ssl", Component("", "openssl", "3.0", ("pkg:generic/OpenSSL",))),
        ("pkg:generic/OpenSSL@3.0", Component("", "openssl", "3.0", ("pkg:generic/OpenSSL",))),
        (
            "pkg:github/Triton-Inference-Server/Server@v2",
            Component(
                "", "triton-inference-server/server", "v2", ("pkg:github/triton-inference-server/server",)
            ),
        ),
        ("pkg:deb/other/x@1", None),
        ("pkg:npm/x@1", None),
        ("pkg:oci/x@sha256%3Aaa", None),
    ],
)
def test_a_package_url_names_a_component_as_databases_do(
    tmp_path: Path, url: str, component: Component | None
) -> None:
    found = listed(tmp_path, [{"SPDXID": "a", "externalRefs": refs(url)}])
    assert found.components == ((component,) if component else ())
    assert found.images == ("sbom.json",)


def test_what_an_image_holds_is_told_from_what_it_was_made_of(tmp_path: Path) -> None:
    packages: list[dict[str, Any]] = [
        {"SPDXID": "image", "name": "image"},
        {"SPDXID": "base", "externalRefs": refs("pkg:oci/base@sha256%3Aaa")},
        {"SPDXID": "held", "externalRefs": refs("pkg:pypi/held@1", "pkg:generic/nameless")},
        {
            "SPDXID": "other",
            "externalRefs": [
                {"referenceType": "cpe23Type", "referenceLocator": "x"},
                *refs("pkg:pypi/other@1"),
            ],
        },
        {
            "SPDXID": "packaged",
            "externalRefs": refs("pkg:pypi/packaged@1"),
            "sourceInfo": "found in /usr/lib/python3/dist-packages",
        },
        {"SPDXID": "SPDXRef-patch-1", "name": "ft/1.patch"},
    ]
    links = [
        ("image", "CONTAINS", "held"),
        ("image", "CONTAINS", "packaged"),
        ("image", "DESCENDANT_OF", "base"),
        ("image", "GENERATED_FROM", "other"),
    ]
    found = listed(tmp_path, packages, links)
    assert [component.name for component in found.components] == ["held"]
    assert (found.local, found.unversioned, found.patches) == (False, ("nameless",), ("ft/1.patch",))
    alone = listed(tmp_path, packages)
    assert [component.name for component in alone.components] == ["held", "other"]
    assert alone.local


def test_a_component_of_a_wheel_is_shown_as_one() -> None:
    assert Component("", "openssl", "3", ("pkg:generic/openssl",)).shown == "openssl (in a wheel)"
    assert Component("PyPI", "numpy", "1", ("pkg:pypi/numpy",)).shown == "numpy"
    assert Component("Debian:12", "openssl", "3", ()).family == "Debian"


def test_an_sbom_of_another_format_is_none(tmp_path: Path) -> None:
    file = tmp_path / "sbom.json"
    for version, message in (
        ("SPDX-3.0", "its version is another one"),
        (None, "its version is another one"),
    ):
        file.write_text(json.dumps({"spdxVersion": version, "packages": [], "relationships": []}))
        with pytest.raises(ConfigError, match=message):
            contents.of_sbom(file)


def test_an_sbom_has_at_most_as_many_packages_as_an_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "MAX_COMPONENTS", 2)
    packages = [{"SPDXID": f"{n}", "externalRefs": refs(f"pkg:pypi/package{n}@1")} for n in range(3)]
    assert len(listed(tmp_path, packages[:2]).components) == 2
    with pytest.raises(ConfigError, match="more than 2 packages"):
        listed(tmp_path, packages)


def test_the_bounds_of_an_sbom_are_what_an_image_can_hold(tmp_path: Path) -> None:
    half = [
        {"SPDXID": f"{n} {kind}", "externalRefs": refs(f"{kind}@{n}")}
        for n in range(60)
        for kind in ("pkg:pypi/openssl", "pkg:generic/openssl", "pkg:pypi/numpy")
    ]
    assert len(listed(tmp_path, half).components) == 180
    many = [{"SPDXID": f"{n}", "externalRefs": refs(f"pkg:pypi/numpy@{n}")} for n in range(100)]
    assert len(listed(tmp_path, many).components) == 100
    long = "pkg:generic/" + "a" * (2000 - len("pkg:generic/@1")) + "@1"
    assert len(long) == 2000
    assert listed(tmp_path, [{"SPDXID": "a", "externalRefs": refs(long)}]).components


# Findings


def search(
    folder: Path, components: list[Component], *records: Any, config: HolesConfig | None = None
) -> holes.Report:
    image = Contents(("image",), tuple(components), True)
    file = osv_files.write(folder / "all.zip", *records)
    return holes.search(image, [osv.read(file, holes.Names([image]))], config or HolesConfig())


NUMPY = Component("PyPI", "numpy", "1.0", ("pkg:pypi/numpy",))


def test_findings_are_listed_with_the_worst_first_then_by_name(tmp_path: Path) -> None:
    def scored(name: str, word: str | None) -> Any:
        more = {"database_specific": {"severity": word}} if word else {}
        return record(name, "PyPI", "numpy", versions=["1.0"], **more)

    found = search(
        tmp_path,
        [NUMPY],
        scored("E", "LOW"),
        scored("D", None),
        scored("C", "HIGH"),
        scored("B", "CRITICAL"),
        scored("A", "HIGH"),
    )
    assert [(each.id, each.severity) for each in found.open] == [
        ("B", "critical"),
        ("A", "high"),
        ("C", "high"),
        ("D", "unknown"),
        ("E", "low"),
    ]
    assert found.counts() == {"critical": 1, "high": 2, "unknown": 1, "low": 1}


def test_findings_of_one_hole_are_listed_by_component_and_unscored_ones_stand_before_the_harmless(
    tmp_path: Path,
) -> None:
    other = Component("PyPI", "jinja2", "1.0", ("pkg:pypi/jinja2",))
    found = search(
        tmp_path,
        [NUMPY, other],
        record("A", "PyPI", "numpy", versions=["1.0"], aliases=["CVE-2000-0001"]),
        record("B", "PyPI", "jinja2", versions=["1.0"], aliases=["CVE-2000-0001"]),
        record("C", "PyPI", "numpy", versions=["1.0"], database_specific={"severity": "LOW"}),
    )
    assert [(each.id, each.component) for each in found.open] == [
        ("CVE-2000-0001", "jinja2"),
        ("CVE-2000-0001", "numpy"),
        ("C", "numpy"),
    ]


def test_of_two_releases_of_a_distribution_the_right_one_is_compared(tmp_path: Path) -> None:
    """In whatever order an image lists them."""
    packages = [Component(f"Debian:{n}", "curl", f"1.{n}", (f"pkg:{n}",)) for n in (11, 12)]
    for listed_ in (packages, packages[::-1]):
        found = search(tmp_path, listed_, record("A", "Debian:12", "curl", *FIXED))
        assert [each.version for each in found.open] == ["1.12"]
        assert not any(found.undecided.values())


@pytest.mark.parametrize(
    ("more", "ids"),
    [
        ({}, ["GHSA-1"]),
        ({"aliases": ["PYSEC-1"]}, ["GHSA-1"]),
        ({"aliases": ["PYSEC-1", "CVE-2000-0002", "CVE-2000-0003"]}, ["CVE-2000-0002"]),
        (
            {"upstream": ["CVE-2000-0002", "CVE-2000-0001", "CVE-2000-0002", "X-1"]},
            ["CVE-2000-0001", "CVE-2000-0002"],
        ),
        ({"upstream": ["X-1"]}, ["GHSA-1"]),
        ({"aliases": ["ASA-1"]}, ["GHSA-1"]),
    ],
)
def test_a_finding_has_the_name_that_everybody_knows(
    tmp_path: Path, more: dict[str, Any], ids: list[str]
) -> None:
    found = search(tmp_path, [NUMPY], record("GHSA-1", "PyPI", "numpy", versions=["1.0"], **more))
    assert [each.id for each in found.open] == ids
    assert {each.by for each in found.open} == {("GHSA-1",)}


def test_records_about_one_hole_are_joined_by_the_first_fix_and_the_worst_score(tmp_path: Path) -> None:
    found = search(
        tmp_path,
        [NUMPY],
        record(
            "A-1",
            "PyPI",
            "numpy",
            versions=["1.0"],
            aliases=["CVE-2000-0001"],
            database_specific={"severity": "LOW"},
        ),
        record(
            "A-2", "PyPI", "numpy", *FIXED, aliases=["CVE-2000-0001"], database_specific={"severity": "HIGH"}
        ),
        record("A-3", "PyPI", "numpy", {"introduced": "0"}, {"fixed": "3"}, aliases=["CVE-2000-0001"]),
    )
    (one,) = found.open
    assert (one.id, one.score, one.fixed, one.by, one.text) == (
        "CVE-2000-0001",
        7.0,
        "2",
        ("A-1", "A-2", "A-3"),
        "",
    )


def test_projects_are_found_in_both_kinds_of_databases(tmp_path: Path) -> None:
    krb = Component("", "krb5", "1.0", ("pkg:generic/krb5",))
    found = search(
        tmp_path,
        [krb],
        record("A", "OSS-Fuzz", "KRB5", versions=["1.0"]),
        record("B", "npm", "krb5", versions=["1.0"]),
    )
    assert [each.id for each in found.open] == ["A"]
    assert found.unchecked == {}
    only_npm = search(tmp_path, [krb], record("B", "npm", "krb5", versions=["1.0"]))
    assert only_npm.unchecked == {"projects (GIT, OSS-Fuzz)": 1}


def test_a_record_that_cannot_be_compared_is_counted_with_its_component(tmp_path: Path) -> None:
    found = search(
        tmp_path,
        [NUMPY],
        record("A", "PyPI", "numpy", {"introduced": "0"}, {"fixed": "no version"}),
        record("B", "PyPI", "numpy", {"introduced": 7}),  # type: ignore[dict-item]
        record("C", "PyPI", "numpy", *FIXED),
    )
    assert found.undecided == {"numpy": 2}
    assert [each.id for each in found.open] == ["C"]


def test_our_own_statement_gives_text_and_source(tmp_path: Path) -> None:
    config = described({"score": 9.8, "fixed": "2.59.1"})
    server = Component(
        "", "triton-inference-server/server", "v2.36.0", ("pkg:github/triton-inference-server/server",)
    )
    (alone,) = search(tmp_path, [server], record("A", "PyPI", "x"), config=config).open
    assert (alone.component, alone.version) == ("triton-inference-server/server", "v2.36.0")
    assert (alone.by, alone.fixed, alone.score) == (("holes.yaml",), "2.59.1", 9.8)
    assert alone.text == "lock the door; Server 2.59.1 (2.59.1) has the fix"


# holes.yaml


def test_statements_begin_with_the_worst_and_say_everything() -> None:
    config = described(
        {"score": 5.0},
        {"score": 9.0, "fixed": "24.03"},
        {"score": 5.0, "checked": "line 7"},
        **{"24.03": "2.3"},
    )
    purl = next(iter(config.components.values())).purl
    found = known_holes.known(config, {purl: "v2.2"}, local=True)
    assert found.day == "2026-02-01"
    assert [each.id for each in found.statements] == ["CVE-2000-0002", "CVE-2000-0001", "CVE-2000-0003"]
    assert [each.critical for each in found.statements] == [True, False, False]
    worst = found.statements[0]
    assert (worst.purl, worst.status, worst.justification) == (f"{purl}@v2.2", "affected", None)
    assert (worst.what, worst.url, worst.fixed) == ("it breaks", "https://example.invalid/1", "2.3")
    assert known_holes.known(config, {}, local=True).statements == ()
    assert found.open() == found.statements
    fixed = known_holes.known(config, {purl: "v2.3"}, local=True)
    assert [each.id for each in fixed.open()] == ["CVE-2000-0001", "CVE-2000-0003"]
    assert known_holes.known(HolesConfig(), {purl: "1"}, local=True).day == "1970-01-01"


@pytest.mark.parametrize(
    ("hole", "version", "local", "status", "text"),
    [
        ({"introduced": "2.1"}, "v2.0", True, "not_affected", "it came with Server 2.1 (2.1)"),
        ({"introduced": "2.1"}, "nonsense", True, "affected", "lock the door; no version has a fix"),
        ({"fixed": "2.3"}, "v2.3", True, "fixed", "Server 2.3 (2.3) has the fix"),
        ({"fixed": "2.3"}, "nonsense", True, "affected", "lock the door; Server 2.3 (2.3) has the fix"),
        (
            {
                "not_affected": [
                    {"bases": "registry", "justification": "component_not_present", "reason": "none"}
                ]
            },
            "v2",
            False,
            "not_affected",
            "none",
        ),
        (
            {
                "not_affected": [
                    {"bases": "registry", "justification": "component_not_present", "reason": "none"}
                ]
            },
            "v2",
            True,
            "affected",
            "lock the door; no version has a fix",
        ),
        (
            {"cured_by": ["server/0100-a.patch", "server/0200-b.patch"]},
            "v2",
            True,
            "fixed",
            "compiled with server/0100-a.patch and server/0200-b.patch",
        ),
    ],
)
def test_what_a_hole_means_for_a_version(
    hole: dict[str, Any], version: str, local: bool, status: str, text: str
) -> None:
    config = described(hole)
    purl = next(iter(config.components.values())).purl
    patches = ("server/0100-a.patch", "server/0200-b.patch", "ft/1.patch")
    (found,) = known_holes.known(config, {purl: version}, local=local, patches=patches).statements
    assert (found.status, found.text) == (status, text)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data.update(known="2026-02-30"),
        lambda data: data.update(known="26-02-01"),
        lambda data: data["components"]["server"].update(purl="pkg:pypi/numpy@1"),
        lambda data: data["components"]["server"].update(purl="numpy"),
        lambda data: data["holes"].update({"cve-2000-1": data["holes"]["CVE-2000-0001"]}),
        lambda data: data["holes"]["CVE-2000-0001"].update(score=10.1),
        lambda data: data["holes"]["CVE-2000-0001"].update(score=-0.1),
        lambda data: data["holes"]["CVE-2000-0001"].update(cured_by=["0100-a.patch"]),
        lambda data: data["holes"]["CVE-2000-0001"].update(cured_by=["server/0100-" + "a" * 190]),
    ],
)
def test_what_holes_yaml_cannot_say_is_refused(spoil: Callable[[Any], None]) -> None:
    data = json.loads(described({"score": 10.0, "cured_by": ["server/0100-" + "a" * 188]}).model_dump_json())
    assert HolesConfig.model_validate(data)
    spoil(data)
    with pytest.raises(ValueError, match="HolesConfig"):
        HolesConfig.model_validate(data)
