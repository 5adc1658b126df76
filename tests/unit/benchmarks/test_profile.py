"""The profile of a decoding step, from a trace as trace.c writes it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.harness.chart import Bars
from benchmarks.harness.figure import Result
from benchmarks.tools.profile import __main__ as command_line
from benchmarks.tools.profile import steps

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
    (drawn,) = record.charts
    assert isinstance(drawn, Bars)
    assert dict(zip(drawn.labels, drawn.series["a step"], strict=True)) == {
        "gemm": 0.04,
        "masked_multihead_attention_kernel": 0.02,
        "all other kernels": 0,
        "GPU waits": 0.05,
    }


def test_a_trace_without_steps_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trace").touch()
    options = ["--layers", "2", "--of", "x", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["profile", str(tmp_path / "trace"), *options])
    assert command_line.main() == 2
    assert "has no two steps" in capsys.readouterr().err
