"""Benchmarks of compiles: figures read from a build, and estimates from a sample."""

from __future__ import annotations

import random
import statistics
import subprocess
from pathlib import Path

import pytest

from benchmarks.harness import compiles, sampling
from benchmarks.harness.compiles import Compile, Job
from benchmarks.tools import compile_order
from benchmarks.topics import cold, memory, warm

STATISTICS_LOG = """\
# /src/ft/a.cc
direct_cache_hit
local_storage_hit
# /src/ft/b.cu
cache_miss
direct_cache_miss
preprocessed_cache_miss
# /src/ft/c.cpp
direct_cache_miss
preprocessed_cache_hit
# /src/ft/conftest.c
called_for_link
"""
TIMES = "0m0.10s 0m0.05s\n0m3.00s 0m1.00s\n0m0.20s 0m0.05s\n2m3.50s 0m10.00s\n"


def test_each_source_has_the_outcome_that_ccache_logged() -> None:
    found = tuple(compiles.outcomes(STATISTICS_LOG))
    assert found == (("/src/ft/a.cc", True), ("/src/ft/b.cu", False), ("/src/ft/c.cpp", True))
    compiled = Compile(1.0, 1.0, 0.0, (), found, "", Path())
    assert compiled.hits(".cc", ".cpp") == (2, 2)
    assert compiled.hits(".cu") == (0, 1)
    other = Compile(1.0, 1.0, 0.0, (), (("/src/ft/a.cc", True), ("/src/ft/d.cc", False)), "", Path())
    assert other.hits(".cc") == (1, 2)
    assert other.hits(".cc", of=compiled) == (1, 1)


def test_cpu_time_is_split_before_and_after_ninja() -> None:
    before, after = compiles.cpu(TIMES)
    assert before == pytest.approx(4.15)
    assert after == pytest.approx(133.75)


def test_a_line_of_a_slot_is_a_job() -> None:
    (job,) = compiles.jobs("1000\t3500\t1\tsrc/a.cu.o\t2.25\t1048576\n")
    assert job == Job(1.0, 3.5, "src/a.cu.o", 2.25, 1048576, slot=1)
    assert job.seconds == 2.5


def test_the_probe_of_a_shared_storage_is_no_unit() -> None:
    probe = "900\t910\t0\t/tmp/tmp.WV8lnJEKJs/probe.o\t0.01\t20111360\n"
    (job,) = compiles.jobs(probe + "1000\t3500\t1\tsrc/a.cu.o\t2.25\t1048576\n")
    assert job.output == "src/a.cu.o"


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [([(0, 10), (2, 5)], 10), ([(0, 4), (3, 8)], 8), ([(0, 2), (5, 6)], 3), ([], 0)],
)
def test_only_time_in_which_a_tree_compiles_counts(
    intervals: list[tuple[float, float]], expected: float
) -> None:
    assert compiles.covered(intervals) == expected


def test_jobs_that_touch_do_not_run_at_the_same_time() -> None:
    def job(start: float, end: float) -> Job:
        return Job(start, end, "", 0.0, 0)

    assert memory.together([job(0, 2), job(2, 4), job(4, 5)]) == 1
    assert memory.together([job(0, 3), job(2, 4), job(2, 5)]) == 3
    assert memory.together([]) == 0


def stack(seed: int = 1) -> tuple[dict[str, float], dict[str, float]]:
    """Return our seconds and upstream's: CUDA takes about seven times as long, with additional units."""
    source = random.Random(seed)
    ours: dict[str, float] = {}
    upstream: dict[str, float] = {}
    for number in range(200):
        unit = f"unit_{number}.{'cu' if number % 3 else 'cc'}.o"
        ours[unit] = source.lognormvariate(0.2, 1.0)
        upstream[unit] = ours[unit] * (source.gauss(7, 1) if number % 3 else source.gauss(1, 0.05))
    for number in range(60):
        upstream[f"example_{number}.{'cu' if number % 2 else 'cc'}.o"] = source.uniform(2, 6)
    return ours, upstream


def test_all_long_units_are_chosen_and_the_rest_by_the_seed() -> None:
    ours, upstream = stack()
    chosen = sampling.choose(upstream, ours)
    assert {unit for unit, seconds in ours.items() if seconds >= sampling.LONG_SECONDS} <= set(chosen)
    assert len(chosen) == len(set(chosen)) < len(upstream) / 2
    assert chosen == sampling.choose(reversed(list(upstream)), ours)
    assert chosen != sampling.choose(upstream, ours, seed=1)


