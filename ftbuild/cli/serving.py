"""Commands that serve a model repository, write it down for other platforms, and question a server."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ftbuild.cli.arguments import Range
from ftbuild.cli.command import command
from ftbuild.cli.options import CONFIG, BaseName, ConfigFolder, Format
from ftbuild.cli.output import OutFile, write

if TYPE_CHECKING:
    from ftbuild.config.schema import Config
    from ftbuild.serving import deployment, front, image_choice

LOOPBACK = "127.0.0.1"

Gpus = Annotated[
    str | None, "indices of the GPUs, for instance 0,1 (default: the first that the weights need)"
]
ModelRepository = Annotated[Path | None, "folder that invoke model-repo wrote"]
Listen = Annotated[
    str, "address to listen on; 0.0.0.0 opens the server, which authenticates nobody, to the network"
]
Keys = Annotated[
    Path | None, "file with API keys for the OpenAI front, one a line (default: it answers everybody)"
]


@dataclass(frozen=True)
class ImageOptions:
    """The options that choose one of the images that are built."""

    image: Annotated[str | None, "image to serve with (default: the built one for the GPU that is here)"] = (
        None
    )
    triton: Annotated[str | None, "Triton release of the image, for instance 22.12"] = None
    sm: Annotated[str | None, "SM of the image, for instance 80 (default: by the GPU)"] = None
    base: BaseName = None
    config: ConfigFolder = CONFIG

    def choice(self) -> image_choice.ImageChoice:
        """Return the choice for the serving modules."""
        from ftbuild.serving.image_choice import ImageChoice

        return ImageChoice(self.image, self.triton, self.sm, self.base)


@dataclass(frozen=True)
class ServerOptions:
    """The options of the server itself, the same on every platform."""

    http_port: Annotated[int, Range(1, 65535), "port of the HTTP endpoint"] = 8000
    grpc_port: Annotated[int, Range(1, 65535), "port of the gRPC endpoint"] = 8001
    metrics_port: Annotated[int, Range(1, 65535), "port of the metrics"] = 8002
    shm: Annotated[str, "shared memory, for instance 1g"] = "1g"
    memory: Annotated[
        str | None,
        "most memory, for instance 32g (default: by the sizes of the models and the number of GPUs)",
    ] = None
    name: Annotated[str, "name of the server"] = "triton-ft"

    def deployment(
        self,
        models: Path | None,
        gpus: tuple[int, ...] | None,
        listen: str = LOOPBACK,
        *,
        openai_port: int | None = None,
        front: front.FrontOptions | None = None,
        nodes: int = 1,
    ) -> deployment.Options:
        """Return the options of a deployment; `front` and its port for one with an OpenAI front."""
        from ftbuild.serving import deployment

        return deployment.Options(
            models=models,
            gpus=gpus,
            ports=deployment.Ports(self.http_port, self.grpc_port, self.metrics_port, listen, openai_port),
            shared_memory=deployment.size(self.shm),
            name=self.name,
            memory=deployment.size(self.memory) if self.memory else None,
            front=front,
            nodes=nodes,
        )


@dataclass(frozen=True)
class FrontChoice:
    """The options of the OpenAI front beside a server."""

    openai: Annotated[bool, "put a service with OpenAI's API in front (its image: invoke serve.front)"] = (
        False
    )
    openai_port: Annotated[int, Range(1, 65535), "port of the OpenAI front"] = 8003
    openai_model: Annotated[str | None, "what its clients call the model (default: the server's name)"] = None
    openai_image: Annotated[str | None, "its image (default: what invoke serve.front built last)"] = None
    openai_context: Annotated[
        int | None,
        Range(1, 2**31 - 1),
        "most tokens of prompt and answer (default: what the weights say)",
    ] = None
    openai_origin: Annotated[
        tuple[str, ...], "origin of web pages that may ask it, such as https://chat.example.com, or *"
    ] = ()

    def options(self, config: Config, keys: Path | None = None) -> front.FrontOptions | None:
        """Return the options for the serving modules, None without a front."""
        from ftbuild.errors import ConfigError
        from ftbuild.serving import front, front_image

        if not self.openai:
            named = keys or self.openai_model or self.openai_image or self.openai_origin
            if named or self.openai_context is not None:
                raise ConfigError("options of the OpenAI front without one", hint="--openai")
            return None
        image = self.openai_image or front_image.moving_tag(config)
        return front.FrontOptions(
            image, self.openai_model, keys, self.openai_context, tuple(self.openai_origin)
        )

    @property
    def port(self) -> int | None:
        """The port, None without a front."""
        return self.openai_port if self.openai else None


def _decided(
    image: ImageOptions,
    server: ServerOptions,
    models: Path | None,
    gpus: tuple[int, ...] | None,
    listen: str = LOOPBACK,
    front: FrontChoice | None = None,
    keys: Path | None = None,
    nodes: int = 1,
) -> deployment.Deployment:
    from ftbuild.config import loader
    from ftbuild.serving import resolve

    config, front = loader.load(image.config), front or FrontChoice()
    options = server.deployment(
        models, gpus, listen, openai_port=front.port, front=front.options(config, keys), nodes=nodes
    )
    return _warned(resolve.to_write(config, image.choice(), options))


def _warned(decided: deployment.Deployment) -> deployment.Deployment:
    """Print the warnings about a deployment, and return it."""
    for warning in decided.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return decided


@command(
    "serve.docker",
    default=True,
    needs={"openai_port": ["openai"]},
    beside={"stop": ["logs", "dry_run"], "logs": ["dry_run"], "detach": ["stop", "logs", "dry_run"]},
)
def serve(
    image: ImageOptions,
    server: ServerOptions,
    front: FrontChoice,
    model_repo: ModelRepository = None,
    gpus: Gpus = None,
    listen: Listen = LOOPBACK,
    openai_keys: Keys = None,
    detach: Annotated[bool, "leave the server running"] = False,
    stop: Annotated[bool, "end the server of that name"] = False,
    logs: Annotated[bool, "print the log of the server of that name"] = False,
    timeout: Annotated[int, Range(1), "seconds until the server must be ready"] = 900,
    dry_run: Annotated[bool, "print the docker run line and stop; with --image it needs no engine"] = False,
) -> int:
    """Serve a model repository with the image for the GPU that is here, until Ctrl-C."""
    from ftbuild.config import loader
    from ftbuild.engine import daemon
    from ftbuild.serving import docker, front_container, resolve
    from ftbuild.serving.deployment import gpu_indices

    if stop:
        docker.stop(docker.find(daemon.connect(), server.name))
        print(f"stopped {server.name}")
    elif logs:
        client = daemon.connect()
        print(docker.logs(docker.find(client, server.name)))
        if beside := front_container.find(client, server.name):
            print(docker.logs(beside))
    elif dry_run:
        indices = gpu_indices(gpus)
        decided = _decided(image, server, model_repo, indices, listen, front, openai_keys)
        print(docker.command_line(decided))
    else:
        config = loader.load(image.config)
        options = server.deployment(
            model_repo,
            gpu_indices(gpus),
            listen,
            openai_port=front.port,
            front=front.options(config, openai_keys),
        )
        client = daemon.connect()
        found = resolve.to_serve(client, config, image.choice(), options)
        decided = _warned(found.deployment)
        docker.serve(client, decided, found.image, print, detach=detach, seconds=timeout)
    return 0


@command("serve.compose", needs={"openai_port": ["openai"]})
def compose(
    image: ImageOptions,
    server: ServerOptions,
    front: FrontChoice,
    model_repo: ModelRepository = None,
    gpus: Gpus = None,
    listen: Listen = LOOPBACK,
    openai_keys: Keys = None,
    out: OutFile = None,
) -> int:
    """Write a Compose file that serves a model repository and restarts it."""
    from ftbuild.serving import compose as renderer
    from ftbuild.serving.deployment import gpu_indices

    decided = _decided(image, server, model_repo, gpu_indices(gpus), listen, front, openai_keys)
    return write(renderer.render(decided), out)


@command("serve.k8s", needs={"openai_port": ["openai"], "pending": ["max_replicas"]})
def k8s(
    image: ImageOptions,
    server: ServerOptions,
    front: FrontChoice,
    model_repo: Annotated[
        Path | None, "folder with the model repository, the same on every node (without --pvc)"
    ] = None,
    pvc: Annotated[
        str | None,
        "PersistentVolumeClaim with the model repository; --model-repo may name a copy to read here",
    ] = None,
    gpu_count: Annotated[
        int | None, Range(1, 1024), "GPUs for each pod (default: as many as the weights need)"
    ] = None,
    nodes: Annotated[
        int, Range(1, 128), "pods that share one model, an MPI rank each: writes a LeaderWorkerSet"
    ] = 1,
    replicas: Annotated[int, Range(1), "pods behind the Service (with --nodes: groups of pods)"] = 1,
    max_replicas: Annotated[
        int | None, Range(1), "most pods: adds an autoscaler over the requests that wait"
    ] = None,
    pending: Annotated[int, Range(1), "waiting requests in each pod that the autoscaler aims at"] = 8,
    network_policy: Annotated[
        bool, "close the pods to other namespaces (but for --monitoring) and to the outside"
    ] = False,
    monitoring: Annotated[
        str | None, "namespace of Prometheus and Grafana: adds a ServiceMonitor and a dashboard"
    ] = None,
    openai_secret: Annotated[
        str | None, "Secret whose entry api-keys has the API keys of the OpenAI front, one a line"
    ] = None,
    out: OutFile = None,
) -> int:
    """Write a Kubernetes Deployment and Service that serve a model repository."""
    from ftbuild.errors import ConfigError
    from ftbuild.serving import kubernetes

    gpus = tuple(range(gpu_count)) if gpu_count else None
    decided = _decided(image, server, model_repo, gpus, front=front, nodes=nodes)
    if openai_secret and decided.front is None:
        raise ConfigError("--openai-secret without the OpenAI front", hint="--openai")
    cluster = kubernetes.Cluster(
        claim=pvc,
        replicas=replicas,
        secret=openai_secret,
        most_replicas=max_replicas,
        pending=pending,
        isolated=network_policy,
        monitoring=monitoring,
    )
    return write(kubernetes.render(decided, cluster), out)


@command("serve.kserve")
def kserve(
    image: ImageOptions,
    server: ServerOptions,
    storage_uri: Annotated[str, "where KServe finds the model repository, for instance pvc://models/gptj"],
    model_repo: Annotated[Path | None, "a copy of the model repository to read here"] = None,
    gpu_count: Annotated[
        int | None, Range(1, 1024), "GPUs for each pod (default: as many as the weights need)"
    ] = None,
    replicas: Annotated[int, Range(1), "least number of pods"] = 1,
    max_replicas: Annotated[int | None, Range(1), "most pods (default: the least)"] = None,
    out: OutFile = None,
) -> int:
    """Write a ServingRuntime and an InferenceService for KServe."""
    from ftbuild.serving import kserve as renderer

    gpus = tuple(range(gpu_count)) if gpu_count else None
    decided = _decided(image, server, model_repo, gpus)
    service = renderer.Service(storage_uri, replicas, replicas if max_replicas is None else max_replicas)
    return write(renderer.render(decided, service), out)


@command("serve.dashboard")
def dashboard(out: OutFile = None) -> int:
    """Write a Grafana dashboard over the metrics of servers."""
    from ftbuild.serving import grafana

    return write(json.dumps(grafana.dashboard(), indent=2) + "\n", out)


@command("serve.sif")
def sif(
    out: Annotated[Path, "folder to write"],
    image: ImageOptions,
    server: ServerOptions,
    model_repo: Annotated[Path | None, "model repository that the start script takes by default"] = None,
    gpus: Gpus = None,
    nodes: Annotated[
        int, Range(1, 128), "nodes that share one model, an MPI rank each; --gpus are those of one node"
    ] = 1,
    archive: Annotated[bool, "put the image's tar into the folder, for a machine without Docker"] = False,
) -> int:
    """Write an Apptainer definition, a start script and a Slurm batch script; build the .sif if possible."""
    from ftbuild.serving import apptainer
    from ftbuild.serving.deployment import gpu_indices
    from ftbuild.text import reporter

    decided = _decided(image, server, model_repo, gpu_indices(gpus), nodes=nodes)
    made = apptainer.write(decided, out, archive=archive, report=reporter.to_stderr)
    print(f"wrote {made or out}")
    return 0


@command(needs={"source": ["bleu"], "target": ["bleu"], "threshold": ["bleu"]})
def client_test(
    model: Annotated[str, "model family, for instance gptneox"],
    http: Annotated[
        str | None,
        "host:port of the server's HTTP endpoint (default: localhost:8000, if --grpc is not given)",
    ] = None,
    grpc: Annotated[
        str | None, "host:port of its gRPC endpoint (default: localhost:8001, if --http is not given)"
    ] = None,
    tokenizer: Annotated[
        Path | None,
        "folder of the checkpoint: the served tokens must be this tokenizer's; --bleu needs it",
    ] = None,
    batch_size: Annotated[int, Range(1, 1024), "prompts in a request"] = 8,
    requests: Annotated[int, Range(1, 10**6), "timed requests for each test and protocol"] = 10,
    bleu: Annotated[bool, "translate --source and compare with --target"] = False,
    source: Annotated[
        Path | None, "file with a sentence a line, for instance upstream's tools/t5_utils/test.en"
    ] = None,
    target: Annotated[Path | None, "file with the translations"] = None,
    threshold: Annotated[float | None, Range(0, 100), "BLEU, 0 to 100, that must be reached"] = None,
    expect: Annotated[
        Path | None, "answers.json that invoke smoke --prepare made, for the checkpoint beside it"
    ] = None,
    config: ConfigFolder = CONFIG,
    format: Format = "human",  # noqa: A002
) -> int:
    """Check what a running server answers over HTTP and gRPC, and how fast; exits with 9 if it is wrong."""
    from ftbuild.client.acceptance import runner, vectors
    from ftbuild.client.acceptance.options import AcceptanceOptions, BleuOptions
    from ftbuild.client.connection import Protocol
    from ftbuild.config import loader
    from ftbuild.errors import ConfigError
    from ftbuild.models import repository
    from ftbuild.text import screen

    loaded = loader.load(config)
    repository.served_family(loaded, model)
    if bleu and not (source and target):
        raise ConfigError("--bleu needs --source and --target, files with a sentence a line")
    if not (http or grpc):
        http, grpc = "localhost:8000", "localhost:8001"
    addresses: dict[Protocol, str] = {**({"http": http} if http else {}), **({"grpc": grpc} if grpc else {})}
    tensors = loaded.models.families[model].tensors
    if tensors is None:
        if bleu or tokenizer:
            raise ConfigError(
                f"{model} answers token ids with vectors, not with text", hint="leave out --bleu, --tokenizer"
            )
        report = vectors.run(vectors.VectorOptions(addresses, batch_size, requests, expect))
    else:
        report = runner.run(
            AcceptanceOptions(
                tensors=tensors,
                addresses=addresses,
                batch_size=batch_size,
                requests=requests,
                tokenizer=tokenizer,
                expect=expect,
                bleu=BleuOptions(source, target, threshold) if bleu and source and target else None,
            )
        )
    screen.show(json.dumps(report.as_dict(), indent=2) if format == "json" else report.render())
    report.require()
    return 0
