from __future__ import annotations

import re

import pytest

from ftbuild.cmake import Toolchain, Tree, jobs, trees, unit_tests
from ftbuild.features import LeftOut
from ftbuild.sm import Sm
from ftbuild.text.units import GIB

GCC_11 = Toolchain("gcc-11", "g++-11", "11.8")


def options(tree: Tree) -> dict[str, str]:
    return {option.name: option.value for option in tree.options}


def test_the_two_trees_of_22_12() -> None:
    backend, pyt = trees((Sm(90),), "5.3", "1.4", GCC_11)
    assert (backend.source, pyt.source) == ("/src/backend", "/src/ft")
    assert options(backend)["SM"] == options(pyt)["SM"] == "90"
    assert options(backend)["BUILD_MULTI_GPU"] == options(pyt)["BUILD_MULTI_GPU"] == "ON"
    assert (options(backend)["BUILD_PYT"], options(pyt)["BUILD_PYT"]) == ("OFF", "ON")
    assert options(backend)["FT_DIR"] == "/src/ft"
    assert pyt.targets == ("th_transformer",)
    assert "triton-fastertransformer-backend" in backend.targets


def test_nothing_can_be_downloaded_while_configuring() -> None:
    backend, _ = trees((Sm(80),), "5.2", "1.3", GCC_11)
    assert options(backend)["FETCHCONTENT_FULLY_DISCONNECTED"] == "ON"
    for repository in ("COMMON", "CORE", "BACKEND"):
        assert options(backend)[f"FETCHCONTENT_SOURCE_DIR_REPO-{repository}"].startswith("/src/")
    assert options(backend)["GIT_AUTOCLONE_CUTLASS"] == "OFF"


def test_the_oldest_backend_gets_fastertransformer_through_fetchcontent() -> None:
    backend, pyt = trees((Sm(70),), "5.0", "1.1", GCC_11)
    assert options(backend)["FETCHCONTENT_SOURCE_DIR_REPO-FT"] == "/src/ft"
    assert "FT_DIR" not in options(backend)
    assert "GIT_AUTOCLONE_CUTLASS" not in options(backend)
    assert "th_gpt" in pyt.targets


def test_several_sms_are_one_value() -> None:
    backend, _ = trees((Sm(80), Sm(86)), "5.3", "1.4", GCC_11)
    assert options(backend)["SM"] == "80,86"


def test_the_host_compiler_reaches_cmake_and_findcuda() -> None:
    backend, _ = trees((Sm(80),), "5.3", "1.4", GCC_11)
    assert GCC_11.environment() == {"CC": "gcc-11", "CXX": "g++-11", "CUDAHOSTCXX": "g++-11"}
    assert options(backend)["CUDA_HOST_COMPILER"] == "g++-11"


@pytest.mark.parametrize(
    ("cuda", "standard"), [("11.8", None), ("12.9", None), ("13.0", "17"), ("13.2", "17")]
)
def test_the_headers_of_cuda_13_are_compiled_as_cxx_17(cuda: str, standard: str | None) -> None:
    backend, pyt = trees((Sm(120),), "5.3", "1.4", Toolchain("gcc", "g++", cuda))
    assert options(backend).get("CXX_STD") == standard
    assert options(pyt)["CXX_STD"] == "17"


def test_no_library_searches_folders_that_torch_names_and_nobody_has() -> None:
    _, pyt = trees((Sm(120),), "5.3", "1.4", Toolchain("gcc", "g++", "13.0"))
    left_out = options(pyt)["CMAKE_PLATFORM_IMPLICIT_LINK_DIRECTORIES"].split(";")
    assert left_out == ["/lib/intel64", "/lib/intel64_win", "/lib/win-x64"]


def test_the_initial_cache_is_a_script_for_cmake() -> None:
    backend, _ = trees((Sm(90),), "5.3", "1.4", GCC_11)
    title, *lines = backend.initial_cache().splitlines()
    assert title == "# Initial cache of the backend tree, written by ftbuild"
    assert 'set(SM "90" CACHE STRING "FT v5.3 CMakeLists.txt:138-190")' in lines
    assert len(lines) == len(backend.options)
    assert backend.initial_cache().endswith("\n")


# Every option is written out: one that changes unnoticed is another image.
COMMON = {
    "CMAKE_BUILD_TYPE": "Release",
    "CMAKE_C_COMPILER_LAUNCHER": "ccache",
    "CMAKE_CXX_COMPILER_LAUNCHER": "ccache",
    "CMAKE_CUDA_COMPILER_LAUNCHER": "ccache",
    "CUDA_HOST_COMPILER": "g++-11",
    "CMAKE_CUDA_HOST_COMPILER": "g++-11",
    "CMAKE_CXX_FLAGS": "-DOMPI_SKIP_MPICXX",
    "CMAKE_CUDA_FLAGS": "-DOMPI_SKIP_MPICXX",
    "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
    "CMAKE_INSTALL_RPATH": r"\$ORIGIN",
    "SM": "80,90",
    "BUILD_MULTI_GPU": "ON",
    "PYTHON_PATH": "python3",
    "USE_NVTX": "OFF",
}
BACKEND = {
    "BUILD_PYT": "OFF",
    "USE_TRITONSERVER_DATATYPE": "ON",
    "CMAKE_SHARED_LINKER_FLAGS": "-Wl,--as-needed",
    "FETCHCONTENT_FULLY_DISCONNECTED": "ON",
    "FETCHCONTENT_SOURCE_DIR_REPO-COMMON": "/src/common",
    "FETCHCONTENT_SOURCE_DIR_REPO-CORE": "/src/repo-core-src",
    "FETCHCONTENT_SOURCE_DIR_REPO-BACKEND": "/src/triton-backend",
}
PYT = {"BUILD_PYT": "ON", "CXX_STD": "17", "CMAKE_INSTALL_RPATH_USE_LINK_PATH": "ON"}
CUTLASS = {"GIT_AUTOCLONE_CUTLASS": "OFF"}
FT_DIR = {"FT_DIR": "/src/ft"}
FETCHED_FT = {"FETCHCONTENT_SOURCE_DIR_REPO-FT": "/src/ft"}
MODELS = ("th_bert", "th_decoding", "th_gpt", "th_parallel_gpt", "th_t5")


