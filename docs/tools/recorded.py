"""Commands on a terminal of their own: what they show, also while they run, as SVG."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import CONSOLE_SVG_FORMAT, Console  # type: ignore[attr-defined]  # defined in a private module
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

from testing import ROOT, terminals

# A telephone in portrait shows 80 columns in letters that can be read when it is turned, or scrolls them.
COLUMNS = 80
_ROWS = 60
_HOME = "~/ftbuild"
_MOVES = re.compile(
    rb"\x1b\[(?P<count>\d*)(?P<what>[ABGJKHlh])|\x1b\[\?25[lh]|\r|\n|\x1b\[[\d;]*m|[^\x1b\r\n]+|\x1b"
)
# rich's template loads its font from another host.
_FORMAT = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


class Screen:
    """The lines of a terminal, with the colours in them, as far as commands of ours move the cursor."""

    def __init__(self) -> None:
        self.lines = [b""]
        self._row, self._returned = 0, False

    def take(self, content: bytes) -> None:
        """Take what a program has written."""
        for found in _MOVES.finditer(content):
            self._act(found)

    def _act(self, found: re.Match[bytes]) -> None:
        text = found[0]
        if text == b"\n":
            self._row += 1
            if self._row == len(self.lines):
                self.lines.append(b"")
            self._returned = True
        elif text == b"\r":
            self._returned = True
        elif found["what"] == b"A":
            self._row = max(0, self._row - int(found["count"] or 1))
        elif found["what"] == b"K":
            self.lines[self._row] = b""
        elif found["what"] or text.startswith(b"\x1b[?"):
            return
        else:
            if self._returned and not text.startswith(b"\x1b"):
                self._returned = False
                codes = b"".join(re.findall(rb"^(?:\x1b\[[\d;]*m)+$", self.lines[self._row]))
                self.lines[self._row] = codes
            self.lines[self._row] += text

    def text(self) -> list[str]:
        """Return the lines, without empty ones at the end, and without the places of this machine."""
        whole = b"\n".join(self.lines).decode(errors="replace").replace(str(ROOT), _HOME)
        whole = whole.replace(f"{Path.home()}/", "~/")
        return [line.rstrip() for line in whole.rstrip().splitlines()]


def run(command: str, moment: Callable[[str], bool] | None = None) -> tuple[list[str], list[str]]:
    """Return what a command shows when it has ended, and what it showed last while `moment` held."""
    environment = {
        **{name: value for name, value in os.environ.items() if name != "NO_COLOR"},
        "COLUMNS": str(COLUMNS),
        "LINES": str(_ROWS),
        "TERM": "xterm-256color",
    }
    argv = (
        [sys.executable, "-m", *command.split()] if command.startswith("invoke ") else ["sh", "-c", command]
    )
    with terminals.started(argv, ROOT, environment) as terminal:
        terminal.process.wait()
        parts = [content for _, content in _settled(terminal)]
    screen, during = Screen(), list[str]()
    for part in parts:
        screen.take(part)
        if moment and moment("\n".join(shown := screen.text())):
            during = shown
    return screen.text(), during


def _settled(terminal: terminals.Terminal) -> Sequence[tuple[float, bytes]]:
    """Return all that a program has written; its last words may still be on their way."""
    import time

    count = -1
    while count != len(terminal.parts):
        count = len(terminal.parts)
        time.sleep(0.5)
    return terminal.parts


def svg(name: str, shown: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Return commands, each with lines of its output, as a picture of a terminal."""
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="standard"
    )
    for command, lines in shown:
        if command:
            console.print(Text.assemble(("$ ", "green"), (command, "bold")))
        for line in lines:
            text = Text.from_ansi(line) if line != "..." else Text(line, "dim")
            # As a terminal wraps: where it ends.
            for part in text.divide(range(COLUMNS, len(text), COLUMNS)):
                console.print(part, no_wrap=True)
    picture = console.export_svg(title="", theme=SVG_EXPORT_THEME, code_format=_FORMAT, unique_id=name)
    return "\n".join(line.rstrip() for line in picture.splitlines()).strip("\n") + "\n"


def write(folder: Path, name: str, shown: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Write a picture; AssertionError where it shows a path of this machine."""
    content = svg(name, shown)
    assert str(ROOT) not in content, "a path of this machine"
    (folder / f"{name}.svg").write_text(content)
