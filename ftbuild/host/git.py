"""Calls of git: transport follows the user's settings, content does not.

`insteadOf`, proxies, credentials and CAs come from the user's configuration and environment (git-config(1)).
Settings that would change a checked out file, a diff or the way a patch is applied are fixed, and so are
those that would start work of their own in the cache.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ftbuild.errors import HostError
from ftbuild.host import disk, shell
from ftbuild.host.shell import CommandFailed, Result

_SETTINGS = {
    "apply.ignoreWhitespace": "no",
    "apply.whitespace": "nowarn",
    "core.attributesFile": "/dev/null",
    "core.autocrlf": "false",
    "core.bigFileThreshold": "512m",
    "core.eol": "lf",
    "core.fileMode": "true",
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.quotePath": "false",
    "core.splitIndex": "false",
    "core.symlinks": "true",
    "diff.suppressBlankEmpty": "false",
    "fetch.recurseSubmodules": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
}
# A git hook (pre-commit) that runs us exports its own repository: `git rev-parse --local-env-vars`.
_FOREIGN = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
)
_ENVIRONMENT: shell.Environment = {
    **dict.fromkeys(_FOREIGN),
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
# A name that no user's configuration has, for the URL of one call.
REMOTE = "ftbuild"
# git takes the text after `!` for a shell command line and adds what it wants (gitcredentials(7)).
_USER, _PASSWORD = "GIT_REMOTE_USER", "GIT_REMOTE_PASSWORD"
_HELPER = (
    f"""!f() {{ test "$1" = get && printf 'username=%s\\npassword=%s\\n' "${_USER}" "${_PASSWORD}"; }}; f"""
)
# Keeps git from looking for a repository at all.
NO_REPOSITORY = {"GIT_DIR": "/dev/null"}
# Git's last words when the other side, of which it is a program or not, has said what is wrong.
_CONSEQUENCES = ("fatal: Could not read from remote repository", "fatal: the remote end hung up")
_NO_SPACE = "No space left on device"
# Long enough for FasterTransformer (20 MB) over a slow line, short enough to end in a CI job.
TIMEOUT_SECONDS = 1800.0


def git(
    *arguments: str,
    cwd: Path | None = None,
    env: shell.Environment | None = None,
    stdin: str | None = None,
    timeout: float = TIMEOUT_SECONDS,
    check: bool = True,
) -> Result:
    """Run git; CommandFailed on a non-zero code (unless `check` is false), HostError on a full disk."""
    settings = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
    try:
        return shell.run(
            ["git", *settings, *arguments],
            cwd=cwd,
            env={**_ENVIRONMENT, **(env or {})},
            stdin=stdin,
            timeout=timeout,
            check=check,
        )
    except CommandFailed as failed:
        is_said = _NO_SPACE in failed.result.stderr
        if cwd and (is_said or _is_full(cwd)):
            raise disk.full(cwd) from failed
        if is_said:  # git names the folder, which is on another disk than the user perhaps
            raise HostError("the disk is full", where=last_line(failed), hint=disk.ROOM) from failed
        raise


def remote(url: str) -> dict[str, str]:
    """Return the variables that make `url` the remote REMOTE of one call.

    Command lines are visible to every user of a machine, also those of git's own helpers. So none holds a
    URL's password: git gets it by a credential helper.
    """
    plain, user, password = _without_password(url)
    settings = [(f"remote.{REMOTE}.url", plain)]
    if password:
        place = urlsplit(plain)
        scope = f"credential.{place.scheme}://{place.netloc}.helper"
        settings += [(scope, ""), (scope, _HELPER)]  # the empty one discards those of the user
    first = _settings_of_the_environment()
    variables = {"GIT_CONFIG_COUNT": str(first + len(settings))}
    for number, (name, value) in enumerate(settings, first):
        variables |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return variables | ({_USER: user, _PASSWORD: password} if password else {})


def _settings_of_the_environment() -> int:
    """Return how many settings git takes from variables already (git-config(1), GIT_CONFIG_COUNT)."""
    count = os.environ.get("GIT_CONFIG_COUNT") or "0"
    if not re.fullmatch(r"[0-9]{1,4}", count, re.ASCII):
        raise HostError(
            f"the variable GIT_CONFIG_COUNT is {count[:80]!a}, not a number", hint="correct or unset it"
        )
    return int(count)


def _without_password(url: str) -> tuple[str, str, str]:
    """Return an HTTP URL without its user part, the user and the password; else the URL and nothing."""
    scheme, separator, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    user, at, host = place.rpartition("@")
    name, colon, password = user.partition(":")
    if scheme not in ("http", "https") or not at or not colon:
        return url, "", ""
    return f"{scheme}{separator}{host}{slash}{path}", unquote(name), unquote(password)


def last_line(failed: CommandFailed) -> str:
    """Return git's own message of a failure."""
    lines = [line for line in failed.result.stderr.splitlines() if line.startswith(("fatal:", "error:"))]
    causes = [line for line in lines if not line.startswith(_CONSEQUENCES)]
    return (causes or lines or [failed.what.splitlines()[-1].strip()])[-1]


def _is_full(folder: Path) -> bool:
    """Return whether the disk is full; some git commands (checkout-index) do not name it as the cause."""
    return disk.free_bytes(folder) < 1_000_000
