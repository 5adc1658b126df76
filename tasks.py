"""Invoke tasks: parse, call ftbuild, turn a failure into its exit code. `invoke --list` shows them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from invoke import Context, task

ROOT = Path(__file__).parent
CONFIG = os.environ.get("FTBUILD_CONFIG", str(ROOT / "buildcfg"))
WORK = os.environ.get("FTBUILD_WORK", str(ROOT / ".ftbuild"))

CONFIG_HELP = {"config": "folder of the configuration (default: buildcfg, or FTBUILD_CONFIG)"}
SELECTION = ["triton", "sm", "cell"]
SELECTION_HELP = {
    "triton": "Triton release, for instance 22.12 (repeatable)",
    "sm": "SM of the GPU, for instance 80; 80,86 puts both into one image (repeatable)",
    "cell": "glob on cell ids, for instance '22.12-*' (repeatable)",
    "base": "image to build on: ngc (default) or open",
    **CONFIG_HELP,
}
ENGINE_HELP = {
    "ca": "CA bundle for downloads behind a TLS-inspecting proxy (default: SSL_CERT_FILE)",
    "progress": "auto, tty or plain",
    "rebuild": "build even if the image is there",
}


def command(body: Callable[..., int | None]) -> Callable[..., None]:
    """Run a task's body; a failure becomes a message on standard error and its exit code."""

    @wraps(body)
    def guarded(*args: Any, **options: Any) -> None:
        from ftbuild.errors import FtbuildError, Interrupted

        sys.stdout.reconfigure(line_buffering=True)  # a CI log shows each line when it is said
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # CI cancels with SIGTERM: end as on Ctrl-C
        try:
            code = body(*args, **options) or 0
        except FtbuildError as failure:
            print(f"error: {failure}", file=sys.stderr)
            code = failure.exit_code
        except KeyboardInterrupt:
            print("interrupted: the same command resumes", file=sys.stderr)
            code = Interrupted.exit_code
        if code:
            raise SystemExit(code)

    return guarded


def selection(config: str, triton: list[str], sm: list[str], cell: list[str], base: str | None) -> Any:
    """The options that choose cells."""
    from ftbuild.commands import Selection

    return Selection(Path(config), triton or (), sm or (), cell or (), base)


@task(iterable=SELECTION, help={**SELECTION_HELP, "format": "human, json or github"})
@command
def matrix(c: Context, triton=None, sm=None, cell=None, base=None, config=CONFIG, format="human"):  # noqa: A002
    """List the cells that can be built and, with reasons, those that cannot."""
    from ftbuild import commands

    return commands.matrix(selection(config, triton, sm, cell, base), format)


@task(
    iterable=SELECTION,
    help={
        **SELECTION_HELP,
        **ENGINE_HELP,
        "dry_run": "print the plan and stop: needs neither Docker nor network",
        "format": "of the dry run: human or json",
        "jobs": "compile jobs at a time (default: from the engine's cores and memory)",
        "builder": "buildx builder (default: the engine's own)",
        "sources": "file made by invoke bundle, for a machine without internet",
    },
)
@command
def build(
    c: Context,
    triton=None,
    sm=None,
    cell=None,
    base=None,
    config=CONFIG,
    dry_run=False,
    format="human",  # noqa: A002
    jobs=0,
    ca=None,
    builder=None,
    progress="auto",
    rebuild=False,
    sources=None,
):
    """Build the runtime and the SDK image of every selected cell."""
    from ftbuild import commands

    chosen = selection(config, triton, sm, cell, base)
    if dry_run:
        return commands.dry_run(chosen, format)
    return commands.build(
        chosen,
        jobs=jobs or None,
        ca=ca,
        builder=builder,
        progress=progress,
        rebuild=rebuild,
        bundle=sources,
        work=Path(WORK),
    )


@task(iterable=SELECTION, help={**SELECTION_HELP, "format": "human or json"})
@command
def verify(c: Context, triton=None, sm=None, cell=None, base=None, config=CONFIG, format="human"):  # noqa: A002
    """Check the built images of every selected cell, without a GPU."""
    from ftbuild import commands

    return commands.verify(selection(config, triton, sm, cell, base), format, Path(WORK))


@task(
    iterable=["triton"], help={**ENGINE_HELP, **{k: SELECTION_HELP[k] for k in ("triton", "base", "config")}}
)
@command
def base(c: Context, triton=None, base=None, config=CONFIG, ca=None, progress="auto", rebuild=False):
    """Make the images that cells are built on (`--base open`: from Debian and PyPI packages)."""
    from ftbuild import commands

    chosen = selection(config, triton, [], [], base)
    return commands.base(chosen, ca=ca, progress=progress, rebuild=rebuild, work=Path(WORK))


@task(help={**CONFIG_HELP, "check": "change nothing; fail where lock, sources.yaml and upstream disagree"})
@command
def lock(c: Context, config=CONFIG, check=False):
    """Resolve the refs of sources.yaml to commits and trees, into sources.lock.yaml."""
    from ftbuild import commands

    return commands.lock(Path(config), check)


@task(
    iterable=["triton"],
    help={
        **CONFIG_HELP,
        "triton": SELECTION_HELP["triton"],
        "output": "file to write (default: ftbuild-sources.tar)",
    },
)
@command
def bundle(c: Context, triton=None, config=CONFIG, output="ftbuild-sources.tar"):
    """Put every pinned source into one file, for `invoke build --sources` where there is no internet."""
    from ftbuild import commands

    return commands.bundle(Path(config), triton or (), Path(output))


@task(
    iterable=["triton"], help={**CONFIG_HELP, "triton": SELECTION_HELP["triton"], "format": "human or json"}
)
@command
def patches(c: Context, triton=None, config=CONFIG, format="human"):  # noqa: A002
    """Show which patch applies to which release, which is upstream already, and which conflicts."""
    from ftbuild import commands

    return commands.patches(Path(config), triton or (), format)


@task(help={**CONFIG_HELP, "format": "human or json"})
@command
def doctor(c: Context, config=CONFIG, format="human"):  # noqa: A002
    """Check this machine: engine, buildx, disk, memory, GPU, registries and sources."""
    from ftbuild import commands

    return commands.doctor(Path(config), Path(WORK), format)


@task(help={"check": "change nothing; fail when a schema is out of date"})
@command
def schema(c: Context, check=False):
    """Write the JSON Schemas of the configuration files."""
    from ftbuild import commands

    return commands.schema(ROOT / "buildcfg" / "schema", check)


@task(help={k: ENGINE_HELP[k] for k in ("ca", "progress")})
@command
def demo(c: Context, ca=None, progress="auto"):
    """Run the main job on the sample stack, from lock to a server that answers."""
    from ftbuild import demo

    return demo.run(ROOT, Path(WORK), ca=ca, progress=progress)


@task(help={"select": "only the tests below this path, for instance tests/unit"})
@command
def test(c: Context, select=""):  # noqa: PT028
    """Run formatting, lint, types and all tests, as CI does."""
    from ftbuild import checks

    return checks.run(ROOT, Path(WORK), select)
