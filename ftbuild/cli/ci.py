"""The command that writes the files of CI systems."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from ftbuild.ci.options import CRON, STAGE, Options
from ftbuild.cli.command import command
from ftbuild.cli.options import ROOT, work_folder
from ftbuild.cli.selection import Selection, plans


@dataclass(frozen=True)
class CiOptions:
    """The options of the files, as typed. Neither system named means both."""

    github: Annotated[bool, "files for GitHub Actions only (default: for both systems)"] = False
    gitlab: Annotated[bool, "the file for GitLab only"] = False
    one_host: Annotated[bool, "one job that does everything on one machine with a GPU"] = False
    sign_keyless: Annotated[bool, "sign what is published as the workflow itself, by Sigstore"] = False
    trust: Annotated[
        Sequence[str],
        "public key, a file of the checkout or a KMS address: builds take what the registry has of its owner "
        "(repeatable; with --sign-keyless also the workflow's own)",
    ] = ()
    registry: Annotated[str | None, "host and path (default: the CI system's own registry)"] = None
    cpu_runner: Annotated[str | None, "labels or tags of runners that build and publish, with commas"] = None
    gpu_runner: Annotated[str | None, "labels or tags of runners with a GPU; the SM (sm80) comes on top"] = (
        None
    )
    test_runner: Annotated[str | None, "tags of runners that test every branch (GitLab only)"] = None
    cron: Annotated[str, "when nightly runs begin, in UTC (GitHub only)"] = CRON

    def refuse_idle(self) -> None:
        """Raise ConfigError for an option that no file to be written reads."""
        from ftbuild.errors import ConfigError

        idle = (
            ("--test-runner", self.test_runner, "in GitHub's files", self.github and not self.gitlab),
            ("--cron", self.cron != CRON, "in GitLab's file", self.gitlab and not self.github),
            (
                "--cpu-runner",
                self.cpu_runner,
                "in GitHub's files for one host",
                self.github and not self.gitlab and self.one_host,
            ),
        )
        for option, given, where, alone in idle:
            if given and alone:
                raise ConfigError(f"{option} does nothing {where}", hint=f"leave {option} out")


@command(
    "dev.ci",
    beside={
        "check": ["dry_run", "summary"],
        "dry_run": ["summary"],
        "out": ["dry_run", "summary"],
        **{option.name: ["summary"] for option in fields(CiOptions)},
    },
)
def ci(
    selection: Selection,
    files: CiOptions,
    out: Annotated[Path, "folder to write into (default: this checkout)"] = ROOT,
    check: Annotated[bool, "change nothing; fail when a file is not what the configuration makes"] = False,
    dry_run: Annotated[bool, "print the files and stop"] = False,
    summary: Annotated[bool, "print the gate records of the work folder as Markdown and stop"] = False,
) -> int:
    """Write the workflow files of GitHub and GitLab: tests on push, nightly runs over the matrix."""
    from ftbuild.ci import summary as summaries
    from ftbuild.config import loader

    if summary:
        print(summaries.markdown(plans(loader.load(selection.config), selection), work_folder()))
        return 0
    files.refuse_idle()
    return write(options(selection, files, ROOT), files, out=out, check=check, dry_run=dry_run)


def write(made_from: Options, files: CiOptions, *, out: Path, check: bool, dry_run: bool) -> int:
    """Write the files below `out`, print them (`dry_run`), or compare them (`check`).

    Raises ConfigError for drift, for files that ftbuild did not write, and for a selection that a CI system
    cannot run.
    """
    from ftbuild.ci import drift, github, gitlab

    named = [system for system, wanted in ((github, files.github), (gitlab, files.gitlab)) if wanted]
    systems = named or [github, gitlab]
    texts = {path: text for system in systems for path, text in system.files(made_from).items()}
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


def options(selection: Selection, files: CiOptions, root: Path) -> Options:
    """Return what the files are made from.

    Raises ConfigError for a configuration outside the checkout `root`, and for what a workflow file cannot
    say or no registry can have.
    """
    from ftbuild.ci import values
    from ftbuild.config import loader
    from ftbuild.errors import ConfigError
    from ftbuild.publishing import names

    config = loader.load(selection.config)
    folder = os.path.relpath(selection.config, root)
    if folder.startswith(os.pardir):
        raise ConfigError(
            "CI needs a configuration that is in the checkout",
            where=str(selection.config),
            hint="move it there",
        )
    if files.registry:
        names.resolve(files.registry, None if files.one_host else STAGE, config.matrix.image)
    cells = selection.cells(config)
    if lean := [cell.id for cell in cells if cell.left_out and not files.one_host]:
        raise ConfigError(
            f"the jobs of a pipeline build whole cells, and {lean[0]} leaves something out",
            hint="--one-host, or invoke nightly with --without and --head-sizes",
        )
    return Options(
        cells=cells,
        selection=values.words(selection.words()),
        config="" if folder == "buildcfg" else values.plain("--config", folder),
        registry=(files.registry or "").rstrip("/"),
        cpu=values.labels("--cpu-runner", files.cpu_runner),
        gpu=values.labels("--gpu-runner", files.gpu_runner),
        test=values.labels("--test-runner", files.test_runner),
        cron=values.cron("--cron", files.cron),
        one_host=files.one_host,
        keyless=files.sign_keyless,
        trusted=tuple(_public_key(key, root) for key in files.trust),
    )


def _public_key(key: str, root: Path) -> str:
    """Return a key as jobs name it; ConfigError for a file that their checkout does not have."""
    from ftbuild.ci import values
    from ftbuild.errors import ConfigError

    if "://" in key:
        return values.plain("--trust", key)
    name = os.path.relpath(key, root)
    if name.startswith(os.pardir) or not (root / name).is_file():
        raise ConfigError("CI needs a public key that is in the checkout", where=key, hint="commit it there")
    return values.plain("--trust", name)
