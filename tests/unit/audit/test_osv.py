"""Databases of holes: whole ones, strange ones, and which versions their records name."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import struct
import subprocess
import zipfile
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftbuild.audit import debian_versions, holes, osv, ranges, severity
from ftbuild.audit.contents import Component, Contents
from ftbuild.config.holes import HolesConfig
from ftbuild.errors import ConfigError
from testing import needs, osv_files
from testing.osv_files import commits, record

FIXED = ({"introduced": "0"}, {"fixed": "2"})


def everything(ecosystem: str, name: str) -> bool:
    return True


# Severity: vectors and scores of NVIDIA's bulletins 5687, 5535 and 5828


@pytest.mark.parametrize(
    ("vector", "score"),
    [
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", 9.8),
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:H/A:H", 9.1),
        ("CVSS:3.1/AV:N/AC:H/PR:H/UI:N/S:C/C:H/I:H/A:H", 8.0),
        ("CVSS:3.1/AV:N/AC:L/PR:H/UI:N/S:C/C:H/I:L/A:H", 9.0),
        ("CVSS:3.1/AV:N/AC:H/PR:N/UI:N/S:U/C:H/I:N/A:N", 5.9),
        ("CVSS:3.1/AV:N/AC:L/PR:L/UI:R/S:U/C:N/I:N/A:H", 5.7),
        ("CVSS:3.0/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:N", 0.0),
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H", None),
        ("CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N", None),
        ("AV:N/AC:M/Au:N/C:N/I:P/A:C", None),
        ("", None),
    ],
)
def test_a_vector_has_the_score_that_its_author_published(vector: str, score: float | None) -> None:
    assert severity.base_score(vector) == score


@pytest.mark.parametrize(
    ("score", "word"),
    [
        (9.0, "critical"), (8.9, "high"), (7.0, "high"), (4.0, "medium"), (0.1, "low"), (0.0, "none"),
        (None, "unknown"),
    ],
)  # fmt: skip
def test_scores_fall_into_the_classes_of_cvss(score: float | None, word: str) -> None:
    assert severity.name(score) == word


def test_a_record_without_a_vector_is_judged_by_the_word_of_its_database() -> None:
    assert severity.of_record({"database_specific": {"severity": "MODERATE"}}) == 4.0
    vector = {"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:H"}
    assert severity.of_record({"severity": [vector], "database_specific": {"severity": "LOW"}}) == 7.5
    for odd in ({}, {"severity": 7}, {"severity": [7]}, {"database_specific": {"severity": "odd"}}):
        assert severity.of_record(odd) is None


def test_what_debian_calls_unimportant_is_none() -> None:
    vector = {"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:H"}
    for urgency, score in (("unimportant", 0.0), ("not yet assigned", 7.5), (7, 7.5)):
        entry = {"ecosystem_specific": {"urgency": urgency}}
        assert severity.of_record({"severity": [vector]}, entry) == score


# Versions


@pytest.mark.parametrize(
    ("family", "version", "events", "answer"),
    [
        ("Debian", "1.0-1", [{"introduced": "0"}, {"fixed": "1.0-1+deb12u1"}], True),
        ("Debian", "1.0-1+deb12u1", [{"introduced": "0"}, {"fixed": "1.0-1+deb12u1"}], False),
        ("Debian", "1.0~rc1-1", [{"introduced": "0"}, {"fixed": "1.0-1"}], True),
        ("Debian", "2:0.9-1", [{"introduced": "0"}, {"fixed": "1:5.0-1"}], False),
        ("Debian", "1.0-1", [{"introduced": "0"}], True),
        ("Ubuntu", "1.0-1ubuntu2", [{"introduced": "0"}, {"fixed": "1.0-1ubuntu10"}], True),
        ("PyPI", "1.10", [{"introduced": "1.9"}, {"fixed": "1.11"}], True),
        ("PyPI", "1.8", [{"introduced": "1.9"}, {"fixed": "1.11"}], False),
        ("PyPI", "1.11rc1", [{"introduced": "0"}, {"fixed": "1.11"}], True),
        ("PyPI", "2.0", [{"introduced": "0"}, {"last_affected": "2.0"}], True),
        ("PyPI", "2.0.1", [{"introduced": "0"}, {"last_affected": "2.0"}], False),
        ("PyPI", "3.1", [{"introduced": "0"}, {"fixed": "2"}, {"introduced": "3"}, {"fixed": "4"}], True),
        ("PyPI", "2.5", [{"introduced": "0"}, {"fixed": "2"}, {"introduced": "3"}, {"fixed": "4"}], False),
        ("PyPI", "4.0", [{"introduced": "0"}, {"fixed": "2"}, {"introduced": "3"}, {"fixed": "4"}], False),
        ("PyPI", "1", [{"introduced": "0"}, {"limit": "1"}], False),
        ("PyPI", "1", [{"introduced": "0"}, {"limit": "*"}], True),
    ],
)
def test_a_version_is_affected_from_introduced_to_fixed(
    family: str, version: str, events: list[dict[str, str]], answer: bool
) -> None:
    entry = {"ranges": [{"type": "ECOSYSTEM", "events": events}]}
    assert ranges.affected(entry, family, version) is answer
    shuffled = {"ranges": [{"type": "ECOSYSTEM", "events": events[::-1]}]}
    assert ranges.affected(shuffled, family, version) is answer


@pytest.mark.parametrize(
    ("family", "version", "listed", "answer"),
    [
        ("PyPI", "1.0", ["1.0.0"], True),
        ("PyPI", "1.0", ["1.0.1"], False),
        ("Debian", "1.0-1", ["1.0-1"], True),
        ("Debian", "1.0-1", ["1.0-2"], False),
        ("Debian", "1.0", ["1:1.0"], False),
        ("Ubuntu", "1.0", ["1:1.0"], False),
        ("", "3.0.2", ["openssl-3.0.1", "openssl-3.0.2"], True),
        ("", "7.81.0", ["curl-7_81_0"], True),
        ("", "v2.36.0", ["v2.36.0"], True),
        ("", "3.0.2", ["openssl-3.0.21"], False),
    ],
)
def test_a_listed_version_is_affected(family: str, version: str, listed: list[str], answer: bool) -> None:
    assert ranges.affected({"versions": listed}, family, version) is answer


def test_the_next_fix_is_later_than_the_version() -> None:
    events = [{"introduced": "0"}, {"fixed": "2"}, {"introduced": "3"}, {"fixed": "4"}, {"fixed": "3.1"}]
    entry = {"ranges": [{"type": "GIT", "events": [{"fixed": "a"}]}, {"type": "ECOSYSTEM", "events": events}]}
    assert list(ranges.fixes(entry, "PyPI", "3.1")) == ["4"]


def test_commits_alone_decide_nothing() -> None:
    entry = {"ranges": [{"type": "GIT", "repo": "https://x.invalid/y", "events": [{"introduced": "0"}]}]}
    assert ranges.affected(entry, "", "1.0") is None
    assert ranges.affected({**entry, "versions": ["0.9"]}, "", "1.0") is False
    assert ranges.affected({}, "PyPI", "1.0") is None
    assert ranges.affected({"ranges": [{"type": "SEMVER", "events": [*FIXED]}]}, "", "1.0") is True


# Files


def test_a_database_keeps_what_is_wanted_and_counts_the_rest(tmp_path: Path) -> None:
    file = osv_files.write(
        tmp_path / "all.zip",
        record("A", "PyPI", "numpy", *FIXED),
        record("B", "PyPI", "other", *FIXED),
        record("C", "PyPI", "numpy", *FIXED, withdrawn="2026-01-01T00:00:00Z"),
        commits("D", "https://github.com/openssl/openssl.git", "openssl-3.0.2"),
        [],
        {"id": "E", "affected": [{"package": {"name": 1, "ecosystem": "PyPI"}}]},
        {"affected": []},
        broken=b"{",
        deep=b"[" * 100_000,
    )
    wanted = {"numpy", "openssl"}
    found = osv.read(file, lambda ecosystem, name: name in wanted)
    assert [(entry.record["id"], entry.family) for entry in found.entries] == [("A", "PyPI"), ("D", "")]
    assert found.records == 9
    assert found.skipped == {"withdrawn": 1, "not of OSV's schema": 3, "not JSON": 2}
    assert found.ecosystems == {"PyPI", ""}


def test_a_record_of_a_damaged_member_is_skipped_and_so_is_a_huge_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = osv_files.write(tmp_path / "all.zip", record("A", "PyPI", "numpy", *FIXED), big=b" " * 3000)
    content = bytearray(osv_files.write(tmp_path / "b.zip", record("B", "PyPI", "x", *FIXED)).read_bytes())
    monkeypatch.setattr(osv, "MAX_BYTES", 2000)
    assert osv.read(file, everything).skipped == {"larger than 0 MiB": 1}
    content[50] ^= 0xFF
    (tmp_path / "b.zip").write_bytes(content)
    with pytest.raises(ConfigError, match="none of its 1 records can be read \\(damaged: 1\\)"):
        osv.read(tmp_path / "b.zip", everything)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not a zip file"),
        (b"PK\x03\x04" + b"\0" * 100, "not a zip file"),
        (b'{"id": "A"}', "not a zip file"),
        (b"SQLite format 3\0" + b"\0" * 100, "only OSV's zip files are read"),
    ],
)
def test_what_is_no_database_is_refused(tmp_path: Path, content: bytes, complaint: str) -> None:
    file = tmp_path / "all.zip"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=complaint) as refused:
        osv.read(file, everything)
    assert "https://osv-vulnerabilities" in str(refused.value)


def test_a_database_of_which_all_was_withdrawn_is_one(tmp_path: Path) -> None:
    gone = record("A", "PyPI", "numpy", *FIXED, withdrawn="2026-01-01T00:00:00Z")
    assert osv.read(osv_files.write(tmp_path / "all.zip", gone), everything).entries == []


def test_a_database_without_records_and_what_is_no_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it holds no record"):
        osv.read(osv_files.write(tmp_path / "all.zip"), everything)
    os.mkfifo(tmp_path / "pipe")
    for other in (tmp_path, tmp_path / "absent", tmp_path / "pipe"):
        with pytest.raises(ConfigError, match="there is no such file"):
            osv.read(other, everything)


OPENSSL, NUMPY = ("Debian:12", "openssl"), ("PyPI", "numpy")


def test_the_directory_of_a_database_is_limited_before_python_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where entries share what they unpack to, and where the file tells its size as large ones do."""
    file = osv_files.write(tmp_path / "all.zip", record("A", *NUMPY, *FIXED), record("B", *NUMPY, *FIXED))
    with file.open("rb") as stream:
        directory = osv._directory_bytes(stream)
    assert directory == 2 * (46 + len("0.json"))
    monkeypatch.setattr(osv, "MAX_DIRECTORY_BYTES", directory)
    assert osv.read(file, everything).records == 2
    monkeypatch.setattr(osv, "MAX_DIRECTORY_BYTES", directory - 1)
    with pytest.raises(ConfigError, match="more than 500000 records"):
        osv.read(file, everything)
    content = file.read_bytes()
    large = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 2, 2, 1 << 40, 0)
    (tmp_path / "large.zip").write_bytes(content[:-22] + large + content[-22:])
    with pytest.raises(ConfigError, match="more than 500000 records"):
        osv.read(tmp_path / "large.zip", everything)