def test_a_unit_that_is_long_for_another_sm_is_always_chosen() -> None:
    units = {f"kernels.dir/unit_{number}.cu.o": 1.0 for number in range(100)}
    gemm = "gemms.dir/moe_gemm_kernels_fp16_uint8.cu.o"
    ours = {**units, gemm: 0.1}  # in the stratum of the others, of which a quarter is drawn
    assert all(gemm in sampling.choose(ours, ours, seed=seed) for seed in range(9))


def test_the_total_of_a_complete_measurement_has_no_error() -> None:
    ours, upstream = stack()
    found = sampling.estimate(upstream, ours, upstream)
    assert found.seconds == pytest.approx(sum(upstream.values()))
    assert (found.error, found.measured, found.units) == (0.0, 260, 260)


def test_the_standard_error_matches_the_spread_of_estimates() -> None:
    ours, upstream = stack()
    total = sum(upstream.values())
    found = [
        sampling.estimate(
            upstream, ours, {u: upstream[u] for u in sampling.choose(upstream, ours, seed=seed)}
        )
        for seed in range(200)
    ]
    wrong = statistics.pstdev(f.seconds for f in found)
    assert statistics.mean(f.seconds for f in found) == pytest.approx(total, rel=0.01)
    assert statistics.mean(f.error for f in found) == pytest.approx(wrong, rel=0.25)


def test_a_sample_without_a_stratum_is_refused() -> None:
    ours, upstream = stack()
    host = {unit: seconds for unit, seconds in upstream.items() if unit.endswith(".cc.o")}
    with pytest.raises(ValueError, match="none of 30 units"):
        sampling.estimate(upstream, ours, host)


def test_objects_are_the_compiled_targets_of_ninja() -> None:
    linked = "lib/cmake_device_link.o: CUDA_DEVICE_LINK__a\n"
    listed = f"all: phony\nsrc/a.cu.o: CUDA_COMPILER__a\n{linked}src/b.cc.o: CXX_COMPILER__b\n"
    assert cold.objects(listed) == ["src/a.cu.o", "src/b.cc.o"]


@pytest.mark.parametrize("make", ["", cold.MAKE.format(words=cold.SAMPLE.format(targets="src/a.cu.o"))])
def test_upstreams_recipe_is_a_script_that_a_shell_reads(make: str) -> None:
    assert subprocess.run(["sh", "-n"], input=cold.script(make), text=True, check=False).returncode == 0


def test_the_record_of_a_compile_tells_compilers_from_all_that_ran() -> None:
    jobs = (Job(0.0, 3.0, "a.cu.o", 2.5, 1), Job(0.0, 1.0, "b.cc.o", 0.5, 1))
    made = Compile(4.0, 5.0, 1.0, jobs, (), "", Path()).as_dict()
    assert (made["cpu"], made["compilers"], made["longest compiler"]) == (5.0, 3.0, 2.5)
    assert Compile(4.0, 5.0, 1.0, (), (), "", Path()).as_dict()["compilers"] == 0


def test_the_goal_of_a_sample_is_judged_at_the_worse_end_of_its_interval() -> None:
    data = {"ours": {"a": 10.0}, "upstream": {"a": 60.0, "b": 8.0}, "units": 9, "failed": [], "seconds": 70.0}
    sure, unsure = (cold.sampled({**data, "error": error}) for error in (1.0, 2.0))
    assert [sure.value, unsure.value] == pytest.approx([1 / 7, 1 / 7])
    assert (sure.met, unsure.met) == (True, False)
    assert unsure.most == pytest.approx(10 / (70 - 1.96 * 2))
    assert "upstream's 2 of 9" in unsure.how
    assert "standard error 2.9 %" in unsure.how


def test_the_sources_of_another_sm_count_with_those_that_are_its_machine_code() -> None:
    found = warm.of_all({"sources of the other SM": {"a.cc": True, "b.cpp": False, "c.cu": False}})
    assert (found.value, found.goal) == (0.5, None)
    assert "1 of 2 sources" in found.how


def test_the_heaviest_sources_are_listed_once_with_their_longest_time() -> None:
    def job(output: str, cpu: float) -> Job:
        return Job(0.0, 2 * cpu, output, cpu, 0)

    jobs = [
        job("a.dir/light.cc.o", 1.0),
        job("a.dir/heavy.cu.o", 5.0),
        job("b.dir/heavy.cu.o", 7.0),
        job("b.dir/x.cu.o", 6.0),
    ]
    assert list(compile_order.sources(jobs).items()) == [("heavy", 7.0), ("x", 6.0)]
