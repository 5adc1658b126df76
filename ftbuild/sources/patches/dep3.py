"""DEP-3 patch headers (https://dep-team.pages.debian.net/deps/dep3/): author, origin and purpose of a patch.

A header is a block of `Name: value` fields, continued on lines that start with a space, and ends at the
first empty line or `---`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ftbuild.errors import PatchError

# A header becomes labels of images; ours have 500 bytes.
MAX_BYTES = 20_000
PATHS = "X-Ftbuild-Paths"
_FIELD = re.compile(r"([A-Za-z][A-Za-z0-9-]*):[ \t]*(.*)")
_KNOWN = frozenset(
    ["Description", "Subject", "Origin", "Author", "From", "Bug", "Forwarded", "Reviewed-by", "Acked-by"]
) | {"Last-Update", "Applied-Upstream", PATHS}
# Fields become labels and tables. Bytes that are no UTF-8 have been replaced by U+FFFD.
_UNUSABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ufffd]")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_COMMIT = re.compile(r"backport, https?://\S+/commit/([0-9a-f]{40})")


@dataclass(frozen=True)
class Header:
    """The fields of a header, and the line (from 1) on which each starts."""

    fields: Mapping[str, str]
    lines: Mapping[str, int]

    @property
    def origin(self) -> str:
        """The origin of the change: `Origin`, else the author."""
        return self.fields.get("Origin") or f"by {self.fields.get('Author') or self.fields.get('From')}"

    @property
    def paths(self) -> tuple[str, ...]:
        """The globs that restrict a backport; none: all of it."""
        return tuple(self.fields.get(PATHS, "").split())


def split(content: bytes, where: str) -> tuple[Header, bytes]:
    """Split a patch file into its header and the rest, unchanged.

    Raises PatchError, with the line, for what DEP-3 does not allow.
    """
    fields: dict[str, str] = {}
    lines: dict[str, int] = {}
    position, name = 0, ""
    for number, raw in enumerate(content.splitlines(keepends=True), start=1):
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line or line == "---" or line.startswith(("--- ", "diff --git ")):
            break
        position += len(raw)
        if position > MAX_BYTES:
            raise PatchError(f"the header has more than {MAX_BYTES} bytes", where=f"{where}:{number}")
        if _UNUSABLE.search(line):
            raise PatchError(
                "the header has a control character, or is not UTF-8 text", where=f"{where}:{number}"
            )
        if line[0] in " \t" and name:
            fields[name] += "\n" + line.strip()
            continue
        match = _FIELD.fullmatch(line)
        if match is None:
            raise PatchError(f"not a DEP-3 field: {line[:80]!r}", where=f"{where}:{number}")
        name = match[1]
        if name not in _KNOWN and not name.startswith("Bug-"):
            raise PatchError(f"unknown DEP-3 field {name[:80]!r}", where=f"{where}:{number}")
        if name in fields:
            raise PatchError(f"field {name!r} is repeated", where=f"{where}:{number}")
        fields[name], lines[name] = match[2].strip(), number
    header = Header(fields, lines)
    _require(header, where)
    return header, content[position:]


def backported_commit(header: Header, where: str) -> str:
    """Return the full id of the upstream commit in `Origin`; PatchError when there is none."""
    match = _COMMIT.fullmatch(header.fields.get("Origin", ""))
    if match is None:
        raise PatchError(
            "a backport needs `Origin: backport, https://.../commit/<full 40-digit id>`",
            where=f"{where}:{header.lines.get('Origin', 1)}",
        )
    return match[1]


def _require(header: Header, where: str) -> None:
    fields = header.fields
    if not (fields.get("Description") or fields.get("Subject")):
        raise PatchError("the DEP-3 header has no Description", where=f"{where}:1")
    if not (fields.get("Origin") or fields.get("Author") or fields.get("From")):
        raise PatchError("the DEP-3 header has neither Origin nor Author", where=f"{where}:1")
    if "Last-Update" in fields and not _DATE.fullmatch(fields["Last-Update"]):
        raise PatchError(
            "Last-Update is not a date (YYYY-MM-DD)", where=f"{where}:{header.lines['Last-Update']}"
        )
