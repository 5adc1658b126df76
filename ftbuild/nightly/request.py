"""The request for a nightly run: its cells, and how they are run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ftbuild.config.schema import Config
from ftbuild.matrix import Matrix
from ftbuild.nightly.builders import BuilderRequest
from ftbuild.plan import Revision
from ftbuild.publishing.substitution import Substitutes


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

    `jobs` and `parallel` are for each of the `builders`, of which none means the engine's own. `taking` are
    the options of `invoke build` about what is taken from registries, `substitutes` what they mean for bases.
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
    taking: Sequence[str] = ()
    substitutes: Substitutes | None = None
    publish_objects: bool = False
