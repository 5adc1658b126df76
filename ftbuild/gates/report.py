"""Gates, and the report of one on a cell's images, written as a record into the cell's work folder."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ftbuild import __version__
from ftbuild.errors import FtbuildError, SmokeError, VerifyError
from ftbuild.host import files
from ftbuild.input_key import digest_of
from ftbuild.plan import Plan
from ftbuild.text import results
from ftbuild.text.results import CheckResult, State

PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Gate:
    """A gate: its name, the error of an image that does not pass it, and its checks.

    `folders`, below the package, hold the sources of the checks.
    """

    name: str
    error: type[FtbuildError]
    folders: tuple[str, ...]

    @property
    def record(self) -> str:
        """The file that its reports are written to, in a cell's work folder."""
        return f"{self.name}.json"

    def discard(self, folder: Path) -> None:
        """Remove the record of an earlier run: a run that has just begun proves nothing yet."""
        (folder / self.record).unlink(missing_ok=True)

    @cached_property
    def checks(self) -> str:
        """The version of its checks: a digest of their sources, so that no change can keep the old one."""
        return digest_of(
            [
                [file.relative_to(PACKAGE).as_posix(), hashlib.sha256(file.read_bytes()).hexdigest()]
                for folder in self.folders
                for file in sorted((PACKAGE / folder).rglob("*"))
                if file.suffix in (".py", ".ini")
            ]
        )


VERIFY = Gate("verify", VerifyError, ("gates/verify",))
# The suite asks through the client, whose tolerance decides which answer is right.
SMOKE = Gate("smoke", SmokeError, ("gates/smoke", "client"))


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
    def passed(self) -> bool:
        """Return whether no check failed and at least one passed: skips alone show nothing."""
        return not self.failed and any(result.state is State.OK for result in self.results)

    @property
    def exit_code(self) -> int:
        """The gate's code unless it passed, else 0."""
        return 0 if self.passed else self.gate.error.exit_code

    def require(self) -> None:
        """Raise the gate's error, with every failed check and what to do, unless it passed."""
        if not self.passed:
            counted = (
                f"{len(self.failed)} of {len(self.results)} checks failed"
                if self.failed
                else "no check passed, none failed: nothing was tested"
            )
            raise self.gate.error(
                "\n    ".join(
                    [
                        f"{self.plan.cell.id}: {counted}",
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
            "checks": self.gate.checks,
            "gate": self.gate.name,
            "cell": self.plan.cell.id,
            "key": self.plan.key,
            "images": {p: {"id": image, "tag": self.plan.tag(p)} for p, image in self.images.items()},
            "passed": self.passed,
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
                check, state, _collapse([r.detail for r in group]), _joined(r.hint for r in group), image
            )
            for (check, image, state), group in groups.items()
        ]
        ids = [f"{self.plan.tag(product)}  {image}" for product, image in self.images.items()]
        return "\n".join([*ids, results.render(rows, subject="Image"), *self.notes])


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
