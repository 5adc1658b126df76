"""holes.yaml as a feed of OSV records (ossf.github.io/osv-schema, 1.7), for those who ship the images.

OSV has no ecosystem of images: a record is about the component, as a scanner finds it in an SBOM, and says of
the images of each release and base what holds for them. A record that says the same as before keeps its time,
and one that is no longer in holes.yaml is withdrawn, not removed: readers fetch what was modified.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packageurl import PackageURL
from packaging.version import InvalidVersion, Version

from ftbuild.audit import severity
from ftbuild.config.holes import Component, Hole, HolesConfig, Statement
from ftbuild.errors import ConfigError
from ftbuild.host import reading
from ftbuild.host.files import write_atomic
from ftbuild.plan import Plan
from ftbuild.text import bounded_json

SCHEMA = "1.7.5"
# `x_` marks a database that osv.dev does not know (OSV schema, "id, modified fields").
PREFIX = "x_FTBUILD-"
OURS = "FTBUILD-"
ARCHIVE = "all.zip"
MAX_BYTES, MAX_RECORDS = 1_000_000, 10_000
_ECOSYSTEMS = {"pypi": "PyPI", "deb": "Debian"}
# How `checked` of holes.yaml begins where the score is ours (CVSS v3.1, 6).
_VECTOR = re.compile(r"(?:[A-Z]+:[A-Z]/){7}A:[NLH](?=;|$)")
Record = Mapping[str, Any]


def records(plans: Sequence[Plan], config: HolesConfig, repository: str, time: str) -> dict[str, Record]:
    """Return a record for each hole by its id in the feed; `time` (ISO 8601) is when they are made.

    `plans` have one cell for each release and base, since the holes of an image do not depend on its SMs.
    `repository` is where images are published (`host/path/name`), or their name alone.
    """
    return {_id(name): _record(name, hole, plans, config, repository, time)
            for name, hole in config.holes.items()}  # fmt: skip


def read(folder: Path) -> dict[str, Record]:
    """Return the records of a feed that was written there, by id; none where there is none.

    Raises ConfigError for a file with such a name that holds no record.
    """
    found: dict[str, Record] = {}
    for file in sorted(folder.glob(f"{PREFIX}*.json"))[: MAX_RECORDS + 1]:
        try:
            record = bounded_json.loads(reading.read_bytes(file, max_bytes=MAX_BYTES))
            if not isinstance(record, dict) or record.get("id") != file.stem:
                raise ValueError("it is not the record that its name says")
            datetime.fromisoformat(str(record.get("modified")))
        except ValueError as broken:
            raise ConfigError(
                f"not a record of a feed: {broken}",
                where=str(file),
                hint="remove the file; its record is then new",
            ) from None
        found[file.stem] = record
    if len(found) > MAX_RECORDS:
        raise ConfigError(f"more than {MAX_RECORDS} records are no feed of ours", where=str(folder))
    return found


def renewed(old: Mapping[str, Record], new: Mapping[str, Record], time: str) -> dict[str, Record]:
    """Return the records of a feed whose last state was `old`."""
    gone = {name: _withdrawn(record, time) for name, record in old.items() if name not in new}
    return gone | {name: old[name] if _same(old.get(name), record) else record
                   for name, record in new.items()}  # fmt: skip


def write(folder: Path, feed: Mapping[str, Record]) -> None:
    """Write a file for each record, and all of them as the database that osv.dev's readers take.

    Raises HostError where that is impossible.
    """
    texts = {f"{name}.json": json.dumps(record, indent=2) + "\n" for name, record in sorted(feed.items())}
    for name, text in texts.items():
        write_atomic(folder / name, text)
    write_atomic(folder / ARCHIVE, _archive(texts))


def _id(name: str) -> str:
    return f"{PREFIX}{name.removeprefix(OURS)}"


def _record(
    name: str, hole: Hole, plans: Sequence[Plan], config: HolesConfig, repository: str, time: str
) -> Record:
    component, bulletin = config.components[hole.component], config.bulletins[hole.bulletin]
    published = f"{bulletin.date}T00:00:00Z"
    vector = _VECTOR.match(hole.checked or "")
    ended = f"{component.name} {hole.fixed} has the fix." if hole.fixed else "No version has a fix."
    return {
        "schema_version": SCHEMA,
        "id": _id(name),
        "modified": max(published, _utc(time)),
        "published": published,
        "aliases": [name],
        "summary": f"{component.name}: {hole.what}",
        "details": f"What to do: {hole.advice or component.advice}. {ended}",
        **({"severity": [{"type": "CVSS_V3", "score": f"CVSS:3.1/{vector[0]}"}]} if vector else {}),
        "affected": [_affected(hole, component)],
        "references": [{"type": _kind(name, bulletin.url), "url": bulletin.url}],
        "database_specific": {
            "severity": severity.name(hole.score).upper(),
            "cvss_score": hole.score,
            "known": config.known,
            "images": [image for plan in plans for image in _images(name, hole, plan, repository)],
        },
    }


def _affected(hole: Hole, component: Component) -> Record:
    """Return the versions with a hole: of a package where OSV has its ecosystem, else of a repository."""
    url = PackageURL.from_string(component.purl)
    bounds = [component.versions.get(text, text) if text else "" for text in (hole.introduced, hole.fixed)]
    events = [{"introduced": bounds[0] or "0"}, *([{"fixed": bounds[1]}] if bounds[1] else [])]
    if ecosystem := _ECOSYSTEMS.get(url.type):
        package = {"ecosystem": ecosystem, "name": url.name, "purl": component.purl}
        return {"package": package, "ranges": [{"type": "ECOSYSTEM", "events": events}]}
    place = {"repo": f"https://github.com/{url.namespace}/{url.name}"} if url.type == "github" else {}
    semantic = [{kind: _semver(text)} for event in events for kind, text in event.items()]
    return {
        "ranges": [{"type": "SEMVER", **place, "events": semantic}],
        "versions": [f"v{each}" for each in component.versions.values() if _within(each, *bounds)],
        "database_specific": {"purl": component.purl},
    }


def _images(name: str, hole: Hole, plan: Plan, repository: str) -> Iterator[Record]:
    """Yield what a hole means for the images of a release on a base."""
    for statement in plan.holes.statements:
        if statement.id == name:
            yield {
                "purl": _purl(repository),
                "release": plan.cell.triton,
                "base": plan.cell.base,
                "component": statement.purl,
                "status": statement.status,
                "statement": statement.text,
                # An image of before has the hole: its label io.ftbuild.patches lacks them.
                **({"cured_by": list(hole.cured_by)} if _curable(hole, statement) else {}),
                **({"support_end": plan.support_end} if plan.support_end else {}),
            }


def _curable(hole: Hole, statement: Statement) -> bool:
    return bool(hole.cured_by) and statement.status != "not_affected"


def _purl(repository: str) -> str:
    """Return the package URL of images by the name under which they are published (types/oci)."""
    qualifiers = {"repository_url": repository} if "/" in repository else {}
    return PackageURL("oci", None, repository.rpartition("/")[2].lower(), None, qualifiers).to_string()


def _kind(name: str, url: str) -> str:
    """Return what a reference is: a fix without a bulletin, a bulletin, or code in which we found a hole."""
    return "FIX" if "/commit/" in url else "WEB" if name.startswith(OURS) else "ADVISORY"


def _semver(text: str) -> str:
    """Return a version with three numbers, which SemVer requires; 0 stands for the earliest."""
    if text == "0":
        return text
    release = Version(text).release
    return ".".join(map(str, (*release, 0, 0)[:3]))


def _within(version: str, introduced: str, fixed: str) -> bool:
    try:
        present = Version(version)
        return (not introduced or present >= Version(introduced)) and (not fixed or present < Version(fixed))
    except InvalidVersion:
        return True


def _withdrawn(record: Record, time: str) -> Record:
    return record if record.get("withdrawn") else {**record, "modified": _utc(time), "withdrawn": _utc(time)}


def _same(old: Record | None, new: Record) -> bool:
    return old is not None and {**old, "modified": ""} == {**new, "modified": ""}


def _utc(time: str) -> str:
    return datetime.fromisoformat(time).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _archive(texts: Mapping[str, str]) -> bytes:
    """Return a zip file that depends on what is in it, not on when it was written."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in texts.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, text)
    return made.getvalue()


def summary(old: Mapping[str, Record], feed: Mapping[str, Record], folder: Path) -> str:
    """Return what was written, in a line."""
    changed = sum(old.get(name) != record for name, record in feed.items())
    withdrawn = sum(bool(record.get("withdrawn")) for record in feed.values())
    return (
        f"wrote {folder}: {len(feed)} records, {changed} new or changed, {withdrawn} withdrawn, and {ARCHIVE}"
    )
