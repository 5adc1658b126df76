"""The nightly command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ftbuild.cli.arguments import Range
from ftbuild.cli.command import command
from ftbuild.cli.options import CONFIG, MAX_JOBS, ROOT, CaBundle, setting, work_folder
from ftbuild.cli.publishing import Signing, Target
from ftbuild.cli.selection import Selection, revision
from ftbuild.cli.taking import OWN_MEANS, Taking
from ftbuild.host.paths import ca_bundle, cache_folder
from ftbuild.text.terminal import quoted

_OF_PUBLISHING = (
    "stage",
    "allow_shared_cache",
    "allow_dirty",
    "sign_key",
    "sign_log",
    "attest",
    "force",
    "publish_objects",
)

if TYPE_CHECKING:
    from ftbuild.config.schema import Config
    from ftbuild.matrix import Matrix
    from ftbuild.nightly.builders import BuilderRequest


@dataclass(frozen=True)
class Machines:
    """The options about the machines that compile, and how much of them is used."""

    jobs: Annotated[
        int | None,
        Range(1, MAX_JOBS),
        "compile jobs of all cells together, on each builder (default: from its machine's cores and memory)",
    ] = None
    parallel: Annotated[int | None, Range(1), "cells at a time, on each builder (default: from the jobs)"] = (
        None
    )
    ca: CaBundle = None
    builder: Annotated[
        Sequence[str],
        "buildx builder that takes a share, as NAME or NAME=JOBS (repeatable; default: the engine's own)",
    ] = ()


@dataclass(frozen=True)
class Course:
    """The options about what the run does with each cell, when it stops, and who hears of it."""

    resume: Annotated[
        bool,
        "resume the last nightly run, all of its cells or those that are selected: what passed there with "
        "the same inputs is left alone",
    ] = False
    fail_fast: Annotated[bool, "begin no further cell after one has failed"] = False
    smoke: Annotated[bool, "test on the GPU"] = True
    audit: Annotated[bool, "check pins, bases, patches and mirrors too"] = True
    notify: Annotated[str | None, "URL that gets the outcome as JSON (default: FTBUILD_NOTIFY)"] = None


ALONE, WHOLE = Machines(), Course()


@command(needs={**dict.fromkeys(_OF_PUBLISHING, ("registry", "resume")), "trust": ("from_", "objects")})
def nightly(
    selection: Selection,
    target: Target,
    signing: Signing,
    taking: Taking = OWN_MEANS,
    machines: Machines = ALONE,
    course: Course = WHOLE,
    publish_objects: Annotated[bool, "publish what was compiled, too, for builds with --objects"] = False,
    dry_run: Annotated[bool, "print the builders with their jobs, and the cells, and stop"] = False,
) -> int:
    """Build, verify, smoke-test and publish the whole matrix, keep going, and report."""
    from ftbuild.config import loader
    from ftbuild.nightly import run as nightly_run
    from ftbuild.nightly.request import NightlyOptions, Request

    work = work_folder()
    config = loader.load(_configuration(selection, work) if course.resume else selection.config)
    table = None if course.resume and not selection.words() else _table(config, selection)
    request = Request(config, table, selection.words(), revision(), work, cache_folder())
    options = NightlyOptions(
        registry=target.registry,
        stage=target.stage,
        jobs=machines.jobs,
        parallel=machines.parallel,
        resume=course.resume,
        fail_fast=course.fail_fast,
        smoke=course.smoke,
        audit=course.audit,
        allow_unsmoked=signing.allow_unsmoked,
        allow_shared_cache=signing.allow_shared_cache,
        allow_dirty=signing.allow_dirty,
        sign_key=signing.sign_key,
        sign_log=signing.sign_log,
        attest=signing.attest,
        force=signing.force,
        notify=course.notify or setting("FTBUILD_NOTIFY"),
        ca=ca_bundle(machines.ca),
        builders=_wanted(machines.builder),
        from_=taking.from_,
        objects=taking.objects,
        trust=taking.trust,
        publish_objects=publish_objects,
    )
    taking.check(config.matrix.image, work)  # what is wrong with it would fail every cell
    if dry_run:
        nightly_run.show(request, options)
        return 0
    return nightly_run.execute(request, options).exit_code


def _configuration(selection: Selection, work: Path) -> Path:
    """Return the configuration of the run to resume; ConfigError if another one is named."""
    from ftbuild.nightly import resuming

    named = None if selection.config == CONFIG else selection.config
    return resuming.configuration(work, ROOT, named) or selection.config


def _table(config: Config, selection: Selection) -> Matrix:
    from ftbuild import matrix

    return matrix.select_with_excluded(
        config,
        triton=selection.triton,
        sms=selection.sm,
        cells=selection.cell,
        bases=selection.base,
        left_out=selection.left_out,
    )


def _wanted(words: Sequence[str]) -> list[BuilderRequest]:
    """Return the builders that were asked for; ConfigError for one that is named twice, or odd."""
    from ftbuild.errors import ConfigError
    from ftbuild.nightly.builders import BuilderRequest

    wanted: dict[str, BuilderRequest] = {}
    for word in words:
        name, given, jobs = word.partition("=")
        fits = jobs.isascii() and jobs.isdecimal() and not Range(1, MAX_JOBS).complaint(int(jobs))
        if name.startswith("-") or not name or (given and not fits):
            raise ConfigError(
                f"--builder must be NAME or NAME=JOBS, not {quoted(word)}", hint=f"JOBS: 1 to {MAX_JOBS}"
            )
        if name in wanted:
            raise ConfigError(f"--builder names {quoted(name)} twice", hint="name each builder once")
        wanted[name] = BuilderRequest(name, int(jobs) if given else None)
    return list(wanted.values())
