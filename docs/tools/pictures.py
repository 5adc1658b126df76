"""The pictures in docs/images: terminals and a diagram as SVG, the page of a nightly run as PNG.

    python -m docs.tools.pictures [NAME...]

Terminals show the real output of the commands in this checkout. `build`, `verify` and `serve` need Docker
Engine, and the images of `invoke demo` (`build` renews them). `nightly` is rendered by the program itself
from a nightly run of testing/recorded_runs.py, without the texts that test its escaping; it needs Chromium
and the extra `test`.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from docs.tools import diagram, recorded
from ftbuild.nightly.record import NightlyRun
from ftbuild.nightly.report.write import write_reports
from testing import ROOT, recorded_runs

IMAGES = ROOT / "docs" / "images"
_SAMPLE = "--config buildcfg/sample --sm 80 --triton 22.12"
_COMPILING = re.compile(r"compile backend  \d+/\d+")
# A telephone's page in twice its pixels, so that the letters of the picture are those of the text around it.
SCREEN = {"width": 760, "height": 900}


def main(names: Sequence[str]) -> None:
    """Write the pictures of these names; without names all."""
    IMAGES.mkdir(exist_ok=True)
    for name in names or PICTURES:
        PICTURES[name]()


def _terminal(name: str, command: str, lines: int | None = None) -> None:
    shown, _ = recorded.run(command)
    cut = [*shown[:lines], "..."] if lines and len(shown) > lines else shown
    recorded.write(IMAGES, name, [(command, cut)])


def build() -> None:
    """A build while it compiles, and its end."""
    # No test builds this one: what is in BuildKit's cache compiles nothing.
    command = "invoke build --config buildcfg/sample --sm 70 --triton 22.12 --rebuild"
    shown, during = recorded.run(
        command, lambda text: _COMPILING.search(text) is not None and "left:" in text
    )
    ended = next(number for number, line in enumerate(shown) if re.match(r"22\.12-sm70 +", line))
    recorded.write(IMAGES, "build", [(command, during), ("", ["..."]), ("", shown[ended:])])


def serve() -> None:
    """A server from its start to an answer: of the model that `invoke demo` leaves."""
    start = "invoke serve --config buildcfg/sample --model-repo .ftbuild/demo --detach"
    ask = (
        'curl -s localhost:8000/v2/models/fastertransformer/infer -d \'{"inputs": ['
        '{"name": "input_ids", "datatype": "UINT32", "shape": [1, 3], "data": [1, 2, 3]}, '
        '{"name": "input_lengths", "datatype": "UINT32", "shape": [1, 1], "data": [3]}, '
        '{"name": "request_output_len", "datatype": "UINT32", "shape": [1, 1], "data": [4]}]}\''
    )
    stop = "invoke serve --stop"
    recorded.write(IMAGES, "serve", [(each, recorded.run(each)[0]) for each in (start, ask, stop)])


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


PICTURES: Mapping[str, Callable[[], None]] = {
    "matrix": lambda: _terminal("matrix", "invoke matrix"),
    "dry-run": lambda: _terminal("dry-run", "invoke build --sm 90 --triton 22.12 --dry-run"),
    "build": build,
    "verify": lambda: _terminal("verify", f"invoke verify {_SAMPLE}", 26),
    "doctor": lambda: _terminal("doctor", "invoke doctor"),
    "serve": serve,
    "nightly": screenshots,
    "pipeline": lambda: diagram.write(IMAGES / "pipeline.svg"),
}


if __name__ == "__main__":
    main(sys.argv[1:])
