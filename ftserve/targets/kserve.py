"""Deployments as a ServingRuntime and an InferenceService of KServe, which makes and scales the pods."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ftbuild import triton
from ftbuild.errors import ConfigError
from ftserve import stored
from ftserve.deployment import Deployment
from ftserve.image_choice import USER
from ftserve.targets import kubernetes, yaml_text
from ftserve.targets.kubernetes_pods import ENDING, ROLLOUT, Pods

FORMAT = "fastertransformer"
# KServe mounts what a storage URI names here (its docs, "Storage").
MODELS = "/mnt/models"
# KServe finds the server of a pod by this name.
CONTAINER = "kserve-container"
# A Service's name is a DNS label, of 63 characters; KServe's is that of the InferenceService and a suffix.
_LONGEST_NAME = 63 - len("-predictor")
_URI = re.compile(r"[a-z0-9]+://[^\s\"']+")


@dataclass(frozen=True)
class Service:
    """What KServe is to run, as a `Target`: where the models are, and how many pods there may be."""

    storage: str
    min_replicas: int = 1
    max_replicas: int = 1
    pods: Pods = field(default_factory=Pods)
    name: ClassVar[str] = "kserve"

    def __post_init__(self) -> None:
        if not _URI.fullmatch(self.storage):
            raise ConfigError(
                f"{self.storage[:80]!r} is not a storage URI of KServe",
                hint="--storage-uri pvc://CLAIM/FOLDER, s3://BUCKET/FOLDER, gs://BUCKET/FOLDER, oci://IMAGE@DIGEST",
            )
        if self.storage.startswith("oci://"):
            stored.parse(self.storage)
        if not 1 <= self.min_replicas <= self.max_replicas:
            raise ConfigError(
                f"no number of pods is from {self.min_replicas} to {self.max_replicas}",
                hint="--replicas of at least 1, and --max-replicas not below it",
            )

    def files(self, deployment: Deployment) -> Mapping[str, str]:
        """Return the one file; ConfigError for what KServe's pods cannot have."""
        return {"manifests.yaml": render(deployment, self)}


def render(deployment: Deployment, service: Service) -> str:
    """Return the text for `kubectl apply -f -`; ConfigError for what KServe's pods cannot have."""
    if deployment.front:
        raise ConfigError(
            "the OpenAI front has no place in KServe's pods", hint="invoke serve.k8s --openai, without KServe"
        )
    if len(deployment.name) > _LONGEST_NAME:
        raise ConfigError(
            f"--name {deployment.name} is too long for the Service that KServe makes",
            hint=f"at most {_LONGEST_NAME} characters",
        )
    labels = kubernetes.labels(deployment)
    documents = (
        kubernetes.probe(deployment),
        _runtime(deployment, labels),
        _service(deployment, labels, service),
    )
    return yaml_text.dump(*map(service.pods.labelled, documents))


def _runtime(deployment: Deployment, labels: dict[str, str]) -> dict[str, Any]:
    described = kubernetes.container(deployment)
    uid, gid = USER
    rights = {**described["securityContext"], "runAsNonRoot": True, "runAsUser": uid, "runAsGroup": gid}
    arguments = [word.replace(f"={triton.MODELS}", f"={MODELS}") for word in described["args"]]
    return {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "ServingRuntime",
        "metadata": {"name": deployment.name, "labels": labels},
        "spec": {
            "supportedModelFormats": [{"name": FORMAT, "version": "1", "autoSelect": False}],
            "protocolVersions": ["v2", "grpc-v2"],
            "multiModel": False,
            "containers": [{"name": CONTAINER, **described, "args": arguments, "securityContext": rights}],
            "volumes": kubernetes.volumes(deployment),
        },
    }


def _service(deployment: Deployment, labels: dict[str, str], service: Service) -> dict[str, Any]:
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": deployment.name,
            "labels": labels,
            # A Deployment of its own: a server that loads for minutes cannot be started by its first request.
            "annotations": {"serving.kserve.io/deploymentMode": "RawDeployment"},
        },
        "spec": {
            "predictor": {
                "minReplicas": service.min_replicas,
                "maxReplicas": service.max_replicas,
                "deploymentStrategy": ROLLOUT,
                "automountServiceAccountToken": False,
                **ENDING,
                **service.pods.spec(),
                "model": {
                    "modelFormat": {"name": FORMAT, "version": "1"},
                    "runtime": deployment.name,
                    "protocolVersion": "v2",
                    "storageUri": service.storage,
                },
            }
        },
    }
