"""Commands that write down how a model repository is served, each for a platform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ftbuild.cli.arguments import Range
from ftbuild.cli.command import command
from ftbuild.cli.output import OutFile, write
from ftserve.cli.options import (
    FrontChoice,
    Gpus,
    ImageOptions,
    Keys,
    Listen,
    ModelRepository,
    PodOptions,
    ServerOptions,
    StorageAnonymous,
    StorageEndpoint,
    StorageOptions,
    decided,
)
from ftserve.front.settings import LOOPBACK

if TYPE_CHECKING:
    from ftserve.targets import kubernetes


@command("serve.compose", needs={"openai_port": ["openai"]})
def compose(
    image: ImageOptions,
    server: ServerOptions,
    front: FrontChoice,
    storage: StorageOptions,
    model_repo: ModelRepository = None,
    gpus: Gpus = None,
    listen: Listen = LOOPBACK,
    openai_keys: Keys = None,
    out: OutFile = None,
) -> int:
    """Write a Compose file that serves a model repository and restarts it."""
    from ftserve.deployment import gpu_indices
    from ftserve.targets.compose import Compose

    deployed = decided(image, server, model_repo, gpu_indices(gpus), listen, front, openai_keys)
    return _written(Compose(storage.stored()).files(deployed), out)


@dataclass(frozen=True)
class ClusterOptions:
    """The options about what a Kubernetes cluster gives to the pods, and how many there are."""

    pvc: Annotated[
        str | None,
        "PersistentVolumeClaim with the model repository; --model-repo may name a copy to read here",
    ] = None
    replicas: Annotated[int, Range(1), "pods behind the Service (with --nodes: groups of pods)"] = 1
    max_replicas: Annotated[
        int | None, Range(1), "maximum number of pods: adds an autoscaler over waiting requests"
    ] = None
    pending: Annotated[int, Range(1), "waiting requests per pod that the autoscaler aims at"] = 8
    network_policy: Annotated[
        bool, "close the pods to other namespaces (but for --monitoring) and to the outside"
    ] = False
    monitoring: Annotated[
        str | None, "namespace of Prometheus and Grafana: adds a ServiceMonitor and a dashboard"
    ] = None
    storage_secret: Annotated[
        str | None, "Secret with the credentials of --model-uri, for instance AWS_ACCESS_KEY_ID"
    ] = None
    openai_secret: Annotated[
        str | None, "Secret whose entry api-keys has the API keys of the OpenAI front, one a line"
    ] = None

    def cluster(self, storage: StorageOptions, pods: PodOptions) -> kubernetes.Cluster:
        """Return the target."""
        from ftserve.targets import kubernetes

        return kubernetes.Cluster(
            claim=self.pvc,
            replicas=self.replicas,
            secret=self.openai_secret,
            max_replicas=self.max_replicas,
            pending=self.pending,
            isolated=self.network_policy,
            monitoring=self.monitoring,
            stored=storage.stored(),
            storage_secret=self.storage_secret,
            pods=pods.pods(),
        )


@command("serve.k8s", needs={"openai_port": ["openai"], "pending": ["max_replicas"]})
def k8s(
    image: ImageOptions,
    server: ServerOptions,
    front: FrontChoice,
    pods: PodOptions,
    storage: StorageOptions,
    cluster: ClusterOptions,
    model_repo: Annotated[
        Path | None,
        "folder with the model repository, the same on every node (without --pvc and --model-uri)",
    ] = None,
    gpu_count: Annotated[
        int | None, Range(1, 1024), "GPUs for each pod (default: as many as the weights need)"
    ] = None,
    nodes: Annotated[
        int, Range(1, 128), "pods that share one model, an MPI rank each: writes a LeaderWorkerSet"
    ] = 1,
    out: OutFile = None,
) -> int:
    """Write a Kubernetes Deployment and Service that serve a model repository."""
    from ftbuild.errors import ConfigError

    gpus = tuple(range(gpu_count)) if gpu_count else None
    deployed = decided(image, server, model_repo, gpus, front=front, nodes=nodes)
    if cluster.openai_secret and deployed.front is None:
        raise ConfigError("--openai-secret without the OpenAI front", hint="--openai")
    return _written(cluster.cluster(storage, pods).files(deployed), out)


@command("serve.kserve")
def kserve(
    image: ImageOptions,
    server: ServerOptions,
    pods: PodOptions,
    storage_uri: Annotated[
        str, "where KServe finds the model repository, for instance pvc://models/gptj or s3://models/gptj"
    ],
    model_repo: Annotated[Path | None, "a copy of the model repository to read here"] = None,
    gpu_count: Annotated[
        int | None, Range(1, 1024), "GPUs for each pod (default: as many as the weights need)"
    ] = None,
    replicas: Annotated[int, Range(1), "minimum number of pods"] = 1,
    max_replicas: Annotated[int | None, Range(1), "maximum number of pods (default: the minimum)"] = None,
    out: OutFile = None,
) -> int:
    """Write a ServingRuntime and an InferenceService for KServe."""
    from ftserve.targets.kserve import Service

    gpus = tuple(range(gpu_count)) if gpu_count else None
    deployed = decided(image, server, model_repo, gpus)
    maximum = replicas if max_replicas is None else max_replicas
    service = Service(storage_uri, replicas, maximum, pods.pods())
    return _written(service.files(deployed), out)


@command("serve.dashboard")
def dashboard(out: OutFile = None) -> int:
    """Write a Grafana dashboard over the metrics of servers."""
    from ftserve.targets.grafana import Dashboard

    return _written(Dashboard().files(), out)


@command("serve.sif", needs={"storage_endpoint": ["model_uri"], "storage_anonymous": ["model_uri"]})
def sif(
    out: Annotated[Path, "folder to write"],
    image: ImageOptions,
    server: ServerOptions,
    model_repo: Annotated[Path | None, "model repository that the start script takes by default"] = None,
    gpus: Gpus = None,
    nodes: Annotated[
        int, Range(1, 128), "nodes that share one model, an MPI rank each; --gpus are those of one node"
    ] = 1,
    model_uri: Annotated[
        str | None, "s3://BUCKET/PATH or gs://BUCKET/PATH: adds a script that fetches the repository"
    ] = None,
    storage_endpoint: StorageEndpoint = None,
    storage_anonymous: StorageAnonymous = False,
    archive: Annotated[bool, "put the image's tar into the folder, for a machine without Docker"] = False,
) -> int:
    """Write an Apptainer definition, a start script and a Slurm batch script; build the .sif if possible."""
    from ftbuild.text import reporter
    from ftserve import stored
    from ftserve.deployment import gpu_indices
    from ftserve.targets import apptainer

    deployed = decided(image, server, model_repo, gpu_indices(gpus), nodes=nodes)
    # There rclone is a program of the node.
    fetcher = None if model_uri and model_uri.startswith("oci://") else "rclone"
    where = None
    if model_uri:
        where = stored.parse(model_uri, fetcher, storage_endpoint, anonymous=storage_anonymous)
    made = apptainer.write(deployed, out, archive=archive, stored=where, report=reporter.to_stderr)
    print(f"wrote {made or out}")
    return 0


def _written(files: Mapping[str, str], out: Path | None) -> int:
    """Print the one file of a target, or write it."""
    (text,) = files.values()
    return write(text, out)
