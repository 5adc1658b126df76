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
from testing.mutation import journal, tracing, trial, workers
from testing.mutation.journal import Journal
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
    resume: bool = False,
    jobs: int = 1,
) -> Result:
    """Try the mutants of an area, and write the survivors into `work`, those of an interrupted run as well.

    `every` takes each n-th mutant only, from the `first` on; `again` takes the survivors of the run before
    only; `resume` leaves out what runs before have tried of the same sources and tests. `jobs` are processes.
    Raises FtbuildError when the tests fail without a mutant.
    """
    sources, tests, record = area.files(), area.test_files(), work / f"{area.name}.json"
    made = list(_mutants(sources))
    chosen: Sequence[int] = range(first - 1, len(made), every)
    if again and record.exists():
        survived = set(json.loads(record.read_text()))
        chosen = [n for n, of in enumerate(made) if _line(area, *of) in survived]
    key = journal.key(area.root, [*sources, *(area.root / test for test in tests)])
    tried = Journal(work / f"{area.name}.tried", key)
    before = tried.outcomes() if resume else {}
    if not before:
        tried.begin()
    outcomes = {n: survives for n, survives in before.items() if n in chosen}
    if resume:
        report(f"area {area.name}: {len(outcomes)} of {len(chosen)} were tried before")
    survivors = {n: _line(area, *made[n]) for n, survives in outcomes.items() if survives}
    left = [n for n in chosen if n not in outcomes]
    try:
        traces = trial.trace(area.root, sources, tests, jobs)
        for line in traces.skipped:
            report(f"area {area.name}: tests that do not run here notice nothing: {line.strip()}")
        trying = _Trying(area, made, left, traces, tried)
        try:
            for count, (number, survives) in enumerate(trying.outcomes(jobs), start=len(outcomes) + 1):
                if survives:
                    survivors[number] = _line(area, *made[number])
                    report(f"{count}/{len(chosen)} survives: {survivors[number]}")
                if count % 50 == 0:
                    report(f"{count}/{len(chosen)} tried, {len(survivors)} survive")
        finally:
            lines = [survivors[number] for number in sorted(survivors)]
            files.write_atomic(record, json.dumps(lines, indent=2) + "\n")
    except trial.TestsFail as failed:
        what = f"area {area.name}: the tests fail without a mutant: {failed}"
        raise FtbuildError(what, hint=f"pytest {' '.join(tests)}") from failed
    return Result(area.name, len(chosen), tuple(lines), tuple(traces.skipped))


@dataclass(frozen=True)
class _Trying:
    """What a process needs to try the mutants of some numbers."""

    area: Area
    made: Sequence[tuple[Path, Mutant]]
    numbers: Sequence[int]
    traces: tracing.Traces
    tried: Journal

    @contextlib.contextmanager
    def __call__(self) -> Iterator[Callable[[int], bool]]:
        """Collect the tests; give a function from a place in `numbers` to whether its mutant survives."""
        area = self.area
        with trial.trials(area.root, area.files(), area.test_files(), self.traces) as trials:

            def survives(place: int) -> bool:
                number = self.numbers[place]
                return self.tried.note(number, survives=_survives(*self.made[number], self.traces, trials))

            yield survives

    def outcomes(self, jobs: int) -> Iterator[tuple[int, bool]]:
        """Yield the number of each mutant, and whether it survives."""
        for place, survives in workers.outcomes(self, len(self.numbers), jobs):
            yield self.numbers[place], survives


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
