"""The profile of a decoding step, from a trace as trace.c writes it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.harness.chart import Bars, Spans
from benchmarks.harness.chart import read as read_chart
from benchmarks.harness.figure import Result
from benchmarks.tools.profile import __main__ as command_line
from benchmarks.tools.profile import steps, timeline
from benchmarks.tools.profile.steps import Drawn, Row
from testing import needs

ATTENTION = "void fastertransformer::masked_multihead_attention_kernel<float, 64>(Params<float>)"


def trace(steps_made: int, layers: int = 2, begin: int = 1000) -> list[str]:
    """Return steps of 100 ns: in each layer attention of 10 ns and a product of 20 ns that overlaps by 5."""
    lines = []
    for layer in range(steps_made * layers):
        start = begin + 50 * layer
        lines += [
            f"call\t{start - 30}\t{start - 20}\t7\tcudaLaunchKernel_v7000\n",
            f"call\t{start - 15}\t{start - 14}\t8\tcudaEventQuery_v3020\n",
            f"kernel\t{start}\t{start + 10}\t1\t{ATTENTION}\n",
            f"kernel\t{start + 5}\t{start + 25}\t2\tgemm\n",
            f"call\t{start - 12}\t{start - 10}\t7\tcudaLaunchKernel_v7000\n",
        ]
    return lines


def test_a_step_is_from_the_first_layer_to_the_next_first_layer() -> None:
    step = steps.median_step(steps.read(trace(5)), layers=2)
    assert step is not None
    assert (step.steps, step.duration, step.busy) == (4, 100, 50)
    assert step.gpu == {"gemm": 40, "masked_multihead_attention_kernel": 20}
    assert step.calls == {"cudaLaunchKernel_v7000": 24}
    assert step.counts["gemm"] == 2
    assert step.counts["cudaLaunchKernel_v7000"] == 4


def test_the_time_between_two_answers_is_no_step() -> None:
    step = steps.median_step(steps.read([*trace(5), *trace(5, begin=90_000)]), layers=2)
    assert step is not None
    assert step.steps == 8
    assert step.duration == 100


def test_a_server_that_is_started_again_decodes_in_another_thread() -> None:
    again = [line.replace("\t7\t", "\t9\t") for line in trace(5, begin=90_000)]
    rows = steps.read([*trace(5), *again])
    step, one = steps.median_step(rows, layers=2), steps.typical_step(rows, layers=2)
    assert step is not None
    assert one is not None
    assert step.counts["cudaLaunchKernel_v7000"] == 4
    assert len(one.calls) == 4


@pytest.mark.parametrize("steps_made", [0, 1])
def test_a_trace_without_two_steps_has_no_median(steps_made: int) -> None:
    assert steps.median_step(steps.read(trace(steps_made)), layers=2) is None


def test_a_row_that_was_cut_is_left_out() -> None:
    assert len(steps.read([*trace(1), "kernel\t10\t2"])) == len(trace(1))
    assert len(steps.read([*trace(1), "kernel\t10\t20\t1\tgem"])) == len(trace(1))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (ATTENTION, "masked_multihead_attention_kernel"),
        ("void cutlass::Kernel<cutlass::Gemm<1>>(T::Params)", "Kernel"),
        ("ampere_fp16_s16816gemm_fp16_64x64", "ampere_fp16_s16816gemm_fp16_64x64"),
    ],
)
def test_a_kernel_is_known_by_its_function(name: str, wanted: str) -> None:
    assert steps.short(name) == wanted


def test_the_record_has_figures_and_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trace").write_text("".join(trace(5)))
    options = ["--layers", "2", "--of", "a cell", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["profile", str(tmp_path / "trace"), *options])
    assert command_line.main() == 0
    said = capsys.readouterr().out
    assert "2.0 x  gemm" in said
    (file,) = (tmp_path / "out").glob("*.json")
    record = Result.read(file)
    values = {found.what.removeprefix("a cell: "): found.value for found in record.figures}
    assert values["share of a step in which the GPU waits"] == 0.5
    assert values["kernels, copies and fills in a step"] == 4
    timeline_, drawn = record.charts
    assert isinstance(timeline_, Spans)
    assert isinstance(drawn, Bars)
    assert (tmp_path / "out" / "timeline-real.svg").exists()
    assert dict(zip(drawn.labels, drawn.series["a step"], strict=True)) == {
        "gemm": 0.04,
        "masked_multihead_attention_kernel": 0.02,
        "all other kernels": 0,
        "GPU waits": 0.05,
    }


def test_a_step_is_drawn_with_all_that_ran_in_it_and_nothing_that_did_not() -> None:
    def drawn_with(begin: int, end: int) -> Drawn:
        wait = f"call\t{begin}\t{end}\t7\tcudaStreamSynchronize_v3020\n"
        step = steps.typical_step(steps.read([*trace(3), *trace(2, begin=1330), wait]), layers=2)
        assert step is not None
        return step

    step = drawn_with(1110, 1250)
    assert (step.start, step.end) == (1000, 1100)
    assert [row.start for row in step.gpu] == [1000, 1005, 1050, 1055]
    assert not [row for row in step.calls if "Synchronize" in row.name]
    for begin, end in ((900, 1020), (1050, 1350)):  # begun before the step, and outlasting it
        assert [r.start for r in drawn_with(begin, end).calls if "Synchronize" in r.name] == [begin]


def drawn(start: int, end: int, *rows: Row) -> Drawn:
    return Drawn(start, end, [r for r in rows if r.kind != "call"], [r for r in rows if r.kind == "call"])


def test_the_timeline_is_to_scale_from_the_beginning_of_the_step() -> None:
    before = drawn(
        10_000,
        50_000,
        Row("call", 5_000, 12_000, 7, "cudaStreamSynchronize_v3020"),
        Row("call", 12_500, 20_000, 7, "cudaLaunchKernel_v7000"),
        Row("kernel", 21_000, 26_500, 1, ATTENTION),
        Row("copy", 48_000, 90_000, 1, "copy, kind 2, 8 bytes"),
    )
    after = drawn(0, 20_000, Row("call", 0, 1_000, 7, "cudaGraphLaunch_v10000"))
    chart = timeline.chart({"a": before, "b": after}, {"a": "launched", "b": "replayed"}, "a cell")
    assert (chart.until, chart.zoom) == (40, 4)
    assert chart.panels["launched"] == {
        "host": ((0, 2, timeline.WAIT), (2.5, 7.5, timeline.LAUNCH)),
        "GPU": ((11, 5.5, timeline.ATTENTION), (38, 2, timeline.COPY)),
    }
    assert chart.panels["replayed"] == {"host": ((0, 1, timeline.GRAPH),), "GPU": ()}
    assert read_chart(json.loads(json.dumps(asdict(chart)))) == chart


@pytest.mark.parametrize(
    ("kind", "name", "wanted"),
    [
        ("call", "cudaLaunchKernelExC_v11060", timeline.LAUNCH),
        ("call", "cudaGraphLaunch_v10000", timeline.GRAPH),
        ("call", "cudaEventSynchronize_v3020", timeline.WAIT),
        ("call", "cudaMemcpyAsync_v3020", timeline.OTHER_CALL),
        ("kernel", ATTENTION, timeline.ATTENTION),
        ("kernel", "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n", timeline.PRODUCT),
        ("kernel", "nvjet_hsh_64x8_64x16_4x1_v_bz_TNT", timeline.PRODUCT),
        ("kernel", "void cublasLt::splitKreduce_kernel<32, 16>(Params)", timeline.PRODUCT),
        ("kernel", "void cutlass::Kernel<cutlass::gemm::Gemm<1>>(T::Params)", timeline.PRODUCT),
        ("kernel", "void fastertransformer::addBiasGelu<gemm>(half*)", timeline.OTHER_KERNEL),
        ("kernel", "void fastertransformer::layernorm<half>(half*)", timeline.OTHER_KERNEL),
        ("fill", "fill, 8 bytes", timeline.COPY),
    ],
)
def test_a_span_is_coloured_by_what_it_is(kind: str, name: str, wanted: str) -> None:
    assert timeline.thing(Row(kind, 0, 1, 1, name)) == wanted


def test_two_traces_are_drawn_one_below_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needs.package("matplotlib")
    (tmp_path / "one").write_text("".join(trace(5)))
    (tmp_path / "two").write_text("".join(line.replace("gemm", "other") for line in trace(5)))
    words = [f"before={tmp_path / 'one'}", f"after={tmp_path / 'two'}", "--layers", "2", "--of", "a cell"]
    monkeypatch.setattr(sys, "argv", ["profile", *words, "--out", str(tmp_path), "--cell", "22.12-sm90@key"])
    assert command_line.main() == 0
    record = Result.read(tmp_path / "profile-real.json")
    assert record.origin is not None
    assert [(cell.cell, cell.key) for cell in record.origin.cells] == [("22.12-sm90", "key")]
    assert {figure.what.partition(":")[0] for figure in record.figures} == {"a cell, before", "a cell, after"}
    timeline_, bars = record.charts
    assert isinstance(timeline_, Spans)
    assert isinstance(bars, Bars)
    assert [title.partition(":")[0] for title in timeline_.panels] == ["before", "after"]
    spent = dict(zip(bars.labels, zip(*bars.series.values(), strict=True), strict=True))
    assert (spent["gemm"], spent["all other kernels"]) == ((0.04, 0), (0, 0.04))
    picture = (tmp_path / "timeline-real.svg").read_text()
    assert all(text in picture for text in ("host: launches a kernel", "GPU: attention", "microseconds"))


def test_two_traces_need_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = [tmp_path / "a", tmp_path / "b"]
    for trace in traces:
        trace.touch()
    options = ["--layers", "2", "--of", "x", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["profile", *map(str, traces), *options])
    with pytest.raises(SystemExit):
        command_line.main()


@pytest.mark.parametrize("content", ["", "kernel\t1\t2\n", "kernel\tx\ty\tz\tname\n", "\0\t\0\n"])
def test_a_trace_without_steps_is_an_error(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trace").write_text(content)
    options = ["--layers", "2", "--of", "x", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["profile", str(tmp_path / "trace"), *options])
    assert command_line.main() == 2
    assert "has no two steps" in capsys.readouterr().err
