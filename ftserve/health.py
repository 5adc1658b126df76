"""Health checks of a deployment: what probes ask, and how long they wait.

A probe's request waits in the queue like any other, or finds it full. While the server answers requests of
others, it counts as answering (ftbuild/client/probe.py), so only silence counts against it.
"""

from __future__ import annotations

from pathlib import Path

from ftbuild.client import probe
from ftserve.deployment import Deployment

SCRIPT = Path(probe.__file__).read_text(encoding="utf-8")
# Silence for READY_SECONDS keeps new requests away, after FAILURES times in a row.
READY_SECONDS = 30
FAILURES = 3
PERIOD_SECONDS, ALIVE_PERIOD_SECONDS = 10, 30
# A container's engine allows a probe this much more than the probe itself takes to give up.
SPARE_SECONDS = 10
# A server that is told to end waits 30 seconds for its answers (tritonserver --exit-timeout-secs), the front
# 30 for those under way and 20 for calls without a client (front/__main__.py, front/triton.py).
STOP_SECONDS = 60
# While a Service forgets a pod that ends, requests still come.
LEAVING_SECONDS = 5
# The backend ends a server by itself in which one request takes too long; this long after, a probe does it.
PATIENCE_SECONDS = 60


def ready() -> list[str]:
    """Return the probe's arguments that decide whether a server gets requests."""
    return ["ready", str(READY_SECONDS)]


def alive_seconds(deployment: Deployment) -> int | None:
    """Return the seconds of silence that count as one failure of a server that is to be restarted.

    FAILURES of them are longer than any request may take. None where a request may take forever.
    """
    if deployment.request_seconds is None:
        return None
    return -(-(deployment.request_seconds + PATIENCE_SECONDS) // FAILURES)
