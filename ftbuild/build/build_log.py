"""What a log of BuildKit tells of a failure: its cause, in lines that a user can act upon."""

from __future__ import annotations

import re

# Errors of BuildKit itself, not of the build. A step that two builds share belongs to the session of the
# first, and may fail with it when that one is interrupted; equal steps of several targets may be merged into
# one that is gone already (moby/buildkit issues 2303 and 3635).
_BUILDKIT_ERRORS = ("no active sessions", "inconsistent graph state", "failed to get state for index")
# A registry does not take what the builder pushes: by BuildKit, and by an engine, which says so at that step.
_NOT_PUSHED = re.compile(
    r"^ERROR: (?P<buildkit>.*failed to push .*)"
    r"|^#(?P<step>\d+) (?:\[.*\] )?pushing .* with docker\n(?:.*\n)*?#(?P=step) ERROR: (?P<engine>.*)",
    re.M,
)
# A layer of the cache is listed, and is gone. Its folder: seen with Docker Engine 26.1 after a prune that was
# ended in the middle. Its entry in the engine's store of layers: two steps made one layer, the engine was
# restarted, and a prune or the collection of garbage took one of them; the other one's layer goes with it
# (moby's builder-next/adapters/snapshot/snapshot.go: getLayer counts both as one use, remove lets go of it).
# Every build that needs the layer fails alike.
_CACHE_GONE = re.compile(
    r"^ERROR: (?:target \S+: )?failed to solve: (?P<what>"
    r"(?:failed to prepare \S+ as \S+: .*|.*/(?:overlay2|snapshots)/\S+): no such file or directory"
    r"|(?:failed to get layer \S+: )?layer does not exist)$",
    re.M,
)
_ERROR_LINE = re.compile(
    r"(?:^|\s)(?:fatal )?error[:\s]|CMake Error|FAILED:|undefined reference|Killed|ftbuild:", re.I
)
# The shell's and gcc's words for SIGKILL; later versions of ninja and BuildKit print the code, 128 + 9.
_MEMORY = re.compile(
    r"\bKilled\b|signal 9|exit code: 137|code=137|cannot allocate memory|virtual memory exhausted|bad_alloc",
    re.I,
)
_STEP_PREFIX = re.compile(r"^#\d+ (?:\d+\.\d+ )?")


def own_failure(log: str) -> str | None:
    """Return the error of BuildKit itself in a log, after which the same build may succeed; None without."""
    return next((error for error in _BUILDKIT_ERRORS if error in log), None)


def refused_push(log: str) -> str | None:
    """Return the line with which a registry refused what the builder pushed; None without."""
    refused = _NOT_PUSHED.search(log)
    return (refused["buildkit"] or refused["engine"]) if refused else None


def damaged_cache(log: str) -> str | None:
    """Return the line with which BuildKit misses a layer of its own cache; None without."""
    found = _CACHE_GONE.search(log)
    return found["what"] if found else None


def failing_lines(log: str, limit: int = 6) -> list[str]:
    """Return the first compiler, CMake or BuildKit errors of a BuildKit log, else its last lines."""
    lines = [_STEP_PREFIX.sub("", line).strip() for line in log.splitlines()]
    causes = [line for line in dict.fromkeys(lines) if _ERROR_LINE.search(line) and not _is_echo(line)]
    return causes[:limit] or [line for line in lines if line][-limit:]


def ran_out_of_memory(log: str) -> bool:
    """Return whether a BuildKit log has a process that the OOM killer ended or that got no memory."""
    lines = (_STEP_PREFIX.sub("", line).strip() for line in log.splitlines())
    return any(_MEMORY.search(line) and not _is_echo(line) for line in lines)


def _is_echo(line: str) -> bool:
    """Return whether a line only quotes the Dockerfile, as BuildKit does around a failure."""
    return bool(re.match(r"\d+ \||>>>|(?:> )?\[\w", line))
