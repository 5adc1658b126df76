"""What keeps a deployment running in a cluster: scaling, disruptions, network, monitoring, and KServe."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ftbuild.errors import ConfigError
from ftserve.deployment import Deployment, Options, Ports, decide
from ftserve.front import limits
from ftserve.front_options import Front
from ftserve.image_choice import Image
from ftserve.requirements import Needs
from ftserve.targets import grafana, kserve, kubernetes, kubernetes_pods
from ftserve.targets.kubernetes import Cluster
from testing import ROOT, kubernetes_schemas

LABELS = {"app.kubernetes.io/name": "triton", "app.kubernetes.io/instance": "gpt"}


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    models = tmp_path / "models"
    models.mkdir()
    options = Options(models, (0,), Ports(18000, 18001, 18002), 2**30, "gpt")
    return decide(options, Needs(("fastertransformer",), ()), Image("triton_with_ft:22.12-sm80"), "gpu")


def documents(deployment: Deployment, **options: Any) -> dict[str, dict[str, Any]]:
    """The documents by their kinds; a dashboard's ConfigMap is not that of the probe."""
    found = list(yaml.safe_load_all(kubernetes.render(deployment, Cluster(**options))))
    return {
        each["kind"] + ("" if each["metadata"]["name"] == "gpt" else " of grafana"): each for each in found
    }


def test_nothing_is_added_that_was_not_asked_for(deployment: Deployment) -> None:
    assert list(documents(deployment)) == ["Deployment", "Service", "ConfigMap"]


def test_kubernetes_schema_accepts_all_of_it(deployment: Deployment) -> None:
    found = documents(deployment, max_replicas=4, isolated=True, monitoring="monitoring")
    own = found.pop("ServiceMonitor")
    assert own["apiVersion"] == "monitoring.coreos.com/v1"
    for document in found.values():
        kubernetes_schemas.require_accepted(document)


# Right values of labels that kubectl reads as true, as numbers or as a date where they stand bare.
@pytest.mark.parametrize(
    "value",
    ["y", "N", "1e3", "12_3e4", "08", "1E5", "0o17", "0X1F", "0B1", "2022-1-1", "yes", "1.5", "007"],
)
def test_a_label_is_a_text_for_kubectl_too(value: str, deployment: Deployment) -> None:
    pods = kubernetes_pods.parse(nodes=[f"gpu={value}"])
    written = kubernetes.render(deployment, Cluster(pods=pods))
    assert f"gpu: '{value}'\n" in written
    assert next(yaml.safe_load_all(written))["spec"]["template"]["spec"]["nodeSelector"] == {"gpu": value}


