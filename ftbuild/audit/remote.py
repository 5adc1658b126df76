"""Queries to one git URL: where refs point, and which pinned commits it still serves.

The server itself is asked, never the shared cache: commits come into a throw-away repository, without
trees and blobs where the server filters (https://git-scm.com/docs/partial-clone).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ftbuild.host.git import REMOTE, git, last_line, remote
from ftbuild.host.redaction import redact
from ftbuild.host.shell import CommandFailed
from ftbuild.sources.objects import Objects
from ftbuild.sources.store import resolve_refs

LISTING_SECONDS = 60.0
# A server that does not filter sends whole trees: 25 commits of FasterTransformer in the worst case.
FETCH_SECONDS = 600.0
# git's messages for a commit that a server lacks, and for a server that serves no commit by its id.
_NOT_OURS = re.compile(r"not our ref ([0-9a-f]{40})")
_SERVES_NO_IDS = "unadvertised object"


@dataclass(frozen=True)
class Answer:
    """The answer of a URL: the commits that refs point to, the commits it serves, or the problem."""

    url: str
    problem: str = ""
    refs: Mapping[str, str] = field(default_factory=dict)
    commits: frozenset[str] = frozenset()


def ask(url: str, refs: Collection[str], commits: Collection[str], scratch: Path) -> Answer:
    """Ask `url` for full `refs` and commit ids; `scratch` is a folder to make. Never raises for a bad URL."""
    shown = redact(url)
    try:
        found = resolve_refs(url, refs, LISTING_SECONDS)
        return Answer(shown, "", found, _served(url, frozenset(commits), scratch))
    except CommandFailed as silent:
        return Answer(shown, last_line(silent))


def _served(url: str, commits: frozenset[str], scratch: Path) -> frozenset[str]:
    """Return those of `commits` that the server serves. It names one missing commit at a time."""
    repository = Objects(scratch)
    repository.make()
    wanted = set(commits)
    while wanted:
        try:
            _fetch(url, repository, "--depth=1", *sorted(wanted))
            break
        except CommandFailed as refused:
            if _SERVES_NO_IDS in refused.result.stderr:
                return _in_history(url, commits, repository)
            lacking = set(_NOT_OURS.findall(refused.result.stderr)) & wanted
            if not lacking:
                raise
            wanted -= lacking
    return frozenset(wanted)


def _in_history(url: str, commits: frozenset[str], repository: Objects) -> frozenset[str]:
    """Return those of `commits` in the history of branches and tags, for a server that serves no ids."""
    _fetch(url, repository, "+refs/heads/*:refs/audit/heads/*", "+refs/tags/*:refs/audit/tags/*")
    listing = repository.git("rev-list", "--all").stdout.split()
    return commits & frozenset(listing)


def _fetch(url: str, repository: Objects, *arguments: str) -> None:
    git(
        "fetch",
        "--quiet",
        "--no-tags",
        "--no-write-fetch-head",
        "--filter=tree:0",
        REMOTE,
        *arguments,
        env={"GIT_DIR": str(repository.folder), **remote(url)},
        timeout=FETCH_SECONDS,
    )
