"""The materials of a build, as SBOM and provenance both name them: commits, patches, wheels, bases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ftbuild.config.debian import LockedPackage
from ftbuild.host.redaction import redact
from ftbuild.plan import Plan, PlannedWheel
from ftbuild.publishing.attest import purl
from ftbuild.registry import reference
from ftbuild.sources.inputs import PlannedPatch, PlannedSource

# Our own names. The top-level domain is reserved (RFC 2606), so no host can have them.
NAMES = "https://ftbuild.invalid"
_REMOTE = ("https://", "http://", "ssh://", "git://")


@dataclass(frozen=True)
class Commit:
    """A commit and its repository; the url is empty for one on this machine."""

    url: str
    commit: str
    name: str

    @property
    def uri(self) -> str:
        """Its location, as SPDX 2.3 (7.7) and SLSA write it: `git+URL@COMMIT`."""
        return f"git+{self.url}@{self.commit}" if self.url else ""

    @property
    def purl(self) -> str:
        """Its package URL."""
        return purl.git(self.url, self.commit, self.name)


@dataclass(frozen=True)
class Base:
    """The image that a product is based on or compiled in."""

    name: str
    tag: str
    digest: str
    purl: str


def source(planned: PlannedSource) -> Commit:
    """Return the commit of a pinned source."""
    return Commit(_public(planned.url), planned.commit, planned.repository)


def backport(patch: PlannedPatch) -> Commit | None:
    """Return the upstream commit of a backport, which its DEP-3 Origin names; None for a patch of ours."""
    if not patch.file.endswith(".backport"):
        return None
    url, _, commit = patch.origin.removeprefix("backport, ").partition("/commit/")
    return Commit(_public(url), commit, patch.component)


def wheels(plan: Plan, role: str) -> tuple[PlannedWheel, ...]:
    """Return the wheels that a stage installs, or, as `server`, that a local base unpacks."""
    return tuple(wheel for wheel in plan.wheels if wheel.role == role)


def debian(plan: Plan) -> tuple[LockedPackage, ...]:
    """Return the locked Debian packages of a local base, those to compile with too; none for another base."""
    return plan.base.debian.every() if plan.base.debian else ()


def debian_purl(plan: Plan, package: LockedPackage) -> str:
    """Return the package URL of a locked Debian package."""
    assert plan.base.debian is not None
    suite = plan.base.debian.requested.suite
    return purl.debian("debian", suite, package.name, package.version, package.architecture)


def serving_base(plan: Plan) -> Base:
    """Return the image that the products are based on."""
    return _base(plan, plan.base.serving)


def devel_bases(plan: Plan) -> Iterator[Base]:
    """Yield the image to compile in, if it is another one."""
    if plan.base.devel != plan.base.serving:
        yield _base(plan, plan.base.devel)


def _base(plan: Plan, image: str) -> Base:
    """Return a base; one built here is in no registry, and only its tag, the recipe's hash, identifies it."""
    if plan.base.local:
        name, _, tag = image.rpartition(":")
        return Base(name, tag, "", purl.generic(name, tag))
    parsed = reference.parse(image)
    digest = parsed.digest or ""
    name = f"{parsed.registry}/{parsed.repository}"
    return Base(name, parsed.tag, digest, purl.image(name, digest, parsed.tag))


def _public(url: str) -> str:
    """Return a URL that is valid on every machine, without credentials; "" for a path of this machine."""
    return redact(url).replace("***@", "") if url.startswith(_REMOTE) else ""
