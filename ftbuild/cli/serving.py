"""Commands that serve a model repository, write it down for other platforms, and question a server."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ftbuild.cli.arguments import Range
from ftbuild.cli.command import command
from ftbuild.cli.options import CONFIG, BaseName, ConfigFolder, Format

if TYPE_CHECKING:
    from ftbuild.serving import deployment, image_choice

LOOPBACK = "127.0.0.1"

Gpus = Annotated[
    str | None, "indices of the GPUs, for instance 0,1 (default: the first that the weights need)"
]
ModelRepository = Annotated[Path | None, "folder that invoke model-repo wrote"]
Listen = Annotated[
    str, "address to listen on; 0.0.0.0 opens the server, which authenticates nobody, to the network"
]
OutFile = Annotated[Path | None, "file to write (default: standard output)"]


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
        self, models: Path | None, gpus: tuple[int, ...] | None, listen: str = LOOPBACK
    ) -> deployment.Options:
        """Return the options of a deployment."""
        from ftbuild.serving import deployment

        return deployment.Options(
            models=models,
            gpus=gpus,
            ports=deployment.Ports(self.http_port, self.grpc_port, self.metrics_port, listen),
            shared_memory=deployment.size(self.shm),
            name=self.name,
            memory=deployment.size(self.memory) if self.memory else None,
        )


def _decided(
    image: ImageOptions,
    server: ServerOptions,
    models: Path | None,
    gpus: tuple[int, ...] | None,
    listen: str = LOOPBACK,
) -> deployment.Deployment:
    from ftbuild.config import loader
    from ftbuild.serving import resolve

    options = server.deployment(models, gpus, listen)
    return resolve.to_write(loader.load(image.config), image.choice(), options)


@command("serve.docker", default=True)
def serve(
    image: ImageOptions,
    server: ServerOptions,
    model_repo: ModelRepository = None,
    gpus: Gpus = None,
    listen: Listen = LOOPBACK,
    detach: Annotated[bool, "leave the server running"] = False,
    stop: Annotated[bool, "end the server of that name"] = False,
    logs: Annotated[bool, "print the log of the server of that name"] = False,
    timeout: Annotated[int, Range(1), "seconds until the server must be ready"] = 900,
    dry_run: Annotated[bool, "print the docker run line and stop; with --image it needs no engine"] = False,
) -> int:
    """Serve a model repository with the image for the GPU that is here, until Ctrl-C."""
    from ftbuild.config import loader
    from ftbuild.engine import daemon
    from ftbuild.serving import docker, resolve
    from ftbuild.serving.deployment import gpu_indices

    if stop:
        docker.stop(docker.find(daemon.connect(), server.name))
        print(f"stopped {server.name}")
    elif logs:
        print(docker.logs(docker.find(daemon.connect(), server.name)))
    elif dry_run:
        print(docker.command_line(_decided(image, server, model_repo, gpu_indices(gpus), listen)))
    else:
        options = server.deployment(model_repo, gpu_indices(gpus), listen)
        config = loader.load(image.config)
        client = daemon.connect()
        found = resolve.to_serve(client, config, image.choice(), options)
        docker.serve(client, found.deployment, found.image, print, detach=detach, seconds=timeout)
    return 0


@command("serve.compose")
def compose(
    image: ImageOptions,
    server: ServerOptions,
    model_repo: ModelRepository = None,
    gpus: Gpus = None,
    listen: Listen = LOOPBACK,
    out: OutFile = None,
) -> int:
    """Write a Compose file that serves a model repository and restarts it."""
    from ftbuild.serving import compose as renderer
    from ftbuild.serving.deployment import gpu_indices

    return _write(renderer.render(_decided(image, server, model_repo, gpu_indices(gpus), listen)), out)


@command("serve.k8s")
def k8s(
    image: ImageOptions,
    server: ServerOptions,
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
    replicas: Annotated[int, Range(1), "pods behind the Service"] = 1,
    out: OutFile = None,
) -> int:
    """Write a Kubernetes Deployment and Service that serve a model repository."""
    from ftbuild.serving import kubernetes

    gpus = tuple(range(gpu_count)) if gpu_count else None
    decided = _decided(image, server, model_repo, gpus)
    return _write(kubernetes.render(decided, claim=pvc, replicas=replicas), out)


@command("serve.sif")
def sif(
    out: Annotated[Path, "folder to write"],
    image: ImageOptions,
    server: ServerOptions,
    model_repo: Annotated[Path | None, "model repository that the start script takes by default"] = None,
    gpus: Gpus = None,
    archive: Annotated[bool, "put the image's tar into the folder, for a machine without Docker"] = False,
) -> int:
    """Write an Apptainer definition, a start script and a Slurm batch script; build the .sif if possible."""
    from ftbuild.serving import apptainer
    from ftbuild.serving.deployment import gpu_indices
    from ftbuild.text import reporter

    decided = _decided(image, server, model_repo, gpu_indices(gpus))
    made = apptainer.write(decided, out, archive=archive, report=reporter.to_stderr)
    print(f"wrote {made or out}")
    return 0


@command()
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
    from ftbuild.client.acceptance import runner
    from ftbuild.client.acceptance.options import AcceptanceOptions, BleuOptions
    from ftbuild.config import loader
    from ftbuild.errors import ConfigError
    from ftbuild.models import repository

    loaded = loader.load(config)
    repository.served_family(loaded, model)
    if bleu and not (source and target):
        raise ConfigError("--bleu needs --source and --target, files with a sentence a line")
    if not (http or grpc):
        http, grpc = "localhost:8000", "localhost:8001"
    report = runner.run(
        AcceptanceOptions(
            tensors=loaded.models.families[model].tensors,
            addresses={**({"http": http} if http else {}), **({"grpc": grpc} if grpc else {})},
            batch_size=batch_size,
            requests=requests,
            tokenizer=tokenizer,
            expect=expect,
            bleu=BleuOptions(source, target, threshold) if bleu and source and target else None,
        )
    )
    print(json.dumps(report.as_dict(), indent=2) if format == "json" else report.render())
    report.require()
    return 0


def _write(text: str, out: Path | None) -> int:
    """Print a file's text, or write it there; ConfigError when that is not possible."""
    from ftbuild.errors import ConfigError

    if out is None:
        print(text, end="")
        return 0
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as refused:
        raise ConfigError(f"cannot write --out: {refused.strerror}", where=str(out)) from refused
    print(f"wrote {out}")
    return 0
