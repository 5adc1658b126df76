"""Webhook notification of a nightly run's outcome: one POST of JSON that chat systems can show."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ftbuild.nightly.record import CellRecord, NightlyRun, Reason, State
from ftbuild.nightly.report import wording
from ftbuild.nightly.report.sanitize import cleaned, first_line
from ftbuild.registry.policy import POLICY
from ftbuild.text import units

if TYPE_CHECKING:
    import requests

TIMEOUT_SECONDS = 10.0
# Slack cuts a message at 40,000 characters, Mattermost at 16,383.
_LISTED_CELLS = 20
_EXCLUDED = wording.look(State.SKIPPED, Reason.EXCLUDED)


def post(url: str, run: NightlyRun) -> str | None:
    """Send the outcome to `url`; return None if it was accepted, else a one-line warning.

    Never raises for failures of network or server; retries while there is no connection, or the server says
    that it has not taken the request (429, 503). After any other failure the outcome may have arrived, and
    would be posted twice. The warning names the host only: a webhook's path is its password.
    """
    import requests

    try:
        with _unlogged(), _session() as session:
            # A redirect would turn the POST into a GET, and hand the outcome to another host.
            answer = session.post(url, json=payload(run), timeout=TIMEOUT_SECONDS, allow_redirects=False)
    except (requests.RequestException, ValueError) as failed:
        return _warning(url, type(failed).__name__)
    return None if answer.status_code // 100 == 2 else _warning(url, f"HTTP {answer.status_code}")


def payload(run: NightlyRun) -> dict[str, Any]:
    """Return the body of the request (docs/reports.md); Slack and Mattermost show its `text`."""
    run = cleaned(run)
    return {
        "status": wording.status(run),
        "text": _text(run),
        "id": run.id,
        "started": run.started,
        "seconds": run.seconds,
        "exit_code": run.exit_code,
        "counts": run.counts,
        "failed": [_failed(cell) for cell in wording.troubled(run)],
        "audit": [{"what": f.check, "detail": first_line(f.detail)} for f in wording.findings(run)],
        "lost": [{"builder": b.name, "why": first_line(b.lost)} for b in run.lost],
        "registry": run.registry,
        "revision": run.revision,
        "ftbuild": run.ftbuild,
    }


def _failed(cell: CellRecord) -> dict[str, str]:
    return {
        "cell": cell.cell,
        "state": cell.state.value,
        "reason": cell.reason.value,
        "detail": first_line(cell.detail) or wording.meaning(cell),
    }


def _text(run: NightlyRun) -> str:
    symbol = "✓" if run.is_good else "✗"
    counts = ", ".join(text for shown, text in wording.tally(run) if shown != _EXCLUDED)
    trouble = [_failed(cell) for cell in wording.troubled(run)]
    findings = wording.findings(run)
    more = [f"and {len(trouble) - _LISTED_CELLS} more"] if len(trouble) > _LISTED_CELLS else []
    return "\n".join(
        [
            f"{symbol} ftbuild nightly {run.id}: {wording.headline(run)}",
            f"{counts} in {units.duration(run.seconds)}, exit code {run.exit_code}",
            *(_escape(f"• {t['cell']} ({t['reason']}): {t['detail']}") for t in trouble[:_LISTED_CELLS]),
            *more,
            *(_escape(f"• builder {b.name}: {first_line(wording.fate(b))}") for b in run.lost),
            *(_escape(f"• audit: {f.check}: {first_line(f.detail)}") for f in findings[:_LISTED_CELLS]),
        ]
    )


def _escape(text: str) -> str:
    """Return `text` without mentions: Slack's `<!channel>`, Mattermost's `@all`.

    The entities are the ones Slack requires (docs.slack.dev, "Formatting message text").
    """
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return plain.replace("@", "@\u200b")


def _session() -> requests.Session:
    import requests
    from requests.adapters import HTTPAdapter

    from ftbuild.registry.retry import patience

    session = requests.Session()
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(max_retries=patience(POLICY, once=True)))
    return session


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep urllib3 from logging: it logs the path of every URL that it retries."""
    log = logging.getLogger("urllib3.connectionpool")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _warning(url: str, why: str) -> str:
    return f"the notification to {_host(url)} failed: {why}"


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or "the hook"
    except ValueError:
        return "the hook"
