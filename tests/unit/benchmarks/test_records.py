"""Where records are from, whether they are of today, and what is made of them when the table is renewed."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.harness import catalogue, origin, renewal, run, staleness, table
from benchmarks.harness.figure import Figure, Machine, Result, Topic
from benchmarks.harness.origin import Measured, Origin
from benchmarks.harness.staleness import Verdict
from benchmarks.harness.workspace import Workspace
from ftbuild.host.git import git
from testing import ROOT
from testing.sample import SAMPLE, sample_plan

RESULTS = run.README.parent / "results"
CELL = Measured("22.12-sm80", "0123456789ab", {"runtime": "sha256:fedcba9876543210"})
ORIGIN = Origin("a" * 40, True, "cafe", (CELL,))
FIGURE = Figure(Topic.COLD, "ratio", 0.1, "", 0.15, "measured")


def record(of: Origin | None, *figures: Figure, benchmark: str = "memory", definition: int = 1) -> Result:
    machine = Machine("a processor", 2, 2**30, "Linux", 3.5, 0.25)
    return Result(benchmark, "sample", figures, machine, "2026-11-24T00:00:00", {}, (), definition, of)


def judged(result: Result, keys: dict[str, str], program: str = "cafe", definition: int = 1) -> Verdict:
    return staleness.judge(result, definition, lambda stack, cell: keys.get(cell, ""), program)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a checkout with one commit."""
    root = tmp_path / "checkout"
    (root / "benchmarks" / "results").mkdir(parents=True)
    (root / "tasks.py").write_text("one")
    git("init", "--quiet", cwd=root)
    git("add", ".", cwd=root)
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "one", cwd=root)
    return root


def test_a_record_holds_commit_cells_machine_load_and_definition(tmp_path: Path) -> None:
    written = record(ORIGIN, FIGURE, definition=3)
    file = written.write(tmp_path)
    assert Result.read(file) == written
    values = json.loads(file.read_text())
    assert values["origin"] == {
        "commit": "a" * 40,
        "changed": True,
        "program": "cafe",
        "cells": [{"cell": CELL.cell, "key": CELL.key, "images": {"runtime": "sha256:fedcba9876543210"}}],
    }
    assert (values["machine"]["load_before"], values["machine"]["load"]) == (0.25, 3.5)
    assert values["definition"] == 3


def test_a_record_from_before_commits_were_recorded_can_be_read(tmp_path: Path) -> None:
    values = json.loads(record(ORIGIN, FIGURE).write(tmp_path).read_text())
    for name in ("origin", "definition"):
        del values[name]
    del values["machine"]["load_before"]
    for name in ("of", "least", "most"):
        del values["figures"][0][name]
    (tmp_path / "old.json").write_text(json.dumps(values))
    old = Result.read(tmp_path / "old.json")
    assert (old.origin, old.definition, old.machine.load_before) == (None, 1, None)
    assert judged(old, {}) == Verdict(None, staleness.BEFORE)


def test_a_measurement_records_the_checkout_and_its_cells(tmp_path: Path) -> None:
    workspace = Workspace(SAMPLE, tmp_path, 1, load_before=0.5)
    made = workspace.result("memory", [FIGURE, replace(FIGURE, of="another")], {}, cells=[CELL], definition=2)
    assert made.origin == Origin(*origin.checkout(ROOT), origin.program(ROOT), (CELL,))
    assert [figure.of for figure in made.figures] == [CELL.cell, "another"]
    assert (made.machine.load_before, made.definition) == (0.5, 2)


def test_the_commit_of_a_checkout_and_whether_it_has_changes(repository: Path) -> None:
    head = git("rev-parse", "HEAD", cwd=repository).stdout.strip()
    assert origin.checkout(repository) == (head, False)
    (repository / "benchmarks" / "results" / "cold-real.json").write_text("{}")
    assert origin.checkout(repository) == (head, False)  # the benchmark has just written it
    (repository / "tasks.py").write_text("two")
    assert origin.checkout(repository) == (head, True)


