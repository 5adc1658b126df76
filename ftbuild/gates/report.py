"""Gates, the report of one on a cell's images, and the record of that report in the cell's work folder."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ftbuild import __version__
from ftbuild.errors import FtbuildError, SmokeError, VerifyError
from ftbuild.host import files
from ftbuild.plan import Plan
from ftbuild.text import results
from ftbuild.text.results import CheckResult, State


@dataclass(frozen=True)
class Gate:
    """A gate: its name, and the error of an image that does not pass it."""

    name: str
    error: type[FtbuildError]

    @property
    def record(self) -> str:
        """The file that its reports are written to, in a cell's work folder."""
        return f"{self.name}.json"


VERIFY = Gate("verify", VerifyError)
SMOKE = Gate("smoke", SmokeError)


@dataclass(frozen=True)
class Record:
    """A report as read from its file: which ftbuild tested which images (ids by product), and the outcome."""

    ftbuild: str
    key: str
    images: Mapping[str, str]
    passed: bool
    failed: tuple[str, ...]


@dataclass(frozen=True)
class GateReport:
    """All results of a gate on the images of a cell, bound to image ids and input key.

    `images` are ids by product, `facts` are about the run as a whole, for the record, and `notes` are lines
    below the table.
    """

    gate: Gate
    plan: Plan
    images: Mapping[str, str]
    results: tuple[CheckResult, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The results that keep the images from being published."""
        return results.failed(self.results)

    @property
    def exit_code(self) -> int:
        """The gate's code when a check failed, else 0."""
        return self.gate.error.exit_code if self.failed else 0

    def require(self) -> None:
        """Raise the gate's error, with every failed check and what to do, unless all passed."""
        if self.failed:
            raise self.gate.error(
                "\n    ".join(
                    [
                        f"{self.plan.cell.id}: {len(self.failed)} of {len(self.results)} checks failed",
                        *(f"{result.label}: {result.detail}" for result in self.failed),
                    ]
                ),
                where=", ".join(self.plan.tag(product) for product in self.images),
                hint=_joined(result.hint for result in self.failed),
            )

    def as_dict(self) -> dict[str, Any]:
        """Return the record, which publishing reads."""
        return {
            "ftbuild": __version__,
            "gate": self.gate.name,
            "cell": self.plan.cell.id,
            "key": self.plan.key,
            "images": {p: {"id": image, "tag": self.plan.tag(p)} for p, image in self.images.items()},
            "passed": not self.failed,
            **self.facts,
            "findings": [_as_dict(result) for result in self.results],
        }

    def write(self, folder: Path) -> None:
        """Write the record into `folder`, atomically."""
        files.write_atomic(folder / self.gate.record, json.dumps(self.as_dict(), indent=2) + "\n")

    def render(self) -> str:
        """Return the images, a table of all checks, and the notes.

        Equal outcomes of a check that was made several times share a row.
        """
        groups: dict[tuple[str, str, State], list[CheckResult]] = {}
        for result in self.results:
            groups.setdefault((result.check, result.subject, result.state), []).append(result)
        rows = [
            CheckResult(
                check, state, _collapse([r.detail for r in found]), _joined(r.hint for r in found), image
            )
            for (check, image, state), found in groups.items()
        ]
        ids = [f"{self.plan.tag(product)}  {image}" for product, image in self.images.items()]
        return "\n".join([*ids, results.render(rows, subject="Image"), *self.notes])


def read(gate: Gate, folder: Path) -> Record | None:
    """Return the record of a gate in a cell's work folder; None when it is missing or unreadable."""
    try:
        written = json.loads((folder / gate.record).read_text())
        return Record(
            written["ftbuild"],
            written["key"],
            {product: image["id"] for product, image in written["images"].items()},
            written["passed"] is True,
            tuple(dict.fromkeys(f["check"] for f in written["findings"] if f["state"] == State.FAIL)),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _as_dict(result: CheckResult) -> dict[str, Any]:
    return {
        "check": result.check,
        "image": result.subject,
        "state": result.state.value,
        "detail": result.detail,
        "hint": result.hint,
        "facts": dict(result.facts),
    }


def _joined(hints: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(hint for hint in hints if hint))


def _collapse(details: Sequence[str]) -> str:
    """Collapse repeated details into `N x detail`."""
    counts = Counter(details)
    return "\n".join(text if count == 1 else f"{count} x {text}" for text, count in counts.items())
