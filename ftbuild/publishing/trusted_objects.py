"""The condition on objects that were brought: whoever signed them is trusted where images are published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ftbuild.build import objects
from ftbuild.build.definitions import OBJECTS_LABEL
from ftbuild.build.objects import Taken
from ftbuild.errors import BuildError, PublishError
from ftbuild.plan import Plan
from ftbuild.publishing import verifying
from ftbuild.publishing.verifying import Verifier
from ftbuild.text.reporter import Reporter


def require(
    plan: Plan,
    product: str,
    labels: Mapping[str, str],
    folder: Path,
    trusted: Sequence[Verifier],
    report: Reporter,
) -> None:
    """Raise PublishError for an image with objects of others unless a trusted key has signed these."""
    named = labels.get(OBJECTS_LABEL)
    if not named:
        return
    where = f"label {OBJECTS_LABEL} of the {product} image: {named}"
    if taken(folder, labels) is None:
        raise PublishError(
            f"{plan.cell.id} was compiled with objects of others, and no record here tells which",
            where=where,
            hint=f"bring {objects.RECORD.name} with the other records of the cell; or invoke build --rebuild",
        )
    if verifying.signer_of(named, trusted, report) is None:
        raise PublishError(
            f"{plan.cell.id} was compiled with objects that nobody who is trusted here has signed",
            where=where,
            hint="--trust KEY if you trust who has signed them; or invoke build --rebuild without --objects",
        )


def taken(folder: Path, labels: Mapping[str, str]) -> Taken | None:
    """Return what a build took of the objects that the labels of its image name; None for nothing.

    Raises PublishError for a damaged record.
    """
    try:
        found = objects.RECORD.read(folder)
    except BuildError as damaged:
        raise damaged.converted(PublishError) from damaged
    return found if found and found.name == labels.get(OBJECTS_LABEL) else None