def test_a_copy_without_git_is_of_the_commit_that_is_said(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = repository / "copy"
    inside.mkdir()
    assert origin.checkout(inside) == ("", False)  # not that of the repository around it
    monkeypatch.setenv(origin.COMMIT, "abc")
    assert origin.checkout(inside) == ("abc", False)


def test_the_program_is_all_of_its_files_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "ftbuild" / "cli").mkdir(parents=True)
    (tmp_path / "ftbuild" / "cli" / "a.py").write_text("a")
    (tmp_path / "tasks.py").write_text("tasks")
    first = origin.program(tmp_path)
    (tmp_path / "README.md").write_text("more")
    (tmp_path / "ftbuild" / "__pycache__").mkdir()
    (tmp_path / "ftbuild" / "__pycache__" / "a.pyc").write_text("compiled")
    (tmp_path / "ftserve" / "ftserve.egg-info").mkdir(parents=True)
    (tmp_path / "ftserve" / "ftserve.egg-info" / "PKG-INFO").write_text("installed")
    assert origin.program(tmp_path) == first
    (tmp_path / "ftserve" / "a.py").write_text("served")
    served = origin.program(tmp_path)
    (tmp_path / "ftbuild" / "cli" / "a.py").write_text("b")
    changed = origin.program(tmp_path)
    (tmp_path / "ftbuild" / "cli" / "a.py").rename(tmp_path / "ftbuild" / "cli" / "b.py")
    assert len({first, served, changed, origin.program(tmp_path)}) == 4


def test_an_image_names_its_cell_by_its_labels() -> None:
    labels = {**sample_plan().labels("runtime")}
    found = origin.labelled(labels, "runtime", "sha256:1")
    assert found == Measured("22.12-sm80", sample_plan().key, {"runtime": "sha256:1"})
    assert origin.labelled({"maintainer": "x"}, "runtime", "sha256:1") is None


def test_a_cell_is_named_with_what_is_known_of_it() -> None:
    parser = argparse.ArgumentParser()
    origin.add_option(parser)
    words = ["--cell", "a-sm80", "--cell", "b-sm80@key", "--cell", "c-sm80@key@sha256:1"]
    assert parser.parse_args(words).cell == [
        Measured("a-sm80"),
        Measured("b-sm80", "key"),
        Measured("c-sm80", "key", {"runtime": "sha256:1"}),
    ]
    for wrong in ("", "@key", "a-sm80@"):
        with pytest.raises(argparse.ArgumentTypeError, match="is no cell"):
            origin.named(wrong)


def test_a_record_is_current_while_its_cells_have_their_keys() -> None:
    other = Measured("22.12-sm86", "b" * 12)
    both = record(replace(ORIGIN, cells=(CELL, other)))
    assert judged(both, {CELL.cell: CELL.key, other.cell: other.key}, program="changed") == Verdict(True)
    stale = judged(both, {CELL.cell: CELL.key, other.cell: "c" * 12})
    assert stale == Verdict(False, f"22.12-sm86 had the key {'b' * 12} and has {'c' * 12}")
    assert judged(both, {CELL.cell: CELL.key}).why.endswith("and has none")


def test_a_record_of_the_program_itself_is_current_while_no_file_has_changed() -> None:
    found = record(replace(ORIGIN, cells=()))
    assert judged(found, {}) == Verdict(True)
    assert judged(found, {}, program="babe") == Verdict(
        False, "ftbuild/, ftserve/ or tasks.py has changed since"
    )


def test_without_a_key_nobody_knows_whether_a_record_is_current() -> None:
    found = judged(record(replace(ORIGIN, cells=(CELL, Measured("22.12-sm86")))), {CELL.cell: CELL.key})
    assert found == Verdict(None, "the key of 22.12-sm86 was not recorded")


def test_figures_by_another_definition_are_not_current() -> None:
    found = judged(record(ORIGIN), {CELL.cell: CELL.key}, definition=2)
    assert found == Verdict(False, "by definition 1 of the figures, which is 2 now")


@pytest.mark.parametrize(
    ("stack", "cell"), [("sample", "22.12-sm80"), ("sample", "22.12-sm80_86"), ("real", "22.12-sm90-open")]
)
def test_the_key_of_today_is_that_of_the_configuration(stack: str, cell: str) -> None:
    assert len(staleness.key_now(stack, cell)) == 12
    if cell == "22.12-sm80":
        assert staleness.key_now(stack, cell) == sample_plan().key


