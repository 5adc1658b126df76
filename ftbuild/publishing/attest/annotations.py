"""Annotations of a published index: the image's labels, where a registry shows them without a pull."""

from __future__ import annotations

from ftbuild.plan import LABELS, Plan

# It names a reference inside an image layout's index.json only (image-spec v1.1, annotations.md).
_LAYOUT_ONLY = "org.opencontainers.image.ref.name"


def of_index(plan: Plan, product: str, **more: str) -> dict[str, str]:
    """Return OCI's keys and ours for a product, sorted; `more` adds or replaces, empty values go."""
    values = {**plan.labels(product), **more}
    return {key: values[key] for key in sorted(values) if values[key] and key != _LAYOUT_ONLY}


def is_own(label: str) -> bool:
    """Return whether a label is one that a build of ours sets, and not left over from the base."""
    return label.startswith((LABELS, "org.opencontainers."))
