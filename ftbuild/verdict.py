"""What the gates find: verdicts, findings, and the report that is bound to image ids and input key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from ftbuild import __version__, tables
from ftbuild.errors import VerifyError
from ftbuild.plan import Plan

RECORD = "verify.json"


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
    """All findings on one pair of images, bound to image ids and input key."""

    plan: Plan
    images: Mapping[str, str]
    findings: tuple[Finding, ...]

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The findings that keep the images from being published."""
        return tuple(f for f in self.findings if f.verdict.state is State.FAIL)

    @property
    def exit_code(self) -> int:
        """VerifyError's code when a check failed, else 0."""
        return VerifyError.exit_code if self.failed else 0

    def require(self) -> None:
        """VerifyError that names every failed check with what to do, unless all passed."""
        if self.failed:
            raise VerifyError(
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
            "cell": self.plan.cell.id,
            "key": self.plan.key,
            "images": {p: {"id": image, "tag": self.plan.tag(p)} for p, image in self.images.items()},
            "passed": not self.failed,
            "findings": [{"check": f.check, "image": f.image, **asdict(f.verdict)} for f in self.findings],
        }

    def write(self, folder: Path) -> None:
        """Put the record into `folder`, whole or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        fresh = folder / f"{RECORD}.new"
        fresh.write_text(json.dumps(self.as_dict(), indent=2) + "\n")
        fresh.replace(folder / RECORD)

    def render(self) -> str:
        """A table of all checks, then what to do about each that failed."""
        rows = [(f.check, f.image, f.verdict.state.value, f.verdict.detail) for f in self.findings]
        ids = [f"{self.plan.tag(product)}  {image}" for product, image in self.images.items()]
        steps = [f"next for {f.check} ({f.image}): {f.verdict.hint}" for f in self.failed]
        return "\n".join([*ids, tables.render(("Check", "Image", "State", "Detail"), rows), *steps])
