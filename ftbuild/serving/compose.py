"""Deployments as Compose files (compose-spec.io, which has dropped `version:`)."""

from __future__ import annotations

from typing import Any

import yaml

from ftbuild import triton
from ftbuild.engine import gpu
from ftbuild.errors import ConfigError
from ftbuild.serving.deployment import Deployment

SERVICE = "triton"
# Models of tens of gigabytes take minutes to load; earlier failures do not count.
START_PERIOD = "15m"
# An image of Triton has python3 for its Python backend, and need not have curl.
_PROBE = (
    "from http.client import HTTPConnection as C; "
    f"c = C('127.0.0.1', {triton.HTTP_PORT}, timeout=5); c.request('GET', '{triton.READY}'); "
    "raise SystemExit(c.getresponse().status != 200)"
)


def render(deployment: Deployment) -> str:
    """Return the text of a `compose.yaml`, for `docker compose up --detach`."""
    return yaml.safe_dump(_literal(_project(deployment)), sort_keys=False, width=1000)


def _project(deployment: Deployment) -> dict[str, Any]:
    if deployment.models is None:
        raise ConfigError("Compose mounts a folder", hint="--model-repo DIR")
    service: dict[str, Any] = {
        "image": deployment.image,
        "command": list(deployment.command),
        "restart": "unless-stopped",
        "ports": [
            f"{deployment.ports.host}:{port}:{inside}" for _, port, inside in deployment.ports.published()
        ],
        "volumes": [
            {
                "type": "bind",
                "source": str(deployment.models),
                "target": triton.MODELS,
                "read_only": True,
                # The engine would create a missing folder and serve nothing.
                "bind": {"create_host_path": False},
            }
        ],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "shm_size": f"{deployment.shared_mebibytes}m",
        "healthcheck": {
            "test": ["CMD", "python3", "-c", _PROBE],
            "interval": "10s",
            "timeout": "10s",
            "retries": 3,
            "start_period": START_PERIOD,
        },
    }
    if deployment.environment:
        service["environment"] = dict(deployment.environment)
    if deployment.limits:
        service["ulimits"] = dict(deployment.limits)
    if deployment.gpus:
        device = {**gpu.selected(deployment.access, deployment.gpus), "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    return {"name": deployment.name, "services": {SERVICE: service}}


def _literal(value: Any) -> Any:
    """Return `value` with every `$` doubled, since Compose replaces variables in all strings."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, list):
        return [_literal(item) for item in value]
    return {key: _literal(item) for key, item in value.items()} if isinstance(value, dict) else value
