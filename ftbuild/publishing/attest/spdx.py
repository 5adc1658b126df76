"""SPDX 2.3 as JSON: identifiers, packages, relationships, the document (spdx.github.io/spdx-spec/v2.3)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from ftbuild import __version__
from ftbuild.input_key import digest_of

DOCUMENT = "SPDXRef-DOCUMENT"
UNKNOWN = "NOASSERTION"
Element = Mapping[str, Any]


def identifier(kind: str, *identity: str) -> str:
    """Return an id that is the same in every document; a hash stands for what the ids' grammar forbids."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", identity[0]).strip("-")
    return f"SPDXRef-{kind}-{plain}-{digest_of([kind, *identity])}"


@dataclass(frozen=True)
class Package:
    """A package (chapter 7). `licence` is its own statement, in any words; empty values are left out."""

    id: str
    name: str
    version: str = ""
    purl: str = ""
    location: str = ""
    sha256: str = ""
    purpose: str = ""
    licence: str = ""
    source_info: str = ""
    comment: str = ""

    def element(self) -> Element:
        """Return it with the keys of SPDX's JSON."""
        declared = licence_expression(self.licence)
        unknown = self.licence if declared == UNKNOWN else ""
        optional = {
            "versionInfo": self.version,
            "primaryPackagePurpose": self.purpose,
            "licenseComments": f"Stated by the package: {unknown}" if unknown else "",
            "sourceInfo": self.source_info,
            "comment": self.comment,
            "checksums": [{"algorithm": "SHA256", "checksumValue": self.sha256}] if self.sha256 else [],
            "externalRefs": [_purl(self.purl)] if self.purl else [],
        }
        return {
            "SPDXID": self.id,
            "name": self.name,
            "downloadLocation": self.location or UNKNOWN,
            "filesAnalyzed": False,
            "licenseConcluded": UNKNOWN,
            "licenseDeclared": declared,
            "copyrightText": UNKNOWN,
            **{key: value for key, value in optional.items() if value},
        }


@dataclass(frozen=True)
class Relationship:
    """`id` KIND `related`, both ids of packages (chapter 11)."""

    id: str
    kind: str
    related: str

    def element(self) -> Element:
        """Return it with the keys of SPDX's JSON."""
        return {"spdxElementId": self.id, "relationshipType": self.kind, "relatedSpdxElement": self.related}


def document(
    name: str,
    namespace: str,
    created: str,
    comment: str,
    packages: Iterable[Package],
    relationships: Iterable[Relationship],
) -> dict[str, Any]:
    """Return a document (chapter 6); its namespace ends with a hash of the rest, so that no two share one.

    `created` is any ISO 8601 time with its offset.
    """
    body = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": DOCUMENT,
        "name": name,
        "creationInfo": {"created": _time(created), "creators": [f"Tool: ftbuild-{__version__}"]},
        "comment": comment,
        "packages": [package.element() for package in packages],
        "relationships": [relationship.element() for relationship in relationships],
    }
    return {**body, "documentNamespace": f"{namespace}/{digest_of(body)}"}


def licence_expression(text: str) -> str:
    """Return `text` as an SPDX licence expression, if it is one (annex D), else NOASSERTION.

    A `LicenseRef-` would need its text in the document, which is not known here.
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
    """Return a time as 6.9 wants it: UTC, whole seconds."""
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
