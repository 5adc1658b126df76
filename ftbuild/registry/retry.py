"""How long a busy registry is waited for; imported late, since urllib3 costs start-up time."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Self

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import MaxRetryError
from urllib3.util.retry import Retry

TOTAL_SECONDS = 60.0
_METHODS = ("GET", "HEAD", "POST", "PUT")


class Patience(Retry):
    """Tries again while all pauses together stay below `TOTAL_SECONDS`.

    Retry-After (RFC 9110, section 10.2.3) is honoured in full, or, where it asks for more than what is left,
    the registry's answer is handed on at once.
    """

    left = TOTAL_SECONDS

    def new(self, **changes: Any) -> Self:
        """A copy that has as much patience left."""
        copy = super().new(**changes)
        copy.left = self.left
        return copy

    def increment(self, *args: Any, **kwargs: Any) -> Self:
        """One try less; MaxRetryError when the pause before the next would be too long."""
        after = super().increment(*args, **kwargs)
        response: BaseHTTPResponse | None = kwargs.get("response")
        asked = after.get_retry_after(response) if response is not None else None
        after.left -= asked if asked is not None else after.get_backoff_time()
        if after.left < 0:
            raise MaxRetryError(kwargs["_pool"], "", kwargs.get("error"))
        return after


def patience(busy: Collection[int]) -> Patience:
    """Six tries; the statuses in `busy` are those that may be different a moment later."""
    return Patience(
        connect=2,
        read=3,
        status=5,
        other=0,
        total=5,
        backoff_factor=0.5,
        status_forcelist=busy,
        allowed_methods=_METHODS,
        raise_on_status=False,
    )
