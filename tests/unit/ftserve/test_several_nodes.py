"""One model over several nodes: what is refused, what is written, and how the nodes find each other."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ftbuild import triton
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftserve import deployment, node_group, several_nodes
from ftserve.deployment import Deployment, Options, Ports
from ftserve.front_options import Front
from ftserve.image_choice import Image
from ftserve.requirements import Needs, Weights
from ftserve.targets import apptainer, kubernetes
from ftserve.targets.kubernetes import Cluster
from testing import kubernetes_schemas
from testing.registries import free_port
from testing.waiting import listens, until
from tests.unit.ftserve.test_deployment import WEIGHTS

SECONDS = 100
SPREAD = replace(WEIGHTS, tensor_para=8, pipeline_para=2, split=(8,))
LABELS = {"app.kubernetes.io/name": "triton", "app.kubernetes.io/instance": "gpt"}


def decide(
    nodes: int = 2,
    weights: tuple[Weights, ...] = (SPREAD,),
    gpus: tuple[int, ...] | None = None,
    device: str = "gpu",
    name: str = "gpt",
    base: str | None = None,
) -> Deployment:
    options = Options(Path("/srv/models"), gpus, Ports(), 2**30, name, nodes=nodes)
    wanted = Needs(tuple(each.model for each in weights), weights)
    return deployment.decide(options, wanted, Image("triton_with_ft:22.12-sm80", base=base), device)


@pytest.fixture
def group() -> Deployment:
    return decide()


def documents(wanted: Deployment, **options: Any) -> dict[str, dict[str, Any]]:
    found = yaml.safe_load_all(kubernetes.render(wanted, Cluster(**options)))
    return {each["kind"]: each for each in found if each["metadata"]["name"].startswith("gpt")}


def test_each_node_has_an_equal_part_of_the_gpus() -> None:
    found = decide(4)
    assert found.gpus == (0, 1, 2, 3)
    place = found.command.index("mpirun")
    assert found.command[place : place + 3] == ("mpirun", "-n", "4")
    assert "localhost,node1,node2,node3" in found.command
    assert decide(2, gpus=(1, 2, 3, 4, 5, 6, 7, 8)).gpus == (1, 2, 3, 4, 5, 6, 7, 8)


def test_closed_apis_stay_closed_on_several_nodes() -> None:
    *_, script, _ = triton.command("2.51.0", 3)
    assert "mpirun -n 3 " in script
    assert "--http-restricted-api" in script


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "cpu"}, "computes on the CPU, in one process"),
        ({"weights": ()}, "one model, which must be known"),
        (
            {"weights": (SPREAD, replace(SPREAD, model="second"))},
            "one model of FasterTransformer, not fastertransformer, second",
        ),
        ({"weights": (replace(SPREAD, instances=2),)}, "2 instances over several nodes"),
        ({"base": "open-trixie"}, "need Open MPI 4, and the base open-trixie has 5"),
        ({"nodes": 3}, "is 16 GPUs, not a multiple of 3 nodes"),
        ({"nodes": 32}, "is 16 GPUs, not a multiple of 32 nodes"),
        ({"gpus": (0, 1)}, "2 nodes with 2 GPUs each, and .* is 16"),
        ({"weights": (replace(SPREAD, tensor_para=4),)}, "is 8 GPUs, which FasterTransformer expects in one"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        decide(**changes)
    assert caught.value.hint


def test_the_bases_with_another_daemon_are_those_whose_lock_has_open_mpi_5(config: Config) -> None:
    """On every architecture: a group would start and wait for its nodes for half an hour."""
    versions = {
        base: package.version
        for base, lock in config.debian_lock.bases.items()
        for package in lock.installed("serving")
        if package.name == "openmpi-bin"
    }
    assert set(versions) == {name for name, base in config.bases.bases.items() if base.local}
    newer = {base for base, version in versions.items() if int(version.partition(".")[0]) >= 5}
    assert newer == several_nodes.OTHER_DAEMON
    assert newer < set(versions)


def test_models_beside_the_one_of_fastertransformer_do_not_matter() -> None:
    options = Options(Path("/srv/models"), name="gpt", nodes=2)
    wanted = Needs(("ensemble", "fastertransformer", "preprocessing"), (SPREAD,))
    assert deployment.decide(options, wanted, Image("image:1"), "gpu").nodes == 2
    with pytest.raises(ConfigError, match="not none"):
        deployment.decide(options, Needs(("preprocessing",)), Image("image:1"), "gpu")


def test_one_node_is_what_it_was() -> None:
    assert decide(1) == deployment.decide(
        Options(Path("/srv/models"), None, Ports(), 2**30, "gpt"),
        Needs(("fastertransformer",), (SPREAD,)),
        Image("triton_with_ft:22.12-sm80"),
        "gpu",
    )
    assert list(documents(decide(1))) == ["Deployment", "Service", "ConfigMap"]
    assert "node_group" not in "".join(apptainer.render(decide(1)).values())


def test_kubernetes_schema_accepts_the_pods_and_what_is_beside_them(group: Deployment) -> None:
    """The schema of a LeaderWorkerSet is none of Kubernetes' own; its pods are those of any workload."""
    found = documents(group, replicas=2, max_replicas=4, isolated=True, monitoring="monitoring")
    found.pop("ServiceMonitor")
    pods = found.pop("LeaderWorkerSet")
    template = pods["spec"]["leaderWorkerTemplate"]
    for each in (template["leaderTemplate"], template["workerTemplate"]):
        workload = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": pods["metadata"],
            "spec": {"selector": {"matchLabels": LABELS}, "template": each},
        }
        kubernetes_schemas.require_accepted(workload)
    for document in found.values():
        kubernetes_schemas.require_accepted(document)


