from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.harness import catalogue, run, table
from benchmarks.harness.chart import Bars, Lines, Spans
from benchmarks.harness.figure import Figure, Machine, Result, Topic
from benchmarks.harness.run import BenchOptions
from benchmarks.harness.staleness import Verdict
from benchmarks.harness.workspace import Workspace, timed
from benchmarks.tools import layers, transfer
from benchmarks.topics import startup
from ftbuild.errors import ConfigError
from testing import needs
from testing.sample import SAMPLE

Bench = Callable[..., tuple[int, str, list[str]]]
CURRENT = Verdict(True)
MACHINE = Machine("a processor", 2, 23 * 2**30, "Linux", 0.5)


def figure(value: float, goal: float | None = 0.25, *, at_most: bool = True) -> Figure:
    return Figure(Topic.STARTUP, "`invoke --list`", value, "s", goal, "measured", at_most)


def result(*figures: Figure, stack: str = "sample") -> Result:
    charts = (
        Bars("startup", "Start-up", "seconds", ("--list", "matrix"), {"wall": (0.2, 0.5), "CPU": (0.1, 0.4)}),
        Lines("walls", "Walls", "jobs", "seconds", {"limit": ((1.0, 9.0), (2.0, 4.5))}, up_by_powers=True),
    )
    return Result(
        "startup", stack, figures, MACHINE, "2026-11-22T00:00:00+00:00", {"seconds": [1, 2]}, charts
    )


@pytest.mark.parametrize(
    ("found", "met"),
    [
        (figure(0.25), True),
        (figure(0.26), False),
        (figure(0.95, 0.95, at_most=False), True),
        (figure(0.94, 0.95, at_most=False), False),
        (figure(1.0, None), None),
    ],
)
def test_a_figure_is_compared_with_its_goal(found: Figure, met: bool | None) -> None:
    assert found.met is met


@pytest.mark.parametrize(
    ("value", "at_most", "met"),
    [(0.2, True, False), (0.3, True, False), (0.3, False, False), (0.4, False, True)],
)
def test_the_worse_end_of_a_spread_is_compared_with_the_goal(value: float, at_most: bool, met: bool) -> None:
    found = replace(figure(value, at_most=at_most), least=value - 0.1, most=value + 0.1)
    assert found.met is met


def test_the_spread_is_shown_with_a_digit_more_than_the_goal() -> None:
    ratio = Figure(Topic.COLD, "ratio", 0.147, "", 0.15, "sampled", of="a cell", least=0.143, most=0.15041)
    rows = table.markdown([result(ratio)], "results", [CURRENT])
    assert "| a cell: ratio | 0.147 (0.143 to 0.1504) | ≤ 0.150 | **no** |" in rows


def test_a_record_round_trips(tmp_path: Path) -> None:
    written = result(figure(0.2), figure(0.3, None))
    assert Result.read(written.write(tmp_path)) == written


def test_the_table_has_figure_goal_and_whether_it_is_met() -> None:
    rows = table.markdown([result(figure(0.2), figure(0.3))], "results", [CURRENT]).splitlines()
    assert "| 7 start-up | sample | `invoke --list` | 0.2 s | ≤ 0.25 s | yes | measured | yes |" in rows
    assert "| 7 start-up | sample | `invoke --list` | 0.3 s | ≤ 0.25 s | **no** | measured | yes |" in rows


def test_the_table_is_sorted_by_topic() -> None:
    cold = replace(figure(0.1), topic=Topic.COLD)
    found = [result(figure(0.2)), result(cold, stack="real")]
    rows = table.markdown(found, "results", [CURRENT, CURRENT]).splitlines()
    assert [row.split(" | ")[0] for row in rows[2:4]] == ["| 1 cold build", "| 7 start-up"]


