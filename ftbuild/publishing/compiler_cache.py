"""The condition on the compiler cache: objects of other machines are published only if that is allowed."""

from __future__ import annotations

from ftbuild.build.bake import CACHE_LABEL
from ftbuild.errors import PublishError
from ftbuild.publishing.attestations import Candidate
from ftbuild.publishing.session import PublishSession


def require_allowed(session: PublishSession, candidate: Candidate) -> None:
    """Raise PublishError for an image whose objects may come from a remote cache, unless that is allowed.

    Whoever can write to such a cache decides what is in the image.
    """
    used = session.staging.config(candidate.image.image).labels.get(CACHE_LABEL)
    if used and not session.options.allow_shared_cache:
        raise PublishError(
            f"{candidate.plan.cell.id} was compiled with a {used} compiler cache (CCACHE_REMOTE_STORAGE)",
            where=f"label {CACHE_LABEL} of the {candidate.product} image",
            hint="invoke build --rebuild without that variable, or --allow-shared-cache if you trust every "
            "machine that writes to it",
        )
