"""A running build on a terminal, or in the lines of a log."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from ftbuild.build.stages import HEARTBEAT_SECONDS, Watch, clock
from ftbuild.text import terminal
from ftbuild.text.reporter import Reporter

if TYPE_CHECKING:
    from rich.console import RenderableType

_REFRESHES = 4
# A terminal has room for a few lines only.
_SHOWN_LEFT = 6


@contextlib.contextmanager
def shown(title: str, expected: tuple[str, ...], report: Reporter) -> Iterator[Callable[[str], None]]:
    """Show what a build does while its log is handed, line by line, to what this yields.

    On a terminal running steps have a line each, which grows; elsewhere each step is reported when it has
    ended, and what runs every `HEARTBEAT_SECONDS` in which none has. `title` stands in front on a terminal.
    """
    watch, lock = Watch(expected), Lock()
    drawn = _drawn(title, watch, lock) if sys.stdout.isatty() else _heartbeat(watch, lock, report)
    with drawn as tell:

        def read(line: str) -> None:
            with lock:
                ended = watch.read(line, time.monotonic())
            for text in ended:
                tell(text)

        yield read


@contextlib.contextmanager
def _heartbeat(watch: Watch, lock: Lock, report: Reporter) -> Iterator[Reporter]:
    ended, told = Event(), Event()

    def beat() -> None:
        while not ended.wait(HEARTBEAT_SECONDS):
            if told.is_set():
                told.clear()
                continue
            with lock:
                lines, left = watch.lines(time.monotonic()), len(watch.left)
            if lines:
                rest = f"; {left} {'step' if left == 1 else 'steps'} left" if left else ""
                report(f"running: {'; '.join(lines)}{rest}")

    def tell(text: str) -> None:
        told.set()
        report(text)

    thread = Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield tell
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def _drawn(title: str, watch: Watch, lock: Lock) -> Iterator[Reporter]:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    # Commands' own stream takes out what is drawn with.
    console = Console(file=getattr(sys.stdout, "drawing", sys.stdout))
    start = time.monotonic()

    def picture() -> RenderableType:
        now = time.monotonic()
        with lock:
            lines, left = watch.lines(now), watch.left
        shown = [f"  {line}" for line in lines]
        if left:
            more = f", {len(left) - _SHOWN_LEFT} more" if len(left) > _SHOWN_LEFT else ""
            shown.append(f"  left: {', '.join(left[:_SHOWN_LEFT])}{more}")
        head = Text(f"{title}  {clock(now - start)}", "bold")
        return Text("\n").join([head, *(Text(terminal.safe(line), no_wrap=True) for line in shown)])

    with Live(
        get_renderable=picture,
        console=console,
        refresh_per_second=_REFRESHES,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        yield lambda text: console.print(Text(f"  {terminal.safe(text)}", no_wrap=True))