def test_updating_the_readme_changes_only_the_block(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n\n{table.BEGIN}\nold\n{table.END}\n\nafter\n")
    table.renew(readme, [result(figure(0.2))], tmp_path / "results", [CURRENT])
    once = readme.read_text()
    table.renew(readme, [result(figure(0.2))], tmp_path / "results", [CURRENT])
    assert once == readme.read_text()
    assert once.startswith("before\n")
    assert once.endswith("after\n")
    assert "old" not in once
    assert "0.2 s" in once
    assert "![Start-up](results/startup-sample.svg)" in once


@pytest.mark.parametrize("content", ["", "{", "{}", "[]", "[1]", '{"figures": [{}]}', "\0", '"x"'])
def test_a_damaged_record_is_refused_by_its_name(content: str, tmp_path: Path) -> None:
    record = tmp_path / "startup-real.json"
    record.write_text(content)
    with pytest.raises(ConfigError, match="this is no record") as refused:
        Result.read(record)
    assert refused.value.where == str(record)


def test_a_readme_without_the_block_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("nothing")
    with pytest.raises(ConfigError, match="no block"):
        table.renew(tmp_path / "README.md", [], tmp_path, [])


@pytest.mark.parametrize(
    ("value", "unit", "text"), [(1.57e9, "B", "1.57 GB"), (0.0471, "", "0.047"), (12345.6, "s", "12,346 s")]
)
def test_amounts_are_short(value: float, unit: str, text: str) -> None:
    assert table.amount(value, unit) == text


def test_the_plots_of_the_same_record_are_the_same_bytes(tmp_path: Path) -> None:
    needs.package("matplotlib")
    from benchmarks.harness import plots

    drawn = [plots.draw([result(figure(0.2))], tmp_path / name) for name in ("one", "two")]
    assert [file.name for file in drawn[0]] == ["startup-sample.svg", "walls-sample.svg"]
    assert [file.read_bytes() for file in drawn[0]] == [file.read_bytes() for file in drawn[1]]
    assert "seconds" in drawn[0][0].read_text()


def test_a_long_title_is_within_its_plot(tmp_path: Path) -> None:
    needs.package("matplotlib")
    from benchmarks.harness import plots

    title = "One step of decoding, 24.10-sm90-open-cuda13: GPT of 1.56 billion parameters, one row, H100"
    charts = (Bars("long", title, "seconds", ("--list",), {"wall": (0.2,)}),)
    (drawn,) = plots.draw([replace(result(figure(0.2)), charts=charts)], tmp_path)
    inches = re.search(r'width="([0-9.]+)pt"', drawn.read_text())
    texts = re.findall(r"<text[^>]*>([^<]+)</text>", drawn.read_text())
    assert inches is not None
    assert " ".join(texts).count(f"{title} (sample stack)") == 1
    # Half of a point's size is what a letter of the plots' font takes at least.
    assert max(map(len, texts)) * 10.8 / 2 <= float(inches[1])


@pytest.mark.parametrize(
    ("created_by", "step"),
    [
        ("COPY /out/ / # buildkit", "COPY /out/ /"),
        ("RUN |2 A=b c C=d /bin/sh -c ldconfig && rm -f /x # buildkit", "RUN ldconfig && rm -f /x"),
        (
            "RUN /bin/sh -c set -eu\nfor package in $RUNTIME_PURGE; do x; done",
            "RUN set -eu for package in $RUNTIME_PUR…",
        ),
    ],
)
def test_a_layer_is_named_by_its_step(created_by: str, step: str) -> None:
    assert layers.step(created_by) == step


def test_the_transfer_is_buildkits_last_line_about_the_context() -> None:
    output = (
        "#3 transferring sources: 2B done\n#6 transferring sources: 34.13MB 4.9s\n"
        "#6 transferring sources: 232.58MB 17.2s done\n"
    )
    assert transfer.parsed(output) == transfer.Transfer(232.58e6, 17.2)
    assert transfer.parsed("#6 transferring sources: 2B done\n") == transfer.Transfer(2.0, 0.0)
    assert transfer.parsed("nothing") is None


def test_a_command_is_timed_with_its_child_processes(tmp_path: Path) -> None:
    spin = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    found = timed(["sh", "-c", f"python3 -c '{spin}'"], cwd=tmp_path)
    assert found.cpu >= 0.2
    assert found.wall >= 0.2


def test_start_up_is_measured_against_a_bare_import(tmp_path: Path) -> None:
    seconds = {
        startup.BARE: {"wall": [0.1], "cpu": [0.1]},
        "--list": {"wall": [0.2], "cpu": [0.2]},
        "matrix": {"wall": [0.5], "cpu": [0.3]},
        "build --dry-run": {"wall": [0.6], "cpu": [0.5]},
    }
    values = [round(figure.value, 6) for figure in startup.figures(seconds)]
    assert values == [0.2, 0.2, 0.4]


def test_spans_of_all_panels_are_drawn_to_one_scale() -> None:
    needs.package("matplotlib")
    import numpy as np
    from matplotlib.figure import Figure as Canvas

    from benchmarks.harness import plots

    lanes = {"host": ((0.0, 2.0, "call"),), "GPU": ((1.0, 30.0, "kernel"), (31.0, 9.0, "call"))}
    chart = Spans("x", "A step", "us", {"before": lanes, "after": lanes}, ("call", "kernel"), 40.0, 4.0)
    canvas = Canvas()
    plots._spans(canvas, chart)
    assert [axes.get_xlim() for axes in canvas.axes] == [(0, 40), (0, 4), (0, 40), (0, 4)]
    assert [axes.get_title(loc="left") for axes in canvas.axes][:2] == ["before", "its first 4 us"]
    host, gpu = (np.asarray(bars.get_facecolor()) for bars in canvas.axes[0].collections)
    assert tuple(host[0]) == tuple(gpu[1])
    assert tuple(host[0]) != tuple(gpu[0])
    assert [text.get_text() for text in canvas.legends[0].get_texts()] == ["call", "kernel"]


class Fake:
    """A benchmark with a given result."""

    __doc__ = "A benchmark."

    def __init__(self, name: str, body: Callable[[Workspace], Result], missing: str | None = None) -> None:
        self.NAME = name
        self.run = body
        self.missing = missing

    def needs(self, workspace: Workspace) -> str | None:
        return self.missing


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    """Run benchmarks; return the exit code, the output, and the names of the records."""

    def bench(*fakes: Fake) -> tuple[int, str, list[str]]:
        monkeypatch.setattr(catalogue, "chosen", lambda names: iter(fakes))
        code = run.bench(BenchOptions(config=SAMPLE, real=True, out=tmp_path / "out"))
        output = capsys.readouterr()
        return code, output.out + output.err, sorted(file.name for file in (tmp_path / "out").glob("*.json"))

    return bench


def measured(workspace: Workspace) -> Result:
    return workspace.result("works", [figure(0.2)], {})


def test_a_record_has_the_load_before_its_benchmark(ran: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = iter([0.25, 0.75])
    monkeypatch.setattr(run, "load_now", lambda: next(loads))
    seen: list[float] = []

    def looking(workspace: Workspace) -> Result:
        seen.append(workspace.load_before)
        return measured(workspace)

    ran(Fake("one", looking), Fake("two", looking))
    assert seen == [0.25, 0.75]


def test_a_failed_benchmark_stops_no_other_and_decides_the_exit_code(
    ran: Bench,
) -> None:
    def broken(workspace: Workspace) -> Result:
        raise ConfigError("no such thing")

    code, output, records = ran(Fake("broken", broken), Fake("works", measured))
    assert code == ConfigError.exit_code
    assert "broken: failed: no such thing" in output
    assert records == ["works-real.json"]


def test_a_benchmark_that_cannot_run_here_is_skipped_with_its_reason(
    ran: Bench,
) -> None:
    code, output, records = ran(Fake("elsewhere", measured, "no GPU"), Fake("works", measured))
    assert code == 0
    assert "elsewhere: skipped, no GPU" in output
    assert records == ["works-real.json"]


def test_an_interrupt_keeps_earlier_results(ran: Bench) -> None:
    def interrupted(workspace: Workspace) -> Result:
        raise KeyboardInterrupt

    code, output, records = ran(Fake("works", measured), Fake("long", interrupted), Fake("never", measured))
    assert code == 130
    assert "0.2 s" in output
    assert records == ["works-real.json"]


def test_an_unknown_benchmark_is_an_error() -> None:
    with pytest.raises(ConfigError, match="fast is unknown"):
        list(catalogue.chosen(["fast"]))


def test_every_benchmark_can_be_loaded() -> None:
    found = list(catalogue.chosen([]))
    assert [benchmark.NAME for benchmark in found] == list(catalogue.NAMES)
    assert all(catalogue.about(benchmark) for benchmark in found)


def test_committed_records_can_be_read() -> None:
    for file in (run.README.parent / "results").glob("*.json"):
        assert Result.read(file).benchmark == json.loads(file.read_text())["benchmark"]
