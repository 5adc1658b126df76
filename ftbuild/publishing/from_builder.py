"""Images that a builder pushes itself: their base goes to it, and they come here to be verified."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ftbuild.build import definitions
from ftbuild.errors import PublishError
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import remote_image, staging
from ftbuild.publishing.session import PublishSession
from ftbuild.registry import answers
from ftbuild.registry.malformed import Malformed
from ftbuild.text import bounded_json
from ftbuild.text.reporter import Reporter

_DIGEST = "containerimage.digest"


def destination(
    session: PublishSession, plan: Plan, *, by_digest: bool, report: Reporter = print
) -> definitions.Staging:
    """Return where a builder pushes the images of a cell, and the base that it can pull.

    Without `by_digest` its pushes need a tag, as those of an engine do (docker/buildx build/opt.go). A base
    that was built here is pushed first, as far as the staging repository lacks its layers; the builder gets
    the image's manifest by digest, with nothing around it.
    Raises PublishError if the registry refuses.
    """
    names = session.options.names
    tags = None if by_digest else {product: names.staged(plan, product) for product in PRODUCTS}
    serving, devel = push_base(session, plan, report=report)
    return definitions.Staging(session.staging.name, serving, devel, tags)


def push_base(session: PublishSession, plan: Plan, *, report: Reporter = print) -> tuple[str, str]:
    """Return names of both images of a base for builders; see `destination`."""
    base = plan.base
    if base.local is None:
        return base.serving, base.devel
    serving, devel = (
        session.push(f"base {name}", session.local(name), session.options.names.staged_base(name), report)
        for name in (base.serving, base.devel)
    )
    return (
        f"{session.staging.name}@{serving.image.descriptor.digest}",
        f"{session.staging.name}@{devel.image.descriptor.digest}",
    )


def pushed(metadata: Path, plan: Plan) -> dict[str, str]:
    """Return the digests of the pushed images by product, from buildx's metadata file."""
    try:
        found = bounded_json.loads(metadata.read_bytes())
        return {
            product: answers.digest(found[definitions.target_name(plan, product)][_DIGEST])
            for product in PRODUCTS
        }
    except (OSError, ValueError, LookupError, TypeError, Malformed) as unreadable:
        raise PublishError(
            f"buildx does not tell which images of {plan.cell.id} the builder pushed",
            where=str(metadata),
            hint="repeat the build; if this repeats, use a newer docker buildx",
        ) from unreadable


def fetch(session: PublishSession, plan: Plan, digests: Mapping[str, str], *, report: Reporter) -> None:
    """Pull pushed images to this engine under the names that a build gives them."""
    staging.fetch(session, digests, {product: [plan.tag(product)] for product in digests}, report=report)


def stage(session: PublishSession, plan: Plan, digests: Mapping[str, str], *, report: Reporter) -> None:
    """Set the staged tags of verified images."""
    for product, digest in digests.items():
        image = remote_image.present(session.staging, digest)
        session.staged_as(plan, image, session.options.names.staged(plan, product), report)
