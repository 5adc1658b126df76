"""Commands for the development of ftbuild itself: test, bench, schema."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ftbuild.cli.arguments import Range
from ftbuild.cli.command import command
from ftbuild.cli.options import ROOT, BaseName, work_folder


@command()
def test(
    select: Annotated[str | None, "only the tests below this path, for instance tests/unit"] = None,  # noqa: PT028
) -> int:
    """Run formatting, lint, types and all tests, as CI does."""
    from ftbuild.cli import checks

    return checks.run(ROOT, work_folder(), select or "")


@command("dev.bench")
def bench(
    only: Annotated[
        tuple[str, ...], "name of a benchmark (repeatable; default: all that this machine can run)"
    ] = (),
    real: Annotated[bool, "on the real sources and the open base: hours on a small machine"] = False,
    cell: Annotated[tuple[str, ...], "glob on cell ids, for instance '22.12-*' (repeatable)"] = (),
    base: BaseName = None,
    jobs: Annotated[int, Range(1), "compile jobs at a time (default: 2)"] = 2,
    rounds: Annotated[int, Range(1), "repetitions of what takes seconds"] = 5,
    out: Annotated[Path | None, "folder for records and plots (default: .ftbuild/bench)"] = None,
    list: Annotated[bool, "show the benchmarks and stop"] = False,  # noqa: A002
) -> int:
    """Measure what benchmarks/README.md has goals for; without --real on the sample stack."""
    from benchmarks.harness import run as harness

    if list:
        print(harness.listing())
        return 0
    return harness.bench(
        harness.BenchOptions(
            only=only,
            real=real,
            base=base,
            cell=cell,
            jobs=jobs,
            rounds=rounds,
            out=out or work_folder() / "bench",
        )
    )


@command("dev.schema")
def schema(check: Annotated[bool, "change nothing; fail when a schema is out of date"] = False) -> int:
    """Write the JSON Schemas of the configuration files."""
    from ftbuild.config.schema import json_schemas
    from ftbuild.errors import ConfigError

    folder = ROOT / "buildcfg" / "schema"
    schemas = json_schemas()
    stale = [
        folder / name
        for name, text in schemas.items()
        if not (folder / name).exists() or (folder / name).read_text() != text
    ]
    if check and stale:
        raise ConfigError(
            "schemas are out of date", where=", ".join(map(str, stale)), hint="invoke dev.schema"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for file in stale:
        file.write_text(schemas[file.name])
    print(f"{len(schemas)} schemas in {folder}: {'written' if stale else 'up to date'}")
    return 0