def test_a_record_may_have_as_many_bytes_as_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = json.dumps(record("A", *NUMPY, *FIXED)).encode()
    file = osv_files.write(tmp_path / "all.zip", a=content, b=content + b" ")
    monkeypatch.setattr(osv, "MAX_BYTES", len(content))
    found = osv.read(file, everything)
    assert (len(found.entries), found.skipped) == (1, {"larger than 0 MiB": 1})


# Debian's order


@pytest.mark.parametrize(
    "ordered",
    [
        ["1.0~~", "1.0~~a", "1.0~", "1.0", "1.0-1~", "1.0-1", "1.0-1+deb12u1", "1.0-1.1", "1.0a", "1.0+b"],
        ["9", "10", "0:11", "1:1", "2:0.1", "10:0"],
        ["1", "1-0a", "1a", "1a1", "1aa", "1b", "1z", "1+", "1.", "1.0a"],
    ],
)  # fmt: skip
def test_versions_of_debian_are_sorted_as_dpkg_sorts_them(ordered: list[str]) -> None:
    for (n, one), (m, other) in product(enumerate(ordered), enumerate(ordered)):
        assert debian_versions.compare(one, other) == (n > m) - (n < m), (one, other)


def test_versions_that_dpkg_calls_equal_are() -> None:
    for one, other in (("1.0", "1.00"), ("0:1", "1"), ("1a", "1a0"), ("1.0-0", "1.0"), ("01", "1")):
        assert debian_versions.compare(one, other) == 0


