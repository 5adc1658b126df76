"""What `invoke ci` does: write the files of CI systems, show them, check them, or sum a night up."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ftbuild.ci import drift, github, gitlab
from ftbuild.ci.options import CRON, Options
from ftbuild.cli.selection import Selection, plans
from ftbuild.config import loader
from ftbuild.errors import ConfigError


@dataclass(frozen=True)
class CiOptions:
    """The options of the task, as typed. Of the systems none named means both."""

    github: bool = False
    gitlab: bool = False
    one_host: bool = False
    registry: str = ""
    cpu_runner: str = ""
    gpu_runner: str = ""
    cron: str = CRON


def run(selection: Selection, wanted: CiOptions, root: Path, *, out: Path, check: bool, dry_run: bool) -> int:
    """Write the files below `out`, print them (`dry_run`), or say whether they are current (`check`).

    `root` is the checkout. Raises ConfigError for drift, for files that are not ours, and for a selection
    that a CI system cannot run.
    """
    made = options(selection, wanted, root)
    systems = [system for system, named in ((github, wanted.github), (gitlab, wanted.gitlab)) if named] or [
        github,
        gitlab,
    ]
    texts = {path: text for system in systems for path, text in system.files(made).items()}
    owned = [path for system in systems for path in system.PATHS]
    if dry_run:
        print("\n".join(f"# --- {path}\n{text}" for path, text in texts.items()), end="")
    elif check:
        drift.require_up_to_date(out, texts, owned)
        print(f"up to date: {', '.join(texts)}")
    else:
        drift.write(out, texts, owned)
        print(f"wrote {', '.join(str(out / path) for path in texts)}")
    return 0


def summary(selection: Selection, work: Path) -> int:
    """Print the Markdown of the gate records in the work folder."""
    from ftbuild.ci import summary as summaries

    print(summaries.markdown(plans(loader.load(selection.config), selection), work))
    return 0


def options(selection: Selection, wanted: CiOptions, root: Path) -> Options:
    """What the files are made from."""
    config = loader.load(selection.config)
    folder = os.path.relpath(selection.config, root)
    if folder.startswith(os.pardir):
        raise ConfigError(
            "CI needs a configuration that is in the checkout",
            where=str(selection.config),
            hint="move it there",
        )
    return Options(
        cells=selection.cells(config),
        selection=_words(selection),
        config="" if folder == "buildcfg" else folder,
        registry=wanted.registry,
        cpu=_labels(wanted.cpu_runner),
        gpu=_labels(wanted.gpu_runner),
        cron=wanted.cron,
        one_host=wanted.one_host,
    )


def _words(selection: Selection) -> tuple[str, ...]:
    """The options of a selection, but for its configuration, as one would type them."""
    named = (("--triton", selection.triton), ("--sm", selection.sm), ("--cell", selection.cell))
    words = [word for option, values in named for value in values for word in (option, value)]
    return (*words, *(("--base", selection.base) if selection.base else ()))


def _labels(text: str) -> tuple[str, ...]:
    return tuple(label.strip() for label in text.split(",") if label.strip())
