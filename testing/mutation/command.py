"""The mutation command."""

from __future__ import annotations

from typing import Annotated

from ftbuild.cli.arguments import Range
from ftbuild.cli.command import command
from ftbuild.cli.options import ROOT, work_folder


@command("dev.mutate", beside={"again": ("every", "first", "resume")})
def mutate(
    area: Annotated[
        tuple[str, ...], "area of [tool.mutation] in pyproject.toml (repeatable; default: all)"
    ] = (),
    every: Annotated[int, Range(1), "try each n-th mutant only"] = 1,
    first: Annotated[int, Range(1), "with --every: the mutant to begin with"] = 1,
    again: Annotated[bool, "try the survivors of the run before only"] = False,
    resume: Annotated[
        bool, "go on with runs that were ended before, as far as they tried the same sources and tests"
    ] = False,
    jobs: Annotated[int, Range(1), "processes that try mutants at the same time"] = 1,
    goal: Annotated[int, Range(0, 100), "percent of the mutants that tests must notice"] = 90,
) -> int:
    """Put small faults into the sources, one at a time and in memory, and list those that no test notices."""
    from ftbuild.errors import ConfigError
    from ftbuild.text import reporter, tables
    from testing.mutation import campaign

    known = campaign.areas(ROOT)
    if unknown := [name for name in area if name not in known]:
        raise ConfigError(f"there is no area {unknown[0]!r}", hint=f"areas: {', '.join(known)}")
    folder = work_folder() / "mutation"
    results = [
        campaign.run(
            known[name],
            folder,
            reporter.to_stderr,
            every=every,
            first=first,
            again=again,
            resume=resume,
            jobs=jobs,
        )
        for name in area or known
    ]
    rows = [(r.area, str(r.made), str(r.killed), f"{r.percent:.0f} %") for r in results]
    print(tables.render(("Area", "Mutants", "Noticed", "Share"), rows))
    for result in results:
        for survivor in result.survivors:
            print(f"survives: {survivor}")
        for line in result.skipped:
            print(f"area {result.area}: tests that do not run here notice nothing: {line.strip()}")
    return 0 if all(result.percent >= goal for result in results) else 1
