"""The loop over cells that all gates share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ftbuild.errors import FtbuildError, HostError, Interrupted, worst
from ftbuild.gates.cell_test import CellTest, Place, Skipped
from ftbuild.gates.report import GateReport
from ftbuild.host import failures
from ftbuild.plan import Plan
from ftbuild.text import screen
from ftbuild.text.reporter import Reporter, prefixed


@dataclass(frozen=True)
class GateRun:
    """The outcome of a gate on several cells.

    `codes` has the exit code of every cell that was not skipped, `skipped` the reasons of those that were, by
    cell id.
    """

    reports: tuple[GateReport, ...]
    codes: tuple[int, ...]
    skipped: Mapping[str, str]

    def show(self, output: str) -> None:
        """Print all reports as tables (`human`), or as one JSON list of records (`json`)."""
        if output == "json":
            print(json.dumps([report.as_dict() for report in self.reports], indent=2))
        else:
            for report in self.reports:
                screen.show(report.render())

    def exit_code(self) -> int:
        """Return the worst exit code; raise HostError when every cell was skipped."""
        if self.skipped and not self.codes:
            raise HostError(
                f"nothing was tested: no GPU here runs {', '.join(self.skipped)}",
                hint="test these cells on a machine with such a GPU, or select others",
            )
        return worst(self.codes)


def run(
    test: CellTest, plans: Iterable[Plan], place: Place, report: Reporter, *, only_prepare: bool = False
) -> GateRun:
    """Test every cell, also after one has failed; a cell that raises FtbuildError counts as failed.

    With `only_prepare` nothing is tested, and a prepared cell is a success.
    """
    reports: list[GateReport] = []
    codes: list[int] = []
    skipped: dict[str, str] = {}
    for plan in plans:
        tell = prefixed(report, plan.cell.id)
        try:
            with failures.reported():
                subject = place.subject(plan, tell)
                outcome = None if only_prepare else test.run(subject)
                if only_prepare:
                    test.prepare(subject)
        except Interrupted:
            raise
        except FtbuildError as failed:
            tell(f"failed: {failed}")
            codes.append(failed.exit_code)
            continue
        if isinstance(outcome, Skipped):
            tell(f"skipped: {outcome.reason}")
            skipped[plan.cell.id] = outcome.reason
        else:
            codes.append(outcome.exit_code if outcome else 0)
            reports += [outcome] if outcome else []
    return GateRun(tuple(reports), tuple(codes), skipped)
