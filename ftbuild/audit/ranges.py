"""Whether a version is one that an OSV record names as affected (ossf.github.io/osv-schema, "Evaluation").

Versions of Debian and Ubuntu are in Debian's order, those of PyPI in that of PEP 440. Commits have no order
here: a range of them decides nothing, unless its record lists versions too. A record may have many versions
and events: each is looked at once, and a text that is too long for a version is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from packaging.version import Version

from ftbuild.audit import debian_versions

Key = Callable[[str], Any]  # what versions are sorted by; ValueError for what is no version
# Also of tags, from whose names a version is taken.
LONGEST = 255
# Of a tag turned round: from the front, the version at its end would be looked for at each start.
_NUMBERS = re.compile(r"[a-z]?\d+(?:[._-]\d+)*", re.ASCII)
_EARLIEST = "0"  # of all versions, also where it is none (OSV schema, `introduced`)


def family_of(ecosystem: str) -> str:
    """Return an ecosystem without its release: Debian for `Debian:12`."""
    return ecosystem.partition(":")[0]


def affected(entry: Mapping[str, Any], family: str, version: str) -> bool | None:
    """Return whether `version` is affected by an entry of `affected`; None where that cannot be told.

    `family` is an ecosystem without its release: Debian, Ubuntu, PyPI, or "" for a project's own releases.
    Raises ValueError, TypeError or AttributeError for an entry that is not of OSV's schema.
    """
    if _listed(entry.get("versions") or (), family, version):
        return True
    answers = [_in_range(part, family, version) for part in entry.get("ranges") or ()]
    if True in answers:
        return True
    known = bool(entry.get("versions")) or (bool(answers) and None not in answers)
    return False if known else None


def fixes(entry: Mapping[str, Any], family: str, version: str) -> Iterator[str]:
    """Yield the versions with a fix that are later than `version`, as the entry writes them."""
    for part in entry.get("ranges") or ():
        if key := _order(str(part.get("type")), family):
            present = key(version)
            yield from (end for end in _events(part, "fixed") if key(end) > present)


def release(tag: str) -> str:
    """Return the version in the name of a tag: `3.0.2` for openssl-3.0.2, `7.81.0` for curl-7_81_0."""
    found = _NUMBERS.match(tag[::-1]) if len(tag) <= LONGEST else None
    return re.sub("[_-]", ".", found[0][::-1]) if found else tag


def _listed(versions: Iterable[str], family: str, version: str) -> bool:
    if family in ("Debian", "Ubuntu"):
        return version in versions
    if family == "PyPI":
        wanted = _pep440(version)
        return any(each == version or (wanted and _pep440(each) == wanted) for each in versions)
    return release(version) in {release(each) for each in versions}


def _pep440(text: str) -> Version | None:
    try:
        return _version(text)
    except ValueError:
        return None


def _version(text: str) -> Version:
    if len(text) > LONGEST:
        raise ValueError("too long for a version")
    return Version(text)


def _in_range(part: Mapping[str, Any], family: str, version: str) -> bool | None:
    key = _order(str(part.get("type")), family)
    if key is None:
        return None
    present = key(version)
    if any(limit != "*" and present >= key(limit) for limit in _events(part, "limit")):
        return False
    introduced = _events(part, "introduced")
    begins = [begin for begin in map(key, (b for b in introduced if b != _EARLIEST)) if begin <= present]
    ends = [end for end in map(key, _events(part, "fixed")) if end <= present]
    ends += [last for last in map(key, _events(part, "last_affected")) if last < present]
    if ends:
        return bool(begins) and max(begins) > max(ends)
    return bool(begins) or _EARLIEST in introduced


def _events(part: Mapping[str, Any], kind: str) -> list[str]:
    return [event[kind] for event in part["events"] if kind in event]


def _order(kind: str, family: str) -> Key | None:
    """Return the order of a range's versions; of SemVer's that of PyPI, as far as both agree."""
    if kind == "ECOSYSTEM" and family in ("Debian", "Ubuntu"):
        return debian_versions.key
    if (kind == "ECOSYSTEM" and family == "PyPI") or kind == "SEMVER":
        return _version
    return None
