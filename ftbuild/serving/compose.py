"""Deployments as Compose files (compose-spec.io, which has dropped `version:`)."""

from __future__ import annotations

from typing import Any

from ftbuild import triton
from ftbuild.engine import gpu
from ftbuild.errors import ConfigError
from ftbuild.serving import health, yaml_text
from ftbuild.serving.deployment import MIB, PROCESSES, TMP, TMP_SIZE, Deployment

SERVICE = "triton"
# Models of tens of gigabytes take minutes to load; earlier failures do not count.
START_PERIOD = "15m"


def render(deployment: Deployment) -> str:
    """Return the text of a `compose.yaml`, for `docker compose up --detach`."""
    return yaml_text.dump(_literal(_project(deployment)))


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
        "read_only": True,
        "tmpfs": [f"{TMP}:size={TMP_SIZE // MIB}m"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "pids_limit": PROCESSES,
        "shm_size": f"{deployment.shared_mebibytes}m",
        "healthcheck": {
            # No file: Compose cannot put one into a container whose root is read-only.
            "test": ["CMD", "python3", "-c", health.SCRIPT, *health.ready()],
            "interval": f"{health.PERIOD_SECONDS}s",
            "timeout": f"{health.READY_SECONDS + health.SPARE_SECONDS}s",
            "retries": health.FAILURES,
            "start_period": START_PERIOD,
        },
    }
    if deployment.memory is not None:
        service["mem_limit"] = f"{deployment.memory_mebibytes}m"
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
