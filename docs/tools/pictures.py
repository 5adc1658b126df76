"""The pictures in docs/images: terminal recordings as SVG, the page of a nightly run as PNG.

    python -m docs.tools.pictures [NAME...]

Recordings are the real output of the commands in this checkout; `verify` needs the images of `invoke demo`.
`nightly` is rendered by the program itself from a nightly run of testing/recorded_runs.py, without the texts
that test its escaping; it needs Chromium and the extra `test`.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import CONSOLE_SVG_FORMAT, Console  # type: ignore[attr-defined]  # defined in a private module
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

from ftbuild.nightly.record import NightlyRun
from ftbuild.nightly.report.write import write_reports
from testing import ROOT, recorded_runs

IMAGES = ROOT / "docs" / "images"
COLUMNS = 112
# What is shown of each recording: command line, lines of its output.
RECORDINGS = {
    "matrix": ("invoke matrix", None),
    "dry-run": ("invoke build --sm 90 --triton 22.12 --dry-run", None),
    "verify": ("invoke verify --config buildcfg/sample --sm 80 --triton 22.12", 26),
}
SCREEN = {"width": 1100, "height": 900}
# rich's template loads its font from another host.
SVG_FORMAT = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def main(names: Sequence[str]) -> None:
    """Write the pictures of these names; without names all."""
    IMAGES.mkdir(exist_ok=True)
    for name, (command, lines) in RECORDINGS.items():
        if name in names or not names:
            (IMAGES / f"{name}.svg").write_text(recording(name, command, lines))
    if "nightly" in names or not names:
        screenshots()


def recording(name: str, command: str, lines: int | None) -> str:
    """`command` and the first lines of its output, as SVG."""
    output = _run(command).strip("\n").splitlines()
    shown = [line[:COLUMNS].rstrip() for line in output[:lines]]
    assert str(ROOT) not in "\n".join(shown), "a path of this machine"
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.assemble(("$ ", "green"), (command, "bold")), no_wrap=True)
    for line in shown:
        console.print(Text(line), no_wrap=True, crop=True)
    if lines is not None and len(output) > lines:
        console.print(Text("...", "dim"))
    svg = console.export_svg(title="", theme=SVG_EXPORT_THEME, code_format=SVG_FORMAT, unique_id=name)
    return "\n".join(line.rstrip() for line in svg.splitlines()).strip("\n") + "\n"


def screenshots() -> None:
    """The page of a nightly run, light and dark."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        write_reports(_night(), Path(folder))
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport=SCREEN, color_scheme=scheme)  # type: ignore[arg-type]
            page.goto((Path(folder) / "report.html").as_uri())
            page.screenshot(path=IMAGES / f"nightly-{scheme}.png")
        browser.close()


def _night() -> NightlyRun:
    """A run in which two cells fail."""
    good = recorded_runs.good()
    cells = (
        *(cell for cell in good.cells if not cell.cell.startswith("22.12")),
        recorded_runs.cell(
            "22.07", [86], 2500, {"build": 6}, detail="ft/0040-sm-89.patch does not apply to v5.2"
        ),
        recorded_runs.passed("22.12", 80, 2700, 1.61),
        recorded_runs.cell(
            "22.12",
            [86],
            3600,
            {"build": 0, "smoke": 9},
            detail="gpt answers wrongly: token 7 of 16",
            tail=("FAILED test_answers.py::test_greedy[gptj-fp16]", "server ended"),
        ),
        recorded_runs.passed("22.12", 90, 5400, 1.58),
    )
    return replace(
        good, cells=cells, exit_code=9, command=f"invoke nightly --registry {recorded_runs.REGISTRY}"
    )


def _run(command: str) -> str:
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "NO_COLOR": "1"}
    argv = [sys.executable, "-m", *command.split()]
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    main(sys.argv[1:])
