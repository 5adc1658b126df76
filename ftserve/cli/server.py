"""The command that serves a model repository on this machine."""

from __future__ import annotations

from typing import Annotated

from ftbuild.cli.arguments import Range
from ftbuild.cli.command import command
from ftserve.cli.options import (
    FrontChoice,
    Gpus,
    ImageOptions,
    Keys,
    Listen,
    ModelRepository,
    ServerOptions,
    decided,
    warned,
)
from ftserve.front.settings import LOOPBACK


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
    stop: Annotated[bool, "stop the server of that name"] = False,
    logs: Annotated[bool, "print the log of the server of that name"] = False,
    timeout: Annotated[int, Range(1), "seconds until the server must be ready"] = 900,
    dry_run: Annotated[
        bool, ("print the docker run command and exit; with --image it needs no engine")
    ] = False,
) -> int:
    """Serve a model repository with the image for the GPU that is here, until Ctrl-C."""
    from ftbuild.config import loader
    from ftbuild.engine import daemon
    from ftserve import resolve
    from ftserve.deployment import gpu_indices
    from ftserve.targets import docker, front_container

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
        written = decided(image, server, model_repo, indices, listen, front, openai_keys)
        print(docker.command_line(written))
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
        resolved = resolve.to_serve(client, config, image.choice(), options)
        docker.serve(
            client, warned(resolved.deployment), resolved.image, print, detach=detach, seconds=timeout
        )
    return 0
