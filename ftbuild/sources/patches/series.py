"""Changes to upstream's sources: quilt series, DEP-3 headers, version ranges, strict application.

`patches/<component>/series` lists the entries in order of application (quilt(1): one name a line, `#`
starts a comment). An entry is a `.patch`, a header and a diff of ours, or a `.backport`, the header alone:
it names an upstream commit, whose diff comes from the source cache, so this repository has no upstream code.

A diff is applied by `git apply` without fuzz: every context line must match. None of this needs a network.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from ftbuild.config.schema import Config, PatchRange
from ftbuild.errors import ConfigError, PatchError
from ftbuild.host import reading
from ftbuild.host.git import NO_REPOSITORY, git
from ftbuild.sources.patches import dep3, hunks
from ftbuild.sources.patches.hunks import Conflict
from ftbuild.text import tables

SERIES = "series"
_BACKPORT = ".backport"
_NAME = re.compile(r"\d{4}-[a-z0-9][a-z0-9.-]*\.(patch|backport)", re.ASCII)


@dataclass(frozen=True)
class Entry:
    """One entry of a series. A patch of ours has a `diff`, a backport a `commit` (and maybe `paths`)."""

    component: str
    file: str
    header: dep3.Header
    versions: SpecifierSet
    diff: bytes = b""
    commit: str | None = None
    # Only cells that leave something out take it.
    lean: bool = False

    @property
    def name(self) -> str:
        """`<component>/<file>`."""
        return f"{self.component}/{self.file}"

    @property
    def origin(self) -> str:
        """The origin of the change, for labels and tables."""
        return self.header.origin

    @property
    def paths(self) -> tuple[str, ...]:
        """Globs of the files taken from a backported commit; none: all."""
        return self.header.paths


class Named(Protocol):
    """What messages say of a change: its component, and `component/file`."""

    @property
    def component(self) -> str:
        """The component that it changes."""

    @property
    def name(self) -> str:
        """`component/file`."""


class Status(StrEnum):
    """The status of an entry on the sources of a release."""

    APPLIES = "applies"
    UPSTREAM = "already upstream"
    CONFLICT = "conflict"
    OUT_OF_RANGE = "not applicable"


@dataclass(frozen=True)
class PatchStatus:
    """An entry on a release; `stops` when it would end a build of the release with a PatchError."""

    component: str
    file: str
    release: str
    version: str
    status: Status
    stops: bool = False
    detail: str = ""


class ConflictError(PatchError):
    """A diff does not apply, because of `conflicts`."""

    def __init__(self, entry: Named, version: str, conflicts: Sequence[Conflict]) -> None:
        super().__init__(
            f"{entry.name} does not apply to {entry.component} {version}".rstrip(),
            where="; ".join(str(conflict) for conflict in conflicts),
            hint="invoke patches shows all of them; narrow its range in patches.yaml or add an entry "
            "for this version",
        )
        self.conflicts = tuple(conflicts)


def read_series(config: Config) -> dict[str, tuple[Entry, ...]]:
    """Read the series of every component, in order of application.

    Raises PatchError, with file and line, where series, files and ranges disagree or a header is wrong.
    """
    _require_versions(config)
    if config.patches.ranges and not config.patch_directory.is_dir():
        raise PatchError(
            f"the folder of the series does not exist: {config.patch_directory}",
            where=config.place("patches.yaml", "directory"),
            hint="`directory` is relative to patches.yaml",
        )
    for file in sorted(config.patch_directory.glob(f"*/{SERIES}")):
        if file.parent.name not in config.patches.ranges:
            raise PatchError(
                f"{file.parent.name} has a series, but no ranges",
                where=config.place("patches.yaml", "ranges"),
                hint=f"list its entries there, or remove {file.parent}",
            )
    return {component: _series(config, component) for component in config.patches.ranges}


def idle(config: Config) -> tuple[Entry, ...]:
    """Return the entries that no release takes: their range fits no version of their component."""
    found = []
    for component, entries in read_series(config).items():
        versions = [config.version(release, component) for release in config.sources.releases]
        found += [entry for entry in entries if not any(_in_range(entry, each) for each in versions)]
    return tuple(found)


def applicable(entries: Iterable[Entry], version: str, *, lean: bool = False) -> tuple[Entry, ...]:
    """Return the entries for a version of their component; none for a release without it (empty version).

    Those of lean cells, which leave something out, only if it is one.
    """
    return tuple(entry for entry in entries if _in_range(entry, version) and (lean or not entry.lean))


def apply(tree: Path, entry: Named, diff: bytes, *, version: str = "") -> None:
    """Apply an entry's `diff` to the exported `tree`, completely or not at all.

    Raises ConflictError naming patch, file and hunk; PatchError when the tree holds the change already.
    """
    complaint = _git_apply(tree, diff)
    if complaint is None:
        return
    if _holds(tree, diff):
        raise PatchError(
            f"{entry.name} is already in {entry.component} {version}".rstrip(),
            hint="narrow its range in patches.yaml",
        )
    raise ConflictError(entry, version, hunks.conflicts(diff.decode("utf-8", "replace"), complaint))


def status(
    entries: Sequence[Entry], tree: Path, *, release: str, version: str, diff_of: Callable[[Entry], bytes]
) -> Iterator[PatchStatus]:
    """Yield the status of each entry as the series is applied to `tree` (which it changes), in order.

    `diff_of` gives the diff of any entry, also of one outside of its range: before any of our changes is
    applied, the tree shows whether upstream already has it.
    """
    upstream = {
        entry.name for entry in entries if not _in_range(entry, version) and _holds(tree, diff_of(entry))
    }
    for entry in entries:
        if _in_range(entry, version):
            outcome, detail = _try(entry, tree, version, diff_of(entry))
        else:
            outcome = Status.UPSTREAM if entry.name in upstream else Status.OUT_OF_RANGE
            detail = f"range {entry.versions}"
        stops = outcome is Status.CONFLICT or (outcome is Status.UPSTREAM and _in_range(entry, version))
        yield PatchStatus(entry.component, entry.file, release, version, outcome, stops, detail)


def _try(entry: Entry, tree: Path, version: str, diff: bytes) -> tuple[Status, str]:
    try:
        apply(tree, entry, diff, version=version)
    except ConflictError as conflict:
        return Status.CONFLICT, conflict.where or ""
    except PatchError as superfluous:
        return Status.UPSTREAM, superfluous.hint or ""
    return Status.APPLIES, ""


def exit_code(rows: Iterable[PatchStatus]) -> int:
    """Return PatchError's code when a row would stop a build, else 0."""
    return PatchError.exit_code if any(row.stops for row in rows) else 0


