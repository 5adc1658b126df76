"""Names of a cell's images in a registry: staged, immutable, moving."""

from __future__ import annotations

from dataclasses import dataclass

from ftbuild.plan import BASE, Plan
from ftbuild.registry import reference

# The prefix of staged tags if there is no separate staging repository.
MARK = "staging-"
# The suffix of images that no GPU has tested, which never have the tag of a tested one.
UNSMOKED = "-unsmoked"


@dataclass(frozen=True)
class Names:
    """The repository for users, and the one where images wait for their smoke test."""

    repository: str
    staging: str

    def staged(self, plan: Plan, product: str) -> str:
        """Return the tag under which the engine pushes an image, before it is known to be complete."""
        return f"{self.mark}{tag(plan, product)}"

    def staged_base(self, name: str) -> str:
        """Return the tag under which builders find a base that was built here, of this local name."""
        image, _, key = name.removeprefix(BASE).rpartition(":")
        return reference.check_tag(f"{self.mark}base-{image}-{key}")

    @property
    def mark(self) -> str:
        """Return the prefix of staged tags."""
        return MARK if self.staging == self.repository else ""


def resolve(registry: str, stage: str | None, image: str, option: str = reference.REGISTRY) -> Names:
    """Return the repositories below `registry` (host and path), which `option` names.

    Raises ConfigError if they cannot exist.

    `stage` is a path below the same registry, so that publishing transfers no layer a second time.
    """
    below = f"{registry.rstrip('/')}/{stage.strip('/')}" if stage else registry
    return Names(reference.repository(registry, image, option), reference.repository(below, image, option))


def tag(plan: Plan, product: str, *, moving: bool = False) -> str:
    """Return the tag of a published image: `22.12-sm80-<key>`, or the moving `22.12-sm80`.

    Raises ConfigError if no registry accepts it.
    """
    name = plan.tag(product, moving=moving)
    return reference.check_tag(name.rpartition(":")[2])