@pytest.mark.parametrize(
    "text", ["", "-1", "1-", "1 0", "1_0", "a:1", "1:2:3-", "1\n", "1" * 256, "\u0661", ":1", "12345678901:1"]
)
def test_what_is_no_version_of_debian_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a version of Debian"):
        debian_versions.key(text)


@settings(max_examples=60, deadline=None)
@given(st.tuples(*[st.from_regex(r"[0-9][0-9a~.+]{0,5}(-[0-9a~.+]{1,3})?", fullmatch=True)] * 2))
def test_dpkg_has_the_same_order(pair: tuple[str, str]) -> None:
    needs.program("dpkg")
    asked = [
        subprocess.run(["dpkg", "--compare-versions", pair[0], than, pair[1]], check=False).returncode == 0
        for than in ("lt", "gt")
    ]
    assert debian_versions.compare(*pair) == asked[1] - asked[0]


@pytest.mark.parametrize(
    ("version", "events", "answer"),
    [
        ("2", [{"introduced": "1"}, {"fixed": "2"}, {"introduced": "2"}], False),
        ("2", [{"introduced": "2"}], True),
        ("2", [{"introduced": "2"}, {"fixed": "1.5"}], True),
        ("2", [{"introduced": "0"}, {"fixed": "1.5"}], False),
        ("2", [{"introduced": "0"}, {"introduced": "1"}, {"fixed": "0.5"}], True),
        ("2", [{"introduced": "1"}, {"fixed": "1"}], False),
        ("2", [{"introduced": "3"}], False),
        ("2", [], False),
    ],
)
def test_a_range_is_open_until_the_last_of_its_ends(
    version: str, events: list[dict[str, str]], answer: bool
) -> None:
    """Both kinds of an order that an ecosystem can have."""
    for family in ("Debian", "PyPI"):
        entry = {"ranges": [{"type": "ECOSYSTEM", "events": events}]}
        assert ranges.affected(entry, family, version) is answer


