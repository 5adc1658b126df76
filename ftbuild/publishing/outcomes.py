"""Results and planned actions of publishing, as tables, JSON and files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ftbuild.config.schema import Config
from ftbuild.host import files
from ftbuild.publishing import index
from ftbuild.publishing.preview import Planned
from ftbuild.publishing.publish import Outcome
from ftbuild.registry.client import Repository
from ftbuild.text import tables
from ftbuild.text.reporter import Reporter

DIGESTS, INDEX, TABLE = "digests.json", "index.json", "INDEX.md"


def actions_table(planned: Sequence[Planned]) -> str:
    """Return what is left to do for each cell, or why it would be refused, as a table."""
    rows = [(one.plan.cell.id, one.plan.key, _action(one)) for one in planned]
    return tables.render(("Cell", "Key", "To do"), rows)


def actions_as_json(planned: Sequence[Planned]) -> str:
    """Return the same as JSON: a list of cell, key, action, and the error of what would be refused."""
    rows = [
        {
            "cell": one.plan.cell.id,
            "key": one.plan.key,
            "action": one.action,
            **({"error": str(one.error)} if one.error else {}),
        }
        for one in planned
    ]
    return json.dumps(rows, indent=2)


def _action(planned: Planned) -> str:
    return f"{planned.action}: {planned.error.what.splitlines()[0]}" if planned.error else planned.action


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the outcome of each cell and the digest of each image as a table."""
    rows = [
        (outcome.plan.cell.id, product, outcome.state, published.reference, published.digest)
        for outcome in outcomes
        for product, published in outcome.products.items()
    ]
    rows += [(o.plan.cell.id, "", o.state, o.error.what.splitlines()[0], "") for o in outcomes if o.error]
    return tables.render(("Cell", "Image", "State", "Tag", "Digest"), rows)


def as_json(outcomes: Sequence[Outcome]) -> str:
    """Return the same as JSON."""
    return json.dumps([_outcome(outcome) for outcome in outcomes], indent=2)


def _outcome(outcome: Outcome) -> dict[str, object]:
    return {
        "cell": outcome.plan.cell.id,
        "key": outcome.plan.key,
        "state": outcome.state,
        "error": str(outcome.error) if outcome.error else None,
        "products": {product: asdict(published) for product, published in outcome.products.items()},
    }


def write(
    config: Config, repository: str, outcomes: Sequence[Outcome], work: Path, *, report: Reporter
) -> None:
    """Write the digests, and the index of the whole registry if it may have changed."""
    folder = work / "published" / repository.replace(":", "_")
    files.write_atomic(folder / DIGESTS, as_json(outcomes) + "\n")
    if all(outcome.state == "present" for outcome in outcomes) and (folder / INDEX).exists():
        return
    entries = index.read(Repository(repository), report)
    files.write_atomic(folder / INDEX, index.as_json(entries, config.matrix.sms))
    files.write_atomic(folder / TABLE, index.as_markdown(entries, config.matrix.sms))
    report(f"{folder}: {DIGESTS}, {INDEX}, {TABLE}")
