"""The image of the OpenAI front: what a base serves from, the front's wheels, and its package.

It stands beside the cells: nothing of it enters their keys, and one front serves every release.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftbuild.build import base, buildable, context, definitions
from ftbuild.build import run as builds
from ftbuild.build.machine import Host
from ftbuild.build.run import BuildOptions
from ftbuild.config.recipe import STEPS, RecipeFile, read
from ftbuild.config.schema import Config
from ftbuild.engine import buildx, daemon
from ftbuild.errors import ConfigError
from ftbuild.input_key import digest_of
from ftbuild.plan import LABELS, Plan
from ftbuild.sources import downloads, requirements, wheels
from ftbuild.sources.downloads import Download
from ftbuild.sources.requirements import Requirement
from ftbuild.text.reporter import Reporter
from ftserve import front

if TYPE_CHECKING:
    import docker

PRODUCT = "openai"
DOCKERFILE = "openai.Dockerfile"
# What the Dockerfile copies into its stages.
PROGRAMS = ("fixed-times.sh", "pip-install.sh", "put.sh")
# The package, which runs alone: the image has the whole folder.
_PACKAGE = Path(front.__file__).parent
# What Python and pip leave in it.
_LEFT_OUT = ("__pycache__", "build", "ftserve_front.egg-info")
_CONTEXTS = ("recipe", definitions.WHEELS, "front")


@dataclass(frozen=True)
class Recipe:
    """All inputs of the image of one base: files by their place in the staged folder, and its wheels."""

    plan: Plan
    files: Mapping[str, RecipeFile]
    wheels: tuple[Requirement, ...]

    @property
    def key(self) -> str:
        """The key of everything that decides the image."""
        hashes = {place: file.sha256 for place, file in self.files.items()}
        return digest_of([self.plan.base.serving, self.plan.base.devel, self.plan.base.digest, hashes])

    @property
    def name(self) -> str:
        """The immutable tag."""
        return f"{self.plan.image}:{self.cell}-{self.key}"

    @property
    def cell(self) -> str:
        """What stands in the place of a cell's id."""
        return f"{PRODUCT}-{self.plan.base.name}"


def default_base(config: Config) -> str:
    """Return the first described base that has a front; ConfigError without any."""
    for name, described in config.bases.bases.items():
        if described.openai:
            return name
    raise ConfigError("no base of bases.yaml has an OpenAI front", hint="docs/configuration.md: openai")


def moving_tag(config: Config) -> str:
    """Return the tag of the image that was built last."""
    return f"{config.matrix.image}:{PRODUCT}"


def recipe(config: Config, plan: Plan) -> Recipe:
    """Return the inputs of the front's image on the base of `plan`; ConfigError where the base has none."""
    listed = config.bases.bases[plan.base.name].openai
    if listed is None:
        able = sorted(name for name, known in config.bases.bases.items() if known.openai)
        raise ConfigError(
            f"there is no OpenAI front on the base {plan.base.name}, whose Python is too old for it",
            where=f"{config.folder}/bases.yaml",
            hint=f"--base {' or '.join(able)}: one front serves every release",
        )
    folder = config.path(config.bases.dockerfile).parent
    paths = {
        "Dockerfile": folder / DOCKERFILE,
        "recipe/openai.txt": config.path(listed),
        **{f"recipe/{STEPS}/{name}": folder / STEPS / name for name in PROGRAMS},
        **{f"front/{path.relative_to(_PACKAGE).as_posix()}": path for path in package_files()},
    }
    files = {place: read(config, place, path) for place, path in paths.items()}
    text = files["recipe/openai.txt"].content.decode("utf-8", "replace")
    return Recipe(plan, files, requirements.parsed(config.path(listed), text).locked())


def package_files() -> list[Path]:
    """Return the files of the front's package; links among them are to files that it shares with ftbuild."""
    files = (path for path in _PACKAGE.rglob("*") if path.is_file())
    return sorted(path for path in files if path.relative_to(_PACKAGE).parts[0] not in _LEFT_OUT)


