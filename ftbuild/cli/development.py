"""The project's own checks, in the order in which they fail fastest: what `invoke test` and CI run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ftbuild.host import shell

TOOLS = (
    ("ruff", "format", "--check", "."),
    ("ruff", "check", "."),
    ("mypy",),
    ("pytest",),
)


def run(root: Path, work: Path, select: str = "", tools: Sequence[Sequence[str]] = TOOLS) -> int:
    """Run every check in `root`, even after one failed; 0 when all passed, else 1.

    `select` restricts the tests to a path.
    """
    work.mkdir(parents=True, exist_ok=True)
    log = work / "test.log"
    log.unlink(missing_ok=True)
    commands = [[*tool, select] if select and tool[0] == "pytest" else list(tool) for tool in tools]
    failed = [" ".join(command) for command in commands if _run(root, log, *command)]
    print(f"failed: {', '.join(failed)} (log: {log})" if failed else "all checks passed")
    return 1 if failed else 0


def _run(root: Path, log: Path, tool: str, *arguments: str) -> int:
    print(f"== {tool} {' '.join(arguments)}", flush=True)
    return shell.stream([sys.executable, "-m", tool, *arguments], log=log, cwd=root, on_line=_show)


def _show(line: str) -> None:
    print(line, flush=True)
