"""Campaigns: all mutants of an area, and which of them its tests let live."""

from __future__ import annotations

import contextlib
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftbuild.errors import ConfigError, FtbuildError
from ftbuild.host import files
from ftbuild.text.reporter import Reporter
from testing.mutation import tracing, trial, workers
from testing.mutation.mutants import Mutant, mutants


@dataclass(frozen=True)
class Area:
    """A part of the sources, and the tests that must notice its faults; both as patterns of paths.

    `programs` are left out of the sources: tests start them, so that they see no fault in memory.
    """

    name: str
    root: Path
    sources: tuple[str, ...]
    tests: tuple[str, ...]
    programs: tuple[str, ...] = ()

    def files(self) -> list[Path]:
        """Return its source files; ConfigError for a pattern that matches none."""
        left_out = set(_matching(self.root, self.programs))
        return [self.root / path for path in _matching(self.root, self.sources) if path not in left_out]

    def test_files(self) -> list[str]:
        """Return its test files, relative to the root; ConfigError for a pattern that matches none."""
        return _matching(self.root, self.tests)


@dataclass(frozen=True)
class Result:
    """How many mutants were made, and a line for each survivor.

    `skipped` has a line for each reason for which tests of the area did not run: what they alone would notice
    is among the survivors.
    """

    area: str
    made: int
    survivors: tuple[str, ...]
    skipped: tuple[str, ...] = ()

    @property
    def killed(self) -> int:
        """The number of mutants that a test has noticed."""
        return self.made - len(self.survivors)

    @property
    def percent(self) -> float:
        """The share of killed mutants; that of none is all."""
        return 100 * self.killed / self.made if self.made else 100.0


def areas(root: Path) -> Mapping[str, Area]:
    """Return the areas of `[tool.mutation]` in pyproject.toml, by name."""
    table: Mapping[str, Any] = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["mutation"]
    return {
        name: Area(name, root, tuple(area["sources"]), tuple(area["tests"]), tuple(area.get("programs", ())))
        for name, area in table.items()
    }


def run(
    area: Area,
    work: Path,
    report: Reporter,
    *,
    every: int = 1,
    first: int = 1,
    again: bool = False,
    jobs: int = 1,
) -> Result:
    """Try the mutants of an area, and write the survivors into `work`, those of an interrupted run as well.

    `every` takes each n-th mutant only, from the `first` on; `again` takes the survivors of the run before
    only. `jobs` are processes. Raises FtbuildError when the tests fail without a mutant.
    """
    sources, tests, record = area.files(), area.test_files(), work / f"{area.name}.json"
    known = set(json.loads(record.read_text())) if again and record.exists() else None
    made = list(_mutants(sources))
    if known is None:
        chosen = made[first - 1 :: every]
    else:
        chosen = [(file, mutant) for file, mutant in made if _line(area, file, mutant) in known]
    try:
        traces = trial.trace(area.root, sources, tests)
        for line in traces.skipped:
            report(f"area {area.name}: tests that do not run here notice nothing: {line.strip()}")
        survivors: dict[int, str] = {}
        try:
            for number, line in _survivors(area, chosen, _Trying(area, chosen, traces), report, jobs):
                survivors[number] = line
        finally:
            lines = [survivors[number] for number in sorted(survivors)]
            files.write_atomic(record, json.dumps(lines, indent=2) + "\n")
    except trial.TestsFail as failed:
        what = f"area {area.name}: the tests fail without a mutant: {failed}"
        raise FtbuildError(what, hint=f"pytest {' '.join(tests)}") from failed
    return Result(area.name, len(chosen), tuple(lines), tuple(traces.skipped))


@dataclass(frozen=True)
class _Trying:
    """What a process needs to try the mutants that were chosen."""

    area: Area
    chosen: Sequence[tuple[Path, Mutant]]
    traces: tracing.Traces

    @contextlib.contextmanager
    def __call__(self) -> Iterator[Callable[[int], bool]]:
        """Collect the tests; give a function that tells whether the mutant of a number survives."""
        area = self.area
        with trial.trials(area.root, area.files(), area.test_files(), self.traces) as trials:
            yield lambda number: _survives(*self.chosen[number], self.traces, trials)

    def outcomes(self, jobs: int) -> Iterator[tuple[int, bool]]:
        """Yield the number of each mutant, and whether it survives."""
        if jobs > 1:
            yield from workers.outcomes(self, len(self.chosen), jobs)
            return
        with self() as survives:
            yield from ((number, survives(number)) for number in range(len(self.chosen)))


def _survivors(
    area: Area, chosen: Sequence[tuple[Path, Mutant]], trying: _Trying, report: Reporter, jobs: int
) -> Iterator[tuple[int, str]]:
    """Try the mutants, and yield the number and the line of each that survives."""
    surviving = 0
    for tried, (number, survives) in enumerate(trying.outcomes(jobs), start=1):
        if survives:
            surviving += 1
            line = _line(area, *chosen[number])
            yield number, line
            report(f"{tried}/{len(chosen)} survives: {line}")
        if tried % 50 == 0:
            report(f"{tried}/{len(chosen)} tried, {surviving} survive")


def _mutants(sources: Sequence[Path]) -> Iterator[tuple[Path, Mutant]]:
    for file in sources:
        yield from ((file, mutant) for mutant in mutants(file.read_text()))


def _survives(file: Path, mutant: Mutant, traces: tracing.Traces, trials: trial.Trials) -> bool:
    """Return whether no test notices a mutant: of those that ran its lines, or of all if these are shared."""
    ran = traces.tests(file, mutant.first, mutant.last)
    if mutant.in_function and not ran:
        return True
    if mutant.in_function and tracing.IMPORTING not in ran:
        tests = traces.lasted if tracing.SHARED in ran else ran
        survives = trials.of_function(file, mutant.tree, tests)
        if survives is not None:
            return survives
    return trials.of_module(file, mutant.tree)


def _line(area: Area, file: Path, mutant: Mutant) -> str:
    return f"{file.relative_to(area.root)}:{mutant.first}: {mutant.what}"


def _matching(root: Path, patterns: Sequence[str]) -> list[str]:
    found: list[str] = []
    for pattern in patterns:
        matching = sorted(str(path.relative_to(root)) for path in root.glob(pattern) if path.is_file())
        if not matching:
            raise ConfigError(f"no file matches {pattern}", where=f"{root}/pyproject.toml, [tool.mutation]")
        found += [path for path in matching if path not in found]
    return found
