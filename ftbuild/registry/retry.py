"""The retry policy as urllib3 carries it out; imported late, since urllib3 costs start-up time."""

from __future__ import annotations

from typing import Any, Self

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import MaxRetryError
from urllib3.util.retry import Retry

from ftbuild.registry.policy import BUSY, REFUSING, RetryPolicy

_METHODS = ("GET", "HEAD", "POST", "PUT")


class Patience(Retry):
    """Retries while all pauses together stay below `left` seconds.

    Retry-After (RFC 9110, section 10.2.3) is honoured in full, or, where it asks for more than what is left,
    the server's answer is handed on at once.
    """

    left = 0.0

    def new(self, **changes: Any) -> Self:
        """Return a copy that has as much patience left."""
        copy = super().new(**changes)
        copy.left = self.left
        return copy

    def increment(self, *args: Any, **kwargs: Any) -> Self:
        """Return a copy with one retry less; MaxRetryError when the pause before it would be too long."""
        after = super().increment(*args, **kwargs)
        response: BaseHTTPResponse | None = kwargs.get("response")
        pause = after.get_retry_after(response) if response is not None else None
        after.left -= pause if pause is not None else after.get_backoff_time()
        if after.left < 0:
            raise MaxRetryError(kwargs["_pool"], "", kwargs.get("error"))
        if response is not None:
            response.close()  # urllib3 would read what is left of it, of whatever size
            response.release_conn()
        return after


def patience(policy: RetryPolicy, *, once: bool = False) -> Patience:
    """Return the policy for busy servers; without a connection or an answer there are fewer retries.

    With `once`, a request that may have had its effect is not repeated. urllib3 pauses before the second
    retry only, and doubles its factor for that.
    """
    made = Patience(
        connect=min(2, policy.retries),
        read=0 if once else min(3, policy.retries),
        status=policy.retries,
        other=0,
        total=policy.retries,
        backoff_factor=policy.first_pause / 2,
        status_forcelist=REFUSING if once else BUSY,
        allowed_methods=_METHODS,
        raise_on_status=False,
    )
    made.left = policy.patience
    return made