def test_an_autoscaler_owns_the_number_of_pods(deployment: Deployment) -> None:
    found = documents(deployment, replicas=2, max_replicas=6, pending=3)
    assert "replicas" not in found["Deployment"]["spec"]
    spec = found["HorizontalPodAutoscaler"]["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 6)
    assert spec["scaleTargetRef"]["name"] == found["Deployment"]["metadata"]["name"]
    (metric,) = spec["metrics"]
    assert metric["pods"]["target"] == {"type": "AverageValue", "averageValue": "3"}


@pytest.mark.parametrize(
    ("options", "there"), [({}, False), ({"replicas": 2}, True), ({"max_replicas": 2}, True)]
)
def test_a_drained_node_takes_one_pod_of_several(
    deployment: Deployment, options: dict[str, int], there: bool
) -> None:
    found = documents(deployment, **options)
    assert ("PodDisruptionBudget" in found) == there
    if there:
        spec = found["PodDisruptionBudget"]["spec"]
        assert spec == {"maxUnavailable": 1, "selector": {"matchLabels": LABELS}}


@pytest.mark.parametrize("monitoring", [None, "watch"])
def test_isolated_pods_answer_their_namespace_and_ask_nobody(
    deployment: Deployment, monitoring: str | None
) -> None:
    front = Front("front:1", "gpt", 50256, 1024, None)
    ports = replace(deployment.ports, openai=8003)
    found = documents(replace(deployment, front=front, ports=ports), isolated=True, monitoring=monitoring)
    spec = found["NetworkPolicy"]["spec"]
    pod = found["Deployment"]["spec"]["template"]
    assert spec["podSelector"]["matchLabels"] == pod["metadata"]["labels"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["egress"] == []
    models, metrics = spec["ingress"]
    assert models["from"] == [{"podSelector": {}}]
    answering = [port["port"] for rule in (models, metrics) for port in rule["ports"]]
    named = [port["name"] for each in pod["spec"]["containers"] for port in each["ports"]]
    assert sorted(answering) == sorted(named)
    (observer,) = metrics["from"]
    name = {"matchLabels": {"kubernetes.io/metadata.name": "watch"}}
    assert observer == ({"namespaceSelector": name} if monitoring else {"podSelector": {}})


def test_a_monitor_reads_the_port_of_the_service_that_has_the_metrics(deployment: Deployment) -> None:
    found = documents(deployment, monitoring="watch")
    spec = found["ServiceMonitor"]["spec"]
    assert spec["selector"]["matchLabels"] == found["Service"]["metadata"]["labels"]
    (endpoint,) = spec["endpoints"]
    assert endpoint["port"] in [port["name"] for port in found["Service"]["spec"]["ports"]]
    board = found["ConfigMap of grafana"]
    assert board["metadata"]["namespace"] == "watch"
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    (text,) = board["data"].values()
    assert json.loads(text) == grafana.dashboard()


def test_the_panels_of_the_dashboard_lie_beside_each_other() -> None:
    places = [panel["gridPos"] for panel in grafana.dashboard()["panels"]]
    taken = {(place["x"], place["y"]) for place in places}
    assert len(taken) == len(places)
    assert all(place["x"] + place["w"] <= 24 for place in places)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replicas": 0}, "at least 1, not 0"),
        ({"replicas": 3, "max_replicas": 2}, "--max-replicas 2 is less than --replicas 3"),
        ({"monitoring": "No Name"}, "--monitoring 'No Name' is not the name of a namespace"),
        ({"claim": "-"}, "--pvc '-' is not the name of a claim"),
    ],
)
def test_what_a_cluster_cannot_have_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Cluster(**options)


