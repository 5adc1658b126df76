"""Open holes of images: what databases say of their contents, and what holes.yaml says of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from packaging.utils import canonicalize_name

from ftbuild.audit import ranges, severity
from ftbuild.audit.contents import Component, Contents
from ftbuild.audit.osv import Database, Entry
from ftbuild.config import holes
from ftbuild.config.holes import HolesConfig, Statement

OURS = holes.FILE
_BROKEN = (ValueError, TypeError, AttributeError, KeyError)


@dataclass(frozen=True)
class Finding:
    """A hole of a component: `fixed` a version with a fix, `by` who says so, `text` what to do or why not."""

    id: str
    component: str
    version: str
    score: float | None
    fixed: str
    by: tuple[str, ...]
    text: str = ""

    @property
    def severity(self) -> str:
        """The class of its score."""
        return severity.name(self.score)


@dataclass(frozen=True)
class Report:
    """What was found in images that hold the same.

    `stated` are findings that holes.yaml says images do not have. `undecided` counts records that name a
    component, but no versions that can be compared; `unchecked` components that no database is about.
    """

    contents: Contents
    open: tuple[Finding, ...]
    stated: tuple[Finding, ...]
    undecided: Mapping[str, int] = field(default_factory=dict)
    unchecked: Mapping[str, int] = field(default_factory=dict)

    def counts(self) -> Counter[str]:
        """Return how many open holes each class has."""
        return Counter(finding.severity for finding in self.open)


class Names:
    """The components that databases are searched for, by name."""

    def __init__(self, contents: Iterable[Contents]) -> None:
        self._of: dict[str, set[str]] = {}
        for component in (component for each in contents for component in each.components):
            self._of.setdefault(component.name, set()).add(component.family)

    def __call__(self, ecosystem: str, name: str) -> bool:
        """Return whether a package of a database may be one of them."""
        family = ranges.family_of(ecosystem)
        return _own(family) in self._of.get(_written(family, name), ())


def search(contents: Contents, databases: Sequence[Database], config: HolesConfig) -> Report:
    """Return the holes of images that hold the same."""
    stated = holes.known(
        config, contents.versions(), local=contents.local, patches=contents.patches
    ).statements
    by_name: dict[tuple[str, str], list[Component]] = {}
    for component in contents.components:
        by_name.setdefault((component.family, component.name), []).append(component)
    found: dict[tuple[str, Component], list[Finding]] = {}
    undecided: Counter[str] = Counter()
    for entry in (entry for database in databases for entry in database.entries):
        for component in by_name.get((_own(entry.family), _written(entry.family, entry.name)), ()):
            if not _same_release(entry.ecosystem, component.ecosystem):
                continue
            try:
                answer = ranges.affected(entry.affected, component.family, component.version)
                matched = list(_findings(entry, component)) if answer else []
            except _BROKEN:
                answer, matched = None, []
            undecided[component.shown] += answer is None
            for finding in matched:
                found.setdefault((finding.id, component), []).append(finding)
    opened, hidden = _judged({key: _joined(*findings) for key, findings in found.items()}, stated)
    return Report(
        contents,
        tuple(sorted(opened, key=_order)),
        tuple(sorted(hidden, key=_order)),
        {name: count for name, count in sorted(undecided.items()) if count},
        _unchecked(contents, databases),
    )


def _judged(
    found: Mapping[tuple[str, Component], Finding], stated: Sequence[Statement]
) -> tuple[list[Finding], list[Finding]]:
    """Return the open findings, and those that a statement of ours rules out."""
    opened: list[Finding] = []
    hidden: list[Finding] = []
    said = set()
    for (name, component), finding in found.items():
        statement = next((s for s in stated if s.id == name and _about(s, component)), None)
        if statement is None:
            opened.append(finding)
            continue
        said.add(statement)
        joined = _joined(finding, _own_finding(statement, component.shown))
        (opened if statement.status == "affected" else hidden).append(joined)
    for statement in stated:
        if statement.status == "affected" and statement not in said:
            opened.append(_own_finding(statement, statement.purl.rpartition("@")[0].partition("/")[2]))
    return opened, hidden


def _about(statement: Statement, component: Component) -> bool:
    return statement.purl.rpartition("@")[0] in component.urls


def _own_finding(statement: Statement, shown: str) -> Finding:
    version = statement.purl.rpartition("@")[2]
    return Finding(statement.id, shown, version, statement.score, statement.fixed, (OURS,), statement.text)


def _findings(entry: Entry, component: Component) -> Iterator[Finding]:
    """Yield a finding for each hole that a record is about: an advisory of Debian's can be about several."""
    record = entry.record
    fixed = next(ranges.fixes(entry.affected, component.family, component.version), "")
    score = severity.of_record(record, entry.affected)
    for name in _ids(record):
        yield Finding(name, component.shown, component.version, score, fixed, (str(record["id"]),))


def _ids(record: Mapping[str, Any]) -> list[str]:
    """Return the CVE ids that a record stands for, else its own id, or what a local id is an alias of."""
    upstream = [str(name) for name in record.get("upstream") or ()]
    aliases = [str(name) for name in (record["id"], *(record.get("aliases") or ()))]
    cves = [name for name in aliases if name.startswith("CVE-")][:1] or upstream
    # An id of a database that osv.dev does not know (x_...) says less than the name that it stands for.
    others = sorted(aliases[:2], key=lambda name: name.startswith("x_"))
    return [name for name in dict.fromkeys(cves) if name.startswith("CVE-")] or others[:1]


def _joined(*findings: Finding) -> Finding:
    """Return one finding for all that are about the same hole of the same component."""
    scores = [finding.score for finding in findings if finding.score is not None]
    return replace(
        findings[0],
        score=max(scores, default=None),
        fixed=next((finding.fixed for finding in findings if finding.fixed), ""),
        by=tuple(dict.fromkeys(name for finding in findings for name in finding.by)),
        text=next((finding.text for finding in findings if finding.text), ""),
    )


def _order(finding: Finding) -> tuple[float, str, str]:
    return (-1 if finding.score is None else -finding.score, finding.id, finding.component)


def _own(family: str) -> str:
    """Return the family that our components have; those of projects, by commits or OSS-Fuzz, have none."""
    return "" if family in ("", "OSS-Fuzz") else family


def _written(family: str, name: str) -> str:
    """Return a name as our components have it."""
    return canonicalize_name(name) if family == "PyPI" else name if _own(family) else name.lower()


def _same_release(ecosystem: str, own: str) -> bool:
    """Return whether an entry's ecosystem is that of a component: one without a release is about all."""
    return ":" not in ecosystem or ecosystem == own or ecosystem.startswith(f"{own}:")


def _unchecked(contents: Contents, databases: Sequence[Database]) -> dict[str, int]:
    """Return how many components, by ecosystem, no database is about."""
    known = {ecosystem for database in databases for ecosystem in database.ecosystems}
    # `Debian:12:x` is about Debian:12, and so is Debian, which is about all releases.
    families = {_own(name) for name in known if ":" not in name}
    releases = {prefix for name in known if ":" in name for prefix in _prefixes(name)}
    counts: Counter[str] = Counter()
    for component in contents.components:
        if component.family not in families and component.ecosystem not in releases:
            counts[component.ecosystem or "projects (GIT, OSS-Fuzz)"] += 1
    return dict(sorted(counts.items()))


def _prefixes(ecosystem: str) -> Iterator[str]:
    """Yield an ecosystem and what it is a part of: Debian:12:x, Debian:12, Debian."""
    while ecosystem:
        yield ecosystem
        ecosystem = ecosystem.rpartition(":")[0]
