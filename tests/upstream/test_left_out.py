"""What lean cells are built without: refused by the backend's own headers, and no symbol is missing."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ftbuild.config.schema import Config
from ftbuild.features import FEATURES, HEAD_SIZES
from ftbuild.sources import fetch, patched
from testing import needs

from .conftest import Need

PROGRAMS = Path(__file__).parent / "programs"
KERNELS = "src/fastertransformer/kernels"
HAS_FP8 = re.compile(r"#ifdef ENABLE_FP8\n.*?#endif\n", re.DOTALL)
LAUNCHER = re.compile(r"template void mmha_launch_kernel<(\w+), (\d+), (\d+), (\w+)<\1>>")
INSTANCE = re.compile(r"template class (\w+<.*>);")
# Release -> what can be left out of it.
RELEASES = {"22.03": {"beams"}, "22.07": {*FEATURES, "heads"}, "22.12": {*FEATURES, "heads"}}


@pytest.fixture
def lean(config: Config, cache: Path, need: Need, tmp_path: Path) -> Callable[..., Path]:
    """A source of a release as lean cells have it."""

    def make(release: str, name: str) -> Path:
        need(name)
        fetch.export(config, release, name, cache, tmp_path / name)
        patched.apply(config, release, {name: tmp_path / name}, cache, print, lean=True)
        return tmp_path / name

    return make


Answer = Callable[..., str]


@pytest.fixture
def answer(config: Config, cache: Path, need: Need, lean: Callable[..., Path], tmp_path: Path) -> Answer:
    """Compile the backend's headers without features and for sizes of heads; ask them."""
    compiler = needs.program("g++")

    def run(release: str, without: str, sizes: str, *arguments: str, ini: str = "") -> str:
        need("core")
        program = tmp_path / f"left_out-{without}-{sizes}"
        if not program.exists():
            if not (tmp_path / "backend").exists():
                lean(release, "backend")
                fetch.export(config, release, "core", cache, tmp_path / "core")
            includes = (PROGRAMS / "include", tmp_path / "backend/src", tmp_path / "core/include")
            definitions = [f'-DLEFT_OUT_FEATURES="{without}"']
            definitions += [] if release == "22.03" else [f'-DBUILT_HEAD_SIZES="{sizes}"']
            flags = ["-std=c++14", "-Wall", "-Wextra", "-Werror", *(f"-I{folder}" for folder in includes)]
            source = str(PROGRAMS / "left_out.cc")
            subprocess.run([compiler, *flags, *definitions, source, "-o", str(program)], check=True)
        environment = os.environ | {"INI": ini}
        ran = subprocess.run(
            [program, *arguments], capture_output=True, text=True, check=True, env=environment
        )
        return ran.stdout.strip()

    return run


@pytest.mark.parametrize("release", RELEASES)
def test_a_request_with_beams_is_refused_by_name_where_there_are_none(answer: Answer, release: str) -> None:
    refusal = answer(release, "beams", "", "4")
    assert refusal.startswith("this image was built without beams, which beam_width 4 needs")
    assert answer(release, "beams", "", "1") == ""
    assert answer(release, "beams", "", "65") == "beam_width[0] is 65, which is not in the range [1, 64]"
    assert answer(release, "", "", "4") == ""


@pytest.mark.parametrize("release", ["22.07", "22.12"])
def test_a_model_that_needs_what_is_left_out_is_refused_by_name(answer: Answer, release: str) -> None:
    lean = (release, "experts,int8", "64,128")
    assert "without int8, which int8_mode 1 needs" in answer(*lean, "GPT", "1")
    assert "without int8, which int8_mode 2 needs" in answer(*lean, "GPT", "2")
    assert "without experts, which" in answer(*lean, "GPT", "0", ini="structure.moe_layers=[1, 3]")
    assert answer(*lean, "GPT", "0", ini="structure.moe_layers=[]") == ""
    for model, entry in (
        ("GPT", "gpt.size_per_head"),
        ("GPT-J", "gptj.size_per_head"),
        ("GPT-NeoX", "gptneox.size_per_head"),
        ("T5", "decoder.d_kv"),
    ):
        assert "heads of 64,128, and the model has heads of 80" in answer(
            *lean, model, "0", ini=f"{entry}=80"
        )
        assert answer(*lean, model, "0", ini=f"{entry}=64") == answer(*lean, model, "0") == ""
    for encoder in ("bert", "T5-Encoder"):
        assert answer(*lean, encoder, "0", ini="encoder.d_kv=80") == ""
    whole = (release, "", "")
    assert answer(*whole, "GPT", "1", ini="gpt.size_per_head=80") == ""
    assert answer(*whole, "GPT", "0", ini="structure.moe_layers=[1]") == ""


@pytest.mark.parametrize("release", ["22.07", "22.12"])
def test_what_is_left_out_has_the_symbols_of_what_is_not(lean: Callable[..., Path], release: str) -> None:
    """A library without one of them would not be loaded."""
    kernels = lean(release, "ft") / KERNELS
    left_out = kernels / "left_out"

    def instances(pattern: str) -> set[str]:
        return {name for file in kernels.glob(pattern) for name in INSTANCE.findall(file.read_text())}

    served = {name for name in instances("cutlass_kernels/fpA_intB_gemm/*.cu") if "uint4" not in name}
    assert instances("left_out/fpA_intB_gemm.cc") == served
    assert instances("left_out/moe_gemm_kernels.cc") == instances("cutlass_kernels/moe_gemm/*.cu")
    assert instances("left_out/int8_gemm.cc") == instances("cutlass_kernels/int8_gemm/*.cu")

    launchers = {
        launcher
        for file in kernels.glob("decoder_masked_multihead_attention/*.cu")
        for launcher in LAUNCHER.findall(HAS_FP8.sub("", file.read_text()))
    }
    sizes = sorted({int(size) for _, size, _, _ in launchers})
    assert set(sizes) <= set(HEAD_SIZES)
    stub = (left_out / "decoder_masked_multihead_attention.cc").read_text()
    program = stub.replace("#include", "//").replace("fastertransformer::throwLeftOut", "throwLeftOut")
    expanded = preprocessed(program, " ".join(f"HEAD_SIZE({size})" for size in sizes))
    assert {tuple(each) for each in expanded} == launchers


def preprocessed(program: str, sizes: str) -> set[tuple[str, str, str, str]]:
    """Return the launchers that the file for sizes left out defines, as the compiler sees them."""
    compiler = needs.program("g++")
    flags = ["-E", "-P", "-x", "c++", "-DENABLE_BF16", f"-DHEAD_SIZES_LEFT_OUT={sizes}", "-"]
    ran = subprocess.run([compiler, *flags], input=program, capture_output=True, text=True, check=True)
    found = re.findall(r"mmha_launch_kernel<(\w+), (\d+), largest\(\2\), (\w+)<\1>>", ran.stdout)
    widest = {
        size: 32 if size <= 32 else 64 if size <= 64 else 128 if size <= 128 else 256 for size in HEAD_SIZES
    }
    return {(kind, size, str(widest[int(size)]), params) for kind, size, params in found}


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_says_what_can_be_left_out_of_it(config: Config, release: str) -> None:
    able = {each for each in (*FEATURES, "heads") if config.can_leave_out(release, each)}
    assert able == RELEASES[release]
