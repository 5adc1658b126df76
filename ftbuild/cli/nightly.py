"""The nightly command."""

from __future__ import annotations

from typing import Annotated

from ftbuild.cli.arguments import Range
from ftbuild.cli.command import command
from ftbuild.cli.options import MOST_JOBS, Builder, CaBundle, setting, work_folder
from ftbuild.cli.publishing import Signing, Target
from ftbuild.cli.selection import Selection, revision
from ftbuild.host.paths import ca_bundle, cache_folder


@command()
def nightly(
    selection: Selection,
    target: Target,
    signing: Signing,
    jobs: Annotated[
        int | None,
        Range(1, MOST_JOBS),
        "compile jobs of all cells together (default: from the engine's cores and memory)",
    ] = None,
    parallel: Annotated[int | None, Range(1), "cells at a time (default: from the jobs)"] = None,
    resume: Annotated[
        bool, "resume the last nightly run: what passed there with the same inputs is left alone"
    ] = False,
    fail_fast: Annotated[bool, "begin no further cell after one has failed"] = False,
    smoke: Annotated[bool, "test on the GPU"] = True,
    audit: Annotated[bool, "check pins, bases, patches and mirrors too"] = True,
    notify: Annotated[str | None, "URL that gets the outcome as JSON (default: FTBUILD_NOTIFY)"] = None,
    ca: CaBundle = None,
    builder: Builder = None,
) -> int:
    """Build, verify, smoke-test and publish the whole matrix, keep going, and report."""
    from ftbuild import matrix
    from ftbuild.config import loader
    from ftbuild.nightly import run as nightly_run

    config = loader.load(selection.config)
    table = matrix.select_with_excluded(
        config, triton=selection.triton, sms=selection.sm, cells=selection.cell, base=selection.base
    )
    request = nightly_run.Request(config, table, selection.words(), revision(), work_folder(), cache_folder())
    options = nightly_run.NightlyOptions(
        registry=target.registry,
        stage=target.stage,
        jobs=jobs,
        parallel=parallel,
        resume=resume,
        fail_fast=fail_fast,
        smoke=smoke,
        audit=audit,
        allow_unsmoked=signing.allow_unsmoked,
        allow_shared_cache=signing.allow_shared_cache,
        sign_key=signing.sign_key,
        sign_log=signing.sign_log,
        force=signing.force,
        notify=notify or setting("FTBUILD_NOTIFY"),
        ca=ca_bundle(ca),
        builder=builder,
    )
    return nightly_run.execute(request, options).exit_code
