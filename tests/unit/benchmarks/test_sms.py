"""Figures of cold compiles by SM, from what builds leave."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.harness import builds, table
from benchmarks.harness.builds import Build
from benchmarks.harness.chart import Bars
from benchmarks.harness.figure import Figure, Result
from benchmarks.harness.origin import Measured
from benchmarks.harness.staleness import Verdict
from benchmarks.topics import sms
from ftbuild.errors import ConfigError

TIMES = "0m0.00s 0m0.00s\n0m1.00s 0m0.00s\n0m0.00s 0m0.00s\n0m9.00s 0m0.00s\n"


def folder(
    parent: Path, sms: tuple[int, ...], *, compiled: dict[str, float], hits: tuple[str, ...] = ()
) -> Path:
    """Return the folder of a build that took those CPU seconds, a second of wall time for each unit."""
    cell = f"24.10-sm{'_'.join(map(str, sms))}-open"
    made = parent / cell / "0123456789ab"
    tags = {"runtime": [f"image:{cell}-0123456789ab", f"image:{cell}"], "sdk": [f"image:{cell}-sdk"]}
    for name in ("backend", "pyt"):
        tree = made / builds.INFO / name
        tree.mkdir(parents=True)
        own = [unit for unit in (*compiled, *hits) if unit.startswith(name)]
        outputs = [unit.partition("/")[2] for unit in own]
        rows = [
            f"{n * 1000}\t{(n + 1) * 1000}\t0\t{o}\t{n}" for n, o in enumerate([*outputs, "a.a", "lib.so"])
        ]
        (tree / "ninja_log").write_text("\n".join(["# ninja log v5", *rows, ""]))
        slots = [
            f"{n * 1000}\t{(n + 1) * 1000}\t{n % 2}\t{o}\t{compiled[u]}\t1"
            for n, (o, u) in enumerate(zip(outputs, own, strict=True))
            if u in compiled
        ]
        (tree / "slots.tsv").write_text("\n".join([*slots, ""]))
        log = [f"# /src/{u}\n{'direct_cache_hit' if u in hits else 'cache_miss'}\n" for u in own]
        (tree / "ccache.statslog").write_text("".join(log))
        (tree / "started").write_text("1790000000000\n")
        (tree / "times").write_text(TIMES)
    (made / "plan.json").write_text(
        json.dumps({"cell": cell, "key": "0123456789ab", "sms": list(sms), "tags": tags, "trees": TREES})
    )
    target = {
        "image.name": f"docker.io/library/{tags['runtime'][0]}",
        "containerimage.config.digest": "sha256:1",
    }
    (made / "metadata.json").write_text(json.dumps({"cell-runtime": target, "buildx.build.warnings": []}))
    return made


TREES = [{"name": "backend"}, {"name": "pyt"}]
COLD = {"backend/x.dir/gemm.cu.o": 30.0, "backend/x.dir/host.cc.o": 6.0, "pyt/y.dir/op.cc.o": 4.0}


@pytest.fixture
def first(tmp_path: Path) -> Build:
    return builds.read(folder(tmp_path, (80,), compiled=COLD))


HOST = ("backend/x.dir/host.cc.o", "pyt/y.dir/op.cc.o")


@pytest.fixture
def second(tmp_path: Path) -> Build:
    """Return the build of another SM, which found the C++ sources of the first in ccache."""
    return builds.read(folder(tmp_path, (89,), compiled={"backend/x.dir/gemm.cu.o": 20.0}, hits=HOST))


def named(figures: list[Figure], cell: str, begin: str) -> list[Figure]:
    return [f for f in figures if f.of == cell and f.what.startswith(begin)]


def test_a_build_tells_what_its_compile_cost(first: Build, second: Build) -> None:
    assert first.measured == Measured("24.10-sm80-open", "0123456789ab", {"runtime": "sha256:1"})
    assert (first.sms, first.jobs, first.hits, first.seconds) == ((80,), 2, 0, COLD)
    assert first.started == "2026-09-21T14:13:20+00:00"
    assert first.wall == 4  # two units and two links, as long as the longer tree
    assert second.hits == 2
    assert set(second.others) == set(HOST)
    assert Build.of(json.loads(json.dumps(first.as_dict()))) == first


def test_what_ccache_had_counts_as_in_the_build_that_compiled_it(first: Build, second: Build) -> None:
    one, other = sms.costs([first, second])
    assert (one.total, one.borrowed, one.lacking) == (40, {}, 0)
    assert (other.total, other.borrowed) == (30, {"backend/x.dir/host.cc.o": 6, "pyt/y.dir/op.cc.o": 4})
    assert other.lacking == 0
    assert "2 from ccache count as in 24.10-sm80-open" in other.how
    assert "ccache" not in one.how


FT = "_deps/repo-ft-build/src/"
TWICE = {f"backend/{FT}gemm.cu.o": 30.0, f"backend/{FT}host.cc.o": 6.0, "pyt/th_op/op.cc.o": 4.0}


def test_an_object_that_both_trees_have_costs_once(tmp_path: Path) -> None:
    """Where torch has Triton's C++ ABI, one tree finds in ccache what the other has compiled."""
    hits = ("pyt/src/gemm.cu.o", "pyt/src/host.cc.o")
    (cost,) = sms.costs([builds.read(folder(tmp_path, (80,), compiled=TWICE, hits=hits))])
    assert (cost.total, cost.shared, cost.borrowed, cost.lacking) == (40, 2, {}, 0)
    assert "3 units compiled, 2 more are objects of the other tree" in cost.how


