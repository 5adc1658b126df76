"""What publishing shows: tables and JSON of a run, the index of a registry, and its answer for a GPU."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError, PublishError
from ftbuild.plan import Plan
from ftbuild.publishing import index, outcomes
from ftbuild.publishing.index import Entry
from ftbuild.publishing.preview import Planned
from ftbuild.publishing.publish import Outcome, Published
from ftbuild.sm import Sm
from tests.unit.publishing.test_publish import ENTRIES, entry, plan_of

DIGEST = "sha256:" + "7" * 64
NAME = "r.example/x"


@pytest.fixture
def cell(config: Config) -> Plan:
    return plan_of(config)


# Tables and JSON of a run


@pytest.fixture
def done(cell: Plan) -> list[Outcome]:
    products = {"runtime": Published(f"{NAME}:1-key", f"{NAME}:1", DIGEST)}
    return [
        Outcome(cell, "published", products),
        Outcome(cell, "failed", error=PublishError("refused\nby all", where="there")),
    ]


def test_the_table_has_a_row_for_each_image_and_each_failure(done: list[Outcome]) -> None:
    rows = [line.split() for line in outcomes.table(done).splitlines()]
    assert ["Cell", "Image", "State", "Tag", "Digest"] in rows
    assert ["22.12-sm86", "runtime", "published", "r.example/x:1-key", DIGEST] in rows
    assert ["22.12-sm86", "failed", "refused"] in rows


def test_each_value_stands_below_its_title(done: list[Outcome]) -> None:
    """A cell that failed has no image and no digest."""
    lines = outcomes.table(done).splitlines()
    (failed,) = (line for line in lines if "failed" in line)
    (shown,) = (line for line in lines if "runtime" in line)
    assert failed.index("failed") == shown.index("published") == lines[0].index("State")
    assert failed.index("refused") == shown.index(NAME) == lines[0].index("Tag")
    assert failed.endswith("refused")


def test_the_json_of_a_run_has_states_errors_and_digests(done: list[Outcome], cell: Plan) -> None:
    assert json.loads(outcomes.as_json(done)) == [
        {
            "cell": "22.12-sm86",
            "key": cell.key,
            "state": "published",
            "error": None,
            "products": {"runtime": {"reference": f"{NAME}:1-key", "moving": f"{NAME}:1", "digest": DIGEST}},
        },
        {
            "cell": "22.12-sm86",
            "key": cell.key,
            "state": "failed",
            "error": "refused\nby all\n  where: there",
            "products": {},
        },
    ]
    assert [outcome.exit_code for outcome in done] == [0, 10]


def test_what_is_left_to_do_is_told_for_each_cell(cell: Plan) -> None:
    error = PublishError("it is not built\nanywhere", where="there")
    planned = [Planned(cell, "set the moving tags"), Planned(cell, "refused", error)]
    row = {"cell": "22.12-sm86", "key": cell.key}
    assert json.loads(outcomes.actions_as_json(planned)) == [
        {**row, "action": "set the moving tags"},
        {**row, "action": "refused", "error": str(error)},
    ]
    head, _, moves, refused = outcomes.actions_table(planned).splitlines()
    assert head.split() == ["Cell", "Key", "To", "do"]
    assert moves.endswith("set the moving tags")
    assert refused.endswith("refused: it is not built")


# The index


def test_the_index_for_people_answers_by_gpu_and_lists_all() -> None:
    few = (entry("22.12", (80,)), entry("22.12", (80,), "sdk", "open"))
    assert index.as_markdown(few, map(Sm, (70, 80))) == (
        f"""\
# Images

## Which image for my GPU?

| Compute capability | Image | Driver from | Pull |
| --- | --- | --- | --- |
| 7.0 | none |  |  |
| 8.0 | `22.12-sm80` | 520 | `docker pull r.example/x@{DIGEST}` |

## All images

| Tag | Kind | Server | CUDA | Driver from | Base | Run on | Digest |
| --- | --- | --- | --- | --- | --- | --- | --- |
| `22.12-sm80` | runtime | 2.29.0 | 11.8 | 520 | ngc |  | `{DIGEST}` |
| `22.12-sm80-sdk` | sdk | 2.29.0 | 11.8 | 520 | open |  | `{DIGEST}` |
"""
    )


def test_the_answer_for_a_gpu_warns_of_an_older_driver() -> None:
    fit = index.fitting(ENTRIES, Sm(90))
    told = index.answer(Sm(90), fit, "515.43").splitlines()
    assert told[0] == "compute capability 9.0, driver 515.43"
    assert re.split(r" {2,}", told[1].strip()) == ["Image", "Holds", "Needs", "Run on", "Get it"]
    assert "server 2.29.0, CUDA 11.8" in told[-1]
    assert "driver 520, newer than the installed one" in told[-1]
    assert f"docker pull r.example/x@{DIGEST}" in told[-1]
    for driver in ("520", "550.54", ""):
        assert "newer than" not in index.answer(Sm(90), fit, driver)
    assert index.answer(Sm(90), fit, "").splitlines()[0] == "compute capability 9.0"
    assert index.answer(Sm(70), [], "520") == "compute capability 7.0, driver 520: none"


def test_the_answer_for_a_gpu_has_each_value_below_its_title() -> None:
    """Each column is as wide as its longest value."""
    fit = [replace(entry("22.12", (90,)), tried="H100, H200")]
    head, row = (re.split(r" {2,}", line) for line in index.answer(Sm(90), fit, "").splitlines()[1::2])
    assert dict(zip(head, row, strict=True)) == {
        "Image": "22.12-sm90",
        "Holds": "server 2.29.0, CUDA 11.8",
        "Needs": "driver 520",
        "Run on": "H100, H200",
        "Get it": f"docker pull r.example/x@{DIGEST}",
    }


def test_an_index_of_any_size_is_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read as a whole."""
    file = tmp_path / "index.json"
    file.write_text(index.as_json(ENTRIES, []))
    monkeypatch.setattr(index, "MAX_BYTES", file.stat().st_size)
    assert index.from_file(file) == ENTRIES
    monkeypatch.setattr(index, "MAX_BYTES", file.stat().st_size - 1)
    with pytest.raises(ConfigError, match="the index cannot be read") as refused:
        index.from_file(file)
    assert "it has more than" in str(refused.value.where)


def test_an_image_runs_on_later_minor_versions() -> None:
    found: Entry = entry("22.12", (80, 90))
    assert [found.runs_on(Sm(sm)) for sm in (75, 80, 86, 90)] == [False, True, True, True]


def test_images_for_a_gpu_are_in_one_order_whatever_the_order_of_a_registry() -> None:
    """Those compiled for it, of these the newest release, then the fewest SMs, then by name."""
    known = [
        entry("26.06", (86,)),
        entry("22.12", (86,)),
        entry("22.12", (80, 86)),
        entry("22.12", (80,)),
        replace(entry("22.12", (80,)), name="r.example/y"),
    ]
    for order in permutations(known):
        assert index.fitting(order, Sm(86)) == known
