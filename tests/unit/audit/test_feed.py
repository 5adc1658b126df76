"""Advisories: holes.yaml as OSV records, for images as our own audit and a scanner of OSV read them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ftbuild import matrix
from ftbuild.audit import contents, feed, holes, osv
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.plan import Plan, Revision
from ftbuild.planning import make_plan
from testing import forked
from tests.unit.config.test_holes import described

TIME, LATER = "2026-11-26T10:00:00+02:00", "2026-12-24T00:00:00Z"
# What of the OSV schema our records could break. FTBUILD_OSV_SCHEMA names validation/schema.json of
# github.com/ossf/osv-schema, to compare with all of it.
DAY = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"}
EVENT = {"type": "object", "minProperties": 1, "maxProperties": 1}
SCHEMA = {
    "type": "object",
    "required": ["schema_version", "id", "modified", "published", "affected"],
    "properties": {
        "id": {"type": "string", "pattern": "^x_[^/]+$"},
        "modified": DAY,
        "published": DAY,
        "withdrawn": DAY,
        "aliases": {"type": "array", "items": {"type": "string"}},
        "severity": {"items": {"properties": {"score": {"pattern": "^CVSS:3[.]1/AV:[NALP]/AC:[LH]/"}}}},
        "affected": {
            "type": "array",
            "items": {
                "properties": {
                    "package": {"required": ["ecosystem", "name"]},
                    "ranges": {
                        "items": {
                            "required": ["type", "events"],
                            "properties": {
                                "type": {"enum": ["SEMVER", "ECOSYSTEM"]},
                                "events": {"items": EVENT},
                            },
                        }
                    },
                    "database_specific": {"type": "object"},
                }
            },
        },
        "references": {"items": {"properties": {"type": {"enum": ["ADVISORY", "FIX", "WEB"]}}}},
        "database_specific": {"type": "object"},
    },
}


@pytest.fixture(scope="module")
def plans(config: Config) -> Sequence[Plan]:
    revision = Revision("a" * 40, TIME)
    cells = {(c.triton, c.base): c for c in matrix.make_matrix(config, *config.bases.bases).cells}
    return [make_plan(config, cell, revision) for cell in cells.values()]


@pytest.fixture(scope="module")
def records(config: Config, plans: Sequence[Plan]) -> Mapping[str, feed.Record]:
    return feed.records(plans, config.holes, "registry.example.com/team/triton_with_ft", TIME)


def image(record: feed.Record, release: str, base: str) -> Any:
    (found,) = (
        each
        for each in record["database_specific"]["images"]
        if (each["release"], each["base"]) == (release, base)
    )
    return found


def test_every_record_is_one_of_osv(records: Mapping[str, feed.Record]) -> None:
    schemas: list[Any] = [SCHEMA]
    if official := os.environ.get("FTBUILD_OSV_SCHEMA"):
        schemas.append(json.loads(Path(official).read_text()))
    for name, record in records.items():
        assert record["id"] == name
        for schema in schemas:
            jsonschema.validate(json.loads(json.dumps(record)), schema)


def test_there_is_a_record_for_each_hole_under_the_name_that_others_know(
    config: Config, records: Mapping[str, feed.Record]
) -> None:
    assert [record["aliases"] for record in records.values()] == [[name] for name in config.holes.holes]
    assert "x_FTBUILD-2026-1" in records
    record = records["x_FTBUILD-CVE-2025-23310"]
    assert (record["published"], record["modified"]) == ("2025-08-04T00:00:00Z", "2026-11-26T08:00:00Z")
    assert record["references"][0]["type"] == "ADVISORY"
    assert record["database_specific"]["severity"] == "CRITICAL"
    assert "severity" not in record  # the bulletin's vector is not in holes.yaml, and no other is right
    (affected,) = record["affected"]
    (versions,) = affected["ranges"]
    assert versions["repo"] == "https://github.com/triton-inference-server/server"
    assert versions["events"] == [{"introduced": "0"}, {"fixed": "2.59.1"}]
    assert "v2.59.0" in affected["versions"]
    assert "v2.59.1" not in affected["versions"]


def test_a_record_says_what_a_hole_means_for_the_images_of_a_release(
    config: Config, records: Mapping[str, feed.Record]
) -> None:
    cured = records["x_FTBUILD-2026-2"]
    name = "pkg:oci/triton_with_ft?repository_url=registry.example.com/team/triton_with_ft"
    assert image(cured, "26.06", "open-trixie") == {
        "purl": name,
        "release": "26.06",
        "base": "open-trixie",
        "component": "pkg:github/triton-inference-server/server@v2.70.0",
        "status": "fixed",
        "statement": "compiled with server/0120-body-limit.patch",
        "cured_by": ["server/0120-body-limit.patch"],
        "support_end": config.matrix.releases["26.06"].support_end,
    }
    old = image(cured, "22.12", "ngc")
    assert (old["status"], old["component"].rpartition("@")[2]) == ("affected", "v2.29.0")
    assert "support_end" not in old
    dali = image(records["x_FTBUILD-CVE-2025-23268"], "22.12", "open")
    assert (dali["status"], dali["statement"]) == (
        "not_affected",
        "the bases built here have no DALI backend",
    )


def test_our_own_audit_finds_with_the_feed_what_it_finds_without(
    config: Config, plans: Sequence[Plan], records: Mapping[str, feed.Record], tmp_path: Path
) -> None:
    feed.write(tmp_path, records)
    for plan in plans:
        images = contents.of_plan(plan, "runtime")
        database = osv.read(tmp_path / feed.ARCHIVE, holes.Names([images]))
        assert database.skipped == {}
        alone, joined = (holes.search(images, found, config.holes) for found in ([], [database]))
        assert [each.id for each in joined.open] == [each.id for each in alone.open]


@pytest.mark.parametrize(
    ("purl", "package"),
    [
        ("pkg:pypi/numpy", {"ecosystem": "PyPI", "name": "numpy", "purl": "pkg:pypi/numpy"}),
        ("pkg:deb/debian/curl", {"ecosystem": "Debian", "name": "curl", "purl": "pkg:deb/debian/curl"}),
    ],
)
def test_a_package_of_a_known_ecosystem_is_named_by_it(purl: str, package: Mapping[str, str]) -> None:
    found = feed.records([], described({"introduced": "1.2", "fixed": "2.0"}, purl=purl), "x", TIME)
    (affected,) = found["x_FTBUILD-CVE-2000-0001"]["affected"]
    assert affected["package"] == package
    assert affected["ranges"][0]["events"] == [{"introduced": "1.2"}, {"fixed": "2.0"}]


VECTOR = "AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:H"


def test_a_record_of_a_hole_that_was_found_here_is_this(plans: Sequence[Plan]) -> None:
    hole = {"introduced": "2.1", "fixed": "2.3", "checked": f"{VECTOR}; by a fuzzer", "score": 7.5}
    released = {f"22.0{n + 1}": f"2.{n}" for n in range(4)}
    config = described(hole, **released)
    (record,) = feed.records([], config, "team/x", TIME).values()
    assert record == {
        "schema_version": "1.7.5",
        "id": "x_FTBUILD-CVE-2000-0001",
        "modified": "2026-11-26T08:00:00Z",
        "published": "2026-01-31T00:00:00Z",
        "aliases": ["CVE-2000-0001"],
        "summary": "Server: it breaks",
        "details": "What to do: lock the door. Server 2.3 has the fix.",
        "severity": [{"type": "CVSS_V3", "score": f"CVSS:3.1/{VECTOR}"}],
        "affected": [
            {
                "ranges": [
                    {
                        "type": "SEMVER",
                        "repo": "https://github.com/triton-inference-server/server",
                        "events": [{"introduced": "2.1.0"}, {"fixed": "2.3.0"}],
                    }
                ],
                "versions": ["v2.1", "v2.2"],
                "database_specific": {"purl": "pkg:github/triton-inference-server/server"},
            }
        ],
        "references": [{"type": "ADVISORY", "url": "https://example.invalid/1"}],
        "database_specific": {"severity": "HIGH", "cvss_score": 7.5, "known": "2026-02-01", "images": []},
    }


def test_the_advice_of_a_hole_stands_for_that_of_its_component() -> None:
    found = feed.records([], described({"advice": "open the window"}, {}), "x", TIME).values()
    assert [record["details"] for record in found] == [
        "What to do: open the window. No version has a fix.",
        "What to do: lock the door. No version has a fix.",
    ]


def test_a_package_is_compared_by_the_versions_of_its_ecosystem() -> None:
    (record,) = feed.records([], described({"fixed": "2"}, purl="pkg:pypi/numpy"), "x", TIME).values()
    (affected,) = record["affected"]
    assert affected["ranges"] == [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2"}]}]
    plain = feed.records([], described({}, purl="pkg:generic/openssl"), "x", TIME).values()
    assert [a["ranges"][0].keys() for record in plain for a in record["affected"]] == [{"type", "events"}]


def test_the_summary_counts_what_is_new_changed_and_withdrawn() -> None:
    first = feed.records([], described({}, {}), "x", TIME)
    second = feed.renewed(first, feed.records([], described({}), "x", LATER), LATER)
    said = "2 records, 1 new or changed, 1 withdrawn, and all.zip"
    assert feed.summary(first, second, Path("there")) == f"wrote there: {said}"


@pytest.mark.parametrize(
    ("name", "url", "kind"),
    [
        ("CVE-2000-0001", "https://example.invalid/bulletin", "ADVISORY"),
        ("FTBUILD-2000-1", "https://example.invalid/blob/main/x.cc", "WEB"),
        ("FTBUILD-2000-1", "https://example.invalid/commit/0123", "FIX"),
        ("CVE-2000-0001", "https://example.invalid/commit/0123", "FIX"),
    ],
)
def test_a_reference_is_of_the_kind_of_its_page(name: str, url: str, kind: str) -> None:
    assert feed._kind(name, url) == kind


def test_only_images_that_have_a_hole_are_cured_by_patches(
    config: Config, plans: Sequence[Plan], records: Mapping[str, feed.Record]
) -> None:
    stated = [
        (image["status"], "cured_by" in image)
        for name, hole in config.holes.holes.items()
        if hole.cured_by
        for image in records[feed._id(name)]["database_specific"]["images"]
    ]
    assert set(stated) == {("fixed", True), ("affected", True), ("not_affected", False)}


def test_a_folder_of_more_records_or_larger_ones_is_no_feed_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.write(tmp_path, feed.records([], described({}, {}), "x", TIME))
    longest = max(file.stat().st_size for file in tmp_path.glob("*.json"))
    monkeypatch.setattr(feed, "MAX_RECORDS", 2)
    monkeypatch.setattr(feed, "MAX_BYTES", longest)
    assert len(feed.read(tmp_path)) == 2
    monkeypatch.setattr(feed, "MAX_BYTES", longest - 1)
    with pytest.raises(ConfigError, match="it has more than"):
        feed.read(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(feed, "MAX_RECORDS", 1)
    with pytest.raises(ConfigError, match="more than 1 records are no feed of ours"):
        feed.read(tmp_path)


@pytest.mark.parametrize(
    ("version", "introduced", "fixed", "has_it"),
    [
        ("2.0", "2.0", "", True),
        ("1.9", "2.0", "", False),
        ("2.8", "", "2.9", True),
        ("2.9", "", "2.9", False),
        ("2.5", "2.0", "3.0", True),
        ("of today", "2.0", "3.0", True),  # cannot be compared: better one too many than one too few
        ("1.0", "", "", True),
    ],
)
def test_a_version_has_a_hole_from_the_one_that_brought_it_up_to_the_fixed_one(
    version: str, introduced: str, fixed: str, has_it: bool
) -> None:
    assert feed._within(version, introduced, fixed) is has_it


def test_a_version_of_two_numbers_is_one_of_semver() -> None:
    found = feed.records([], described({"introduced": "2.1", "fixed": "3"}), "x", TIME)
    (affected,) = found["x_FTBUILD-CVE-2000-0001"]["affected"]
    assert affected["ranges"][0]["events"] == [{"introduced": "2.1.0"}, {"fixed": "3.0.0"}]


def test_a_record_that_says_the_same_keeps_its_time(
    config: Config, plans: Sequence[Plan], tmp_path: Path
) -> None:
    first = feed.records(plans, config.holes, "x", TIME)
    feed.write(tmp_path, first)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    feed.write(
        tmp_path, feed.renewed(feed.read(tmp_path), feed.records(plans, config.holes, "x", LATER), LATER)
    )
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before

    hole = config.holes.holes["FTBUILD-2026-1"].model_copy(update={"what": "another thing"})
    changed = config.holes.model_copy(update={"holes": {**config.holes.holes, "FTBUILD-2026-1": hole}})
    second = feed.renewed(feed.read(tmp_path), feed.records(plans, changed, "x", LATER), LATER)
    assert [name for name, record in second.items() if record["modified"] == LATER] == ["x_FTBUILD-2026-1"]


def test_a_hole_that_is_gone_is_withdrawn_once(config: Config, plans: Sequence[Plan], tmp_path: Path) -> None:
    feed.write(tmp_path, feed.records(plans, config.holes, "x", TIME))
    fewer = {name: hole for name, hole in config.holes.holes.items() if name != "FTBUILD-2026-1"}
    left = config.holes.model_copy(update={"holes": fewer})
    for time in (LATER, "2027-01-01T00:00:00Z"):
        feed.write(tmp_path, feed.renewed(feed.read(tmp_path), feed.records(plans, left, "x", time), time))
        record = json.loads((tmp_path / "x_FTBUILD-2026-1.json").read_text())
        assert (record["withdrawn"], record["modified"]) == (LATER, LATER)
    images = contents.of_plan(plans[0], "runtime")
    assert osv.read(tmp_path / feed.ARCHIVE, holes.Names([images])).skipped == {"withdrawn": 1}


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"id": "x_FTBUILD-2026-9"}', b"[" * 100_000, b"\xff",
     b'{"id": "x_FTBUILD-2026-1", "modified": "2026-01-01T00:00:00Z"}',
     b'{"id": "x_FTBUILD-2026-9", "modified": 1}', b'{"id": "x_FTBUILD-2026-9", "modified": "soon"}'],
)  # fmt: skip
def test_what_somebody_else_left_in_the_folder_is_named(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "x_FTBUILD-2026-9.json"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        feed.read(tmp_path)
    assert refused.value.where == str(file)


def test_the_command_writes_the_feed_and_says_what_changed(tmp_path: Path) -> None:
    arguments = ["audit.feed", "--config", "buildcfg/sample", "--out", str(tmp_path / "feed")]
    first, second = forked.invoke(*arguments), forked.invoke(*arguments)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert ", 0 new or changed, 0 withdrawn, and all.zip" in second.stdout
    written = list((tmp_path / "feed").glob("*.json"))
    assert written
    assert f" {len(written)} records, {len(written)} new or changed" in first.stdout


def test_a_place_that_is_no_registry_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    done = forked.invoke("audit.feed", "--registry", "HTTP://x", "--out", str(tmp_path / "feed"))
    assert done.returncode == 2
    assert not (tmp_path / "feed").exists()


def test_images_without_a_registry_have_their_name_alone(config: Config, plans: Sequence[Plan]) -> None:
    found = feed.records(plans[:1], config.holes, plans[0].image, TIME)
    purls = {each["purl"] for record in found.values() for each in record["database_specific"]["images"]}
    assert purls == {"pkg:oci/triton_with_ft"}
