"""The audit beside the cells, by a command of its own."""

from __future__ import annotations

from pathlib import Path

from ftbuild.audit import record
from ftbuild.errors import FtbuildError
from ftbuild.host import failures
from ftbuild.nightly import artifacts
from ftbuild.nightly.commands import Command
from ftbuild.text import bounded_json
from ftbuild.text.results import CheckResult, State

LOG = "audit.log"


def findings(config: Path, folder: Path) -> tuple[CheckResult, ...]:
    """Audit the pins of a configuration; what the command says goes into a log in the run's folder.

    An audit that cannot run is a warning.
    """
    log = folder / LOG
    command = Command("audit", ["--config", str(config), "--format", "json"])
    try:
        with failures.reported():
            return tuple(map(record.from_dict, bounded_json.loads(command.answer(log).encode())))
    except FtbuildError as broken:
        why = broken.what
    except (TypeError, ValueError):
        why = artifacts.message(log) or "it gave no answer"
    return (CheckResult("audit", State.WARN, f"the audit could not run: {why}"),)
