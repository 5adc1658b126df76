"""What keeps a deployment running in a Kubernetes cluster: scaling, disruptions, network, monitoring.

A ServiceMonitor is of the Prometheus operator; the ConfigMap with a dashboard is what the sidecar of Grafana
looks for. An autoscaler needs the metric of the queue as one of pods, for instance by prometheus-adapter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ftserve.targets import grafana

# Requests that wait in a pod; more of them in each pod are answered sooner by another one.
PENDING = 8
SCRAPE_SECONDS = 15
# A new pod loads its model for minutes: one that is not needed now may be, soon.
_CALM_SECONDS = 600


def autoscaler(
    name: str, labels: dict[str, str], scaled: Mapping[str, Any], replicas: tuple[int, int], pending: int
) -> dict[str, Any]:
    """Return the HorizontalPodAutoscaler of a `scaled` document, between minimum and maximum `replicas`.

    `pending` is the number of waiting requests for each pod that it aims at.
    """
    low, high = replicas
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "scaleTargetRef": {
                "apiVersion": scaled["apiVersion"],
                "kind": scaled["kind"],
                "name": scaled["metadata"]["name"],
            },
            "minReplicas": low,
            "maxReplicas": high,
            "metrics": [
                {
                    "type": "Pods",
                    "pods": {
                        "metric": {"name": grafana.QUEUE},
                        "target": {"type": "AverageValue", "averageValue": str(pending)},
                    },
                }
            ],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": _CALM_SECONDS}},
        },
    }


def disruption_budget(name: str, labels: dict[str, str]) -> dict[str, Any]:
    """Return the PodDisruptionBudget that lets a drained node take one pod at a time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "labels": labels},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}},
    }


def network_policy(
    name: str, labels: dict[str, str], answering: Sequence[str], metrics: str, monitoring: str | None
) -> dict[str, Any]:
    """Return the NetworkPolicy of pods that accept connections from their own namespace, and open none.

    `answering` and `metrics` name ports. The metrics are for the namespace `monitoring`, without one for
    their own.
    """
    own: dict[str, Any] = {"podSelector": {}}
    observer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": monitoring}}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "podSelector": {"matchLabels": labels},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [
                {"from": [own], "ports": [{"port": port} for port in answering]},
                {"from": [observer if monitoring else own], "ports": [{"port": metrics}]},
            ],
            "egress": [],
        },
    }


def service_monitor(name: str, labels: dict[str, str], port: str) -> dict[str, Any]:
    """Return the ServiceMonitor of the metrics, at this port of the Service."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "endpoints": [{"port": port, "interval": f"{SCRAPE_SECONDS}s"}],
        },
    }


def dashboard(labels: dict[str, str], namespace: str) -> dict[str, Any]:
    """Return the ConfigMap with the dashboard, in the namespace of the monitoring; one serves all servers."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": grafana.UID,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/name": labels["app.kubernetes.io/name"], "grafana_dashboard": "1"},
        },
        "data": dict(grafana.Dashboard().files()),
    }
