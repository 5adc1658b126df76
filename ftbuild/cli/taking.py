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
class Taking:
    """The options about what is taken from registries: images in place of a build, objects for it."""

    from_: Annotated[
        str | None,
        "registry (host and path) whose signed images of the same inputs are pulled instead of built "
        "(default: FTBUILD_FROM)",
    ] = setting("FTBUILD_FROM")
    trust: Annotated[
        Sequence[str],
        "public key that has signed them, a file or KMS address (repeatable; default: FTBUILD_TRUSTED_KEYS)",
    ] = ()
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

    def words(self) -> tuple[str, ...]:
        """Return the options as typed, for a command that is started by this one."""
        taking = [*(["--from", self.from_] if self.from_ else []), *(["--objects"] if self.objects else [])]
        return (*taking, *(word for key in self.trust for word in ("--trust", key) if taking))


OWN_MEANS = Taking()
