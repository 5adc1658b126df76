"""Parts of the pages that are generated: as they would be made today. And what their records may say."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
import yaml

from docs.tools import pages, references, tested
from ftbuild import matrix
from ftbuild.config.schema import Config
from ftbuild.plan import Revision
from ftbuild.planning import make_plan
from testing import ROOT

from .test_facts import table

README = (ROOT / "README.md").read_text()
RECORD = {
    "group": "image",
    "what": "a gate",
    "result": "passed",
    "date": date(2026, 12, 1),
    "commit": "abc1234",
}


def test_every_generated_part_is_as_it_would_be_made_today(config: Config) -> None:
    stale = [str(page.relative_to(ROOT)) for page, _ in pages.stale(config)]
    assert stale == [], "python -m docs.tools.pages renews them"


def test_a_page_without_a_place_for_its_part_is_an_error() -> None:
    with pytest.raises(ValueError, match="no place for keys"):
        pages.renewed("# Title\n", "keys", "text")


def test_no_cell_of_a_table_is_cut_by_a_bar_in_code() -> None:
    """GitHub ends a table's cell there, whatever is in code."""
    rows = [line for line in references.commands() for line in line.splitlines() if line.startswith("| ")]
    assert rows
    assert {row.replace("\\|", "").count("|") for row in rows} == {4}


def test_the_figures_beside_vllm_are_those_of_the_page_that_says_how() -> None:
    rows = table(README, "| model | clients | in flight |")
    there = table((ROOT / "docs" / "2026.md").read_text(), "| model | clients | in flight |")
    assert rows
    for row in rows:
        assert row.items() <= next(each for each in there if each.items() >= row.items()).items()


def read(folder: Path, **content: object) -> tested.Record:
    (folder / "one.yaml").write_text(yaml.safe_dump({**RECORD, **content}))
    (record,) = tested.read(folder)
    return record


def test_a_record_is_of_the_images_of_today_while_their_key_is(config: Config, tmp_path: Path) -> None:
    (cell,) = matrix.select(config, cells=["22.12-sm90"])
    key = make_plan(config, cell, Revision("0" * 40, "2026-01-01T00:00:00+00:00")).key
    record = read(tmp_path, images={"22.12-sm90": key}, counts={"passed": 581, "failed": 0})
    assert tested.today(record, config) == "yes"
    row = f"| a gate | passed (581 passed, 0 failed) |  | 2026-12-01, abc1234 | `22.12-sm90` {key}; today's |"
    assert row in tested.page([record], config)
    assert tested.today(replace(record, images={"22.12-sm90": "0" * 12}), config) == "no"
    assert tested.today(replace(record, images={"21.01-sm90": key}), config) == "no"
    assert tested.today(replace(record, images={"22.12-sm90": tested.UNKNOWN}), config) == tested.UNKNOWN
    assert tested.today(replace(record, images={}), config) == ""


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"group": "other"}, "no group other"),
        ({"commit": ""}, "a date and a commit"),
        ({"date": None}, "a date and a commit"),
        ({"images": {"22.12-sm90": "unknown"}}, "the input keys of its images"),
        ({"gpu": "H100"}, "gpu"),
    ],
)
def test_a_record_says_when_and_on_what(wrong: dict[str, object], says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        read(tmp_path, **wrong)


def test_a_gate_becomes_a_record(tmp_path: Path) -> None:
    gate = {
        "gate": "smoke",
        "cell": "22.12-sm90",
        "key": "a" * 12,
        "passed": True,
        "gpus": [{"name": "NVIDIA H100 80GB HBM3"}],
        "findings": [{"state": "ok"}, {"state": "ok"}, {"state": "skip"}],
    }
    record = read(tmp_path, **tested.from_gate(gate, "abc1234"))
    assert record.images == {"22.12-sm90": "a" * 12}
    assert record.counts == {"passed": 2, "failed": 0, "skipped": 1}
    assert record.where == "NVIDIA H100 80GB HBM3"
