"""Traffic: requests of mixed lengths from many clients, our server beside vLLM and CTranslate2.

On a machine without the project's own packages: python -m benchmarks.topics.traffic --help
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.harness.figure import Result
    from benchmarks.harness.workspace import Workspace

NAME = "traffic"
DEFINITION = 1


def needs(workspace: Workspace) -> str | None:
    """Require an engine for the rehearsal on the sample; of the real stack what inference does."""
    from benchmarks.harness import requirements
    from benchmarks.topics import inference

    return inference.needs(workspace) if workspace.real else requirements.engine()


def run(workspace: Workspace) -> Result:
    """Measure the image of the selected cell as it is served; on the sample rehearse it."""
    from benchmarks.topics.traffic import standard

    return standard.real(workspace) if workspace.real else standard.sample(workspace)


def recomputed(result: Result) -> Result:
    """Return the record with the figures that follow from its data today."""
    from benchmarks.topics.traffic import report

    figures, drawn = tuple(report.figures(result.data)), tuple(report.charts(result.data))
    return replace(result, figures=figures, charts=drawn, definition=DEFINITION)


def details(result: Result) -> str:
    """Return a record's rates and latencies as a table in Markdown."""
    from benchmarks.harness import table
    from benchmarks.topics.traffic import report

    return f"{report.title(result.data)}:\n\n{table.grid(*report.table(result.data))}"
