"""Patience with a registry: what passes by itself is tried again, with longer and longer pauses."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from ftbuild.errors import FtbuildError, PublishError
from ftbuild.host import shell
from ftbuild.text.reporter import Reporter

T = TypeVar("T")
# Together a minute and a half, which outlasts a registry's restart or a limit per minute.
PAUSES_SECONDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
TOKEN_EXPIRED = "the token expired on the way"
# What Docker Engine and buildx say of a busy registry or a broken line; neither hands the status code on.
_PASSING = re.compile(
    r"\b(?:429|50[0234])\b|too ?many ?requests|bad gateway|service unavailable|gateway time"
    r"|internal server error|connection (?:reset|refused)|broken pipe|\bEOF\b|timed? ?out|tls handshake"
    r"|no route|token expired",
    re.I,
)


def is_passing(text: str) -> bool:
    """Whether a complaint is about something that may be gone in a while."""
    return bool(_PASSING.search(text))


def with_backoff(
    action: Callable[[], T], report: Reporter, *, sleep: Callable[[float], None] = time.sleep
) -> T:
    """What `action` returns, tried again while its FtbuildError is of the passing kind."""
    for pause in PAUSES_SECONDS:
        try:
            return action()
        except FtbuildError as failed:
            if not is_passing(failed.what):  # where it happened may hold any number
                raise
            report(f"{failed.what.splitlines()[0]}: trying again in {pause:g} s")
            sleep(pause)
    return action()


def command(
    argv: Sequence[str], report: Reporter, *, timeout: float, what: str, where: str, hint: str
) -> None:
    """Run a command that talks to a registry, with patience; PublishError with its last line, if it fails."""

    def once() -> None:
        try:
            shell.run(argv, timeout=timeout)
        except shell.CommandFailed as failed:
            lines = failed.result.stderr.strip().splitlines() or [failed.what]
            raise PublishError(f"{what}: {lines[-1]}", where=where, hint=hint) from failed

    with_backoff(once, report)
