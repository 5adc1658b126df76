"""Several nodes for one model: containers with a network of their own, as the pods of a LeaderWorkerSet."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from ftbuild import triton
from ftserve.deployment import PROCESSES, Deployment
from ftserve.image_choice import Image
from ftserve.targets import kubernetes
from ftserve.targets.confined import Confined
from testing.serving import RIGHT, answer, open_to_all
from testing.waiting import until

if TYPE_CHECKING:
    import docker
    from docker.models.containers import Container

SECONDS = 60
# Rank 0 broadcasts its container's name; then a rank named by the argument ends, and the others wait for it.
_RANK = """\
import ctypes, os, socket, sys, time

mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
world = ctypes.c_void_p(ctypes.addressof(ctypes.c_byte.in_dll(mpi, "ompi_mpi_comm_world")))
byte = ctypes.c_void_p(ctypes.addressof(ctypes.c_byte.in_dll(mpi, "ompi_mpi_byte")))
rank, size, text = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(100)
mpi.MPI_Init(None, None)
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Comm_size(world, ctypes.byref(size))
if rank.value == 0:
    text.value = socket.gethostname().encode()
mpi.MPI_Bcast(text, 100, byte, 0, world)
print(f"{rank.value} of {size.value} on {socket.gethostname()} has heard {text.value.decode()}", flush=True)
if sys.argv[1:] == [str(rank.value)]:
    os._exit(86)
if sys.argv[1:]:
    mpi.MPI_Barrier(world)
    time.sleep(1000)
mpi.MPI_Finalize()
"""
Start = Callable[..., list["Container"]]


@pytest.fixture
def start(
    client: docker.DockerClient, wanted: Deployment, sample_image: Image, tmp_path: Path
) -> Iterator[Start]:
    """Start the containers of a group of three pods, as Kubernetes would; the leader comes last."""
    network = client.networks.create(wanted.name)
    folder = tmp_path / "probe"

    def run(*program: str) -> list[Container]:
        command = triton.command(sample_image.server, 3)
        if program:
            plain = triton.command(None, 3)
            command = (*plain[: plain.index("tritonserver")], *program)
        rendered = yaml.safe_load_all(kubernetes.render(replace(wanted, nodes=3, command=command)))
        objects = {each["kind"]: each for each in rendered}
        folder.mkdir()
        for name, text in {**objects["ConfigMap"]["data"], "rank.py": _RANK}.items():
            (folder / name).write_text(text)
        open_to_all(folder)
        templates = objects["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
        leader, worker = (
            templates[f"{kind}Template"]["spec"]["containers"][0]["args"] for kind in ("leader", "worker")
        )
        return [member(worker if rank else leader, rank) for rank in (2, 1, 0)][::-1]

    def member(arguments: list[str], rank: int) -> Container:
        given = {"$(LWS_LEADER_ADDRESS)": f"{wanted.name}-0", "$(LWS_WORKER_INDEX)": str(rank)}
        confined = Confined(
            what="the pod",
            name=f"{wanted.name}-{rank}",
            image=wanted.image,
            # As the kubelet does: $(NAME) is a variable, and $$ a dollar sign.
            command=[given.get(word, word.replace("$$", "$")) for word in arguments],
            labels={},
            mounts={triton.MODELS: str(wanted.models), kubernetes.PROBE_FOLDER: str(folder)},
            processes=PROCESSES,
            memory=None,
        )
        own: dict[str, Any] = (
            {} if rank else {"ports": {f"{triton.HTTP_PORT}/tcp": ("127.0.0.1", wanted.ports.http)}}
        )
        return confined.start(client, network=network.name, **own)

    yield run
    for left in client.containers.list(all=True, filters={"name": wanted.name}, ignore_removed=True):
        left.remove(force=True)
    network.remove()


def in_time(succeeds: Callable[[], bool], pods: list[Container]) -> None:
    """Wait until something succeeds; until then it may fail in any way."""

    def so() -> bool:
        with contextlib.suppress(Exception):
            return succeeds()
        return False

    assert until(so, SECONDS, pause=0.5), b"\n".join(pod.logs() for pod in pods).decode()


def codes(pods: list[Container]) -> list[int]:
    return [pod.wait(timeout=SECONDS)["StatusCode"] for pod in pods]


def test_the_pods_of_a_group_are_the_ranks_of_one_mpi(start: Start) -> None:
    pods = start("python3", f"{kubernetes.PROBE_FOLDER}/rank.py")
    assert codes(pods) == [0, 0, 0]
    names = [str(pod.id)[:12] for pod in pods]
    leader = names[0]
    said = pods[0].logs().decode().splitlines()
    assert sorted(said) == [f"{rank} of 3 on {name} has heard {leader}" for rank, name in enumerate(names)]


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_ends_ends_the_group_and_its_code_is_the_leaders(start: Start, rank: int) -> None:
    pods = start("python3", f"{kubernetes.PROBE_FOLDER}/rank.py", str(rank))
    assert codes(pods)[0] == 86


def test_a_group_answers_until_one_of_its_pods_is_lost(start: Start, wanted: Deployment) -> None:
    """The sample's backend computes in one process: this is about who is started, where, and how all end."""
    pods = start()
    in_time(lambda: answer(wanted.ports.http) == RIGHT, pods)
    for pod in pods:
        in_time(lambda pod=pod: "tritonserver" in str(pod.top()["Processes"]), pods)  # type: ignore[misc]
    pods[2].kill()
    # What mpirun ends with when a daemon is gone; Kubernetes starts again whatever has ended.
    assert codes(pods)[0] == 205
