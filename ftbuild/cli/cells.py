"""What each task does: read the configuration, select, call one module, print. Returns the exit code."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild import matrix as matrices
from ftbuild.cli.selection import Selection, ca_bundle, cache_folder, plans, progress, require_format
from ftbuild.config import loader
from ftbuild.config.schema import json_schemas
from ftbuild.errors import ConfigError, HostError, SmokeError, VerifyError, worst
from ftbuild.plan import Plan

if TYPE_CHECKING:
    from ftbuild.gates.report import Report


def matrix(selection: Selection, output: str) -> int:
    """Print what can be built, and what cannot with the reasons."""
    from ftbuild.cli import explain

    require_format(output, "human", "json", "github")
    config = loader.load(selection.config)
    table = matrices.matrix(config, selection.base)
    if selection.narrows:
        table = matrices.Matrix(selection.cells(config), ())
    if output == "github":
        chosen = table.cells if selection.narrows else selection.cells(config)
        print(matrices.as_github(chosen))
    else:
        print(explain.matrix(table) if output == "human" else matrices.as_json(table))
    return 0


def dry_run(selection: Selection, output: str) -> int:
    """Print the plans of the selected cells."""
    from ftbuild.build import bake
    from ftbuild.cli import explain

    require_format(output, "human", "json")
    found = plans(loader.load(selection.config), selection)
    if output == "json":
        print(json.dumps([plan.as_dict() for plan in found], indent=2))
    else:
        print("\n".join(explain.plan(plan) for plan in found))
        if bake.compiles_online():
            print(f"\n{bake.ONLINE}")
    return 0


def build(
    selection: Selection,
    *,
    jobs: int | None,
    ca: str | None,
    builder: str | None,
    progress: str,
    rebuild: bool,
    bundle: str | None,
    layer_cache: str | None,
    work: Path,
) -> int:
    """Build the selected cells and print how each ended; the worst exit code."""
    from ftbuild import pipeline as builds
    from ftbuild.sources import lock as sources

    config = loader.load(selection.config)
    planned = plans(config, selection)
    if bundle:
        sources.unbundle(config, Path(bundle), cache_folder(), report=print)
    options = builds.Options(
        cache=cache_folder(),
        work=work,
        jobs=jobs,
        ca=ca_bundle(ca),
        builder=builder,
        progress=progress,
        rebuild=rebuild,
        layer_cache=layer_cache,
    )
    outcomes = builds.build(config, planned, options)
    print(builds.summary(outcomes))
    return worst(outcome.exit_code for outcome in outcomes)


def verify(selection: Selection, output: str, work: Path) -> int:
    """Verify the built images of the selected cells, each cell even after one failed; the worst exit code."""
    from ftbuild.engine import daemon
    from ftbuild.gates.verify import gate

    require_format(output, "human", "json")
    config = loader.load(selection.config)
    planned = plans(config, selection)
    client = daemon.connect()
    reports, codes = [], []
    for plan in planned:
        say = functools.partial(_say, plan)
        say("verifying")
        try:
            reports.append(gate.run(client, config, plan, cache_folder(), plan.folder(work), report=say))
            codes.append(reports[-1].exit_code)
        except VerifyError as absent:
            say(f"failed: {absent}")
            codes.append(absent.exit_code)
    _print_reports(reports, output)
    return worst(codes)


def smoke(selection: Selection, output: str, *, prepare: bool, any_gpu: bool, work: Path) -> int:
    """Smoke-test the selected cells that the GPUs here can run, each even after one failed; the worst code.

    `prepare` makes the models and stops; `any_gpu` tests also what should not run here. Raises HostError
    when no cell could be tested.
    """
    from ftbuild.engine import daemon
    from ftbuild.gates.smoke import gate

    require_format(output, "human", "json")
    config = loader.load(selection.config)
    planned = plans(config, selection)
    client = daemon.connect()
    reports, codes, skipped = [], [], []
    for plan in planned:
        say = functools.partial(_say, plan)
        folder = plan.folder(work)
        try:
            if prepare:
                gate.prepare(client, config, plan, folder, report=say)
                codes.append(0)
                continue
            access = gate.find_gpus(client, plan) if gate.needs_gpu(config) else None
            if access and not any_gpu and (reason := gate.unfit(plan, access)):
                say(f"skipped: {reason}")
                skipped.append(plan.cell.id)
                continue
            reports.append(gate.run(client, config, plan, folder, access, report=say))
            codes.append(reports[-1].exit_code)
        except SmokeError as failed:
            say(f"failed: {failed}")
            codes.append(failed.exit_code)
    _print_reports(reports, output)
    if not codes:
        raise HostError(
            f"nothing was tested: no GPU here runs {', '.join(skipped)}",
            hint="test these cells on a machine with such a GPU, or select others",
        )
    return worst(codes)


def base(selection: Selection, *, ca: str | None, progress: str, rebuild: bool, work: Path) -> int:
    """Build the images of a local base."""
    from ftbuild.build import bake
    from ftbuild.build import base as bases
    from ftbuild.engine import buildx as builder
    from ftbuild.engine import daemon

    planned = plans(loader.load(selection.config), selection)
    client = daemon.connect()
    builder.version()
    host = bake.Host(jobs=1, ca=ca_bundle(ca), progress=progress)
    for plan in {plan.base.serving: plan for plan in planned}.values():
        bases.ensure(client, plan, host, work, rebuild=rebuild)
        print(f"base {plan.base.name}: {plan.base.serving}, {plan.base.devel}")
    return 0


def lock(config_folder: Path, check: bool) -> int:
    """Resolve every ref and write the lock, or (`check`) say where it no longer agrees with upstream."""
    from ftbuild.build import base as bases
    from ftbuild.sources import lock as sources

    config = loader.load(config_folder)
    if check:
        sources.check(config, cache_folder(), report=print)
        print(f"{config.lock_file} agrees with sources.yaml and with upstream")
    else:
        sources.lock(config, cache_folder(), bases=bases.digests(config), report=print)
        print(f"wrote {config.lock_file}")
    return 0


def patches(config_folder: Path, triton: Sequence[str], output: str) -> int:
    """Print the status of every series entry on every release; the exit code tells of conflicts."""
    from ftbuild.sources import patched
    from ftbuild.sources.patches import series

    require_format(output, "human", "json")
    config = loader.load(config_folder)
    rows = list(patched.survey(config, triton, cache_folder(), progress))
    print(series.as_json(rows) if output == "json" else series.table(rows))
    return series.exit_code(rows)


def doctor(config_folder: Path, work: Path, output: str) -> int:
    """Print what the machine lacks and how to mend it."""
    from ftbuild.doctor import machine as doctors

    require_format(output, "human", "json")
    checks = doctors.checks(loader.load(config_folder), work)
    print(doctors.render(checks, output))
    return doctors.exit_code(checks)


def _print_reports(reports: Sequence[Report], output: str) -> None:
    if output == "json":
        print(json.dumps([report.as_dict() for report in reports], indent=2))
    for report in reports if output == "human" else ():
        print(report.render())


def _say(plan: Plan, message: str) -> None:
    progress(f"[{plan.cell.id}] {message}")


def bundle(config_folder: Path, triton: Sequence[str], file: Path) -> int:
    """Write every pinned source of the releases (none named: all) into one file."""
    from ftbuild.sources import lock as sources

    sources.bundle(loader.load(config_folder), file, cache_folder(), releases=triton, report=print)
    print(f"wrote {file} ({file.stat().st_size / 1e6:.1f} MB)")
    return 0


def schema(folder: Path, check: bool) -> int:
    """Write the JSON Schemas of the configuration, or (`check`) say which are out of date."""
    stale = []
    for name, text in json_schemas().items():
        file = folder / name
        if not file.exists() or file.read_text() != text:
            stale.append(str(file))
            if not check:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
    if check and stale:
        raise ConfigError("schemas are out of date", where=", ".join(stale), hint="invoke schema")
    print(f"{len(json_schemas())} schemas in {folder}: {'up to date' if not stale else 'written'}")
    return 0
