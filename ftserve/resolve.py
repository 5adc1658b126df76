"""Deployments from options and this machine: model repository, images, GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ftbuild.config.schema import Config
from ftbuild.engine import daemon
from ftbuild.errors import ConfigError, HostError
from ftbuild.registry import reference
from ftserve import deployment, front_options, image_choice, requirements, tokenizers
from ftserve.deployment import Deployment, Options
from ftserve.image_choice import Image, ImageChoice
from ftserve.requirements import Needs

if TYPE_CHECKING:
    import docker


@dataclass(frozen=True)
class Resolved:
    """A deployment, and the facts of its image."""

    deployment: Deployment
    image: Image


def to_serve(client: docker.DockerClient, config: Config, wanted: ImageChoice, options: Options) -> Resolved:
    """Resolve a deployment for this machine; HostError where its engine or GPUs cannot serve it."""
    if options.models is None:
        raise ConfigError("nothing to serve", hint="--model-repo DIR")
    return _resolved(client, config, wanted, options, here=True)


def to_write(config: Config, wanted: ImageChoice, options: Options) -> Deployment:
    """Resolve a deployment for any machine: needs no GPU, and with --image no engine."""
    try:
        client = daemon.connect()
    except HostError:
        if not wanted.image:
            raise
        client = None
    return _resolved(client, config, wanted, options, here=False).deployment


def _resolved(
    client: docker.DockerClient | None, config: Config, wanted: ImageChoice, options: Options, *, here: bool
) -> Resolved:
    if wanted.image is not None:
        reference.check_image(wanted.image)
    device = config.models.device
    found = requirements.read(options.models, config.models) if options.models else Needs()
    indices = deployment.chosen_gpus(options, found, device)
    if client is None:
        image, access = Image(str(wanted.image)), None
    else:
        image, access = image_choice.find(client, config, wanted, indices or None, here=here)
    decided = deployment.decide(options, found, image, device, access)
    if options.models:
        decided = replace(decided, warnings=tokenizers.warnings(options.models, found))
    if options.front is not None:
        beside = front_options.find(options.front, options.name, decided.models, found)
        cancels = front_options.survives_cancelling(image, config.holes)
        decided = replace(decided, front=replace(beside, cancels=cancels))
    return Resolved(decided, image)