def ensure(
    client: docker.DockerClient,
    config: Config,
    plan: Plan,
    options: BuildOptions,
    *,
    report: Reporter = print,
) -> str:
    """Return the name of the image, which is built unless it exists, and move `moving_tag` to it.

    The base is made first where it is missing. Errors as those of a build.
    """
    image = FrontImage(client, recipe(config, plan), options, report)
    name = image.made_of.name
    with daemon.replacing(client, name):
        if options.rebuild or not image.is_made():
            buildx.version()
            image = replace(image, host=builds.host_settings(client, options))
            buildable.ensure(image, image.host, rebuild=options.rebuild, report=report)
        daemon.tag(client, name, moving_tag(config))
    return name


@dataclass(frozen=True)
class FrontImage:
    """The image of the front on one base."""

    client: docker.DockerClient
    made_of: Recipe
    options: BuildOptions
    report: Reporter
    host: Host = field(default_factory=lambda: Host(jobs=1))
    name: str = "the image of the OpenAI front"
    prefix: str = ""

    @property
    def folder(self) -> Path:
        """Return the folder, named by the key."""
        return self.options.work / self.made_of.cell / self.made_of.key

    def is_made(self) -> bool:
        """Return whether the image is in the engine."""
        return daemon.image(self.client, self.made_of.name) is not None

    def prepare(self) -> None:
        """Make the base."""
        plan, options = self.made_of.plan, self.options
        base.ensure(self.client, plan, self.host, options.work, options.cache, report=self.report)

    def stage(self) -> Mapping[str, object]:
        """Stage package, wheels and recipe."""
        stage(self.made_of, self.options, self.folder, self.report)
        return definition(self.made_of, self.host)


def definition(made_of: Recipe, host: Host) -> dict[str, object]:
    """Return the bake file, for the staged folder."""
    plan = made_of.plan
    target: dict[str, Any] = {
        "context": ".",
        "dockerfile": "Dockerfile",
        "target": PRODUCT,
        "contexts": {
            "base": f"docker-image://{plan.base.serving}",
            "toolchain-base": f"docker-image://{plan.base.devel}",
            **{name: name for name in _CONTEXTS},
        },
        "args": {definitions.EPOCH: str(plan.revision.epoch)},
        "tags": [made_of.name],
        "labels": labels(made_of),
        "output": ["type=docker"],
    }
    return definitions.bake_file({made_of.cell: target})


def labels(made_of: Recipe) -> dict[str, str]:
    """Return the labels: the standard ones, which would otherwise be the base's, and a few of ftbuild's."""
    plan = made_of.plan
    standard = {
        "title": f"{plan.image} {made_of.cell}",
        "description": "OpenAI-compatible front for Triton with the FasterTransformer backend",
        "version": made_of.key,
        "revision": plan.revision.commit,
        "created": plan.revision.time,
        "source": plan.revision.url,
        "url": plan.revision.url,
        "documentation": plan.revision.url,
        "vendor": "ftbuild",
        "authors": "ftbuild",
        "licenses": "Apache-2.0",
        "ref.name": made_of.name.rsplit(":", 1)[1],
        "base.name": plan.base.serving,
        "base.digest": plan.base.digest or "",
    }
    return {
        **{f"org.opencontainers.image.{name}": value for name, value in standard.items()},
        f"{LABELS}.cell": made_of.cell,
        f"{LABELS}.key": made_of.key,
        f"{LABELS}.product": PRODUCT,
        f"{LABELS}.base": plan.base.name,
        f"{LABELS}.snapshot": plan.base.snapshot,
    }


def stage(made_of: Recipe, options: BuildOptions, folder: Path, report: Reporter) -> None:
    """Write all inputs but the images into `folder`; PinError where a wheel cannot be fetched."""
    for name in _CONTEXTS:
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir(parents=True)
    for place, file in made_of.files.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
    context.open_to_all(folder / "front")
    pinned = made_of.wheels
    wheels.fetch(pinned, made_of.plan.wheel_options, options.cache, ca=options.ca, report=report)
    linked = [Download(each.wheel, each.sha256) for each in pinned]
    downloads.link_into(folder / definitions.WHEELS, linked, options.cache)
