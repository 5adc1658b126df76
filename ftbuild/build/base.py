"""Base images: present, pulled by BuildKit, or built here from Debian and PyPI packages."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ftbuild import registry
from ftbuild.build import bake, context
from ftbuild.config.schema import Config, LocalBase
from ftbuild.engine import daemon
from ftbuild.errors import HostError
from ftbuild.host import disk, shell
from ftbuild.plan import Plan, PlannedBase
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

    Raises HostError, within seconds, if the base comes from a registry that cannot be reached, or if its
    operating system layer is available neither from a registry nor by debootstrap; PinError if a
    wheel cannot be fetched; BuildError if the base does not build.
    """
    base = plan.base
    present = all(daemon.image(client, name) for name in (base.serving, base.devel))
    if present and not rebuild:
        return
    if base.local is None:
        registry.require_reachable(base.serving, purpose=f"base {base.name}", hint=_alternatives(base))
        return
    disk.require(work, LOCAL_BASE_BYTES, f"base {base.name}")
    report(f"base {base.name}: building {base.serving} (a few minutes, once)")
    os_image = _os_image(client, base.local, report)
    folder = work / f"base-{base.name}" / base.serving.rpartition(":")[2]
    job = bake.Job(folder, bake.base_definition(plan, os_image, host))
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


def _os_image(client: docker.DockerClient, local: LocalBase, report: Reporter) -> str:
    """Return the operating system image: local, else pulled, else made by debootstrap."""
    from docker.errors import APIError

    bootstrapped = f"ftbuild-os:{local.suite}"
    for name in (local.os_image, bootstrapped):
        if daemon.image(client, name):
            return name
    try:
        report(f"pulling {local.os_image}")
        client.images.pull(local.os_image)
        return local.os_image
    except APIError:
        report(f"{local.os_image} cannot be pulled: making Debian {local.suite} with debootstrap")
        _debootstrap(client, local.suite, bootstrapped)
        return bootstrapped


def _debootstrap(client: docker.DockerClient, suite: str, name: str) -> None:
    if shutil.which("debootstrap") is None:
        raise HostError(
            "the base image of the operating system cannot be pulled, and debootstrap is not installed",
            hint="install debootstrap (./bootstrap does), or docker load an image of Debian",
        )
    repository, _, tag = name.partition(":")
    with TemporaryDirectory(prefix="ftbuild-os-") as scratch:
        tarball = Path(scratch) / "os.tar"
        shell.run(["debootstrap", "--variant=minbase", suite, f"{scratch}/root"], timeout=1800)
        # apt's lists and package files are useless in a layer.
        shell.run(["chroot", f"{scratch}/root", "apt-get", "clean"])
        without = "--exclude=./var/lib/apt/lists/*"
        shell.run(["tar", "--numeric-owner", "-C", f"{scratch}/root", without, "-cf", str(tarball), "."])
        client.api.import_image_from_file(str(tarball), repository=repository, tag=tag)
