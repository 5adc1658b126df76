"""Options that several commands share, as data; `arguments` makes command-line options of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ftbuild.cli.arguments import Range

if TYPE_CHECKING:
    from ftbuild.publishing.substitution import Substitutes
    from ftbuild.publishing.verifying import Verifier

ROOT = Path(__file__).parents[2]


def setting(name: str) -> str | None:
    """Return an environment variable; an empty one counts as unset."""
    return os.environ.get(name) or None


def work_folder() -> Path:
    """Return FTBUILD_WORK, else `.ftbuild` in the checkout: staged contexts, logs and records."""
    return Path(setting("FTBUILD_WORK") or ROOT / ".ftbuild")


CONFIG = Path(setting("FTBUILD_CONFIG") or ROOT / "buildcfg")

Format = Annotated[Literal["human", "json"], "human or json"]
ConfigFolder = Annotated[Path, "folder of the configuration (default: buildcfg, or FTBUILD_CONFIG)"]
Releases = Annotated[Sequence[str], "Triton release, for instance 22.12 (repeatable)"]
# Each job opens a file for every slot (dockerfiles/steps/slot.py), and 1024 is a usual limit of open files.
MOST_JOBS = 1000
Jobs = Annotated[
    int | None,
    Range(1, MOST_JOBS),
    "compile jobs at a time (default: from the engine's cores and memory)",
]
CaBundle = Annotated[
    str | None, "CA bundle for downloads behind a TLS-inspecting proxy (default: SSL_CERT_FILE)"
]
Builder = Annotated[str | None, "buildx builder (default: the engine's own)"]
Progress = Annotated[
    Literal["auto", "tty", "plain"], "auto: a line a stage; tty or plain: BuildKit's own, as in the log"
]
Rebuild = Annotated[bool, "build even if the image is there"]
DryRun = Annotated[bool, "print the plan and stop: needs neither Docker nor network"]
PlanFile = Annotated[Path | None, "plan file of a nightly run, in place of the options that select cells"]
# With a plan file they would mean nothing.
SELECTING = ("triton", "sm", "cell", "base")
BaseNames = Annotated[
    Sequence[str], "base to build on, for instance ngc (repeatable; default: that of the release)"
]
BaseName = Annotated[str | None, "base to build on, for instance open (default: the first that has a front)"]


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
        from ftbuild.build import bake
        from ftbuild.errors import ConfigError
        from ftbuild.publishing import verifying

        if bake.compiles_online():
            raise ConfigError(
                f"--objects and {bake.REMOTE_STORAGE} exclude each other: nobody has signed what is there",
                hint=f"unset {bake.REMOTE_STORAGE}",
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

        return Substitutes(names.resolve(self.from_, None, image), verifying.trusted(self.trust), work)

    def words(self) -> tuple[str, ...]:
        """Return the options as typed, for a command that is started by this one."""
        taking = [*(["--from", self.from_] if self.from_ else []), *(["--objects"] if self.objects else [])]
        return (*taking, *(word for key in self.trust for word in ("--trust", key) if taking))


OWN_MEANS = Taking()
