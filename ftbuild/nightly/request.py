"""The request for a nightly run: its cells, and how they are run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ftbuild.config.schema import Config
from ftbuild.matrix import Matrix
from ftbuild.nightly.builders import BuilderRequest
from ftbuild.plan import Revision


@dataclass(frozen=True)
class Request:
    """The subject of a nightly run: its cells, and the command that requested it.

    `table` has the cells, None for all of the run that is resumed. `selected` are the options that chose
    them, as typed; `cache` holds the sources' git objects.
    """

    config: Config
    table: Matrix | None
    selected: Sequence[str]
    revision: Revision
    work: Path
    cache: Path


@dataclass(frozen=True)
class NightlyOptions:
    """Settings of a nightly run; None leaves a decision to ftbuild.

    `jobs` and `parallel` are for each of the `builders`, of which none means the engine's own. `from_` is the
    registry whose signed images are taken in place of a build, `trust` names the keys that have signed them
    and the `objects`.
    """

    registry: str | None = None
    stage: str | None = None
    jobs: int | None = None
    parallel: int | None = None
    resume: bool = False
    fail_fast: bool = False
    smoke: bool = True
    audit: bool = True
    allow_unsmoked: bool = False
    allow_shared_cache: bool = False
    allow_dirty: bool = False
    sign_key: str | None = None
    sign_log: bool = True
    attest: bool = False
    force: bool = False
    notify: str | None = None
    ca: Path | None = None
    builders: Sequence[BuilderRequest] = ()
    from_: str | None = None
    objects: bool = False
    trust: Sequence[str] = ()
    publish_objects: bool = False

    def of_bases(self, *, elsewhere: bool) -> list[str]:
        """Return the options of each `invoke base` about what is downloaded and taken from registries.

        A cell that is compiled takes the compiler image itself; builders `elsewhere` and published objects
        get it from here.
        """
        taken = self.from_ and not elsewhere and not self.publish_objects
        options = replace(self, objects=False).of_builds()  # a base has no objects
        return [*options, *(["--without-compiler"] if taken else [])]

    def of_builds(self) -> list[str]:
        """Return those of each `invoke build`."""
        return [*self._ca(), *self.taking()]

    def of_publications(self) -> list[str]:
        """Return the options of each `invoke publish` about what is published, and how it is signed."""
        flags = {
            "--attest": self.attest,
            "--force": self.force,
            "--allow-unsmoked": self.allow_unsmoked,
            "--allow-shared-cache": self.allow_shared_cache,
            "--allow-dirty": self.allow_dirty,
            "--objects": self.publish_objects,
        }
        return [
            *(["--sign-key", self.sign_key] if self.sign_key else []),
            *([] if self.sign_log else ["--no-sign-log"]),
            *(name for name, is_set in flags.items() if is_set),
            # What was built with objects is published if those are trusted who have signed them.
            *(self._trust() if self.objects else []),
        ]

    def taking(self) -> list[str]:
        """Return the options about what is taken from registries."""
        images = ["--from", self.from_] if self.from_ else []
        objects = ["--objects"] if self.objects else []
        return [*images, *objects, *(self._trust() if images or objects else [])]

    def _ca(self) -> list[str]:
        return ["--ca", str(self.ca)] if self.ca else []

    def _trust(self) -> list[str]:
        return [word for key in self.trust for word in ("--trust", key)]