def table(rows: Sequence[PatchStatus]) -> str:
    """Return a table of entry x release, then what stops a build, with file and hunk."""
    releases = sorted({row.release for row in rows})
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        cells.setdefault((row.component, row.file), {})[row.release] = row.status.value
    lines = [(*entry, *(found.get(release, "-") for release in releases)) for entry, found in cells.items()]
    text = tables.render(("Component", "Entry", *releases), lines)
    stopped = [
        f"{row.component}/{row.file} on {row.release}: {row.status}: {row.detail}"
        for row in rows
        if row.stops
    ]
    return "\n".join([text, *stopped])


def as_json(rows: Iterable[PatchStatus]) -> str:
    """Return the rows as a JSON list, for programs."""
    return json.dumps([asdict(row) for row in rows], indent=2)


def _in_range(entry: Entry, version: str) -> bool:
    return bool(version) and entry.versions.contains(Version(version), prereleases=True)


def _holds(tree: Path, diff: bytes) -> bool:
    """Return whether the tree has the change: it could be reverted."""
    return _git_apply(tree, diff, "--reverse", "--check") is None


def _git_apply(tree: Path, diff: bytes, *options: str) -> str | None:
    """Return None when git accepts the diff, else its complaint.

    Without `GIT_DIR` git looks for a repository above `tree`; in one, it takes the diff to be relative to
    that repository's root and silently skips every file outside of `tree` (git-apply(1)).
    """
    # No NamedTemporaryFile: a Ctrl-C while it is made can raise FileNotFoundError instead.
    with tempfile.TemporaryDirectory(prefix="ftbuild-") as scratch:
        file = Path(scratch, "diff")
        file.write_bytes(diff)
        result = git(
            "apply",
            "--verbose",
            "-p1",
            "--whitespace=nowarn",
            "--no-ignore-whitespace",
            *options,
            str(file),
            cwd=tree,
            env=NO_REPOSITORY,
            check=False,
        )
    return result.stderr if result.code else None


