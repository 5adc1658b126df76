"""The commands that a run starts: each in a process of its own, as a person types it, with its log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from ftbuild.errors import Interrupted
from ftbuild.host import shell

ROOT = Path(__file__).parents[2]


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

        One that a signal ended has the code of an interruption.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        environment = {"PYTHONUNBUFFERED": "1"}
        code = shell.stream(self._argv, log=log, env=environment, on_line=on_line, until=until)
        return Interrupted.exit_code if code < 0 else code

    def answer(self, log: Path) -> str:
        """Run it, put what it says on standard error into a log, and return its standard output."""
        result = shell.run(self._argv, check=False)
        log.write_text(result.stderr, encoding="utf-8")
        return result.stdout

    @property
    def _argv(self) -> list[str]:
        return [sys.executable, "-m", "invoke", "--search-root", str(ROOT), self.name, *self.options]
