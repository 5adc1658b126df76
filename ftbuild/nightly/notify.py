"""Telling a webhook how a night ended: one POST of JSON, which chat systems can show as well."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ftbuild.nightly.record import CellRecord, NightlyRun, Reason, State
from ftbuild.nightly.report import wording
from ftbuild.nightly.report.sanitize import cleaned, first_line
from ftbuild.registry.transport import BUSY
from ftbuild.text import units

if TYPE_CHECKING:
    import requests

TIMEOUT_SECONDS = 10.0
RETRIES = 3
# Waits of 0, 2 and 4 seconds, or what the server asks for up to this.
BACKOFF_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 60
# Slack cuts a message at 40,000 characters, Mattermost at 16,383.
_TOLD_CELLS = 20
_EXCLUDED = wording.look(State.SKIPPED, Reason.EXCLUDED)


def post(url: str, night: NightlyRun) -> str | None:
    """Send the outcome to `url`. None when it was taken, else one line that says why not.

    Never raises for what network or server do, and tries again while the server is busy (429, 5xx) or cannot
    be reached. The line names the host only: a webhook's path is its password.
    """
    import requests

    try:
        with _unlogged(), _session() as session:
            # A redirect would turn the POST into a GET, and hand the outcome to somebody else.
            answer = session.post(url, json=payload(night), timeout=TIMEOUT_SECONDS, allow_redirects=False)
    except (requests.RequestException, ValueError) as failed:
        return _warning(url, type(failed).__name__)
    return None if answer.status_code // 100 == 2 else _warning(url, f"HTTP {answer.status_code}")


def payload(night: NightlyRun) -> dict[str, Any]:
    """What is sent (docs/reports.md); `text` is what Slack and Mattermost show."""
    night = cleaned(night)
    return {
        "status": wording.status(night),
        "text": _text(night),
        "id": night.id,
        "started": night.started,
        "seconds": night.seconds,
        "exit_code": night.exit_code,
        "counts": night.counts,
        "failed": [_failed(cell) for cell in wording.troubled(night)],
        "audit": [{"what": f.check, "detail": first_line(f.detail)} for f in wording.findings(night)],
        "registry": night.registry,
        "revision": night.revision,
        "ftbuild": night.ftbuild,
    }


def _failed(cell: CellRecord) -> dict[str, str]:
    return {
        "cell": cell.cell,
        "state": cell.state.value,
        "reason": cell.reason.value,
        "detail": first_line(cell.detail) or wording.means(cell),
    }


def _text(night: NightlyRun) -> str:
    symbol = "✓" if night.is_good else "✗"
    counts = ", ".join(said for shown, said in wording.tally(night) if shown != _EXCLUDED)
    trouble = [_failed(cell) for cell in wording.troubled(night)]
    found = wording.findings(night)
    more = [f"and {len(trouble) - _TOLD_CELLS} more"] if len(trouble) > _TOLD_CELLS else []
    return "\n".join(
        [
            f"{symbol} ftbuild nightly {night.id}: {wording.headline(night)}",
            f"{counts} in {units.duration(night.seconds)}, exit code {night.exit_code}",
            *(_said(f"• {t['cell']} ({t['reason']}): {t['detail']}") for t in trouble[:_TOLD_CELLS]),
            *more,
            *(_said(f"• audit: {f.check}: {first_line(f.detail)}") for f in found[:_TOLD_CELLS]),
        ]
    )


def _said(text: str) -> str:
    """`text` without what would call people: Slack's `<!channel>`, Mattermost's `@all`.

    The entities are those that Slack asks for (docs.slack.dev, "Formatting message text").
    """
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return plain.replace("@", "@\u200b")


def _session() -> requests.Session:
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.util import Retry

    retry = Retry(
        total=RETRIES,
        backoff_factor=BACKOFF_SECONDS,
        status_forcelist=BUSY,
        allowed_methods=("POST",),
        retry_after_max=LONGEST_WAIT_SECONDS,
        raise_on_status=False,
    )
    session = requests.Session()
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(max_retries=retry))
    return session


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep urllib3 from logging, as it does the path of every address that it tries again."""
    log = logging.getLogger("urllib3.connectionpool")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _warning(url: str, why: str) -> str:
    return f"the notification to {_host(url)} was not taken: {why}"


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or "the hook"
    except ValueError:
        return "the hook"
