"""The options about what is taken from registries, which commands that build share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ftbuild.cli.options import setting

if TYPE_CHECKING:
    from ftbuild.publishing.substitution import Substitutes
    from ftbuild.publishing.verifying import Verifier


@dataclass(frozen=True)
class Substituting:
    """The options about images that are taken from a registry in place of a build."""

    from_: Annotated[
        str | None,
        "registry (host and path) whose signed images of the same inputs are pulled instead of built "
        "(default: FTBUILD_FROM)",
    ] = setting("FTBUILD_FROM")
    trust: Annotated[
        Sequence[str],
        "public key that has signed them, a file or KMS address (repeatable; default: FTBUILD_TRUSTED_KEYS)",
    ] = ()

    def substitutes(self, image: str, work: Path) -> Substitutes | None:
        """Return where to look for images of that name, None for nowhere.

        Raises ConfigError if nobody is trusted, or for what is no registry; HostError without cosign.
        """
        if not self.from_:
            return None
        from ftbuild.publishing import names, verifying
        from ftbuild.publishing.substitution import Substitutes

        return Substitutes(
            names.resolve(self.from_, None, image, "--from"), verifying.trusted(self.trust), work
        )


@dataclass(frozen=True)
class Taking(Substituting):
    """The options about what is taken from registries: images in place of a build, objects for it."""

    objects: Annotated[
        bool,
        "compile only what the objects lack that the lock has of the cell, if a trusted key has signed them",
    ] = False

    def objects_of(self) -> tuple[Verifier, ...] | None:
        """Return whose objects are brought, None if none are; errors as `substitutes`."""
        if not self.objects:
            return None
        from ftbuild.build import machine
        from ftbuild.errors import ConfigError
        from ftbuild.publishing import verifying

        if machine.compiles_online():
            raise ConfigError(
                f"--objects and {machine.REMOTE_STORAGE} exclude each other: nobody has signed what is there",
                hint=f"unset {machine.REMOTE_STORAGE}",
            )
        return verifying.trusted(self.trust)

    def check(self, image: str, work: Path) -> None:
        """Raise what the others raise."""
        self.substitutes(image, work)
        self.objects_of()


NOTHING, OWN_MEANS = Substituting(), Taking()
