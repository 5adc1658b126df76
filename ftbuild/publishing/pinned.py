"""The condition on a base for publishing: content that a lock fixes."""

from __future__ import annotations

from ftbuild.errors import PublishError
from ftbuild.plan import Plan


def require(plan: Plan) -> None:
    """Raise PublishError unless the lock has the digest of the plan's base, or the packages that it is of.

    Nobody could say later what an image on another base was made from.
    """
    base = plan.base
    if not (base.digest or base.debian):
        raise PublishError(
            f"{plan.cell.id} is not published: the lock has no digest of its base {base.name}",
            where=base.serving,
            hint="invoke lock where the registry is reached writes the digest; then build and test again",
        )
