"""Small databases that would take minutes, or more memory than there is."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ftbuild.audit import holes, osv
from ftbuild.config.holes import HolesConfig
from ftbuild.errors import ConfigError
from testing import osv_files
from testing.osv_files import commits, record
from tests.unit.audit.test_osv import FIXED, IMAGE, NUMPY, OPENSSL

SECONDS, BYTES = 10.0, 400 * 10**6


def nothing_but(count: int) -> bytes:
    return b"[" + b" " * count + b"]"


HUGE: dict[str, tuple[Callable[[], list[Any]], str]] = {
    "a regular expression over a tag": (
        lambda: [commits("CVE-2030-9", "https://x.invalid/openssl", "1-" * 40_000 + "!")],
        "",
    ),
    "tags that are all alike": (
        lambda: [commits("CVE-2030-9", "https://x.invalid/openssl", *["1-" * 120 + "!"] * 30_000)],
        "",
    ),
    "starts and ends, each compared with each": (
        lambda: [
            record(
                "CVE-2030-1",
                *NUMPY,
                *[{"introduced": "1"}] * 20_000,
                *[{"fixed": "0.5"}] * 20_000,
                {"fixed": "1.1"},
            )
        ],
        "CVE-2030-1",
    ),
    "fixes of Debian's, each asked of a program": (
        lambda: [
            record("CVE-2030-1", *OPENSSL, {"introduced": "0"}, *({"fixed": f"4.{n}"} for n in range(20_000)))
        ],
        "CVE-2030-1",
    ),
    "numbers without end": (
        lambda: [record("CVE-2030-1", *pair, {"introduced": "0"}, {"fixed": "9" * 2_000_000})
                 for pair in (OPENSSL, NUMPY)],
        "",
    ),
    "one hole in as many records as there can be": (
        lambda: [record(f"A-{n}", *NUMPY, *FIXED, aliases=["CVE-2030-1"]) for n in range(20_000)],
        "CVE-2030-1",
    ),
    "ids of one record for each of its packages": (
        lambda: [
            {
                **record("A", *NUMPY, *FIXED, upstream=[f"CVE-2030-{n}" for n in range(20_000)]),
                "affected": record("A", *NUMPY, *FIXED)["affected"] * 2000,
            }
        ],
        "have more than 2000000 values",
    ),
    "versions of one package": (
        lambda: [record(f"CVE-2030-{n}", *OPENSSL, versions=[f"{m:06x}" for m in range(400_000)])
                 for n in range(6)],
        "have more than 2000000 values",
    ),
    "more values than a record has": (
        lambda: [record("CVE-2030-1", *OPENSSL, versions=["0"] * 600_000)],
        "more than 500000 values: 1",
    ),
    "ecosystems without end": (
        lambda: [
            {"id": "A", "affected": [{"package": {"ecosystem": f"{n}", "name": "x"}} for n in range(20_000)]}
        ],
        "about more than 10000 ecosystems",
    ),
    "nothing but brackets": (lambda: [b"[" + b"[]," * 900_000 + b"[]]"] * 20, "more than 500000 values"),
    "spaces": (lambda: [nothing_but(osv.MAX_BYTES - 100)] * 40, "would unpack to 336 MB"),
}  # fmt: skip


@pytest.mark.parametrize("case", HUGE)
def test_a_small_database_is_searched_or_refused_within_seconds(tmp_path: Path, case: str) -> None:
    """What is expected is an id among the findings, nothing, or a word of the refusal."""
    records, expected = HUGE[case]
    made = records()
    raw = {f"raw{n}": each for n, each in enumerate(made) if isinstance(each, bytes)}
    file = osv_files.write(
        tmp_path / "all.zip", *(each for each in made if not isinstance(each, bytes)), **raw
    )
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, processor_seconds()
    try:
        database = osv.read(file, holes.Names([IMAGE]))
        report = holes.search(IMAGE, [database], HolesConfig())
        outcome = " ".join(finding.id for finding in report.open)
    except ConfigError as refused:
        outcome = refused.what
    assert expected in outcome if expected else not outcome
    assert processor_seconds() - start < SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < BYTES


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
