"""The bill of materials of a published image, as SPDX 2.3: its packages, and what it was made from.

A scanner finds the packages of an image, but not the pinned commits and patches behind its libraries. So
sources and patches, with their origins, are packages of their own here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from packaging.utils import canonicalize_name

from ftbuild import triton
from ftbuild.plan import Plan, PlannedWheel
from ftbuild.publishing.attest import materials, purl, spdx
from ftbuild.publishing.attest.bundled import BundledLibrary
from ftbuild.publishing.attest.inventory import DebianPackage, Inventory, PythonPackage
from ftbuild.publishing.attest.materials import Base
from ftbuild.publishing.attest.spdx import Package, Relationship
from ftbuild.sources.inputs import PlannedPatch, PlannedSource

Part = tuple[Package, Relationship]  # a package, and its relationship to another
PREDICATE = "https://spdx.dev/Document"
_PACKAGES = {"dpkg": "Debian packages", "python3": "Python packages"}


def document(
    plan: Plan, product: str, inventory: Inventory, name: str, digest: str, created: str | None = None
) -> dict[str, Any]:
    """Return the SBOM of a product that the repository `name` (`host/path`) has as manifest `digest`.

    `created` is an ISO 8601 time, by default that of the plan's revision. The same arguments give the same
    document. Reads the recipe's files only.
    """
    image = _image(plan, product, name, digest)
    root = image.id
    parts = [
        (image, Relationship(spdx.DOCUMENT, "DESCRIBES", root)),
        *_base(plan, inventory, root),
        *_debian_packages(plan, inventory, root),
        *_python_packages(plan, product, inventory, root),
        *(_bundled(library, root) for library in inventory.bundled),
        *(_source(source, root) for source in plan.sources),
        *(_patch(plan, patch) for patch in plan.patches),
        *_tools(plan, product, root),
    ]
    return spdx.document(
        name=f"{name}@{digest}",
        namespace=f"{materials.NAMES}/spdx/{name}/{digest.rpartition(':')[2]}",
        created=created or plan.revision.time,
        comment=_comment(inventory),
        packages=[package for package, _ in parts],
        relationships=[relationship for _, relationship in parts],
    )


def package_urls(document: dict[str, Any]) -> list[str]:
    """Return the package URLs of an SBOM."""
    return [ref["referenceLocator"] for p in document["packages"] for ref in p.get("externalRefs", ())]


def _comment(inventory: Inventory) -> str:
    listed = "Debian packages as dpkg, Python packages as importlib.metadata of the image list them."
    listed += " Of the libraries in wheels those that auditwheel put there, by their files' names."
    absent = [f"The image has no {tool}: its {_PACKAGES[tool]} are not listed." for tool in inventory.missing]
    made = "Sources, patches and build tools as pinned by ftbuild. Licences as the packages state them."
    return " ".join([listed, *absent, made])


def _image(plan: Plan, product: str, name: str, digest: str) -> Package:
    tag = plan.tag(product).rpartition(":")[2]
    return Package(
        spdx.identifier("image", name, digest),
        name,
        tag,
        purl=purl.image(name, digest, tag),
        sha256=digest.removeprefix("sha256:"),
        purpose="CONTAINER",
        comment=plan.labels(product)["org.opencontainers.image.description"],
    )


def _base(plan: Plan, inventory: Inventory, root: str) -> Iterator[Part]:
    """Yield the base, and what its recipe unpacks from wheels, which neither dpkg nor pip lists."""
    system = f"{inventory.system} {inventory.system_version}".strip()
    base = _base_image(materials.serving_base(plan), plan.base.origin, f"Its system: {system or 'unknown'}.")
    yield base, Relationship(root, "DESCENDANT_OF", base.id)
    server = Package(
        spdx.identifier("server", triton.PURL, plan.server),
        "Triton Inference Server",
        plan.server,
        purl=f"{triton.PURL}@v{plan.server}",
        source_info="the base's server, which says this version of itself; its files are in the base",
    )
    yield server, Relationship(base.id, "CONTAINS", server.id)
    for wheel in materials.wheels(plan, "server"):
        package = _wheel(wheel, "unpacked by the base's Dockerfile, so no tool in the image lists it")
        yield package, Relationship(base.id, "CONTAINS", package.id)


def _base_image(base: Base, origin: str, comment: str = "") -> Package:
    return Package(
        spdx.identifier("base", base.name, base.tag, base.digest),
        base.name,
        base.tag,
        purl=base.purl,
        sha256=base.digest.removeprefix("sha256:"),
        purpose="CONTAINER",
        source_info=origin,
        comment=comment,
    )


def _debian_packages(plan: Plan, inventory: Inventory, root: str) -> Iterator[Part]:
    """Yield the installed packages; the lock of a local base has the sha256 of their files."""
    locked: dict[tuple[str, str, str], str] = {
        (p.name, p.version, p.architecture): p.sha256 for p in materials.debian(plan)
    }
    for package in inventory.debian:
        sha256 = locked.get((package.name, package.version, package.architecture), "")
        yield _debian(inventory, package, sha256, root)


def _debian(inventory: Inventory, package: DebianPackage, sha256: str, root: str) -> Part:
    source = package.source if package.source != package.name else ""
    if package.source_version != package.version:
        source = f"{package.source}@{package.source_version}"
    described = Package(
        spdx.identifier("debian", package.name, package.architecture, package.version),
        package.name,
        package.version,
        purl=purl.debian(
            inventory.system,
            inventory.system_version,
            package.name,
            package.version,
            package.architecture,
            source,
        ),
        sha256=sha256,
        licence=", ".join(package.licences),
        source_info=f"built from the source package {package.source} {package.source_version}",
    )
    return described, Relationship(root, "CONTAINS", described.id)


def _python_packages(plan: Plan, product: str, inventory: Inventory, root: str) -> Iterator[Part]:
    """Yield the distributions; those that our recipe installs with the sha256 of their wheels."""
    roles = ("runtime", product)
    locked = {
        (canonicalize_name(wheel.name), wheel.version): wheel.sha256
        for role in roles
        for wheel in materials.wheels(plan, role)
    }
    for package in inventory.python:
        yield _python(package, locked.get((canonicalize_name(package.name), package.version), ""), root)


def _python(package: PythonPackage, sha256: str, root: str) -> Part:
    described = Package(
        spdx.identifier("python", package.name, package.version, package.folder),
        package.name,
        package.version,
        purl=purl.python(package.name, package.version),
        sha256=sha256,
        licence=package.licence,
        source_info=f"found in {package.folder}",
    )
    return described, Relationship(root, "CONTAINS", described.id)


def _bundled(library: BundledLibrary, root: str) -> Part:
    described = Package(
        spdx.identifier("bundled", library.project, library.path),
        library.project,
        library.version or spdx.UNKNOWN,
        purl=purl.generic(library.project, library.version),
        sha256=library.sha256,
        purpose="LIBRARY",
        source_info=f"brought along by a wheel (auditwheel), found as {library.path}",
    )
    return described, Relationship(root, "CONTAINS", described.id)


def _source(planned: PlannedSource, root: str) -> Part:
    commit = materials.source(planned)
    part = f"only the folders {', '.join(planned.sparse)}; " if planned.sparse else ""
    part += f"without {', '.join(planned.without)}; " if planned.without else ""
    described = Package(
        _source_id(planned),
        planned.repository,
        planned.version or planned.ref,
        purl=commit.purl,
        location=commit.uri,
        purpose="SOURCE",
        source_info=f"commit {planned.commit} ({planned.ref}), tree {planned.tree}; "
        f"{part}at {planned.path} below the source root",
    )
    return described, Relationship(root, "GENERATED_FROM", described.id)


def _patch(plan: Plan, patch: PlannedPatch) -> Part:
    """Return a patch. A backport's fingerprint covers commit and paths, so it is not a file's checksum."""
    upstream = materials.backport(patch)
    name = f"{patch.component}/{patch.file}"
    covers = "commit and paths" if upstream else "the diff below its header"
    described = Package(
        spdx.identifier("patch", name, patch.fingerprint),
        name,
        upstream.commit if upstream else "",
        purl=upstream.purl if upstream else "",
        location=upstream.uri if upstream else "",
        sha256="" if upstream else patch.fingerprint,
        purpose="SOURCE",
        source_info=f"Origin: {patch.origin}",
        comment=f"sha256 fingerprint of {covers}: {patch.fingerprint}",
    )
    target = _source_id(plan.source(patch.component))
    return described, Relationship(described.id, "PATCH_APPLIED", target)


def _source_id(planned: PlannedSource) -> str:
    return spdx.identifier("source", planned.repository, planned.commit)


def _tools(plan: Plan, product: str, root: str) -> Iterator[Part]:
    """Yield what compiled the libraries and is not in the image."""
    for base in materials.devel_bases(plan):
        image = _base_image(base, plan.base.origin)
        yield image, Relationship(image.id, "BUILD_TOOL_OF", root)
    roles = {"toolchain": "BUILD_TOOL_OF", **({"pyt": "BUILD_DEPENDENCY_OF"} if product == "sdk" else {})}
    for role, kind in roles.items():
        for wheel in materials.wheels(plan, role):
            package = _wheel(wheel, f"pinned by the {role} requirements")
            yield package, Relationship(package.id, kind, root)


def _wheel(wheel: PlannedWheel, source_info: str) -> Package:
    return Package(
        spdx.identifier("wheel", wheel.name, wheel.version, wheel.role),
        wheel.name,
        wheel.version,
        purl=purl.python(wheel.name, wheel.version),
        sha256=wheel.sha256,
        source_info=f"{wheel.file}, {source_info}",
    )
