"""The condition on the compiler cache: objects of other machines are published only if that is allowed."""

from __future__ import annotations

from collections.abc import Mapping

from ftbuild.build.definitions import CACHE_LABEL
from ftbuild.errors import PublishError
from ftbuild.plan import Plan


def require(plan: Plan, product: str, labels: Mapping[str, str], *, allowed: bool) -> None:
    """Raise PublishError for an image whose objects may come from a remote cache, unless that is allowed.

    Whoever can write to such a cache decides what is in the image.
    """
    used = labels.get(CACHE_LABEL)
    if used and not allowed:
        raise PublishError(
            f"{plan.cell.id} was compiled with a {used} compiler cache (CCACHE_REMOTE_STORAGE)",
            where=f"label {CACHE_LABEL} of the {product} image",
            hint="invoke build --rebuild without that variable, or --allow-shared-cache if you trust every "
            "machine that writes to it",
        )