@pytest.mark.parametrize("cell", ["no cell", "22.12-sm12", "1.0-sm80", "22.12-sm80-nobase"])
def test_a_cell_that_there_is_not_has_no_key(cell: str) -> None:
    assert staleness.key_now("sample", cell) == ""


def test_the_table_marks_what_is_not_of_today() -> None:
    results = [
        record(ORIGIN, FIGURE),
        record(None, FIGURE, benchmark="wall"),
        record(ORIGIN, benchmark="warm"),
    ]
    verdicts = [Verdict(False, "it has changed"), Verdict(None, staleness.BEFORE), Verdict(True)]
    block = table.markdown(results, "results", verdicts)
    assert [line.split(" | ")[-1] for line in block.splitlines() if "| ratio |" in line] == [
        "**no** |",
        "unknown |",
    ]
    (memory,) = (line for line in block.splitlines() if line.startswith("- `memory`"))
    assert "commit aaaaaaaaaaaa with changes, 22.12-sm80@0123456789ab (runtime fedcba987654)" in memory
    assert "load 0.25 before and 3.5 after" in memory
    assert memory.endswith("; today: **not current**: it has changed")
    (wall,) = (line for line in block.splitlines() if line.startswith("- `wall`"))
    assert wall.endswith(f"; today: unknown: {staleness.BEFORE}")
    said = table.verdicts(results, verdicts)
    assert [line.split()[:2] for line in said.splitlines()[2:]] == [
        ["memory-sample.json", "no"],
        ["wall-sample.json", "unknown"],
        ["warm-sample.json", "yes"],
    ]


def test_rows_of_records_that_do_not_name_their_cell_get_the_one_that_there_was() -> None:
    old = renewal.again(record(None, FIGURE, replace(FIGURE, what="22.12-sm80 on a GPU: ratio")))
    assert [figure.name for figure in old.figures] == ["22.12-sm80: ratio", "22.12-sm80 on a GPU: ratio"]
    startup = renewal.again(record(None, replace(FIGURE, what="`invoke --list`"), benchmark="startup"))
    assert [figure.name for figure in startup.figures] == ["`invoke --list`"]


def test_renewing_writes_the_figures_that_follow_from_the_data(tmp_path: Path) -> None:
    data = {"wall": 10.0, "compilers": 16.0, "longest compiler": 4.0, "compiled": 9, "jobs": 2}
    file = replace(record(ORIGIN, FIGURE, benchmark="wall"), data=data).write(tmp_path)
    (found,) = renewal.renewed(tmp_path)
    assert found == Result.read(file)
    (figure,) = found.figures
    assert (figure.value, figure.of) == (1.25, "22.12-sm80")
    assert (found.date, found.origin, found.data) == ("2026-11-24T00:00:00", ORIGIN, data)
    assert found.definition == catalogue.definition("wall") == 2


def test_the_record_of_a_tool_is_left_alone(tmp_path: Path) -> None:
    tool = record(replace(ORIGIN, cells=()), FIGURE, benchmark="profile")
    assert renewal.again(tool) == tool
    assert catalogue.definition("profile") == 1


def test_committed_records_are_what_follows_from_their_data() -> None:
    """A record or a table that was edited by hand differs; what is current may change from day to day."""
    results = table.read(RESULTS)
    todo = "python -m benchmarks.harness.run --table benchmarks/results"
    assert [renewal.again(result) for result in results] == results, todo
    _, block, _ = table.divided(run.README)
    made = table.markdown(results, "results", [Verdict(None)] * len(results))
    assert table.without_verdicts(block) == table.without_verdicts(made), todo


def test_the_verdicts_are_all_that_may_differ() -> None:
    results = [record(ORIGIN, FIGURE), record(ORIGIN, FIGURE, benchmark="warm")]
    one, other = (
        table.without_verdicts(table.markdown(results, "results", [verdict] * 2))
        for verdict in (Verdict(True), Verdict(False, "it has changed"))
    )
    assert one == other
    changed = [replace(results[0], figures=(replace(FIGURE, value=0.2),)), results[1]]
    assert table.without_verdicts(table.markdown(changed, "results", [Verdict(True)] * 2)) != one
