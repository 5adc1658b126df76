"""The condition on the checkout: images of files that no commit has are published only if that is allowed."""

from __future__ import annotations

from collections.abc import Mapping

from ftbuild.errors import PublishError
from ftbuild.plan import DIRTY, Plan

REVISION = "org.opencontainers.image.revision"


def require(plan: Plan, product: str, labels: Mapping[str, str], *, allowed: bool) -> None:
    """Raise PublishError for an image that was built from uncommitted changes, unless that is allowed.

    Nobody else could build it again.
    """
    revision = labels.get(REVISION, "")
    if revision.endswith(DIRTY) and not allowed:
        raise PublishError(
            f"{plan.cell.id} was built from files that are not committed ({revision})",
            where=f"label {REVISION} of the {product} image",
            hint="commit, then invoke build --rebuild; or --allow-dirty",
        )
