"""The clean command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from ftbuild.cli.arguments import Range
from ftbuild.cli.command import command
from ftbuild.cli.options import CONFIG, ConfigFolder, Format, work_folder
from ftbuild.cli.selection import revision
from ftbuild.host.paths import cache_folder

if TYPE_CHECKING:
    from ftbuild.config.schema import Config
    from ftbuild.host.garbage import Garbage
    from ftbuild.plan import Plan
    from ftbuild.publishing.names import Names


@command(needs={"stage": ["registry"]})
def clean(
    config: ConfigFolder = CONFIG,
    keep: Annotated[
        int, Range(0), "keys of each cell to keep besides that of today's inputs, newest first"
    ] = 2,
    registry: Annotated[
        str | None, "host and path of a registry whose staged tags are to be cleaned, too"
    ] = None,
    stage: Annotated[str | None, "path below the registry where images wait until they are tested"] = None,
    dry_run: Annotated[bool, "list what would be removed and stop"] = False,
    format: Format = "human",  # noqa: A002
) -> int:
    """Remove what builds with other inputs have left: work folders, images, sources, packages, staged tags.

    What a running command holds is left alone.
    """
    from ftbuild.config import loader
    from ftbuild.host import garbage
    from ftbuild.publishing import names

    loaded = loader.load(config)
    staging = names.resolve(registry, stage, loaded.matrix.image) if registry else None
    plans = _all_plans(loaded)
    removals = []
    try:
        for found in _garbage(loaded, plans, keep, staging):
            removals.append(garbage.removal(found, dry_run=dry_run))
    finally:  # what is gone is told of, whatever has stopped the rest
        print(garbage.as_json(removals) if format == "json" else garbage.table(removals))
    return 0


def _garbage(config: Config, plans: list[Plan], keep: int, staging: Names | None) -> Iterator[Garbage]:
    from ftbuild.build import garbage as builds
    from ftbuild.engine import daemon, orphans
    from ftbuild.errors import HostError
    from ftbuild.publishing import garbage as published
    from ftbuild.sources import garbage as sources
    from ftbuild.text import reporter

    try:
        client = daemon.connect()
    except HostError as silent:
        reporter.to_stderr(f"images and containers are left alone: {silent.what}")
    else:
        yield from orphans.garbage(client)
        yield from builds.images(client, plans, work_folder(), keep)
    yield from builds.folders(work_folder(), plans, keep)
    yield from sources.objects(config, cache_folder())
    yield from sources.downloaded(config, cache_folder())
    if staging:
        yield from published.staged(staging, plans, keep)


def _all_plans(config: Config) -> list[Plan]:
    """Return the plans of every cell on every base."""
    from ftbuild.matrix import make_matrix
    from ftbuild.planning import make_plans

    table = make_matrix(config, *config.bases.bases)
    return make_plans(config, table.cells, revision())
