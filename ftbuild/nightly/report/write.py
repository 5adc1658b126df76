"""Files of all reports of a nightly run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ftbuild.host import files
from ftbuild.nightly.record import NightlyRun
from ftbuild.nightly.report import junit, markdown, page

RENDERERS: Mapping[str, Callable[[NightlyRun], str]] = {
    "junit.xml": junit.render,
    "report.md": markdown.render,
    "report.html": page.render,
}


def write_reports(run: NightlyRun, folder: Path) -> None:
    """Write `report.json`, `junit.xml`, `report.md` and `report.html` into `folder`, each atomically."""
    run.write(folder)
    for name, render in RENDERERS.items():
        files.write_atomic(folder / name, render(run))
