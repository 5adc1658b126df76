"""The OpenAI front as a second container of the server's pod, which shares its network."""

from __future__ import annotations

from typing import Any

from ftserve import front_options, health
from ftserve.deployment import Deployment
from ftserve.front import limits
from ftserve.front.settings import LOOPBACK
from ftserve.targets.kubernetes_pods import LEAVING, literal

_VOLUME = "api-keys"
# The tokenizer is loaded in a first process, here and in those for requests (front/settings.py, workers.py).
_START_SECONDS = 3 * limits.START_SECONDS


def container(deployment: Deployment, secret: str | None) -> dict[str, Any]:
    """Return the container; `secret` is the Secret with a file of API keys, None for none."""
    front = deployment.front
    assert front is not None
    mounts = [
        {"name": "models", "mountPath": front_options.INSIDE, "subPath": front.tokenizer, "readOnly": True}
    ]
    if secret:
        mounts.append({"name": _VOLUME, "mountPath": front_options.KEYS_FOLDER, "readOnly": True})
    return {
        "name": "openai",
        "image": front.image,
        "imagePullPolicy": "IfNotPresent",
        "args": [literal(word) for word in front.command(LOOPBACK, keys=secret is not None)],
        "ports": [{"name": "openai", "containerPort": front_options.PORT}],
        # Its start has a time limit of its own, which must not end with a restart by the probe below.
        "startupProbe": {
            **_listens(),
            "periodSeconds": health.PERIOD_SECONDS,
            "failureThreshold": _START_SECONDS // health.PERIOD_SECONDS,
        },
        "readinessProbe": {
            "httpGet": {"path": front_options.HEALTH, "port": "openai"},
            "periodSeconds": health.PERIOD_SECONDS,
            "timeoutSeconds": health.READY_SECONDS,
            "failureThreshold": health.FAILURES,
        },
        # It waits for its server, and is not started again for that.
        "livenessProbe": {
            **_listens(),
            "periodSeconds": health.ALIVE_PERIOD_SECONDS,
            "failureThreshold": health.FAILURES,
        },
        "lifecycle": LEAVING,
        "securityContext": {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {"limits": {"memory": f"{front_options.MEMORY_MEBIBYTES}Mi"}},
        "volumeMounts": mounts,
    }


def _listens() -> dict[str, Any]:
    return {"tcpSocket": {"port": "openai"}}


def volume(secret: str) -> dict[str, Any]:
    """Return the volume with the file of API keys, the entry `api-keys` of the Secret."""
    return {"name": _VOLUME, "secret": {"secretName": secret}}
