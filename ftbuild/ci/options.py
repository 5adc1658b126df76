"""Options of a rendering: cells, runners, registry, and the command that made it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ftbuild.matrix import Cell

# Night in Europe and America, and not on the full hour, when most scheduled jobs start.
CRON = "17 1 * * *"
STAGE = "staging"
# Of GitHub and of GitLab: its protection rules say which branches may publish, and own its secrets.
ENVIRONMENT = "publish"
MARK = "# Made by `invoke dev.ci"


@dataclass(frozen=True)
class Options:
    """Values that decide the files, as `ftbuild.ci.values` passes them.

    `selection` holds the options that select `cells`, as typed; `config` is a folder relative to the
    checkout, empty for the default; `registry` is empty for the CI system's own; `cpu`, `gpu` and `test` are
    labels (tags in GitLab) of runners, empty for the system's defaults; `keyless` signs what is published;
    `trusted` are public keys, files below the checkout or addresses of a KMS.
    """

    cells: tuple[Cell, ...]
    selection: tuple[str, ...] = ()
    config: str = ""
    registry: str = ""
    cpu: tuple[str, ...] = ()
    gpu: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    cron: str = CRON
    one_host: bool = False
    keyless: bool = False
    trusted: tuple[str, ...] = ()

    @property
    def substitutes(self) -> bool:
        """Return whether any signatures are trusted, so that builds reuse signed images of the registry."""
        return self.keyless or bool(self.trusted)

    @property
    def words(self) -> str:
        """Return the selection quoted for a shell, after a blank; empty if it is the default."""
        return "".join(f" {shlex.quote(word)}" for word in self.selection)

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that all jobs need in addition to those of a cell."""
        trusted = {"FTBUILD_TRUSTED_KEYS": shlex.join(self.trusted)} if self.trusted else {}
        return {**({"FTBUILD_CONFIG": self.config} if self.config else {}), **trusted}

    def header(self, system: str, *about: str) -> str:
        """Return comment lines for the top of a file: the command that writes it, and its purpose."""
        values = {
            "--registry": self.registry,
            "--cpu-runner": ",".join(self.cpu),
            "--gpu-runner": ",".join(self.gpu),
            "--test-runner": ",".join(self.test),
            "--cron": self.cron if self.cron != CRON else "",
            "--config": self.config,
        }
        words = [word for option, value in values.items() if value for word in (option, value)]
        variant = ["--one-host"] if self.one_host else []
        variant += ["--sign-keyless"] if self.keyless else []
        variant += [word for key in self.trusted for word in ("--trust", key)]
        line = shlex.join([f"--{system}", *variant, *self.selection, *words])
        lines = [f"{MARK} {line}`: do not edit, run it again.", *(f"# {text}" for text in about)]
        return "\n".join(lines)
