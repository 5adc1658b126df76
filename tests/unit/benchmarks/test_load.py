"""What the benchmarks of load and batching make of their measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import smoked
from benchmarks.harness.figure import Result
from benchmarks.harness.origin import Measured
from benchmarks.topics import batching, load
from benchmarks.topics.batching import Point
from ftbuild.gates.report import SMOKE, GateReport
from testing import gate_records
from testing.sample import sample_plan

MIB = 1024**2


def a_load(**changed: Any) -> dict[str, Any]:
    answers = [[at / 10, 0.01] for at in range(1, 99)] + [[9.9, 0.5], [10.0, 0.5]]
    memory = [[float(at), 1000 * MIB] for at in range(11)]
    return {"wrong": [], "answers": answers, "refusals": 7, "memory": memory, **changed}


def test_latency_and_memory_of_a_load() -> None:
    was = load.summary(a_load())
    assert (was["seconds"], was["answers"], was["refusals"], was["growth"]) == (10.0, 100, 7, 0)
    assert (was["p50"], was["p99"]) == (0.01, 0.5)


def test_buffers_may_grow_in_the_first_quarter_only() -> None:
    early = [[0.0, 500 * MIB]] + [[float(at), 1000 * MIB] for at in range(1, 11)]
    late = [[float(at), (1000 + 3 * at) * MIB] for at in range(11)]
    met = [
        next(f for f in load.figures({"gpt-fp16": a_load(memory=memory)}) if "memory" in f.what).met
        for memory in (early, late)
    ]
    assert met == [True, False]


def test_a_wrong_answer_misses_the_goal() -> None:
    (wrong, *_) = load.figures({"gpt-fp32": a_load(wrong=["another token"])})
    assert (wrong.value, wrong.met) == (1, False)


def test_the_curve_of_latency_shows_when_it_was_bad() -> None:
    (latency, memory) = load.charts({"gpt-fp16": a_load()})
    points = latency.series["gpt-fp16"]
    assert len(points) <= load.POINTS
    assert max(points, key=lambda point: point[1])[0] > 9
    assert memory.series["gpt-fp16"][0] == (0.0, 1000)


IDS = {"runtime": "sha256:1", "sdk": "sha256:2"}


def test_the_record_of_a_load_names_the_images_that_were_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = sample_plan()
    tested = Measured(plan.cell.id, plan.key, IDS)
    GateReport(SMOKE, plan, IDS, gate_records.results(SMOKE, plan)).write(tmp_path)
    file = tmp_path / "smoke-load-gpt-fp16.json"
    file.write_text(json.dumps(a_load()))
    words = ["load", str(file), "--of", f"{plan.cell.id} on a GPU,", "--out", str(tmp_path / "out")]
    for option, cells in (([], (tested,)), (["--cell", "22.12-sm90@key"], (Measured("22.12-sm90", "key"),))):
        monkeypatch.setattr("sys.argv", [*words, *option])
        load.main()
        record = Result.read(Path(capsys.readouterr().out.strip()))
        assert record.origin is not None
        assert record.origin.cells == cells


@pytest.mark.parametrize("content", [None, "damaged"])
def test_a_folder_without_a_smoke_record_names_no_cell(tmp_path: Path, content: str | None) -> None:
    if content:
        (tmp_path / SMOKE.record).write_text(content)
    assert smoked.cells(tmp_path) == ()


@pytest.fixture
def points() -> list[Point]:
    return [
        Point(queue_ms, clients, 100.0 * min(clients, 8), 0.01 + queue_ms / 1000)
        for queue_ms in batching.QUEUE_MS
        for clients in batching.CLIENTS
    ]


def test_what_many_clients_gain_and_what_one_loses(points: list[Point]) -> None:
    gain, *lost = batching.figures(points)
    assert gain.value == 8
    assert [round(figure.value, 3) for figure in lost] == [0.01, 0.012, 0.015, 0.06]


def test_a_curve_for_each_delay(points: list[Point]) -> None:
    series = batching.chart(points).series
    assert list(series) == ["0 ms", "2 ms", "5 ms", "50 ms"]
    assert series["2 ms"][3] == (8, 800.0)
