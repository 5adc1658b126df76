"""What is in an image, as databases of holes name it: from an SBOM in SPDX, or from a plan."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packageurl import PackageURL
from packaging.utils import canonicalize_name

from ftbuild import triton
from ftbuild.audit.ranges import family_of
from ftbuild.config.debian import LockedPackage
from ftbuild.errors import ConfigError
from ftbuild.host import reading
from ftbuild.plan import IN_IMAGES, Plan
from ftbuild.text import bounded_json

# The largest SBOM of ours has 0.4 MB; those of scanners list files too.
MAX_BYTES = 100_000_000
MAX_VALUES = 2_000_000
# Of components, and of versions of one: each is compared with what databases know of its name.
MAX_COMPONENTS, MAX_VERSIONS = 50_000, 100
_LONGEST_URL = 2000
# Releases of Debian, as OSV numbers them.
_SUITES = {"bullseye": "11", "bookworm": "12", "trixie": "13", "forky": "14"}
# A rebuild without a change of the source (Debian Developer's Reference, 5.10.2.1).
_REBUILD = re.compile(r"\+b[0-9]+$")
# Debian's own Python modules, which our SBOMs list twice: a database of PyPI knows no fixes of Debian's.
_DEBIANS = "found in /usr/lib/python3/dist-packages"
# How our SBOMs identify patches (publishing/attest/sbom.py).
_PATCH = "SPDXRef-patch-"
# Relationships of an SBOM whose second package is in the first.
_HOLDS = "CONTAINS"


@dataclass(frozen=True, order=True)
class Component:
    """A package as a database names it, and the package URLs (without version) that it has in an image.

    Debian's `name` and `version` are those of the source package. `ecosystem` is empty for what has none: a
    library of a wheel, or a program from its own repository.
    """

    ecosystem: str
    name: str
    version: str
    urls: tuple[str, ...]

    @property
    def family(self) -> str:
        """The ecosystem without its release."""
        return family_of(self.ecosystem)

    @property
    def shown(self) -> str:
        """Its name, for a reader."""
        bundled = any(url.startswith("pkg:generic/") for url in self.urls)
        return f"{self.name} (in a wheel)" if bundled else self.name


@dataclass(frozen=True)
class Contents:
    """The components of images that have the same ones.

    `local` is whether their base was built here; `unversioned` names libraries of which no part tells the
    release; `patches` are those that were compiled in, as `component/file`.
    """

    images: tuple[str, ...]
    components: tuple[Component, ...]
    local: bool
    unversioned: tuple[str, ...] = ()
    patches: tuple[str, ...] = ()

    def versions(self) -> dict[str, str]:
        """Return package URL without a version -> version, for `config.holes.known`."""
        return {url: component.version for component in self.components for url in component.urls}


def of_plan(plan: Plan, product: str) -> Contents:
    """Return what a plan knows: the server, the wheels that the image gets, and locked Debian packages.

    The lock has no sources of Debian packages: their names are those of folders in the pool (Debian Policy,
    5.6.12 of binary versions), their versions those of the packages.
    """
    found = [_server(plan.server)]
    roles = [role for role in IN_IMAGES if role in ("server", "runtime", product)]
    found += [_python(wheel.name, wheel.version) for wheel in plan.wheels if wheel.role in roles]
    if plan.base.debian:
        suite = plan.base.debian.requested.suite
        release = _SUITES.get(suite, suite)
        found += [_locked(package, release) for package in plan.base.debian.installed("serving")]
    return Contents(
        (f"{plan.cell.id} {product}",),
        _merged(found),
        plan.base.local is not None,
        patches=tuple(sorted(plan.patch_names())),
    )


def of_sbom(file: Path) -> Contents:
    """Return what an SBOM lists in an image, but not what it was built from or with.

    Raises ConfigError when it is no SPDX 2 document in JSON.
    """
    try:
        document = bounded_json.loads(reading.read_bytes(file, max_bytes=MAX_BYTES), MAX_VALUES)
        if not str(document["spdxVersion"]).startswith("SPDX-2."):
            raise ValueError("its version is another one")
        return _listed(document, file)
    except (ValueError, KeyError, TypeError, AttributeError) as broken:
        raise ConfigError(
            f"not an SBOM in SPDX 2 as JSON: {type(broken).__name__}: {broken}",
            where=str(file),
            hint="docker buildx imagetools inspect IMAGE --format '{{json .SBOM.SPDX}}' writes one",
        ) from broken


def merged(contents: Iterable[Contents]) -> list[Contents]:
    """Join images that hold the same."""
    found: dict[Contents, tuple[str, ...]] = {}
    for each in contents:
        nameless = replace(each, images=())
        found[nameless] = (*found.get(nameless, ()), *each.images)
    return [replace(nameless, images=images) for nameless, images in found.items()]


def _listed(document: Mapping[str, Any], file: Path) -> Contents:
    links = [(r["spdxElementId"], r["relationshipType"], r["relatedSpdxElement"])
             for r in document.get("relationships", ())]  # fmt: skip
    held = {related for _, kind, related in links if kind == _HOLDS}
    bases = {related for _, kind, related in links if kind == "DESCENDANT_OF"}
    found, unversioned, local = [], [], True
    for package in document["packages"]:
        urls = [PackageURL.from_string(url) for url in _urls(package)]
        if package["SPDXID"] in bases:
            local = all(url.type != "oci" for url in urls)
        elif (package["SPDXID"] in held or not held) and package.get("sourceInfo") != _DEBIANS:
            for url in urls:
                if url.version:
                    found += _component(url)
                else:
                    unversioned.append(url.name)
    name = str(document.get("name") or file.name)
    components = _merged(found)
    _require_few(components)
    known = {component.name for component in components}
    patches = {p["name"] for p in document["packages"] if p["SPDXID"].startswith(_PATCH)}
    missing = tuple(sorted(set(unversioned) - known))
    return Contents((name,), components, local, missing, tuple(sorted(patches)))


def _require_few(found: tuple[Component, ...]) -> None:
    """Raise ValueError for more than an image can hold."""
    versions = Counter((each.ecosystem, each.name) for each in found)
    if len(found) > MAX_COMPONENTS or max(versions.values(), default=0) > MAX_VERSIONS:
        raise ValueError(
            f"more than {MAX_COMPONENTS} packages, or {MAX_VERSIONS} versions of one, are in no image"
        )


def _urls(package: Mapping[str, Any]) -> Iterator[str]:
    for ref in package.get("externalRefs", ()):
        if ref["referenceType"] == "purl":
            if len(ref["referenceLocator"]) > _LONGEST_URL:
                raise ValueError(f"a package URL has more than {_LONGEST_URL} characters")
            yield ref["referenceLocator"]


def _component(url: PackageURL) -> list[Component]:
    """Return the component of a package URL; none for what no database of holes knows, such as an image."""
    plain = url._replace(version=None, qualifiers={}, subpath=None).to_string()
    version = url.version or ""
    if url.type == "pypi":
        return [_python(url.name, version)]
    if url.type == "deb" and url.namespace in ("debian", "ubuntu"):
        qualifiers = url.qualifiers if isinstance(url.qualifiers, dict) else {}
        source, _, source_version = str(qualifiers.get("upstream", "")).partition("@")
        release = str(qualifiers.get("distro", "")).rpartition("-")[2]
        ecosystem = f"{url.namespace.title()}:{release}"
        source, source_version = source or url.name, source_version or version
        return [Component(ecosystem, source, source_version, (plain,))]
    if url.type == "generic":
        return [Component("", url.name.lower(), version, (plain,))]
    if url.type == "github":
        return [Component("", f"{url.namespace}/{url.name}".lower(), version, (plain,))]
    return []


def _server(version: str) -> Component:
    return Component("", triton.PURL.removeprefix("pkg:github/"), f"v{version}", (triton.PURL,))


def _python(name: str, version: str) -> Component:
    canonical = canonicalize_name(name)
    return Component("PyPI", canonical, version, (f"pkg:pypi/{canonical}",))


def _locked(package: LockedPackage, release: str) -> Component:
    source = package.path.split("/")[-2]
    version = _REBUILD.sub("", package.version)
    return Component(f"Debian:{release}", source, version, (f"pkg:deb/debian/{package.name}",))


def _merged(components: list[Component]) -> tuple[Component, ...]:
    """Join packages of one source, and wheels that are installed twice."""
    urls: dict[tuple[str, str, str], set[str]] = {}
    for each in components:
        urls.setdefault((each.ecosystem, each.name, each.version), set()).update(each.urls)
    return tuple(sorted(Component(*key, tuple(sorted(found))) for key, found in urls.items()))