def _require_versions(config: Config) -> None:
    for release, refs in config.sources.releases.items():
        for component in set(config.patches.ranges) & set(refs):
            if refs[component].version is None:
                raise PatchError(
                    f"{component} of release {release} has patches, but no version to compare ranges with",
                    where=config.place("sources.yaml", "releases", release, component),
                    hint="give it a `version`",
                )


def _series(config: Config, component: str) -> tuple[Entry, ...]:
    folder = config.patch_directory / component
    names = dict(_names(folder))
    ranges = config.patches.ranges[component]
    for name in sorted({path.name for path in folder.iterdir()} - {SERIES} - set(names)):
        # What an editor, a merge or a file manager leaves behind.
        hint = f"add it to {SERIES}" if _is_entry(folder / name) else "remove it: no entry has such a name"
        raise PatchError("the file is not in the series", where=str(folder / name), hint=hint)
    for name in sorted(set(ranges) - set(names)):
        raise PatchError(
            f"{component}/{name} has a range, but is not in the series",
            where=config.place("patches.yaml", "ranges", component, name),
        )
    for name, line in names.items():
        if name not in ranges:
            raise PatchError(
                f"{component}/{name} has no range of versions",
                where=f"{folder / SERIES}:{line}",
                hint=f"add it to {config.folder / 'patches.yaml'}",
            )
    return tuple(_entry(folder / name, ranges[name]) for name in names)


def _is_entry(path: Path) -> bool:
    return path.is_file() and _NAME.fullmatch(path.name) is not None


def _names(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the names of a series with their lines; numbers ascend, so that a listing shows the order."""
    file = folder / SERIES
    if not file.exists():
        raise PatchError("the component has no series", where=str(file))
    try:
        lines = reading.read_text(file).splitlines()
    except ConfigError as unreadable:
        raise unreadable.converted(PatchError) from unreadable
    previous = ""
    for number, line in enumerate(lines, start=1):
        name = line.split("#", 1)[0].strip()
        if not name:
            continue
        where = f"{file}:{number}"
        if not _NAME.fullmatch(name):
            raise PatchError(
                f"{name[:80]!r} is not an entry: NNNN-name.patch or NNNN-name.backport", where=where
            )
        if name[:4] <= previous:
            raise PatchError(f"{name} is out of order: numbers must ascend", where=where)
        if not (folder / name).is_file():
            raise PatchError(f"{name} does not exist", where=where)
        previous = name[:4]
        yield name, number


def _entry(path: Path, taken: PatchRange) -> Entry:
    versions = SpecifierSet(taken.versions)
    try:
        content = reading.read_bytes(path)
    except ConfigError as unreadable:
        raise unreadable.converted(PatchError) from unreadable
    header, diff = _parts(content, path)
    commit = dep3.backported_commit(header, str(path)) if path.suffix == _BACKPORT else None
    lean = bool(taken.leaves_out)
    return Entry(path.parent.name, path.name, header, versions, diff=diff, commit=commit, lean=lean)


@lru_cache(maxsize=512)  # Plans, audit and sources of a run read all series: 200 files, which stay the same.
def _parts(content: bytes, path: Path) -> tuple[dep3.Header, bytes]:
    """Return the header and the diff of an entry; PatchError, with file and line, for what is wrong in it."""
    header, diff = dep3.split(content, str(path))
    if path.suffix == _BACKPORT:
        if diff.strip():
            raise PatchError("a backport must not have a diff: its commit is the diff", where=str(path))
        return header, b""
    text = diff.decode("utf-8", "replace")
    if not hunks.changes_anything(text):
        raise PatchError("the patch has no diff", where=str(path))
    if flaw := hunks.flaw(text):
        line = flaw.line + content[: len(content) - len(diff)].count(b"\n")
        raise PatchError(flaw.what, where=f"{path}:{line}", hint="make the diff again with git diff")
    if header.paths:
        raise PatchError(f"{dep3.PATHS} is for backports only", where=str(path))
    return header, diff
