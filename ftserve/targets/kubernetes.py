"""Deployments as a Kubernetes Deployment and Service, over several nodes as a LeaderWorkerSet.

Limits of locked memory and stack are the node's there: a pod cannot set them.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ftbuild import triton
from ftbuild.errors import ConfigError
from ftbuild.text.units import MIB
from ftserve import health, several_nodes
from ftserve.deployment import TMP, TMP_SIZE, Deployment
from ftserve.image_choice import USER
from ftserve.stored import FOLDER, Stored
from ftserve.targets import (
    kubernetes_front,
    kubernetes_nodes,
    kubernetes_operations,
    kubernetes_pods,
    yaml_text,
)
from ftserve.targets.kubernetes_pods import Pods, literal

_RIGHTS = {
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
# The resource name of NVIDIA's device plugin.
GPU = "nvidia.com/gpu"
# Half an hour to load a model before a pod counts as failed.
START_PROBES = 180
PROBE, PROBE_FOLDER = "probe.py", "/probe"
METRICS = "metrics"
_CLAIM = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
LONGEST_CLAIM = 253


@dataclass(frozen=True)
class Cluster:
    """What a cluster gives to a deployment, as a `Target`.

    The repository comes from a PersistentVolumeClaim, or from where it is `stored`, with the credentials of
    the Secret `storage_secret`, or without either from the same folder on every node.
    `secret` is the Secret with the API keys of the OpenAI front. With `max_replicas` an autoscaler decides
    between `replicas` and that number, by `pending` requests that wait in each pod. `isolated` closes the
    pods to other namespaces, but for the metrics to that of the `monitoring`, which gets a ServiceMonitor and
    a dashboard. `node_key` proves to the nodes of a group that a leader is its own. Raises ConfigError for
    names and numbers that cannot be.
    """

    claim: str | None = None
    replicas: int = 1
    secret: str | None = None
    max_replicas: int | None = None
    pending: int = kubernetes_operations.PENDING
    isolated: bool = False
    monitoring: str | None = None
    stored: Stored | None = None
    storage_secret: str | None = None
    pods: Pods = field(default_factory=Pods)
    node_key: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    name: ClassVar[str] = "k8s"

    def __post_init__(self) -> None:
        _require_name("--pvc", "a claim", self.claim)
        _require_name("--openai-secret", "a Secret", self.secret)
        _require_name("--storage-secret", "a Secret", self.storage_secret)
        if self.stored and self.claim:
            raise ConfigError("--pvc and --model-uri name the same thing", hint="leave one of them out")
        if self.isolated and self.stored and self.stored.fetcher:
            raise ConfigError(
                "--network-policy closes the way to the object storage, too",
                hint="a registry's models come through the node: invoke model-repo.push, or --pvc",
            )
        if self.storage_secret and not (self.stored and self.stored.fetcher):
            raise ConfigError("--storage-secret is for object storage", hint="--model-uri s3://BUCKET/PATH")
        if self.storage_secret and self.stored and self.stored.anonymous:
            raise ConfigError(
                "--storage-secret has credentials, and --storage-anonymous asks without any",
                hint="leave one of them out",
            )
        _require_name("--monitoring", "a namespace", self.monitoring)
        if self.replicas < 1:
            raise ConfigError(
                f"the number of replicas must be at least 1, not {self.replicas}", hint="check --replicas"
            )
        if self.max_replicas is not None and self.max_replicas < self.replicas:
            raise ConfigError(
                f"--max-replicas {self.max_replicas} is less than --replicas {self.replicas}",
                hint="an autoscaler starts from --replicas",
            )

    def files(self, deployment: Deployment) -> Mapping[str, str]:
        """Return the one file; ConfigError for what pods cannot have."""
        return {"manifests.yaml": render(deployment, self)}

    @property
    def several(self) -> bool:
        """Whether there may be more than one pod."""
        return max(self.replicas, self.max_replicas or 0) > 1


def render(deployment: Deployment, cluster: Cluster | None = None) -> str:
    """Return the text for `kubectl apply -f -`.

    The cluster chooses the GPUs of a pod: only their number counts.
    """
    cluster = cluster or Cluster()
    return yaml_text.dump(*map(cluster.pods.labelled, _documents(deployment, cluster)))


def _documents(deployment: Deployment, cluster: Cluster) -> Iterator[dict[str, Any]]:
    selected = labels(deployment)
    pods = _groups(deployment, cluster) if deployment.nodes > 1 else _deployment(deployment, cluster)
    yield pods
    yield _service(deployment)
    yield probe(deployment)
    if deployment.nodes > 1:
        yield kubernetes_nodes.secret(deployment.name, selected, cluster.node_key)
    if cluster.max_replicas is not None:
        limits = (cluster.replicas, cluster.max_replicas)
        yield kubernetes_operations.autoscaler(deployment.name, selected, pods, limits, cluster.pending)
    if cluster.several:
        yield kubernetes_operations.disruption_budget(deployment.name, selected)
    if cluster.isolated:
        answering = [name for name, _, _ in deployment.ports.published() if name != METRICS]
        policy = kubernetes_operations.network_policy(
            deployment.name, selected, answering, METRICS, cluster.monitoring
        )
        if deployment.nodes > 1:
            kubernetes_nodes.open_ways(policy)
        yield policy
    if cluster.monitoring:
        yield kubernetes_operations.service_monitor(deployment.name, selected, METRICS)
        yield kubernetes_operations.dashboard(selected, cluster.monitoring)


def _require_name(option: str, what: str, name: str | None) -> None:
    if name is not None and (len(name) > LONGEST_CLAIM or not _CLAIM.fullmatch(name)):
        raise ConfigError(
            f"{option} {name[:80]!r} is not the name of {what}",
            hint="lower-case letters, digits, dashes and dots (a DNS subdomain of RFC 1123)",
        )


def labels(deployment: Deployment) -> dict[str, str]:
    """Return the labels by which everything of a deployment is found."""
    return {"app.kubernetes.io/name": "triton", "app.kubernetes.io/instance": deployment.name}


def _replicas(cluster: Cluster) -> dict[str, int]:
    # Stated beside an autoscaler, applying the file again would reset the number.
    return {} if cluster.max_replicas else {"replicas": cluster.replicas}


def _groups(deployment: Deployment, cluster: Cluster) -> dict[str, Any]:
    server = kubernetes_nodes.knowing_its_group(deployment.name, _server(deployment))
    leader = kubernetes_nodes.leader(server, PROBE_FOLDER)
    worker = kubernetes_nodes.worker(server, PROBE_FOLDER)
    templates = (
        _pod(deployment, cluster, [leader, *_fronts(deployment, cluster)], kubernetes_nodes.LEADER),
        _pod(deployment, cluster, [worker], kubernetes_nodes.WORKER),
    )
    return kubernetes_nodes.leader_worker_set(
        deployment.name, labels(deployment), deployment.nodes, _replicas(cluster), templates
    )


def _deployment(deployment: Deployment, cluster: Cluster) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": deployment.name, "labels": labels(deployment)},
        "spec": {
            **_replicas(cluster),
            "strategy": kubernetes_pods.ROLLOUT,
            # Longer than the start probe allows, so that a failed start shows its own reason first.
            "progressDeadlineSeconds": (START_PROBES + 10) * health.PERIOD_SECONDS,
            "selector": {"matchLabels": labels(deployment)},
            "template": _pod(deployment, cluster, [_server(deployment), *_fronts(deployment, cluster)]),
        },
    }


def _fronts(deployment: Deployment, cluster: Cluster) -> list[dict[str, Any]]:
    return [kubernetes_front.container(deployment, cluster.secret)] if deployment.front else []


def _pod(
    deployment: Deployment,
    cluster: Cluster,
    containers: list[dict[str, Any]],
    role: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    uid, gid = USER
    secrets = [kubernetes_front.volume(cluster.secret)] if len(containers) > 1 and cluster.secret else []
    return {
        "metadata": {"labels": {**labels(deployment), **(role or {})}},
        "spec": {
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": uid,
                "runAsGroup": gid,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "automountServiceAccountToken": False,
            **kubernetes_pods.ENDING,
            **cluster.pods.spec(),
            **_fetching(cluster),
            "containers": [_finding(each, cluster.stored) for each in containers],
            "volumes": [
                {"name": "models", **_models(deployment, cluster)},
                *volumes(deployment),
                *secrets,
            ],
        },
    }


def _fetching(cluster: Cluster) -> dict[str, Any]:
    """Return the container that fetches the models before the others start, where one has to."""
    stored = cluster.stored
    if stored is None or not stored.fetcher:
        return {}
    container: dict[str, Any] = {
        "name": "fetch",
        "image": stored.fetcher,
        "imagePullPolicy": "IfNotPresent",
        "command": list(stored.entrypoint),
        "args": [literal(word) for word in stored.command],
        "env": _variables(stored.environment),
        "securityContext": _RIGHTS,
        "volumeMounts": [
            {"name": "models", "mountPath": triton.MODELS},
            {"name": "tmp", "mountPath": TMP},
        ],
    }
    if cluster.storage_secret:
        # One by one: a Secret must not decide what is fetched, nor by which proxy.
        secret = {"name": cluster.storage_secret, "optional": True}
        container["env"] += [
            {"name": name, "valueFrom": {"secretKeyRef": {**secret, "key": name}}}
            for name in stored.credentials
        ]
    return {"initContainers": [container]}


def _variables(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "value": literal(value)} for name, value in environment.items()]


def _finding(container: dict[str, Any], stored: Stored | None) -> dict[str, Any]:
    """Return a container that finds the models where an image has them: below a folder of it."""
    if stored is None or stored.image is None:
        return container
    mounts = [
        {**mount, "subPath": "/".join(filter(None, (FOLDER, mount.get("subPath"))))}
        if mount["name"] == "models"
        else mount
        for mount in container["volumeMounts"]
    ]
    return {**container, "volumeMounts": mounts}


def volumes(deployment: Deployment) -> list[dict[str, Any]]:
    """Return the volumes of a server's container but its models: all that it may write, and its probe."""

    def memory(name: str, mebibytes: int) -> dict[str, Any]:
        return {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": f"{mebibytes}Mi"}}

    return [
        memory("shared-memory", deployment.shared_mebibytes),
        memory("tmp", TMP_SIZE // MIB),
        {"name": "probe", "configMap": {"name": deployment.name}},
    ]


def _server(deployment: Deployment) -> dict[str, Any]:
    described = container(deployment)
    models = {"name": "models", "mountPath": triton.MODELS, "readOnly": True}
    return {"name": "triton", **described, "volumeMounts": [models, *described["volumeMounts"]]}


def container(deployment: Deployment) -> dict[str, Any]:
    """Return the container of a server without a name and without its models."""
    container: dict[str, Any] = {
        "image": deployment.image,
        "imagePullPolicy": "IfNotPresent",
        # `args` leaves the image's entrypoint in place, as `docker run` does.
        "args": [literal(word) for word in deployment.command],
        "ports": [
            {"name": name, "containerPort": inside} for name, _, inside in deployment.ports.endpoints()
        ],
        "startupProbe": {**_ready(), "failureThreshold": START_PROBES},
        "readinessProbe": {**_ready(), "failureThreshold": health.FAILURES},
        "livenessProbe": _alive(deployment),
        "lifecycle": kubernetes_pods.LEAVING,
        "securityContext": _RIGHTS,
        "volumeMounts": [
            {"name": "shared-memory", "mountPath": "/dev/shm"},
            {"name": "tmp", "mountPath": TMP},
            {"name": "probe", "mountPath": PROBE_FOLDER, "readOnly": True},
        ],
    }
    if deployment.environment:
        container["env"] = _variables(deployment.environment)
    limits: dict[str, Any] = {GPU: len(deployment.gpus)} if deployment.gpus else {}
    if deployment.memory is not None:
        limits["memory"] = f"{deployment.memory_mebibytes}Mi"
    if limits:
        container["resources"] = {"limits": limits}
    return container


def _ready() -> dict[str, Any]:
    return _command_probe(health.ready(), health.READY_SECONDS)


def _alive(deployment: Deployment) -> dict[str, Any]:
    """Return what restarts a pod: only one in which a request may take forever is not probed for a token."""
    seconds = health.alive_seconds(deployment)
    if seconds is None:
        probe = {"httpGet": {"path": triton.LIVE, "port": "http"}, "timeoutSeconds": health.SPARE_SECONDS}
    else:
        probe = _command_probe(["alive", str(seconds)], seconds)
    return {**probe, "periodSeconds": health.ALIVE_PERIOD_SECONDS, "failureThreshold": health.FAILURES}


def _command_probe(arguments: list[str], seconds: int) -> dict[str, Any]:
    return {
        "exec": {"command": ["python3", f"{PROBE_FOLDER}/{PROBE}", *arguments]},
        "periodSeconds": health.PERIOD_SECONDS,
        "timeoutSeconds": seconds + health.SPARE_SECONDS,
    }


def probe(deployment: Deployment) -> dict[str, Any]:
    """Return the ConfigMap with the program that probes run, and the one that starts several nodes."""
    nodes = {several_nodes.SCRIPT_NAME: several_nodes.SCRIPT} if deployment.nodes > 1 else {}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": deployment.name, "labels": labels(deployment)},
        "data": {PROBE: health.SCRIPT, **nodes},
    }


def _models(deployment: Deployment, cluster: Cluster) -> dict[str, Any]:
    if cluster.claim:
        return {"persistentVolumeClaim": {"claimName": cluster.claim, "readOnly": True}}
    if cluster.stored:
        image = cluster.stored.image
        # A volume of the type image is pulled by its digest, with the pod's secrets (KEP 4639).
        return {"image": {"reference": image, "pullPolicy": "IfNotPresent"}} if image else {"emptyDir": {}}
    if deployment.models is None:
        raise ConfigError(
            "a pod needs the model repository", hint="--model-repo DIR, --pvc NAME or --model-uri URI"
        )
    return {"hostPath": {"path": str(deployment.models), "type": "Directory"}}


def _service(deployment: Deployment) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": deployment.name, "labels": labels(deployment)},
        "spec": {
            "selector": {**labels(deployment), **(kubernetes_nodes.LEADER if deployment.nodes > 1 else {})},
            "ports": [
                {"name": name, "port": port, "targetPort": name}
                for name, port, _ in deployment.ports.published()
            ],
        },
    }
