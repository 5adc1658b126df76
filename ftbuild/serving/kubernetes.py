"""Deployments as a Kubernetes Deployment and Service.

Limits of locked memory and stack are the node's there: a pod cannot set them.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from ftbuild import triton
from ftbuild.errors import ConfigError
from ftbuild.serving.deployment import Deployment
from ftbuild.serving.image_choice import USER

# The resource name of NVIDIA's device plugin.
GPU = "nvidia.com/gpu"
PROBE_SECONDS = 10
# Half an hour to load a model before a pod counts as failed.
START_PROBES = 180
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
    documents = [_deployment(deployment, _models(deployment, claim), replicas), _service(deployment)]
    return yaml.safe_dump_all(documents, sort_keys=False)


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
            "progressDeadlineSeconds": (START_PROBES + 10) * PROBE_SECONDS,
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
        "startupProbe": {**_probe(triton.READY), "failureThreshold": START_PROBES},
        "readinessProbe": _probe(triton.READY),
        "livenessProbe": {**_probe(triton.LIVE), "failureThreshold": 6},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": "models", "mountPath": triton.MODELS, "readOnly": True},
            {"name": "shared-memory", "mountPath": "/dev/shm"},
        ],
    }
    if deployment.environment:
        container["env"] = [{"name": name, "value": value} for name, value in deployment.environment.items()]
    if deployment.gpus:
        container["resources"] = {"limits": {GPU: len(deployment.gpus)}}
    return container


def _probe(path: str) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": PROBE_SECONDS,
        "timeoutSeconds": 5,
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
