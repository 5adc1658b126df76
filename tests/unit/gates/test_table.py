"""The table of gates: each has a command, a page, and a record that can be told from the others'."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tasks
from ftbuild.gates import evidence, report, table
from ftbuild.gates.cell_test import CellTest
from ftbuild.publishing import gates as publishing
from testing import ROOT


@pytest.mark.parametrize("test", table.ALL, ids=lambda test: test.gate.name)
def test_each_gate_has_a_command_and_a_page(test: type[CellTest]) -> None:
    assert test.gate.name in tasks.namespace.task_names
    pages = {page.stem.rstrip("s"): page for page in (ROOT / "docs").glob("*.md")}
    assert f"invoke {test.gate.name}" in pages[test.gate.name].read_text()


def test_no_gate_writes_the_record_of_another_or_keeps_its_version() -> None:
    for value in ("record", "checks"):
        assert len({getattr(test.gate, value) for test in table.ALL}) == len(table.ALL)


def test_what_is_required_is_what_publishing_asks_for() -> None:
    assert [test.gate for test in table.REQUIRED] == [*evidence.DEMANDS] == [*publishing.ALL]


def test_every_package_of_the_room_is_in_the_table() -> None:
    packages = {path.parent.name for path in (ROOT / "ftbuild" / "gates").glob("*/gate.py")}
    assert {test.__module__.split(".")[2] for test in table.ALL} == packages


@pytest.mark.parametrize("test", table.ALL, ids=lambda test: test.gate.name)
def test_a_record_is_of_the_checks_as_their_sources_are(test: type[CellTest]) -> None:
    """A changed check must not keep the records of the old one."""
    folders = test.gate.folders
    assert f"gates/{test.__module__.split('.')[2]}" in folders
    assert all((report.PACKAGE / folder / "__init__.py").is_file() for folder in folders)
    fewer = replace(test.gate, folders=())
    assert fewer.checks != test.gate.checks
