"""Options that the commands of ftserve share: the image, the server, the OpenAI front beside it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ftbuild.cli.arguments import Range
from ftbuild.cli.options import CONFIG, BaseName, ConfigFolder
from ftserve.front.settings import LOOPBACK, PORT

if TYPE_CHECKING:
    from ftbuild.config.schema import Config
    from ftserve import deployment, front_options, image_choice
    from ftserve.stored import Stored
    from ftserve.targets.kubernetes_pods import Pods

Gpus = Annotated[
    str | None, "indices of the GPUs, for instance 0,1 (default: the first that the weights need)"
]
ModelRepository = Annotated[Path | None, "folder that invoke model-repo wrote"]
Listen = Annotated[
    str, "address to listen on; 0.0.0.0 opens the server, which has no authentication, to the network"
]
Keys = Annotated[
    Path | None, "file with API keys for the OpenAI front, one a line (default: no authentication)"
]


@dataclass(frozen=True)
class ImageOptions:
    """The options that choose one of the images that are built."""

    image: Annotated[
        str | None, ("image to serve with (default: the local build for the GPU of this machine)")
    ] = None
    triton: Annotated[str | None, "Triton release of the image, for instance 22.12"] = None
    sm: Annotated[str | None, "SM of the image, for instance 80 (default: by the GPU)"] = None
    base: BaseName = None
    config: ConfigFolder = CONFIG

    def choice(self) -> image_choice.ImageChoice:
        """Return the choice for the serving modules."""
        from ftserve.image_choice import ImageChoice

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
        "memory limit, for instance 32g (default: by the sizes of the models and the number of GPUs)",
    ] = None
    name: Annotated[str, "name of the server"] = "triton-ft"

    def deployment(
        self,
        models: Path | None,
        gpus: tuple[int, ...] | None,
        listen: str = LOOPBACK,
        *,
        openai_port: int | None = None,
        front: front_options.FrontOptions | None = None,
        nodes: int = 1,
    ) -> deployment.Options:
        """Return the options of a deployment; `front` and its port for one with an OpenAI front."""
        from ftserve import deployment

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
class PodOptions:
    """The options about pods: their account, where they run, and their labels."""

    service_account: Annotated[str | None, "ServiceAccount of the pods"] = None
    node_selector: Annotated[tuple[str, ...], "KEY=VALUE that a node must have as a label (repeatable)"] = ()
    toleration: Annotated[
        tuple[str, ...], "taint that the pods tolerate: KEY[=VALUE][:EFFECT] (repeatable)"
    ] = ()
    pull_secret: Annotated[tuple[str, ...], "Secret for the registries of the images (repeatable)"] = ()
    label: Annotated[tuple[str, ...], "KEY=VALUE as a further label of everything (repeatable)"] = ()

    def pods(self) -> Pods:
        """Return them for the serving modules."""
        from ftserve.targets import kubernetes_pods

        return kubernetes_pods.parse(
            self.service_account, self.node_selector, self.toleration, self.pull_secret, self.label
        )


StorageEndpoint = Annotated[
    str | None, "URL of the server, if it is not the cloud's own: one with the protocol of S3, or of Google's"
]
StorageAnonymous = Annotated[bool, "ask the storage without credentials, as of a public bucket"]


@dataclass(frozen=True)
class StorageOptions:
    """The options about a model repository that no folder holds."""

    model_uri: Annotated[
        str | None,
        "where the model repository is: s3://BUCKET/PATH, gs://BUCKET/PATH, oci://HOST/PATH@sha256:DIGEST; "
        "--model-repo may name a copy to read here",
    ] = None
    fetch_image: Annotated[str | None, "image with rclone and a shell, which fetches s3:// and gs://"] = None
    storage_endpoint: StorageEndpoint = None
    storage_anonymous: StorageAnonymous = False

    def stored(self) -> Stored | None:
        """Return where it is; None if it is a folder, or elsewhere."""
        from ftbuild.errors import ConfigError
        from ftserve import stored

        if self.model_uri is None:
            if self.fetch_image or self.storage_endpoint or self.storage_anonymous:
                raise ConfigError("there is nothing to fetch", hint="--model-uri s3://BUCKET/PATH")
            return None
        return stored.parse(
            self.model_uri, self.fetch_image, self.storage_endpoint, anonymous=self.storage_anonymous
        )


@dataclass(frozen=True)
class FrontChoice:
    """The options of the OpenAI front beside a server."""

    openai: Annotated[bool, "put a service with OpenAI's API in front (its image: invoke serve.front)"] = (
        False
    )
    openai_port: Annotated[int, Range(1, 65535), "port of the OpenAI front"] = PORT
    openai_model: Annotated[str | None, "what its clients call the model (default: the server's name)"] = None
    openai_image: Annotated[str | None, "its image (default: what invoke serve.front built last)"] = None
    openai_context: Annotated[
        int | None,
        Range(1, 2**31 - 1),
        "maximum tokens of prompt and answer (default: what the weights say)",
    ] = None
    openai_origin: Annotated[
        tuple[str, ...], "origin of web pages that may call it (CORS), such as https://chat.example.com, or *"
    ] = ()

    def options(self, config: Config, keys: Path | None = None) -> front_options.FrontOptions | None:
        """Return the options for the serving modules, None without a front."""
        from ftbuild.errors import ConfigError
        from ftserve import front_image, front_options

        if not self.openai:
            named = keys or self.openai_model or self.openai_image or self.openai_origin
            if named or self.openai_context is not None:
                raise ConfigError("options of the OpenAI front without one", hint="--openai")
            return None
        image = self.openai_image or front_image.moving_tag(config)
        return front_options.FrontOptions(
            image, self.openai_model, keys, self.openai_context, tuple(self.openai_origin)
        )

    @property
    def port(self) -> int | None:
        """The port, None without a front."""
        return self.openai_port if self.openai else None


def decided(
    image: ImageOptions,
    server: ServerOptions,
    models: Path | None,
    gpus: tuple[int, ...] | None,
    listen: str = LOOPBACK,
    front: FrontChoice | None = None,
    keys: Path | None = None,
    nodes: int = 1,
) -> deployment.Deployment:
    """Return the deployment that options describe, to write down; prints its warnings."""
    from ftbuild.config import loader
    from ftserve import resolve

    config, front = loader.load(image.config), front or FrontChoice()
    options = server.deployment(
        models, gpus, listen, openai_port=front.port, front=front.options(config, keys), nodes=nodes
    )
    return warned(resolve.to_write(config, image.choice(), options))


def warned(deployed: deployment.Deployment) -> deployment.Deployment:
    """Print the warnings about a deployment, and return it."""
    for warning in deployed.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return deployed
