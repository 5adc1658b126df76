"""Deployments as Compose files (compose-spec.io, which has dropped `version:`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ftbuild import triton
from ftbuild.engine import gpu
from ftbuild.errors import ConfigError
from ftbuild.text.units import MIB
from ftserve import front_options, health
from ftserve.deployment import PROCESSES, TMP, TMP_SIZE, Deployment
from ftserve.front_options import Front
from ftserve.stored import Stored
from ftserve.targets import yaml_text

SERVICE, FRONT_SERVICE = "triton", "openai"
# The service that fetches models, and the volume that they are fetched into.
FETCH, MODELS = "fetch", "models"
_ASK = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=20)"
# Models of tens of gigabytes take minutes to load; earlier failures do not count.
START_PERIOD = "15m"


@dataclass(frozen=True)
class Compose:
    """Docker Compose on one machine, as a `Target`; what is `stored` in object storage is fetched first."""

    stored: Stored | None = None
    name: ClassVar[str] = "compose"

    def files(self, deployment: Deployment) -> Mapping[str, str]:
        """Return the one file; ConfigError for models that Compose cannot have."""
        return {"compose.yaml": render(deployment, self.stored)}


def render(deployment: Deployment, stored: Stored | None = None) -> str:
    """Return the text of a `compose.yaml`, for `docker compose up --detach`.

    What is `stored` in object storage is fetched into a volume by a service that ends before the server
    starts.
    """
    if stored is None and deployment.models is None:
        raise ConfigError("Compose mounts a folder", hint="--model-repo DIR, or --model-uri s3://BUCKET/PATH")
    if stored and stored.image:
        raise ConfigError(
            "Compose mounts no models from a registry",
            hint="invoke model-repo.pull fetches them into a folder, for --model-repo",
        )
    if stored and deployment.front:
        raise ConfigError("the OpenAI front needs the tokenizer in a folder", hint="--model-repo DIR alone")
    project = _project(deployment)
    return yaml_text.dump(_literal(_fetched(project, stored) if stored else project))


def _fetched(project: dict[str, Any], stored: Stored) -> dict[str, Any]:
    """Return the project with a service that fetches the models, and a volume for them."""
    server = project["services"][SERVICE]
    server["volumes"] = [{"type": "volume", "source": MODELS, "target": triton.MODELS, "read_only": True}]
    server["depends_on"] = {FETCH: {"condition": "service_completed_successfully"}}
    fetch = {
        "image": stored.fetcher,
        "entrypoint": list(stored.entrypoint),
        "command": list(stored.command),
        # Those without a value are taken from the shell that starts it.
        "environment": {**stored.environment, **dict.fromkeys(stored.credentials)},
        "volumes": [{"type": "volume", "source": MODELS, "target": triton.MODELS}],
        "read_only": True,
        "tmpfs": [f"{TMP}:size={TMP_SIZE // MIB}m"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
    }
    return {**project, "services": {FETCH: fetch, **project["services"]}, "volumes": {MODELS: {}}}


def _project(deployment: Deployment) -> dict[str, Any]:
    service: dict[str, Any] = {
        "image": deployment.image,
        "command": list(deployment.command),
        "restart": "unless-stopped",
        "ports": [
            f"{deployment.ports.host}:{port}:{inside}" for _, port, inside in deployment.ports.endpoints()
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
        "stop_grace_period": f"{health.STOP_SECONDS}s",
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
    services = {SERVICE: service}
    if deployment.front:
        services[FRONT_SERVICE] = _front(deployment, deployment.front)
    return {"name": deployment.name, "services": services}


def _front(deployment: Deployment, front: Front) -> dict[str, Any]:
    """Return the OpenAI front, which finds the server by the name of its service."""
    assert deployment.models is not None
    mounted = {front_options.INSIDE: deployment.models / front.tokenizer}
    mounted |= {front_options.KEYS: front.keys} if front.keys else {}
    health_url = f"http://127.0.0.1:{front_options.PORT}{front_options.HEALTH}"
    return {
        "image": front.image,
        "command": front.command(SERVICE, keys=front.keys is not None),
        "restart": "unless-stopped",
        "depends_on": [SERVICE],
        "ports": [f"{deployment.ports.host}:{deployment.ports.openai}:{front_options.PORT}"],
        "volumes": [
            {
                "type": "bind",
                "source": str(source),
                "target": target,
                "read_only": True,
                "bind": {"create_host_path": False},
            }
            for target, source in mounted.items()
        ],
        "read_only": True,
        "tmpfs": [f"{TMP}:size={TMP_SIZE // MIB}m"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "pids_limit": front_options.PROCESSES,
        "mem_limit": f"{front_options.MEMORY_MEBIBYTES}m",
        "stop_grace_period": f"{health.STOP_SECONDS}s",
        "healthcheck": {
            "test": ["CMD", "python3", "-c", _ASK, health_url],
            "interval": f"{health.PERIOD_SECONDS}s",
            "timeout": f"{health.READY_SECONDS}s",
            "retries": health.FAILURES,
            "start_period": START_PERIOD,
        },
    }


def _literal(value: Any) -> Any:
    """Return `value` with every `$` doubled, since Compose replaces variables in all strings."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, list):
        return [_literal(item) for item in value]
    return {key: _literal(item) for key, item in value.items()} if isinstance(value, dict) else value
