"""The schemas of Kubernetes' own documents, as the oldest and the newest release publish them.

An API server would see more than types and names of fields: it is to be had neither from Debian nor from PyPI
or npm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from testing import needs

OLDEST, NEWEST = "1.30", "1.37"
# The first with volumes of the type image that needs no alpha feature.
IMAGE_VOLUMES = "1.33"


def require_accepted(document: Mapping[str, Any], oldest: str = OLDEST) -> None:
    """Require that the schemas accept a document, and know all of its fields."""
    validate = needs.package("kubernetes_validate")
    for release in (oldest, NEWEST):
        validate.validate(document, release, strict=True)


def require_refused(document: Mapping[str, Any]) -> None:
    """Require that no schema accepts a document."""
    validate = needs.package("kubernetes_validate")
    for release in (OLDEST, NEWEST):
        with pytest.raises(validate.ValidationError):
            validate.validate(document, release, strict=True)