def test_kserve_runs_the_same_server_on_its_own_folder(deployment: Deployment) -> None:
    probe, runtime, service = yaml.safe_load_all(
        kserve.render(deployment, kserve.Service("pvc://models/gpt", 1, 3))
    )
    (container,) = runtime["spec"]["containers"]
    assert container["name"] == "kserve-container"
    assert container["args"][-1] == "--model-repository=/mnt/models"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    rights = container["securityContext"]
    assert (rights["runAsUser"], rights["readOnlyRootFilesystem"]) == (1000, True)
    assert rights["capabilities"] == {"drop": ["ALL"]}
    volumes = {volume["name"] for volume in runtime["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    assert probe["metadata"]["name"] in [
        v.get("configMap", {}).get("name") for v in runtime["spec"]["volumes"]
    ]
    predictor = service["spec"]["predictor"]
    assert (predictor["minReplicas"], predictor["maxReplicas"]) == (1, 3)
    model = predictor["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["storageUri"] == "pvc://models/gpt"
    assert model["modelFormat"]["name"] in [f["name"] for f in runtime["spec"]["supportedModelFormats"]]


@pytest.mark.parametrize(
    ("storage", "least", "most", "message"),
    [
        ("models/gpt", 1, 1, "is not a storage URI"),
        ("pvc://a b", 1, 1, "is not a storage URI"),
        ("", 1, 1, "is not a storage URI"),
        ("oci://registry.example.com/gptj:1", 1, 1, "has no digest"),
        ("pvc://a", 0, 1, "no number of pods is from 0 to 1"),
        ("pvc://a", 3, 2, "no number of pods is from 3 to 2"),
    ],
)
def test_what_kserve_cannot_run_is_refused(storage: str, least: int, most: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        kserve.Service(storage, least, most)


def test_a_name_leaves_room_for_what_kserve_puts_behind_it(deployment: Deployment) -> None:
    storage = kserve.Service("pvc://models")
    fits = replace(deployment, name="g" * (63 - len("-predictor")))
    assert f"name: {fits.name}\n" in kserve.render(fits, storage)
    with pytest.raises(ConfigError, match="too long for the Service that KServe makes") as refused:
        kserve.render(replace(fits, name=f"{fits.name}g"), storage)
    assert refused.value.hint == "at most 53 characters"


def test_no_update_waits_for_gpus_that_it_is_to_free(deployment: Deployment) -> None:
    rollout = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    assert documents(deployment)["Deployment"]["spec"]["strategy"] == rollout
    *_, service = yaml.safe_load_all(kserve.render(deployment, kserve.Service("pvc://models")))
    assert service["spec"]["predictor"]["deploymentStrategy"] == rollout


# Seconds that a server waits for its answers (tritonserver --exit-timeout-secs), and so the front, which then
# waits for calls whose clients have left.
SERVER, FRONT = 30, 30 + 20


def test_a_pod_that_ends_still_answers_what_comes_and_what_is_under_way(deployment: Deployment) -> None:
    front = Front("front:1", "gpt", 50256, 1024, None)
    for described in (deployment, replace(deployment, front=front)):
        pod = documents(described)["Deployment"]["spec"]["template"]["spec"]
        for container in pod["containers"]:
            program, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
            assert program == "sleep"
            assert pod["terminationGracePeriodSeconds"] - int(seconds) > max(SERVER, FRONT)
    _, runtime, service = yaml.safe_load_all(kserve.render(deployment, kserve.Service("pvc://models")))
    (container,) = runtime["spec"]["containers"]
    waits = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert service["spec"]["predictor"]["terminationGracePeriodSeconds"] - waits > SERVER


def test_a_front_that_takes_its_time_to_start_is_not_started_again(deployment: Deployment) -> None:
    front = Front("front:1", "gpt", 50256, 1024, None)
    pod = documents(replace(deployment, front=front))["Deployment"]["spec"]["template"]["spec"]
    (container,) = [each for each in pod["containers"] if each["name"] == "openai"]
    probe = container["startupProbe"]
    assert probe["tcpSocket"] == container["livenessProbe"]["tcpSocket"]
    # Its first process, itself, and those for requests load the tokenizer.
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 3 * limits.START_SECONDS


def test_kserves_pods_have_no_place_for_the_front(deployment: Deployment) -> None:
    front = Front("front:1", "gpt", 50256, 1024, None)
    with pytest.raises(ConfigError, match="no place in KServe's pods"):
        kserve.render(replace(deployment, front=front), kserve.Service("pvc://models"))


# Triton's own names (server r26.06 docs/user_guide/metrics.md).
METRICS = {
    "nv_cpu_memory_used_bytes",
    "nv_gpu_memory_total_bytes",
    "nv_gpu_memory_used_bytes",
    "nv_gpu_power_usage",
    "nv_gpu_utilization",
    "nv_inference_compute_infer_duration_us",
    "nv_inference_count",
    "nv_inference_pending_request_count",
    "nv_inference_queue_duration_us",
    "nv_inference_request_duration_us",
    "nv_inference_request_failure",
    "nv_inference_request_success",
}


def test_the_dashboard_shows_metrics_that_a_server_has() -> None:
    shown = re.findall(r"nv_\w+", json.dumps(grafana.dashboard()))
    assert set(shown) == METRICS


def test_the_dashboard_shows_all_metrics_of_requests_in_flight() -> None:
    named = r"\bft_inflight_[a-z_]+"
    (patch,) = (ROOT / "patches/backend").glob("0270-*.patch")
    assert set(re.findall(named, json.dumps(grafana.dashboard()))) == set(
        re.findall(named, patch.read_text())
    )
