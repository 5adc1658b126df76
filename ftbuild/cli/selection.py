"""What the options mean that several commands share: which cells, which folders, which CA, which format."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ftbuild import matrix as matrices
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError, HostError
from ftbuild.matrix import Cell
from ftbuild.plan import Plan, Revision, plan


@dataclass(frozen=True)
class Selection:
    """The options that choose cells, as typed."""

    config: Path
    triton: Sequence[str] = ()
    sm: Sequence[str] = ()
    cell: Sequence[str] = ()
    base: str | None = None

    def cells(self, config: Config) -> tuple[Cell, ...]:
        """The cells they mean; see `matrix.select`."""
        return matrices.select(config, triton=self.triton, sms=self.sm, cells=self.cell, base=self.base)

    @property
    def narrows(self) -> bool:
        """Whether any cell is named."""
        return bool(self.triton or self.sm or self.cell)


def plans(config: Config, selection: Selection) -> list[Plan]:
    """The plans of the selected cells."""
    checkout = revision()
    return [plan(config, cell, checkout) for cell in selection.cells(config)]


@functools.cache
def revision() -> Revision:
    """Commit and time of this checkout; `SOURCE_DATE_EPOCH` (reproducible-builds.org) overrides the time."""
    from ftbuild.host import shell

    root = Path(__file__).parents[2]
    log = ""
    with contextlib.suppress(HostError):  # a machine that only tests or serves needs no git
        command = ["git", "-C", str(root), "log", "-1", "--format=%H %cI"]
        log = shell.run(command, check=False, timeout=20).stdout
    commit, _, time = log.strip().partition(" ")
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        time = datetime.fromtimestamp(int(epoch), tz=UTC).isoformat()
    return Revision(commit or "unknown", time or "1970-01-01T00:00:00+00:00")


def cache_folder() -> Path:
    """FTBUILD_CACHE, else `ftbuild` in the user's cache folder (XDG Base Directory Specification)."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ftbuild"
    return Path(os.environ.get("FTBUILD_CACHE") or default)


def ca_bundle(option: str | None) -> Path | None:
    """The CA bundle for downloads during a build: the option, else SSL_CERT_FILE (OpenSSL's own variable)."""
    name = option or os.environ.get("SSL_CERT_FILE")
    if not name:
        return None
    if not Path(name).is_file():
        raise ConfigError("the CA bundle does not exist", where=name, hint="check --ca and SSL_CERT_FILE")
    return Path(name).resolve()


def require_format(output: str, *known: str) -> None:
    """ConfigError unless a command knows the output format."""
    if output not in known:
        raise ConfigError(f"format {output!r} is unknown", hint=f"one of {', '.join(known)}")


def progress(message: str) -> None:
    """Say what goes on, beside the output that a program may read."""
    print(message, file=sys.stderr)