def test_the_pods_of_a_group_share_a_key_that_nobody_else_has(group: Deployment) -> None:
    """They follow no leader without it, whoever answers at its address."""
    found = documents(group)
    key = found["Secret"]["stringData"]["key"]
    assert len(bytes.fromhex(key)) == 32
    template = found["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
    for role in ("leaderTemplate", "workerTemplate"):
        (container,) = template[role]["spec"]["containers"]
        (entry,) = (each for each in container["env"] if each["name"] == node_group.KEY)
        source = entry["valueFrom"]["secretKeyRef"]
        assert source == {"name": found["Secret"]["metadata"]["name"], "key": "key"}
    assert key not in json.dumps([document for kind, document in found.items() if kind != "Secret"])
    assert documents(group)["Secret"]["stringData"]["key"] != key
    assert "Secret" not in documents(decide(1))
    assert key not in repr(kubernetes.Cluster(node_key=key))


def test_a_group_starts_and_ends_as_one(group: Deployment) -> None:
    pods = documents(group, replicas=3)["LeaderWorkerSet"]
    assert pods["apiVersion"] == "leaderworkerset.x-k8s.io/v1"
    spec = pods["spec"]
    assert (spec["replicas"], spec["startupPolicy"]) == (3, "LeaderCreated")
    template = spec["leaderWorkerTemplate"]
    assert (template["size"], template["restartPolicy"]) == (2, "RecreateGroupOnPodRestart")


def test_clients_and_probes_reach_the_leader_alone(group: Deployment) -> None:
    found = documents(group)
    template = found["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
    leader, worker = template["leaderTemplate"], template["workerTemplate"]
    selected = found["Service"]["spec"]["selector"].items()
    assert selected <= leader["metadata"]["labels"].items()
    assert not selected <= worker["metadata"]["labels"].items()
    (leads,), (works,) = leader["spec"]["containers"], worker["spec"]["containers"]
    assert {"startupProbe", "readinessProbe", "livenessProbe", "ports"} <= set(leads)
    differ = {key for key in {*leads, *works} if leads.get(key) != works.get(key)}
    assert differ == {"args", "startupProbe", "readinessProbe", "livenessProbe", "ports"}
    assert leader["spec"]["volumes"] == worker["spec"]["volumes"]


def test_the_service_of_the_clients_is_not_the_controllers(group: Deployment) -> None:
    """The controller makes a headless Service of the set's name, unless there is one of that name."""
    found = documents(group)
    assert found["Service"]["metadata"]["name"] == "gpt"
    assert found["LeaderWorkerSet"]["metadata"]["name"] == "gpt-nodes"


def test_a_name_leaves_room_for_the_numbers_of_the_pods() -> None:
    assert documents(decide(name="gpt" + "x" * 37))
    with pytest.raises(ConfigError, match="too long for the pods"):
        kubernetes.render(decide(name="gpt" + "x" * 38))


def test_the_front_is_beside_the_leader(group: Deployment) -> None:
    front = Front("front:1", "gpt", 50256, 1024, None)
    found = documents(replace(group, front=front, ports=replace(group.ports, openai=8003)), secret="keys")
    template = found["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
    names = {
        kind: [each["name"] for each in template[f"{kind}Template"]["spec"]["containers"]]
        for kind in ("leader", "worker")
    }
    assert names == {"leader": ["triton", "openai"], "worker": ["triton"]}
    keys = {kind: "keys" in str(template[f"{kind}Template"]["spec"]["volumes"]) for kind in names}
    assert keys == {"leader": True, "worker": False}


def test_an_autoscaler_scales_groups(group: Deployment) -> None:
    found = documents(group, max_replicas=4)
    assert "replicas" not in found["LeaderWorkerSet"]["spec"]
    target = found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert target == {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "name": "gpt-nodes",
    }


def test_closed_pods_reach_each_other_and_names_only(group: Deployment) -> None:
    spec = documents(group, isolated=True)["NetworkPolicy"]["spec"]
    own = [{"podSelector": {"matchLabels": LABELS}}]
    assert spec["ingress"][-1] == {"from": own}
    members, names = spec["egress"]
    assert members == {"to": own}
    assert {(port["port"], port["protocol"]) for port in names["ports"]} == {(53, "UDP"), (53, "TCP")}


# mpirun in this test: it asks its remote shell for a daemon on node1, and lives as long as it is told.
MPIRUN = """\
$OMPI_MCA_plm_rsh_agent node1 '( test ! -r ./.profile || . ./.profile; {daemon} -mca uri "7.0;tcp://[::]:1" )'
{then}
"""
ORTED = '#!/bin/sh\nprintf "%s\\n" "$@" > "$SAID"\n'
Program = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """Start node_group.py as images have it, with a daemon that writes down its arguments."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/orted").write_text(ORTED)
    (tmp_path / "bin/orted").chmod(0o755)
    script = tmp_path / "node_group.py"
    script.write_text(Path(node_group.__file__).read_text())
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: object, **environment: str) -> subprocess.Popen[str]:
        path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
        started.append(
            subprocess.Popen(
                [sys.executable, "-I", str(script), *map(str, arguments)],
                env={"PATH": path, "SAID": str(tmp_path / "said"), "TMPDIR": str(tmp_path), **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                text=True,
            )
        )
        return started[-1]

    yield run
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def lead(program: Program, port: int, then: str, daemon: str = "orted", **environment: str) -> Any:
    return program("lead", port, "sh", "-c", MPIRUN.format(then=then, daemon=daemon), **environment)


@pytest.mark.parametrize("first", ["lead", "follow"])
def test_a_node_becomes_the_daemon_that_mpirun_wants_there(
    program: Program, tmp_path: Path, first: str
) -> None:
    port = free_port()
    if first == "lead":
        leader = lead(program, port, "while ! test -e $SAID; do sleep 0.1; done")
        follower = program("follow", "localhost", port, 1)
    else:
        follower = program("follow", "localhost", port, 1)
        time.sleep(1.5)
        leader = lead(program, port, "while ! test -e $SAID; do sleep 0.1; done")
    assert follower.wait(SECONDS) == 0
    assert leader.wait(SECONDS) == 0
    said = (tmp_path / "said").read_text().splitlines()
    assert said == ["-mca", "uri", "7.0;tcp://[::]:1"]


@pytest.mark.parametrize(("then", "code"), [("exit 86", 86), ("kill -KILL $$", 137), ("exit 0", 0)])
def test_the_leader_ends_as_mpirun_does(program: Program, then: str, code: int) -> None:
    assert lead(program, free_port(), then).wait(SECONDS) == code


def test_the_leader_passes_on_that_it_shall_end(program: Program, tmp_path: Path) -> None:
    process = lead(
        program, free_port(), f"trap 'exit 7' TERM; touch {tmp_path}/up; while :; do sleep 0.1; done"
    )
    assert until((tmp_path / "up").exists, SECONDS)
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS) == 7


@pytest.mark.parametrize(
    ("key", "daemon", "starts"), [("other", "orted", False), ("own", "prted", False), ("own", "orted", True)]
)
def test_a_node_believes_the_leader_of_its_group_alone(
    program: Program, tmp_path: Path, key: str, daemon: str, starts: bool
) -> None:
    port = free_port()
    lead(program, port, "sleep 100", daemon, NODE_GROUP_KEY=key)
    follower = program("follow", "localhost", port, 1, NODE_GROUP_KEY="own")
    if starts:
        assert follower.wait(SECONDS) == 0
        return
    with pytest.raises(subprocess.TimeoutExpired):
        follower.wait(4)
    assert not (tmp_path / "said").exists()


def test_a_port_that_is_taken_is_named(program: Program) -> None:
    port = free_port()
    lead(program, port, "sleep 100")
    assert until(lambda: listens("localhost", port))
    second = lead(program, port, "sleep 100")
    said, _ = second.communicate(timeout=SECONDS)
    assert second.returncode == 1
    assert said.startswith(f"port {port} for the other nodes: ")


def test_only_daemons_are_handed_out(program: Program, tmp_path: Path) -> None:
    """Neither files beside them, nor anything for a node that mpirun has not asked for."""
    port = free_port()
    lead(program, port, f"touch {tmp_path}/up; sleep 100")
    assert until((tmp_path / "up").exists, SECONDS)
    found = {}
    for path in (
        "/node1",
        "/node2",
        "/",
        "/..",
        "/../node1",
        "/node1/..",
        "/.node1",
        "/etc/passwd",
        "//etc/passwd",
    ):
        connection = http.client.HTTPConnection("localhost", port, timeout=60)
        connection.request("GET", path)
        found[path] = connection.getresponse().status
        connection.close()
    assert {path for path, status in found.items() if status == 200} == {"/node1"}
