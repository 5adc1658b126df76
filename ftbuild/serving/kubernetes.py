"""Deployments as a Kubernetes Deployment and Service.

Limits of locked memory and stack are the node's there: a pod cannot set them.
"""

from __future__ import annotations

import re
from typing import Any

from ftbuild import triton
from ftbuild.errors import ConfigError
from ftbuild.serving import health, yaml_text
from ftbuild.serving.deployment import MIB, TMP, TMP_SIZE, Deployment
from ftbuild.serving.image_choice import USER

# The resource name of NVIDIA's device plugin.
GPU = "nvidia.com/gpu"
# Half an hour to load a model before a pod counts as failed.
START_PROBES = 180
PROBE, PROBE_FOLDER = "probe.py", "/probe"
_CLAIM = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
LONGEST_CLAIM = 253


def render(deployment: Deployment, *, claim: str | None = None, replicas: int = 1) -> str:
    """Return the text for `kubectl apply -f -`.

    The repository comes from a PersistentVolumeClaim, or without `claim` from the same folder on every node.
    The cluster chooses the GPUs of a pod: only their number counts.
    """
    if claim is not None and (len(claim) > LONGEST_CLAIM or not _CLAIM.fullmatch(claim)):
        raise ConfigError(
            f"--pvc {claim[:80]!r} is not the name of a claim",
            hint="lower-case letters, digits, dashes and dots (a DNS subdomain of RFC 1123)",
        )
    if replicas < 1:
        raise ConfigError(
            f"the number of replicas must be at least 1, not {replicas}", hint="check --replicas"
        )
    return yaml_text.dump(
        _deployment(deployment, _models(deployment, claim), replicas),
        _service(deployment),
        _probe(deployment),
    )


def _labels(deployment: Deployment) -> dict[str, str]:
    return {"app.kubernetes.io/name": "triton", "app.kubernetes.io/instance": deployment.name}


def _deployment(deployment: Deployment, models: dict[str, Any], replicas: int) -> dict[str, Any]:
    uid, gid = USER
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": deployment.name, "labels": _labels(deployment)},
        "spec": {
            "replicas": replicas,
            # A new pod would wait for the GPUs of the old one.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            # Longer than the start probe allows, so that a failed start shows its own reason first.
            "progressDeadlineSeconds": (START_PROBES + 10) * health.PERIOD_SECONDS,
            "selector": {"matchLabels": _labels(deployment)},
            "template": {
                "metadata": {"labels": _labels(deployment)},
                "spec": {
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": uid,
                        "runAsGroup": gid,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "automountServiceAccountToken": False,
                    "containers": [_container(deployment)],
                    "volumes": [
                        {"name": "models", **models},
                        {
                            "name": "shared-memory",
                            "emptyDir": {
                                "medium": "Memory",
                                "sizeLimit": f"{deployment.shared_mebibytes}Mi",
                            },
                        },
                        {
                            "name": "tmp",
                            "emptyDir": {"medium": "Memory", "sizeLimit": f"{TMP_SIZE // MIB}Mi"},
                        },
                        {"name": "probe", "configMap": {"name": deployment.name}},
                    ],
                },
            },
        },
    }


def _container(deployment: Deployment) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "triton",
        "image": deployment.image,
        "imagePullPolicy": "IfNotPresent",
        # `args` leaves the image's entrypoint in place, as `docker run` does.
        "args": list(deployment.command),
        "ports": [
            {"name": name, "containerPort": inside} for name, _, inside in deployment.ports.published()
        ],
        "startupProbe": {**_ready(), "failureThreshold": START_PROBES},
        "readinessProbe": {**_ready(), "failureThreshold": health.FAILURES},
        "livenessProbe": _alive(deployment),
        "securityContext": {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "models", "mountPath": triton.MODELS, "readOnly": True},
            {"name": "shared-memory", "mountPath": "/dev/shm"},
            {"name": "tmp", "mountPath": TMP},
            {"name": "probe", "mountPath": PROBE_FOLDER, "readOnly": True},
        ],
    }
    if deployment.environment:
        container["env"] = [{"name": name, "value": value} for name, value in deployment.environment.items()]
    limits: dict[str, Any] = {GPU: len(deployment.gpus)} if deployment.gpus else {}
    if deployment.memory is not None:
        limits["memory"] = f"{deployment.memory_mebibytes}Mi"
    if limits:
        container["resources"] = {"limits": limits}
    return container


def _ready() -> dict[str, Any]:
    return _asked(health.ready(), health.READY_SECONDS)


def _alive(deployment: Deployment) -> dict[str, Any]:
    """Return what restarts a pod: only one in which a request may take forever is not asked for a token."""
    seconds = health.alive_seconds(deployment)
    if seconds is None:
        asked = {"httpGet": {"path": triton.LIVE, "port": "http"}, "timeoutSeconds": health.SPARE_SECONDS}
    else:
        asked = _asked(["alive", str(seconds)], seconds)
    return {**asked, "periodSeconds": health.ALIVE_PERIOD_SECONDS, "failureThreshold": health.FAILURES}


def _asked(arguments: list[str], seconds: int) -> dict[str, Any]:
    return {
        "exec": {"command": ["python3", f"{PROBE_FOLDER}/{PROBE}", *arguments]},
        "periodSeconds": health.PERIOD_SECONDS,
        "timeoutSeconds": seconds + health.SPARE_SECONDS,
    }


def _probe(deployment: Deployment) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": deployment.name, "labels": _labels(deployment)},
        "data": {PROBE: health.SCRIPT},
    }


def _models(deployment: Deployment, claim: str | None) -> dict[str, Any]:
    if claim:
        return {"persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
    if deployment.models is None:
        raise ConfigError("a pod needs the model repository", hint="--model-repo DIR or --pvc NAME")
    return {"hostPath": {"path": str(deployment.models), "type": "Directory"}}


def _service(deployment: Deployment) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": deployment.name, "labels": _labels(deployment)},
        "spec": {
            "selector": _labels(deployment),
            "ports": [
                {"name": name, "port": port, "targetPort": name}
                for name, port, _ in deployment.ports.published()
            ],
        },
    }
