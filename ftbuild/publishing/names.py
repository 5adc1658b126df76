"""What a cell's images are called in a registry: staged, published, moving."""

from __future__ import annotations

from dataclasses import dataclass

from ftbuild.plan import Plan
from ftbuild.registry import reference

# Without a staging repository of its own, what is staged is told apart by its tag.
MARK = "staging-"
# An image that no GPU has tested never has the tag of one that was.
UNSMOKED = "-unsmoked"


@dataclass(frozen=True)
class Names:
    """The repository that users pull from, and the one that images wait in until their gates have passed."""

    release: str
    staging: str

    def staged(self, plan: Plan, product: str) -> str:
        """The tag under which the engine pushes an image, before anything is known to be whole."""
        mark = MARK if self.staging == self.release else ""
        return f"{mark}{tag(plan, product)}"


def names(registry: str, stage: str | None, image: str) -> Names:
    """The repositories below `registry` (host and path); ConfigError when they cannot exist.

    `stage` is a path below the same registry, so that promoting moves no layer over the network.
    """
    below = f"{registry.rstrip('/')}/{stage.strip('/')}" if stage else registry
    return Names(reference.repository(registry, image), reference.repository(below, image))


def tag(plan: Plan, product: str, *, moving: bool = False) -> str:
    """The tag of a published image: `22.12-sm80-<key>`, or the moving `22.12-sm80`.

    ConfigError when no registry takes it.
    """
    return reference.check_tag(plan.tag(product, moving=moving).rpartition(":")[2])
