"""One model over several pods: a LeaderWorkerSet, whose groups have a leader with the endpoints, and workers.

Its controller (sigs.k8s.io/lws) names the pods, gives them LWS_LEADER_ADDRESS and LWS_WORKER_INDEX, and makes
a headless Service of its own name, so that the Service of the clients needs another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ftbuild.errors import ConfigError
from ftserve import node_group, several_nodes
from ftserve.targets.kubernetes_pods import ROLLOUT

KIND = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
_SUFFIX = "-nodes"
_ENTRY = "key"
# Of a pod's name, a DNS label, this is left after the numbers of group and worker, and after the hash that a
# StatefulSet puts behind its name in a label.
_LONGEST = 46
_ROLE = "app.kubernetes.io/component"
LEADER, WORKER = {_ROLE: "leader"}, {_ROLE: "worker"}


def name(deployment: str) -> str:
    """Return the name of the LeaderWorkerSet; ConfigError where its pods would have none."""
    if len(deployment) > _LONGEST - len(_SUFFIX):
        raise ConfigError(
            f"--name {deployment} is too long for the pods of several nodes",
            hint=f"at most {_LONGEST - len(_SUFFIX)} characters",
        )
    return deployment + _SUFFIX


def secret(deployment: str, labels: Mapping[str, str], key: str) -> dict[str, Any]:
    """Return the Secret with the key that only the nodes of a group share."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name(deployment), "labels": dict(labels)},
        "type": "Opaque",
        "stringData": {_ENTRY: key},
    }


def knowing_its_group(deployment: str, container: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container that has the key of its group; without the Secret it does not start."""
    source = {"secretKeyRef": {"name": name(deployment), "key": _ENTRY}}
    key = {"name": node_group.KEY, "valueFrom": source}
    return {**container, "env": [*container.get("env", ()), key]}


def leader(container: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Return the container that starts the others; `folder` has the program."""
    lead = ["python3", f"{folder}/{several_nodes.SCRIPT_NAME}", "lead", str(several_nodes.PORT)]
    ports = [*container["ports"], {"name": "nodes", "containerPort": several_nodes.PORT}]
    return {**container, "args": [*lead, *container["args"]], "ports": ports}


def worker(container: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Return the container that the leader starts; it serves no clients, so nothing can probe it."""
    kept = {key: value for key, value in container.items() if key != "ports" and not key.endswith("Probe")}
    leads = ["$(LWS_LEADER_ADDRESS)", str(several_nodes.PORT), "$(LWS_WORKER_INDEX)"]
    return {**kept, "args": ["python3", f"{folder}/{several_nodes.SCRIPT_NAME}", "follow", *leads]}


def leader_worker_set(
    deployment: str,
    labels: Mapping[str, str],
    size: int,
    replicas: Mapping[str, int],
    templates: tuple[Mapping[str, Any], Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the LeaderWorkerSet of groups of `size` pods; `templates` are those of leader and workers."""
    leads, works = templates
    return {
        **KIND,
        "metadata": {"name": name(deployment), "labels": dict(labels)},
        "spec": {
            **replicas,
            # The leader is ready only after its workers.
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {
                "type": ROLLOUT["type"],
                "rollingUpdateConfiguration": ROLLOUT["rollingUpdate"],
            },
            "leaderWorkerTemplate": {
                "size": size,
                # MPI cannot replace a rank: if one ends, all start again.
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": leads,
                "workerTemplate": works,
            },
        },
    }


def open_ways(policy: dict[str, Any]) -> None:
    """Let the pods of a NetworkPolicy reach each other, at any port: MPI and NCCL choose their ports.

    The workers find their leader by the cluster's DNS, wherever that runs.
    """
    spec = policy["spec"]
    own = [{"podSelector": spec["podSelector"]}]
    names = [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    spec["ingress"].append({"from": own})
    spec["egress"] += [{"to": own}, {"ports": names}]
