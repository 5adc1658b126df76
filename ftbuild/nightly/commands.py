"""The commands that a run starts: each in a process of its own, as a person types it, with its log."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from ftbuild.errors import HostError, Interrupted
from ftbuild.host import shell

ROOT = Path(__file__).parents[2]
# Signals by which a command is asked to end.
_REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Command:
    """A command of ftbuild with its options."""

    name: str
    options: Sequence[str]

    def __str__(self) -> str:
        """Return it as a person types it, without its secrets."""
        return shell.display(["invoke", self.name, *self.options])

    def stream(self, log: Path, on_line: Callable[[str], None], until: Event | None = None) -> int:
        """Run it, at most `until` an event; put its lines into a new log; return its exit code.

        One that was asked to end by a signal has the code of an interruption, one that was killed by another
        that of a fault of the machine, and its log says so.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        environment = {"PYTHONUNBUFFERED": "1"}
        code = shell.stream(self._argv, log=log, env=environment, on_line=on_line, until=until)
        if -code in _REQUESTS:
            return Interrupted.exit_code
        if code >= 0:
            return code
        killed = self._killed(code)
        with log.open("a", encoding="utf-8") as sink:
            sink.write(f"error: {killed}\n")
        return killed.exit_code

    def answer(self, log: Path) -> str:
        """Run it, put what it says on standard error into a log, and return its standard output.

        Raises HostError if a signal ended it.
        """
        result = shell.run(self._argv, check=False)
        log.write_text(result.stderr, encoding="utf-8")
        if result.code < 0:
            raise self._killed(result.code)
        return result.stdout

    def _killed(self, code: int) -> HostError:
        hint = "the kernel's log tells if memory ran out: dmesg" if -code == signal.SIGKILL else None
        return HostError(f"invoke {self.name} {shell.ending(code)}", hint=hint)

    @property
    def _argv(self) -> list[str]:
        return [sys.executable, "-m", "invoke", "--search-root", str(ROOT), self.name, *self.options]
