"""Base images: present, pulled by BuildKit, or built here from locked Debian and PyPI packages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild import registry
from ftbuild.build import bake, context, os_layer, packages
from ftbuild.config.schema import Config
from ftbuild.engine import daemon
from ftbuild.errors import HostError
from ftbuild.host import disk
from ftbuild.plan import Plan, PlannedBase
from ftbuild.sources import downloads
from ftbuild.sources.debian import archive
from ftbuild.text.reporter import Reporter
from ftbuild.text.units import GIB

if TYPE_CHECKING:
    import docker

# Both images, their layers' build cache and the downloaded packages, measured: docs/architecture.md.
LOCAL_BASE_BYTES = 16 * GIB


def ensure(
    client: docker.DockerClient,
    plan: Plan,
    host: bake.Host,
    work: Path,
    cache: Path,
    *,
    rebuild: bool = False,
    report: Reporter = print,
) -> None:
    """Ensure that both images of the base are available.

    A local one is made of the packages in the lock, which are fetched into the store first; the network is
    not needed for those that it has. Raises HostError, within seconds, if the base comes from a registry that
    cannot be reached; HostError if the operating system cannot be made here, PinError if a package cannot be
    fetched, BuildError if the base does not build.
    """
    base = plan.base
    present = all(daemon.image(client, name) for name in (base.serving, base.devel))
    if present and not rebuild:
        return
    if base.local is None:
        registry.require_reachable(base.serving, purpose=f"base {base.name}", hint=_alternatives(base))
        return
    disk.require(work, LOCAL_BASE_BYTES, f"base {base.name}")
    assert base.debian is not None
    report(f"base {base.name}: building {base.serving} (a few minutes, once)")
    downloads.fetch_all(archive.downloads(base.debian), cache, report, ca=host.ca)
    os_image = os_layer.ensure(client, base.debian, base.local.os_image, cache, report)
    folder = work / f"base-{base.name}" / base.serving.rpartition(":")[2]
    job = bake.Job(folder, bake.base_definition(plan, os_image, host))
    packages.stage(base.debian, cache, folder / packages.CONTEXT)
    context.wheels(plan, [context.SERVER], cache, folder, ca=host.ca, report=report)
    bake.write(job, host)
    context.dockerfile(plan, "base", job.folder)
    bake.run(job, host, report=report)


def digests(config: Config, report: Reporter = print) -> dict[str, dict[str, str]]:
    """Return base -> release -> digest of every base from a registry, for the lock.

    If a registry cannot be reached, the digest in the lock is kept and reported.
    """
    found: dict[str, dict[str, str]] = {}
    for name, base in config.bases.bases.items():
        for release in base.releases if base.image else ():
            assert base.image is not None
            image, kept = base.image.format(release=release), config.lock.bases.get(name, {}).get(release)
            try:
                pinned: str | None = registry.digest(image)
            except HostError as silent:
                pinned = kept
                report(f"base {name}: {image} keeps {kept or 'no digest'}: {silent.what}, {silent.where}")
            if pinned:
                found.setdefault(name, {})[release] = pinned
    return found


def _alternatives(base: PlannedBase) -> str:
    return (
        "check network and proxy (invoke doctor), docker load the image from a file, or use another base "
        f"than {base.name}: --base open needs Debian's and PyPI's packages only"
    )
