"""Whether a version is one that an OSV record names as affected (ossf.github.io/osv-schema, "Evaluation").

Versions of Debian and Ubuntu are compared by dpkg, those of PyPI by PEP 440. Commits have no order here: a
range of them decides nothing, unless its record lists versions too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from packaging.version import Version

from ftbuild.audit import debian

Compare = Callable[[str, str], int]  # -1, 0 or 1; ValueError for what is no version
_NUMBERS = re.compile(r"\d+(?:[._-]\d+)*[a-z]?$")
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
        if compare := _order(str(part.get("type")), family):
            yield from (end for end in _events(part, "fixed") if compare(end, version) > 0)


def release(tag: str) -> str:
    """Return the version in the name of a tag: `3.0.2` for openssl-3.0.2, `7.81.0` for curl-7_81_0."""
    found = _NUMBERS.search(tag)
    return re.sub("[_-]", ".", found[0]) if found else tag


def _listed(versions: Iterable[str], family: str, version: str) -> bool:
    if family in ("Debian", "Ubuntu"):
        return version in versions
    if family == "PyPI":
        wanted = _pep440(version)
        return any(each == version or (wanted and _pep440(each) == wanted) for each in versions)
    return release(version) in {release(each) for each in versions}


def _pep440(text: str) -> Version | None:
    try:
        return Version(text)
    except ValueError:
        return None


def _in_range(part: Mapping[str, Any], family: str, version: str) -> bool | None:
    compare = _order(str(part.get("type")), family)
    if compare is None:
        return None
    if any(limit != "*" and compare(version, limit) >= 0 for limit in _events(part, "limit")):
        return False
    begins = [b for b in _events(part, "introduced") if b == _EARLIEST or compare(b, version) <= 0]
    ends = [end for end in _events(part, "fixed") if compare(end, version) <= 0]
    ends += [last for last in _events(part, "last_affected") if compare(last, version) < 0]
    return any(all(begin != _EARLIEST and compare(end, begin) < 0 for end in ends) for begin in begins)


def _events(part: Mapping[str, Any], kind: str) -> list[str]:
    return [event[kind] for event in part["events"] if kind in event]


def _order(kind: str, family: str) -> Compare | None:
    if kind == "ECOSYSTEM" and family in ("Debian", "Ubuntu"):
        return _dpkg
    if (kind == "ECOSYSTEM" and family == "PyPI") or kind == "SEMVER":
        return _by_pep440
    return None


def _by_pep440(one: str, other: str) -> int:
    """Compare versions of PyPI; those of SemVer too, as far as both orders agree."""
    first, second = Version(one), Version(other)
    return (first > second) - (first < second)


@lru_cache(maxsize=100_000)
def _dpkg(one: str, other: str) -> int:
    if not all(
        isinstance(text, str) and text.isprintable() and text[:1] not in ("", "-") for text in (one, other)
    ):
        raise ValueError(f"not a version: {one!r} or {other!r}")
    return debian.compare(one, other)