@pytest.mark.parametrize(
    ("ft", "backend", "more", "of_backend", "pyt_targets"),
    [
        ("5.0", "1.1", {}, FETCHED_FT, MODELS),
        ("5.1", "1.2", {}, FT_DIR, MODELS),
        ("5.2", "1.3", CUTLASS, FT_DIR, (*MODELS, "th_bart", "th_common", "th_weight_only_quant_ops")),
        ("5.3", "1.4", CUTLASS, FT_DIR, ("th_transformer",)),
    ],
)
def test_each_release_gets_exactly_these_options_and_targets(
    ft: str, backend: str, more: dict[str, str], of_backend: dict[str, str], pyt_targets: tuple[str, ...]
) -> None:
    first, second = trees((Sm(80), Sm(90)), ft, backend, GCC_11)
    assert (first.name, first.source, second.name, second.source) == (
        "backend",
        "/src/backend",
        "pyt",
        "/src/ft",
    )
    assert options(first) == {**COMMON, **more, **BACKEND, **of_backend}
    assert options(second) == {**COMMON, **more, **PYT}
    assert first.targets == ("transformer-shared", "triton-fastertransformer-backend")
    assert second.targets == pyt_targets
    for tree in (first, second):
        assert len(tree.options) == len(options(tree))


def test_cuda_13_adds_exactly_these_options() -> None:
    """A CMake of its time warns of FindCUDA, unless it is told of the old policy."""
    older, newer = (
        trees((Sm(80),), "5.3", "1.4", Toolchain("gcc", "g++", cuda)) for cuda in ("12.9", "13.0")
    )
    backend, pyt = (
        options(new).items() - options(old).items() for old, new in zip(older, newer, strict=True)
    )
    assert backend == {("CXX_STD", "17"), ("CMAKE_POLICY_DEFAULT_CMP0146", "OLD")}
    folders = "/lib/intel64;/lib/intel64_win;/lib/win-x64"
    assert pyt == {("CMAKE_PLATFORM_IMPLICIT_LINK_DIRECTORIES", folders)}


def test_a_lean_cell_adds_exactly_what_it_leaves_out_to_both_trees() -> None:
    whole = trees((Sm(80),), "5.3", "1.4", GCC_11)
    for left_out, more in (
        (LeftOut(("beams", "int8")), {"FT_WITHOUT": "beams;int8"}),
        (LeftOut((), (64, 128)), {"FT_HEAD_SIZES": "64;128"}),
        (LeftOut(("experts",), (64,)), {"FT_WITHOUT": "experts", "FT_HEAD_SIZES": "64"}),
    ):
        lean = trees((Sm(80),), "5.3", "1.4", GCC_11, left_out)
        assert [options(tree) for tree in lean] == [{**options(tree), **more} for tree in whole]


@pytest.mark.parametrize(
    ("ft", "targets"),
    [
        ("5.0", ("test_gemm", "test_sampling", "test_logprob_kernels")),
        (
            "5.2",
            ("unittest", "test_gemm", "test_gpt_kernels", "test_activation", "test_context_decoder_layer"),
        ),
    ],
)
def test_upstreams_tests_are_built_like_the_library_for_pytorch(ft: str, targets: tuple[str, ...]) -> None:
    _, pyt = trees((Sm(80),), ft, "1.3", GCC_11)
    tests = unit_tests(pyt, ft)
    more = {"BUILD_FT_TESTS": "ON", "FETCHCONTENT_SOURCE_DIR_GOOGLETEST": "/src/googletest"}
    assert options(tests) == {**options(pyt), **more}
    assert (tests.name, tests.source, tests.targets) == ("unittests", "/src/ft", targets)


PLACE = re.compile(
    r"(?:(?:FT|BE) v\d\.\d [\w/]*CMakeLists\.txt:\d+|cmake-variables\(7\)|cmake module \w+"
    r"|patches/ft/\d{4}|Open MPI \d|cmake-policies\(7\)|torch \d)(?!\w)"
)


@pytest.mark.parametrize("cuda", ["11.8", "13.0"])
@pytest.mark.parametrize("version", [("5.0", "1.1"), ("5.2", "1.3"), ("5.3", "1.4")])
def test_every_option_cites_a_place(version: tuple[str, str], cuda: str) -> None:
    backend, pyt = trees((Sm(80),), *version, Toolchain("gcc", "g++", cuda))
    for tree in (backend, pyt, unit_tests(pyt, version[0])):
        assert [option.name for option in tree.options if not PLACE.match(option.source)] == []


@pytest.mark.parametrize(
    ("cores", "gib", "expected"), [(2, 24, 2), (64, 24, 8), (16, 2, 1), (8, 4, 1), (1, 0, 1), (64, 512, 64)]
)
def test_jobs_follow_cores_and_memory(cores: int, gib: int, expected: int) -> None:
    assert jobs(cores, gib * GIB) == expected