def test_an_object_that_both_trees_found_costs_what_it_cost_the_lender(tmp_path: Path) -> None:
    both = (f"backend/{FT}host.cc.o", "pyt/src/host.cc.o")
    lender = builds.read(folder(tmp_path, (80,), compiled=TWICE, hits=("pyt/src/host.cc.o",)))
    compiled = {f"backend/{FT}gemm.cu.o": 20.0, "pyt/th_op/op.cc.o": 4.0}
    found = builds.read(folder(tmp_path, (89,), compiled=compiled, hits=(*both, "pyt/src/gemm.cu.o")))
    _, cost = sms.costs([lender, found])
    assert (cost.total, cost.borrowed, cost.shared, cost.lacking) == (30, {both[0]: 6.0}, 1, 0)


def test_a_cuda_source_costs_what_it_does_for_the_same_sm(tmp_path: Path, first: Build) -> None:
    gemm = "backend/x.dir/gemm.cu.o"
    host = {unit: seconds for unit, seconds in COLD.items() if unit != gemm}
    other = builds.read(folder(tmp_path, (89,), compiled=host, hits=(gemm,)))
    again = builds.read(folder(tmp_path / "again", (80,), compiled=host, hits=(gemm,)))
    _, lacking, lent = sms.costs([first, other, again])
    assert (lacking.total, lacking.lacking, lent.total, lent.lacking) == (10, 1, 40, 0)
    assert "1 from ccache count nothing" in lacking.how
    figures = [f for f in sms.figures([first, other]) if f.of == "24.10-sm89-open"]
    assert [f.what for f in figures] == ["CPU seconds of compilers, trees backend and pyt, at least"]
    (chart,) = sms.charts([first, other])
    assert isinstance(chart, Bars)
    assert chart.labels == ("24.10-sm80-open", "24.10-sm89-open, at least")
    both = builds.read(folder(tmp_path, (80, 89), compiled=COLD))
    assert not [f for f in sms.figures([first, other, both]) if "one for each" in f.what]


def test_each_cell_has_its_seconds_and_its_ratio_to_the_first(first: Build, second: Build) -> None:
    figures = list(sms.figures([first, second]))
    (one,) = named(figures, "24.10-sm80-open", "CPU seconds of compilers, trees backend and pyt")
    (other,) = named(figures, "24.10-sm89-open", "CPU seconds of compilers, trees backend and pyt")
    assert (one.value, other.value) == (40, 30)
    (ratio,) = (f for f in figures if "/ those of 24.10-sm80-open (40 s)" in f.what)
    assert (ratio.of, ratio.value) == ("24.10-sm89-open", 0.75)


def test_one_image_of_all_sms_is_compared_with_one_for_each(
    tmp_path: Path, first: Build, second: Build
) -> None:
    together = builds.read(folder(tmp_path, (80, 89), compiled={**COLD, "backend/x.dir/gemm.cu.o": 46.0}))
    figures = list(sms.figures([first, second, together]))
    (ratio,) = named(figures, "24.10-sm80_89-open", "CPU seconds of compilers of one image (56 s)")
    assert "one for each of its SMs (70 s)" in ratio.what
    assert ratio.value == 0.8
    assert not [f for f in sms.figures([first, together]) if "one for each" in f.what]


def test_the_chart_divides_the_seconds_by_tree_and_language(first: Build, second: Build) -> None:
    (chart,) = sms.charts([first, second])
    assert isinstance(chart, Bars)
    assert (chart.labels, chart.stacked) == (("24.10-sm80-open", "24.10-sm89-open"), True)
    assert chart.series == {
        "backend, CUDA": (30, 20),
        "backend, C++": (6, 6),
        "pyt, CUDA": (0, 0),
        "pyt, C++": (4, 4),
    }


def test_a_record_is_made_of_the_folders_of_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = folder(tmp_path, (80,), compiled=COLD)
    monkeypatch.setattr("sys.argv", ["sms", str(made), "--out", str(tmp_path / "out")])
    sms.main()
    record = Result.read(Path(capsys.readouterr().out.strip()))
    assert record.origin is not None
    assert record.origin.cells == (Measured("24.10-sm80-open", "0123456789ab", {"runtime": "sha256:1"}),)
    assert sms.recomputed(record) == record
    assert (record.machine.load, record.machine.load_before) == (None, None)  # not that of now
    assert "load not recorded; commit" in table.markdown([record], "results", [Verdict(True)])


def test_a_folder_without_a_compile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no compiled cell"):
        builds.read(tmp_path)


def test_a_build_that_has_not_finished_a_tree_is_refused(tmp_path: Path) -> None:
    made = folder(tmp_path, (80,), compiled=COLD)
    shutil.rmtree(made / builds.INFO / "pyt")
    with pytest.raises(ConfigError, match="no compiled cell"):
        builds.read(made)
