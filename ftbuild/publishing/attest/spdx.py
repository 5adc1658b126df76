"""SPDX 2.3 as JSON: identifiers, packages, relationships, the document (spdx.github.io/spdx-spec/v2.3)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from ftbuild import __version__
from ftbuild.plan import digest_of

DOCUMENT = "SPDXRef-DOCUMENT"
UNKNOWN = "NOASSERTION"
Element = Mapping[str, Any]


def identifier(kind: str, *identity: str) -> str:
    """An id that the same thing has in every document; a hash stands for what the ids' grammar forbids."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", identity[0]).strip("-")
    return f"SPDXRef-{kind}-{plain}-{digest_of([kind, *identity])}"


def package(
    spdx_id: str,
    name: str,
    version: str = "",
    *,
    purl: str = "",
    location: str = "",
    sha256: str = "",
    purpose: str = "",
    licence: str = "",
    source_info: str = "",
    comment: str = "",
) -> Element:
    """A package (chapter 7). `licence` is what it says of itself, in any words; empty values are left out."""
    declared = licence_expression(licence)
    optional = {
        "versionInfo": version,
        "primaryPackagePurpose": purpose,
        "licenseComments": "" if declared != UNKNOWN or not licence else f"The package says: {licence}",
        "sourceInfo": source_info,
        "comment": comment,
        "checksums": [{"algorithm": "SHA256", "checksumValue": sha256}] if sha256 else [],
        "externalRefs": [_purl(purl)] if purl else [],
    }
    return {
        "SPDXID": spdx_id,
        "name": name,
        "downloadLocation": location or UNKNOWN,
        "filesAnalyzed": False,
        "licenseConcluded": UNKNOWN,
        "licenseDeclared": declared,
        "copyrightText": UNKNOWN,
        **{key: value for key, value in optional.items() if value},
    }


def relationship(element: str, kind: str, related: str) -> Element:
    """`element` KIND `related` (chapter 11)."""
    return {"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": related}


def document(
    name: str,
    namespace: str,
    created: str,
    comment: str,
    packages: Sequence[Element],
    relationships: Iterable[Element],
) -> dict[str, Any]:
    """A document (chapter 6); its namespace ends with a hash of the rest, so that no two share one.

    `created` is any ISO 8601 time with its offset.
    """
    body = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": DOCUMENT,
        "name": name,
        "creationInfo": {"created": _time(created), "creators": [f"Tool: ftbuild-{__version__}"]},
        "comment": comment,
        "packages": list(packages),
        "relationships": list(relationships),
    }
    return {**body, "documentNamespace": f"{namespace}/{digest_of(body)}"}


def licence_expression(text: str) -> str:
    """`text` as an SPDX licence expression, if it is one (annex D), else NOASSERTION.

    A `LicenseRef-` would need its text in the document, which nobody has read.
    """
    try:
        expression = str(canonicalize_license_expression(text))
    except InvalidLicenseExpression:
        return UNKNOWN
    return UNKNOWN if "LicenseRef-" in expression else expression


def _purl(locator: str) -> Element:
    return {
        "referenceCategory": "PACKAGE-MANAGER",
        "referenceType": "purl",
        "referenceLocator": locator,
    }


def _time(text: str) -> str:
    """A time as 6.9 wants it: UTC, whole seconds."""
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
