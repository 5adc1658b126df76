"""What is known of an image's holes, as an OpenVEX v0.2.0 document (github.com/openvex/spec).

OpenVEX and not CycloneDX's VEX: that one refers into a CycloneDX BOM, and ours is SPDX. OpenVEX names
products and components by package URL, as any SBOM does, and scanners take it as a file (Grype, Trivy).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ftbuild import __version__
from ftbuild.config.holes import Statement
from ftbuild.input_key import digest_of
from ftbuild.plan import Plan
from ftbuild.publishing.attest import materials, purl

PREDICATE = "https://openvex.dev/ns/v0.2.0"


def document(plan: Plan, name: str, digest: str, listed: Iterable[str]) -> dict[str, Any] | None:
    """Return the document about the image that the repository `name` (`host/path`) has as manifest `digest`.

    `listed` are the package URLs of its SBOM: nothing is said of what it does not list. None if that leaves
    nothing, since a document needs a statement. Its time is the day up to which holes are known, so that the
    same arguments give the same document.
    """
    product = purl.image(name, digest)
    components = {url.partition("?")[0] for url in listed}
    statements = [_statement(each, product) for each in plan.holes.statements if each.purl in components]
    if not statements:
        return None
    time = f"{plan.holes.day}T00:00:00Z"
    body = {"author": "ftbuild", "timestamp": time, "version": 1, "statements": statements}
    return {
        "@context": PREDICATE,
        "@id": f"{materials.NAMES}/vex/{digest_of(body)}",
        "tooling": f"ftbuild-{__version__}",
        **body,
    }


def _statement(stated: Statement, product: str) -> dict[str, Any]:
    """Return a statement. The reason of `not_affected` is a note: the schema takes it or a justification."""
    known = {
        "vulnerability": {"@id": stated.url, "name": stated.id, "description": stated.what},
        "products": [{"@id": product, "subcomponents": [{"@id": stated.purl}]}],
        "status": stated.status,
    }
    if stated.status == "affected":
        return {**known, "action_statement": stated.text, "status_notes": stated.notes}
    if stated.justification:
        known["justification"] = stated.justification
    return {**known, "status_notes": f"{stated.text}; {stated.notes}"}