# Anything at all

_COMPONENTS = (
    Component("Debian:12", "openssl", "3.0.2-1", ("pkg:deb/debian/libssl3",)),
    Component("PyPI", "numpy", "1.0", ("pkg:pypi/numpy",)),
    Component("", "openssl", "3.0.2", ("pkg:generic/openssl",)),
)
IMAGE = Contents(("image",), _COMPONENTS, True)
_TEXTS = st.sampled_from(
    ["0", "1", "2-1", "openssl", "numpy", "Debian", "Debian:12", "PyPI", "ECOSYSTEM", "GIT", "SEMVER",
     "https://example.invalid/openssl", "CVE-2000-0001", "", "\0", "-x", "é", "1:", "CVSS:3.1/AV:N"]
)  # fmt: skip
_KEYS = st.sampled_from(
    ["id", "affected", "package", "ecosystem", "name", "ranges", "type", "events", "introduced", "fixed",
     "last_affected", "limit", "versions", "repo", "severity", "score", "database_specific", "upstream",
     "aliases", "withdrawn"]
)  # fmt: skip
_ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), _TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=4)),
    max_leaves=12,
)


@st.composite
def nearly_records(draw: st.DrawFn) -> Any:
    """A record about a component of the image, with one value somewhere replaced by anything."""
    made: Any = record("CVE-2000-0001", draw(st.sampled_from(["Debian:12", "PyPI", "OSS-Fuzz"])),
                       draw(st.sampled_from(["openssl", "numpy"])), *deepcopy(FIXED), versions=["1.0"],
                       upstream=["CVE-2000-0002"], severity=[{"type": "CVSS_V3", "score": "x"}])  # fmt: skip
    place = made
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or draw(st.booleans()):
            place[key] = draw(_ANY)
            return made
        place = place[key]


@settings(max_examples=300, deadline=None)
@given(records=st.lists(st.one_of(nearly_records(), _ANY), max_size=4))
def test_any_records_are_matched_or_skipped(tmp_path_factory: pytest.TempPathFactory, records: Any) -> None:
    intact = record("CVE-2000-0009", "PyPI", "numpy", *FIXED)
    file = osv_files.write(tmp_path_factory.mktemp("osv") / "all.zip", *records, intact)
    database = osv.read(file, holes.Names([IMAGE]))
    report = holes.search(IMAGE, [database], HolesConfig())
    assert "CVE-2000-0009" in {finding.id for finding in report.open}
    assert database.records == len(records) + 1


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_database_with_any_bytes_changed_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    chance = random.Random(seed)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", chance.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for number in range(3):
            archive.writestr(f"{number}.json", str(record("A", "PyPI", "numpy", *FIXED)).replace("'", '"'))
    content = bytearray(buffer.getvalue())
    for _ in range(chance.randint(1, 8)):
        content[chance.randrange(len(content))] = chance.randrange(256)
    file = tmp_path_factory.mktemp("osv") / "all.zip"
    file.write_bytes(content[: chance.choice([len(content), chance.randrange(len(content))])])
    with contextlib.suppress(ConfigError):
        found = osv.read(file, everything)
        assert len(found.entries) + sum(found.skipped.values()) >= found.records
