"""Retries of commands and engine calls that talk to a registry (tenacity)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ftbuild.errors import FtbuildError, PublishError
from ftbuild.host import shell
from ftbuild.registry.policy import POLICY
from ftbuild.text.reporter import Reporter

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")
TOKEN_EXPIRED = "the token expired on the way"
# Messages of Docker Engine and buildx, which keep the status code to themselves.
_TRANSIENT = re.compile(
    r"\b(?:429|50[0234])\b|too ?many ?requests|bad gateway|service unavailable|gateway time"
    r"|internal server error|connection (?:reset|refused)|broken pipe|\bEOF\b|timed? ?out|tls handshake"
    r"|no route|token expired",
    re.I,
)


def is_transient(failure: BaseException) -> bool:
    """Return whether a failure may be gone in a while; `where` does not count, as it may hold any number."""
    return isinstance(failure, FtbuildError) and bool(_TRANSIENT.search(failure.what))


def with_backoff(
    action: Callable[[], T], report: Reporter, *, sleep: Callable[[float], None] = time.sleep
) -> T:
    """Return the result of `action`, retried by `POLICY` while its failure is transient."""
    import tenacity

    def announce(state: RetryCallState) -> None:
        failure = state.outcome.exception() if state.outcome else None
        report(f"{str(failure).splitlines()[0]}: trying again in {state.upcoming_sleep:g} s")

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(is_transient),
        wait=tenacity.wait_exponential(multiplier=POLICY.first_pause),
        stop=tenacity.stop_after_attempt(POLICY.retries + 1),
        before_sleep=announce,
        sleep=sleep,
        reraise=True,
    )
    return retrying(action)


def command(
    argv: Sequence[str],
    report: Reporter,
    *,
    timeout: float,
    what: str,
    where: str,
    hint: str,
    is_done: Callable[[], bool] = lambda: False,
) -> str:
    """Run a command that talks to a registry, with retries; PublishError with its last line if it fails.

    Before a retry, `is_done` says whether the one before did its work and failed afterwards. Returns what it
    printed, nothing if that was so.
    """
    tried = False

    def once() -> str:
        nonlocal tried
        if tried and is_done():
            return ""
        tried = True
        try:
            return shell.run(argv, timeout=timeout).stdout
        except shell.CommandFailed as failed:
            lines = failed.result.stderr.strip().splitlines() or [failed.what]
            raise PublishError(f"{what}: {lines[-1]}", where=where, hint=hint) from failed

    return with_backoff(once, report)
