"""Input keys: what of a plan decides its images, as one short digest. The same key means the same images."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

from ftbuild.matrix import Cell
from ftbuild.plan import Plan
from ftbuild.sources.inputs import PlannedPatch, PlannedSource

# Raised by hand when the build changes, but no file that the key covers.
RECIPE = 2
KEY_DIGITS = 12


def input_key(draft: Plan) -> str:
    """Return the key of everything that decides the images of a plan, their labels included.

    Left out are the image's name, which stands beside the key in every tag, the places that inputs come
    from, and what decides the tests but not the image.
    """
    base = draft.base
    return digest_of(
        {
            "recipe": RECIPE,
            "cell": cell_key(draft.cell),
            "versions": [draft.server, draft.cuda, draft.driver],
            "base": [base.name, base.serving, base.devel, base.digest, *base.other_architecture],
            "sources": [source_key(source) for source in draft.sources],
            "patches": [patch_key(patch) for patch in draft.patches],
            "trees": [
                [t.name, t.source, [[o.name, o.value] for o in t.options], t.targets] for t in draft.trees
            ],
            "environment": dict(draft.toolchain.environment()),
            "packages": [draft.toolchain_packages, draft.wheel_libraries, draft.sdk_without],
            "files": [[f.role, f.sha256] for f in draft.files],
        }
    )


def cell_key(cell: Cell) -> dict[str, object]:
    """Return what of a cell decides an image; one that leaves nothing out need not say so."""
    data = asdict(cell)
    return data if cell.left_out else {name: value for name, value in data.items() if name != "left_out"}


def source_key(source: PlannedSource) -> list[object]:
    """Return what of a source decides an image."""
    s = source
    place = ["server"] if s.server else []
    return [s.repository, s.path, s.commit, s.tree, s.sparse, s.without, s.version, *place]


def patch_key(patch: PlannedPatch) -> list[object]:
    """Return what of a patch decides an image."""
    return [patch.component, patch.file, patch.fingerprint, patch.origin]


def digest_of(data: object) -> str:
    """Return the first 12 hex digits of the sha256 of `data` as canonical JSON (sorted keys, no spaces)."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]
