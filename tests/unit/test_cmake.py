from __future__ import annotations

import pytest

from ftbuild.cmake import Toolchain, Tree, jobs, trees
from ftbuild.sm import Sm
from ftbuild.text.units import GIB

GCC_11 = Toolchain("gcc-11", "g++-11")


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


def test_the_initial_cache_is_a_script_for_cmake() -> None:
    backend, _ = trees((Sm(90),), "5.3", "1.4", GCC_11)
    assert (
        'set(SM "90" CACHE STRING "FT v5.3 CMakeLists.txt:138-190")' in backend.initial_cache().splitlines()
    )


@pytest.mark.parametrize("version", [("5.0", "1.1"), ("5.2", "1.3"), ("5.3", "1.4")])
def test_every_option_cites_its_source(version: tuple[str, str]) -> None:
    for tree in trees((Sm(80),), *version, GCC_11):
        assert all(option.source for option in tree.options)


@pytest.mark.parametrize(
    ("cores", "gib", "expected"), [(2, 24, 2), (64, 24, 8), (16, 2, 1), (8, 4, 1), (1, 0, 1), (64, 512, 64)]
)
def test_jobs_follow_cores_and_memory(cores: int, gib: int, expected: int) -> None:
    assert jobs(cores, gib * GIB) == expected
