"""Products with an epilogue: the method that a patch adds, with a cuBLASLt that notes what it is asked for.

The method is whole in the patch, so this needs none of upstream's sources.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from testing import ROOT, patch_programs

PATCH = ROOT / "patches/ft/0480-activation-in-gemm.patch"
CHANGED = "src/fastertransformer/utils/cublasMMWrapper.cc"
PROGRAM = Path(__file__).parent / "programs/gemm_epilogues"
# cublasLt.h of CUDA 12 and cublas_api.h.
DEFAULT, RELU_BIAS, GELU_BIAS = 1, 6, 36
SUCCESS, INVALID_VALUE, EXECUTION_FAILED, NOT_SUPPORTED = 0, 7, 13, 15
ASKED = "6400x8 = 6400x1600 by 1600x8, epilogue {}, bias given"
CLEAN = "left 0, free"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gemm_epilogues")
    _, method = patch_programs.added(PATCH, CHANGED).split("\n", 1)
    (folder / "added.inc").write_text(method)
    patch_programs.unpack_headers(folder)
    return patch_programs.compiled(PROGRAM / "gemm_epilogues.cc", folder / "gemm_epilogues", folder)


def product(
    program: Path,
    type_: str = "half",
    compute: str = "fp32",
    configured: int = 0,
    epilogue: int = GELU_BIAS,
    status: int = SUCCESS,
    **environment: str,
) -> list[str]:
    """Return what cuBLASLt was asked for, if it was, what became of the product, and what is left."""
    done = patch_programs.run(program, type_, compute, configured, epilogue, status, **environment)
    return done.stdout.splitlines()


@pytest.mark.parametrize("type_", ["half", "bfloat16"])
@pytest.mark.parametrize("epilogue", [GELU_BIAS, RELU_BIAS])
def test_the_epilogue_is_part_of_the_product(program: Path, type_: str, epilogue: int) -> None:
    assert product(program, type_, epilogue=epilogue) == [ASKED.format(epilogue), "computed", CLEAN]


def test_fp32_and_sums_in_fp16_stay_upstreams(program: Path) -> None:
    assert product(program, "float") == ["refused", CLEAN]
    assert product(program, compute="fp16") == ["refused", CLEAN]


def test_a_configured_algorithm_is_kept(program: Path) -> None:
    assert product(program, configured=1) == ["refused", CLEAN]


def test_no_epilogue_is_no_activation(program: Path) -> None:
    assert product(program, epilogue=DEFAULT) == ["refused", CLEAN]


@pytest.mark.parametrize("status", [NOT_SUPPORTED, INVALID_VALUE])
def test_what_cublaslt_lacks_is_left_to_two_kernels(program: Path, status: int) -> None:
    assert product(program, status=status) == [ASKED.format(GELU_BIAS), "refused", CLEAN]


def test_a_failure_is_an_error_and_frees_the_lock(program: Path) -> None:
    assert product(program, status=EXECUTION_FAILED) == [ASKED.format(GELU_BIAS), "cuBLAS failed", CLEAN]


def test_it_can_be_turned_off(program: Path) -> None:
    assert product(program, FT_GEMM_EPILOGUES="0") == ["refused", CLEAN]
    assert product(program, FT_GEMM_EPILOGUES="1") == product(program)
