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


def to_serve(client: docker.DockerClient, config: Config, choice: ImageChoice, options: Options) -> Resolved:
    """Resolve a deployment for this machine; HostError where its engine or GPUs cannot serve it."""
    if options.models is None:
        raise ConfigError("nothing to serve", hint="--model-repo DIR")
    return _resolved(client, config, choice, options, here=True)


def to_write(config: Config, choice: ImageChoice, options: Options) -> Deployment:
    """Resolve a deployment for any machine: needs no GPU, and with --image no engine."""
    try:
        client = daemon.connect()
    except HostError:
        if not choice.image:
            raise
        client = None
    return _resolved(client, config, choice, options, here=False).deployment


def _resolved(
    client: docker.DockerClient | None, config: Config, choice: ImageChoice, options: Options, *, here: bool
) -> Resolved:
    if choice.image is not None:
        reference.check_image(choice.image)
    device = config.models.device
    needs = requirements.read(options.models, config.models) if options.models else Needs()
    indices = deployment.chosen_gpus(options, needs, device)
    if client is None:
        image, access = Image(str(choice.image)), None
    else:
        image, access = image_choice.find(client, config, choice, indices or None, here=here)
    decided = deployment.decide(options, needs, image, device, access)
    if options.models:
        decided = replace(decided, warnings=tokenizers.warnings(options.models, needs))
    if options.front is not None:
        beside = front_options.find(options.front, options.name, decided.models, needs)
        cancels = front_options.survives_cancelling(image, config.holes)
        decided = replace(decided, front=replace(beside, cancels=cancels))
    return Resolved(decided, image)
