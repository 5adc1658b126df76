"""The cells that the options of a command mean, and their plans."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ftbuild.cli.options import CONFIG, ROOT, BaseNames, ConfigFolder, Releases, setting

# What decides, or writes, the files of an image.
_MAKING_IMAGES = ("buildcfg", "dockerfiles", "ftbuild", "ftserve", "patches", "sample", "tasks.py")

if TYPE_CHECKING:
    from ftbuild.config.schema import Config
    from ftbuild.features import LeftOut
    from ftbuild.host.shell import Result
    from ftbuild.matrix import Cell, Matrix
    from ftbuild.plan import Plan, Revision


@dataclass(frozen=True)
class Selection:
    """The options that choose cells, as typed."""

    config: ConfigFolder = CONFIG
    triton: Releases = ()
    sm: Annotated[
        Sequence[str], "SM of the GPU, for instance 80; 80,86 puts both into one image (repeatable)"
    ] = ()
    cell: Annotated[Sequence[str], "glob on cell ids, for instance '22.12-*' (repeatable)"] = ()
    base: BaseNames = ()
    without: Annotated[
        Sequence[str],
        "leave a feature out, to compile less: beams, experts, int8 (repeatable, or with commas)",
    ] = ()
    head_sizes: Annotated[
        Sequence[str],
        "size of heads to have kernels for, for instance 64,128 (repeatable, or with commas; default: all)",
    ] = ()

    @property
    def left_out(self) -> LeftOut:
        """Return what the cells leave out; ConfigError for what cannot be."""
        from ftbuild import features

        return features.parse(self.without, self.head_sizes)

    def cells(self, config: Config) -> tuple[Cell, ...]:
        """Return the selected cells; errors as `matrix.select`. An id of a cell's full form is told of."""
        from ftbuild import matrix
        from ftbuild.text.reporter import to_stderr

        chosen = matrix.select(
            config,
            triton=self.triton,
            sms=self.sm,
            cells=self.cell,
            bases=self.base,
            left_out=self.left_out,
        )
        for note in matrix.renamed(chosen, self.cell):
            to_stderr(note)
        return chosen

    def overview(self, config: Config) -> Matrix:
        """Return the selected part of the matrix over all bases; errors as `matrix.overview`."""
        from ftbuild import matrix

        return matrix.overview(
            config,
            triton=self.triton,
            sms=self.sm,
            cells=self.cell,
            bases=self.base,
            left_out=self.left_out,
        )

    def words(self) -> tuple[str, ...]:
        """Return the options as typed, but for the configuration folder."""
        named = (
            ("--triton", self.triton),
            ("--sm", self.sm),
            ("--cell", self.cell),
            ("--base", self.base),
            ("--without", self.without),
            ("--head-sizes", self.head_sizes),
        )
        return tuple(word for option, values in named for value in values for word in (option, value))


def plans(config: Config, selection: Selection, file: Path | None = None) -> list[Plan]:
    """Return the plans of the selected cells, or the one of a plan file."""
    from ftbuild.planning import make_plans

    if file:
        from ftbuild import plan_file

        return [plan_file.read(file)]

    checkout = revision()
    return make_plans(config, selection.cells(config), checkout)


def loaded(selection: Selection, file: Path | None) -> tuple[Config | None, list[Plan]]:
    """Return the configuration and the plans of the selected cells, with warnings as `warn`.

    A plan is closed: with the file of one, whatever the configuration says by now decides nothing, and is not
    read.
    """
    from ftbuild.config import loader

    if file:
        from ftbuild import plan_file

        return None, [plan_file.read(file)]
    config = loader.load(selection.config)
    planned = plans(config, selection)
    warn(config, planned)
    return config, planned


def warn(config: Config, planned: Iterable[Plan]) -> None:
    """Warn of bases on which nothing was ever built."""
    from ftbuild import proven
    from ftbuild.text.reporter import to_stderr

    for warning in proven.unproven(config, [plan.cell for plan in planned]):
        to_stderr(f"warning: {warning}")


def _git(*arguments: str) -> Result:
    """Ask git about this checkout, which may be another user's: its Python code runs here all the same."""
    from ftbuild.host import shell

    settings = ["-c", f"safe.directory={ROOT}", "-c", "core.fsmonitor=false", "--no-optional-locks"]
    return shell.run(["git", *settings, "-C", str(ROOT), *arguments], check=False, timeout=20)


@functools.cache
def revision() -> Revision:
    """Return commit and time of this checkout, and whether the files that make images differ from it.

    `SOURCE_DATE_EPOCH` (reproducible-builds.org, seconds since 1970) overrides the time. Raises ConfigError
    when it is not a number.
    """
    from ftbuild.errors import ConfigError, HostError
    from ftbuild.plan import DIRTY, Revision
    from ftbuild.text.reporter import to_stderr

    log = dirty = ""
    with contextlib.suppress(HostError):  # a machine that only tests or serves needs no git
        answer = _git("log", "-1", "--format=%H %cI")
        log = answer.stdout
        if answer.code and (ROOT / ".git").exists():
            cause = (answer.stderr.strip() or "no answer").splitlines()[0]
            to_stderr(f"labels will lack the revision of this checkout: {cause}")
        # A label must not name a commit that the files are not of.
        changes = _git("status", "--porcelain", "--untracked-files=all", "--", *_MAKING_IMAGES)
        dirty = DIRTY if log and (changes.code or changes.stdout.strip()) else ""
    commit, _, time = log.strip().partition(" ")
    if epoch := setting("SOURCE_DATE_EPOCH"):
        try:
            time = datetime.fromtimestamp(int(epoch), tz=UTC).isoformat()
        except (ValueError, OverflowError, OSError):
            raise ConfigError(
                f"SOURCE_DATE_EPOCH must be a number of seconds since 1970, not {epoch!r}"
            ) from None
    return Revision(f"{commit}{dirty}" or "unknown", time or "1970-01-01T00:00:00+00:00")
