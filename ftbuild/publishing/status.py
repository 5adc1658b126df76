"""Publishing status of cells in a registry, by one HEAD request per tag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import names
from ftbuild.registry.client import Repository


@dataclass(frozen=True)
class PublishStatus:
    """The digests behind the tags of a cell in a registry, by image kind; None: no such tag."""

    plan: Plan
    published: Mapping[str, str | None]
    moving: Mapping[str, str | None]
    unsmoked: Mapping[str, str | None]

    @property
    def is_published(self) -> bool:
        """Return whether images with these inputs, all gates passed, are there under immutable tags."""
        return all(self.published.values())

    @property
    def is_complete(self) -> bool:
        """Return whether nothing is left to do: published, with moving tags that point to it."""
        return self.is_published and self.moving == self.published

    def digests(self) -> list[str]:
        """Return the digests behind the immutable tags that exist."""
        return [digest for digest in self.published.values() if digest]

    @property
    def is_unsmoked(self) -> bool:
        """Return whether they are there as images that no GPU has tested."""
        return all(self.unsmoked.values())


def query(plans: Sequence[Plan], repository: Repository) -> list[PublishStatus]:
    """Query all tags of all plans at once; HostError or PublishError if the registry does not answer."""
    wanted = {tag for plan in plans for product in PRODUCTS for tag in _tags(plan, product)}
    found = {tag: known.digest if known else None for tag, known in repository.heads(wanted).items()}
    return [_status(plan, found) for plan in plans]


def _tags(plan: Plan, product: str) -> tuple[str, str, str]:
    immutable = names.tag(plan, product)
    return immutable, names.tag(plan, product, moving=True), immutable + names.UNSMOKED


def _status(plan: Plan, found: Mapping[str, str | None]) -> PublishStatus:
    columns = zip(*([found[tag] for tag in _tags(plan, product)] for product in PRODUCTS), strict=True)
    published, moving, unsmoked = (dict(zip(PRODUCTS, column, strict=True)) for column in columns)
    return PublishStatus(plan, published, moving, unsmoked)
