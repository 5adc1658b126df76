"""What a gate finds: verdicts, findings, and the report that is bound to image ids and input key."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from ftbuild import __version__
from ftbuild.errors import FtbuildError, SmokeError, VerifyError
from ftbuild.host import files
from ftbuild.plan import Plan
from ftbuild.text import tables


@dataclass(frozen=True)
class Gate:
    """One of the two gates: its name, and the failure of an image that does not pass it."""

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
    """What a report in a file says: made by which ftbuild, on which images (product -> id), passed or not."""

    ftbuild: str
    key: str
    images: Mapping[str, str]
    passed: bool
    failed: tuple[str, ...]


class State(StrEnum):
    """How a check ended; `skip` says that the image cannot tell."""

    OK = "ok"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True)
class Verdict:
    """What a check found: one line or more, what to do about a failure, and figures for the record."""

    state: State
    detail: str
    hint: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """A verdict, and which check of which image it is."""

    check: str
    image: str
    verdict: Verdict


@dataclass(frozen=True)
class Report:
    """All findings of a gate on one pair of images, bound to image ids and input key.

    `images` are ids by product; `facts` tell of the run as a whole, for the record.
    """

    gate: Gate
    plan: Plan
    images: Mapping[str, str]
    findings: tuple[Finding, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The findings that keep the images from being published."""
        return tuple(f for f in self.findings if f.verdict.state is State.FAIL)

    @property
    def exit_code(self) -> int:
        """The gate's code when a check failed, else 0."""
        return self.gate.error.exit_code if self.failed else 0

    def require(self) -> None:
        """The gate's error, which names every failed check with what to do, unless all passed."""
        if self.failed:
            raise self.gate.error(
                "\n    ".join(
                    [
                        f"{self.plan.cell.id}: {len(self.failed)} of {len(self.findings)} checks failed",
                        *(f"{f.check} ({f.image}): {f.verdict.detail}" for f in self.failed),
                    ]
                ),
                where=", ".join(self.plan.tag(product) for product in self.images),
                hint="; ".join(dict.fromkeys(f.verdict.hint for f in self.failed if f.verdict.hint)),
            )

    def as_dict(self) -> dict[str, Any]:
        """The record that publishing asks for."""
        return {
            "ftbuild": __version__,
            "gate": self.gate.name,
            "cell": self.plan.cell.id,
            "key": self.plan.key,
            "images": {p: {"id": image, "tag": self.plan.tag(p)} for p, image in self.images.items()},
            "passed": not self.failed,
            **self.facts,
            "findings": [{"check": f.check, "image": f.image, **asdict(f.verdict)} for f in self.findings],
        }

    def write(self, folder: Path) -> None:
        """Put the record into `folder`, whole or not at all."""
        files.write_atomic(folder / self.gate.record, json.dumps(self.as_dict(), indent=2) + "\n")

    def render(self) -> str:
        """A table of all checks, then what to do about each that failed.

        Where a check was made several times, its equal outcomes share a row.
        """
        groups: dict[tuple[str, str, State], list[Finding]] = {}
        for finding in self.findings:
            groups.setdefault((finding.check, finding.image, finding.verdict.state), []).append(finding)
        rows = [
            (check, image, state.value, _collapse([f.verdict.detail for f in found]))
            for (check, image, state), found in groups.items()
        ]
        ids = [f"{self.plan.tag(product)}  {image}" for product, image in self.images.items()]
        hints = ((f"{f.check} ({f.image})", f.verdict.hint) for f in self.failed if f.verdict.hint)
        steps = dict.fromkeys(f"next for {check}: {hint}" for check, hint in hints)
        return "\n".join([*ids, tables.render(("Check", "Image", "State", "Detail"), rows), *steps])


def read(gate: Gate, folder: Path) -> Record | None:
    """The record of a gate in a cell's work folder; None when there is none, or it cannot be read."""
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


def _collapse(details: Sequence[str]) -> str:
    """Several details as one: each once, with how often it was seen."""
    counts = Counter(details)
    return "\n".join(text if count == 1 else f"{count} x {text}" for text, count in counts.items())
