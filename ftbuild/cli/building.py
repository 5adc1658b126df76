"""The options about how a cell is built: what compiles it, and the way that the images take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ftbuild.cli.options import Builder, CaBundle, Jobs, Progress, Rebuild, work_folder
from ftbuild.host.paths import ca_bundle, cache_folder

if TYPE_CHECKING:
    from ftbuild.build.run import BuildOptions
    from ftbuild.publishing.names import Names


@dataclass(frozen=True)
class Building:
    """The options about how a cell is built, as typed."""

    jobs: Jobs = None
    ca: CaBundle = None
    builder: Builder = None
    progress: Progress = "auto"
    rebuild: Rebuild = False
    sources: Annotated[str | None, "file made by invoke bundle, for a machine without internet"] = None
    layer_cache: Annotated[
        str | None, "repository in a registry that holds layers, for builders that share no disk"
    ] = None
    push: Annotated[
        str | None,
        "registry (host and path) through which the images come from --builder, to be verified here",
    ] = None
    stage: Annotated[str | None, "path below the registry of --push where they wait"] = None

    def check(self) -> None:
        """Raise ConfigError for a CA bundle, PinError for a bundle of sources, that is not there."""
        from ftbuild.errors import PinError

        ca_bundle(self.ca)
        if self.sources and not Path(self.sources).is_file():
            raise PinError("the bundle does not exist", where=self.sources, hint="invoke bundle makes it")

    def through(self, image: str) -> Names | None:
        """Return through which names the images come here, None if the engine has them.

        Raises ConfigError for what is no registry, and for options that mean nothing without another.
        """
        from ftbuild.errors import ConfigError

        if (self.push and not self.builder) or (self.stage and not self.push):
            raise ConfigError(
                "--push needs --builder: the local engine's images need no way here"
                if self.push
                else "--stage needs --push",
                hint="invoke publish pushes what is built here",
            )
        if not self.push:
            return None
        from ftbuild.publishing import names

        return names.resolve(self.push, self.stage, image, "--push")

    def options(self) -> BuildOptions:
        """Return the settings of the build."""
        from ftbuild.build.run import BuildOptions

        return BuildOptions(
            cache=cache_folder(),
            work=work_folder(),
            jobs=self.jobs,
            ca=ca_bundle(self.ca),
            builder=self.builder,
            progress=self.progress,
            rebuild=self.rebuild,
            layer_cache=self.layer_cache,
        )


AS_USUAL = Building()
