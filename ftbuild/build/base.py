"""Base images: present, pulled by BuildKit, or built here from locked Debian and PyPI packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild import registry
from ftbuild.build import buildable, context, definitions, os_layer, packages
from ftbuild.build.machine import Host
from ftbuild.config.schema import Config
from ftbuild.engine import builders, daemon, made
from ftbuild.errors import HostError
from ftbuild.host import disk
from ftbuild.plan import Plan, PlannedBase
from ftbuild.sources import downloads
from ftbuild.sources.debian import archive
from ftbuild.text.reporter import Reporter
from ftbuild.text.units import GIB

if TYPE_CHECKING:
    import docker
    from docker.models.images import Image


def ensure(
    client: docker.DockerClient,
    plan: Plan,
    host: Host,
    work: Path,
    cache: Path,
    *,
    rebuild: bool = False,
    report: Reporter = print,
) -> None:
    """Ensure that both images of the base are available in the engine.

    A local one is made there, whatever builder `host` names, of the packages in the lock, and of the server's
    sources if it compiles these. They are fetched into the store first; the network is not needed for those
    that it has. Raises HostError, within seconds, if the base is of a platform that engine or builder do not
    run, or comes from a registry that cannot be reached; HostError if the operating system cannot be made
    here, PinError if a package or a source cannot be fetched, PatchError if a patch does not apply,
    BuildError if the base does not build.
    """
    base = plan.base
    # A local base is made in the engine, and every image is verified there.
    for builder in dict.fromkeys((builders.ENGINE, host.builder or builders.ENGINE)):
        builders.require_platform(builder, base.platform)
    if base.local is None:
        if not rebuild and is_present(client, plan, cache, report):
            return
        registry.require_reachable(base.serving, purpose=f"base {base.name}", hint=_alternatives(base))
        return
    here = replace(host, builder=builders.ENGINE, driver=builders.DOCKER)
    images = BaseImages(client, plan, here, work, cache, report)
    with daemon.replacing(client, base.serving, base.devel):
        job = buildable.ensure(images, here, rebuild=rebuild, report=report)
    if job:
        for name in (base.serving, base.devel):
            made.note(cache, name, daemon.require_image(client, name))


@dataclass(frozen=True)
class BaseImages:
    """Both images of a local base: to serve from, and to compile in."""

    client: docker.DockerClient
    plan: Plan
    host: Host
    work: Path
    cache: Path
    report: Reporter
    prefix: str = ""

    @property
    def name(self) -> str:
        """`base open`."""
        return f"base {self.plan.base.name}"

    @property
    def folder(self) -> Path:
        """The folder, named by the key of the base."""
        return self.work / f"base-{self.plan.base.name}" / self.plan.base.serving.rpartition(":")[2]

    def is_made(self) -> bool:
        """Return whether both images are in the engine, and are those that were made here."""
        return is_present(self.client, self.plan, self.cache, self.report)

    def prepare(self) -> None:
        """Raise HostError without the space that it takes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        disk.require(self.folder, self.plan.base.base_gib * GIB, self.name)

    def stage(self) -> Mapping[str, object]:
        """Fetch and stage packages, sources and wheels, and make the operating system."""
        plan, base, cache, folder, report = self.plan, self.plan.base, self.cache, self.folder, self.report
        assert base.local is not None
        assert base.debian is not None
        report(f"{self.name}: building {base.serving} (a few minutes, once)")
        downloads.fetch_all(archive.downloads(base.debian), cache, report, ca=self.host.ca)
        os_image = os_layer.ensure(
            self.client, base.debian, base.architecture, base.local.os_image, cache, report
        )
        packages.stage(base.debian, cache, folder / packages.CONTEXT)
        roles = [context.SERVER]
        if plan.server_sources:
            context.sources(plan, plan.server_sources, cache, folder, report=report)
            roles.append(context.TOOLCHAIN)
        context.wheels(plan, roles, cache, folder, ca=self.host.ca, report=report)
        context.dockerfile(plan, "base", folder)
        return definitions.local_base(plan, os_image, self.host)


def is_present(client: docker.DockerClient, plan: Plan, cache: Path, report: Reporter) -> bool:
    """Return whether both images are in the engine, and are those that were made here if they are local."""
    return _are_here(client, plan, (plan.base.serving, plan.base.devel), cache, report)


def is_comparable(client: docker.DockerClient, plan: Plan, cache: Path, report: Reporter) -> bool:
    """Return whether verify can compare with the base: `is_present`, or tools in place of the compiler."""
    return _are_here(client, plan, (plan.base.serving, tools(client, plan.base)), cache, report)


def tools(client: docker.DockerClient, base: PlannedBase) -> str:
    """Return the image with the tools that verify needs: that of them alone where only that one is here."""
    here = (name for name in (base.devel, base.tools) if name and daemon.image(client, name))
    return next(here, base.devel)


def _are_here(
    client: docker.DockerClient, plan: Plan, names: Sequence[str], cache: Path, report: Reporter
) -> bool:
    found = {name: daemon.image(client, name) for name in names}
    return all(found.values()) and (plan.base.local is None or _are_known(cache, found, report))


def _are_known(cache: Path, found: Mapping[str, Image | None], report: Reporter) -> bool:
    """Return whether the images of a base are those that were made here; report one that is not."""
    strange = [
        name for name, image in found.items() if image and not made.is_known(cache, name, str(image.id))
    ]
    for name in strange:
        report(f"{name} is another image than the one that was made here: the base is built again")
    return not strange


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
        "check network and proxy (invoke doctor), docker load the image from a file, or leave out --base "
        f"{base.name}: the release's own base needs Debian's and PyPI's packages only"
    )
