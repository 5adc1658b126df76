"""The order in which the files of a test run begin."""

from __future__ import annotations

from pathlib import Path

from tests import conftest

UNIT = [Path(f"/checkout/tests/unit/test_{number}.py") for number in range(100)]
SHORT = conftest.ENGINE / "test_sources.py"


def test_every_file_that_is_to_begin_early_exists() -> None:
    for name in (*conftest.FIRST, *conftest.LONGEST):
        assert (conftest.ENGINE / name).is_file(), name


def test_the_first_files_come_before_the_long_ones_and_short_ones_of_no_engine_end_a_run() -> None:
    first = [conftest.ENGINE / name for name in conftest.FIRST]
    long = [conftest.ENGINE / name for name in conftest.LONGEST]
    places = conftest.order([*UNIT, SHORT, *reversed(long), *reversed(first)], {SHORT})
    found = sorted(places, key=lambda file: places[file])
    assert found[: len(first)] == first
    assert [file for file in found if file in long] == long
    assert found[-1] in UNIT
    assert set(found) == {*UNIT, SHORT, *long, *first}


def test_a_part_of_the_tests_may_be_chosen() -> None:
    places = conftest.order([SHORT], {SHORT})
    assert SHORT in places
