"""What has been tested, as records: one file for each fact in docs/records, and the page made of them.

    python -m docs.tools.tested .ftbuild/CELL/KEY/smoke.json     # a record of what a gate found

A record says what was tried, on which images, where and when, and how it ended. Whether the images are those
of today is no part of it: that is asked of the configuration when the page is made.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import yaml

from ftbuild import matrix
from ftbuild.config.schema import Config
from ftbuild.errors import FtbuildError
from ftbuild.plan import Revision
from ftbuild.planning import make_plan

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "records"
UNKNOWN = "unknown"
COUNTS = ("passed", "failed", "skipped")
# Records that were written by hand before there was a form for them may lack keys.
FORM_SINCE = date(2026, 11, 27)
GROUPS = {
    "image": "Images on a GPU",
    "build": "Builds without their GPU",
    "model": "Models and the ways to serve them",
    "operation": "Publishing, nights and deployments",
    "never": "Never tried",
}


@dataclass(frozen=True)
class Record:
    """One fact. `images` are input keys by cell, `UNKNOWN` where they were not recorded.

    `commit` is that of the checkout, or the one with which the fact was written down. `counts` are numbers of
    tests that passed, failed or were skipped.
    """

    name: str
    group: str
    what: str
    result: str
    where: str = ""
    date: date | None = None
    commit: str = ""
    images: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)


def read(folder: Path = FOLDER) -> list[Record]:
    """Return all records, the newest first; ValueError for one that cannot be right."""
    found = [_record(file) for file in sorted(folder.glob("*.yaml"))]
    return sorted(found, key=lambda record: record.date or date.min, reverse=True)


def page(records: Iterable[Record], config: Config) -> str:
    """Return the tables of the page in Markdown."""
    records = list(records)
    return "\n".join(line for group in GROUPS for line in _section(group, records, config)).strip() + "\n"


def from_gate(record: Mapping[str, Any], commit: str) -> dict[str, Any]:
    """Return what a gate's record (smoke.json) says as the content of a file in docs/records."""
    findings = record["findings"]
    states = Counter(str(finding["state"]) for finding in findings)
    gpus = record.get("gpus") or []
    counts = {"passed": states["ok"], "failed": states["fail"], "skipped": states["skip"]}
    return {
        "group": "image" if record["gate"] == "smoke" else "build",
        "what": f"`invoke {record['gate']}`, as a gate",
        "result": "passed" if record["passed"] else "failed",
        "where": ", ".join(gpu["name"] for gpu in gpus),
        "date": datetime.now(UTC).date(),
        "commit": commit,
        "images": {record["cell"]: record["key"]},
        "counts": {name: count for name, count in counts.items() if count or name == "failed"},
    }


def _record(file: Path) -> Record:
    content = yaml.safe_load(file.read_text())
    try:
        record = Record(name=file.stem, **content)
    except TypeError as wrong:
        raise ValueError(f"{file.name}: {wrong}") from wrong
    if record.group not in GROUPS:
        raise ValueError(f"{file.name}: no group {record.group}")
    if record.group != "never" and not (record.date and record.commit):
        raise ValueError(f"{file.name}: what was tried has a date and a commit")
    if record.date and record.date >= FORM_SINCE and UNKNOWN in record.images.values():
        raise ValueError(f"{file.name}: a record has the input keys of its images")
    return record


def _section(group: str, records: list[Record], config: Config) -> Iterator[str]:
    found = [record for record in records if record.group == group]
    if not found:
        return
    yield f"## {GROUPS[group]}\n"
    if group == "never":
        yield "| what | why |\n|---|---|"
        yield from (f"| {record.what} | {record.result} |" for record in found)
    else:
        yield "| what | result | where | when | images |"
        yield "|---|---|---|---|---|"
        yield from (_row(record, config) for record in found)
    yield ""


def _row(record: Record, config: Config) -> str:
    counts = ", ".join(f"{record.counts[name]} {name}" for name in COUNTS if name in record.counts)
    known = {cell: key for cell, key in record.images.items() if key != UNKNOWN}
    images = ", ".join(f"`{cell}` {known[cell]}" if cell in known else f"`{cell}`" for cell in record.images)
    state = {"yes": "; today's", "no": "; no longer today's"}.get(today(record, config), "")
    columns = (
        record.what,
        f"{record.result} ({counts})" if counts else record.result,
        record.where,
        f"{record.date}, {record.commit}",
        f"{images}{state}",
    )
    return f"| {' | '.join(columns)} |"


def today(record: Record, config: Config) -> str:
    """Return whether a record is of the images of today: yes, no, or unknown; empty without images."""
    if not record.images:
        return ""
    if any(key not in (UNKNOWN, _key(config, cell)) for cell, key in record.images.items()):
        return "no"
    return UNKNOWN if UNKNOWN in record.images.values() else "yes"


def _key(config: Config, cell: str) -> str:
    """Return the input key that a cell has today, empty if there is no such cell any more."""
    try:
        (found,) = matrix.select(config, cells=[cell])
        return make_plan(config, found, Revision("0" * 40, "2026-01-01T00:00:00+00:00")).key
    except (FtbuildError, ValueError):
        return ""


def main(arguments: list[str]) -> None:
    """Write a record for each file of a gate that is named."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    commit = os.environ.get("FTBUILD_COMMIT", done.stdout.strip())[:7]
    for name in arguments:
        content = from_gate(json.loads(Path(name).read_text()), commit)
        (cell,) = content["images"]
        file = FOLDER / f"{content['date']}-{cell}-{Path(name).stem}.yaml"
        file.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110))
        print(f"wrote {file.relative_to(ROOT)}; python -m docs.tools.pages renews the page")


if __name__ == "__main__":
    main(sys.argv[1:])
