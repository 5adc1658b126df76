"""CMake configuration of a cell: options, targets and outputs of both build trees, and the number of jobs.

Two trees, since they need different C++ ABIs: the backend must have Triton's (new) ABI, the PyTorch library
that of the installed torch (FasterTransformer v5.3 CMakeLists.txt:275-290 sets it for a whole tree).

Every option cites upstream's lines: `FT` is FasterTransformer, `BE` is fastertransformer_backend, each with
the version that was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packaging.version import Version

from ftbuild.features import NOTHING, LeftOut
from ftbuild.sm import Sm, sm_list
from ftbuild.text.units import GIB

SOURCE_ROOT = "/src"
# Measured on the real sources (22.12, sm_90, CUDA 11.8), the largest process of a job: 0.65 GiB (ptxas) in
# the backend tree, 2.6 GiB (cicc, torch's headers) in the pyt tree. nvcc compiles SMs one after the other.
MEMORY_PER_JOB_BYTES = 3 * GIB


@dataclass(frozen=True)
class Option:
    """One cache variable and the place upstream that reads it."""

    name: str
    value: str
    source: str


@dataclass(frozen=True)
class Tree:
    """One CMake build tree: source folder in the build container, cache variables, targets, products."""

    name: str
    source: str
    options: tuple[Option, ...]
    targets: tuple[str, ...]

    def initial_cache(self) -> str:
        """Return a script for `cmake -C` that sets every option, with its citation as documentation."""
        lines = [f'set({o.name} "{o.value}" CACHE STRING "{o.source}")' for o in self.options]
        return "\n".join([f"# Initial cache of the {self.name} tree, written by ftbuild", *lines, ""])


@dataclass(frozen=True)
class Toolchain:
    """A CUDA toolkit, by its version, and the host compilers that it accepts."""

    cc: str
    cxx: str
    cuda: str

    @property
    def is_cuda_13(self) -> bool:
        """Whether it is CUDA 13 or later."""
        return Version(self.cuda) >= Version("13.0")

    def environment(self) -> Mapping[str, str]:
        """Return the variables for configure and compile, which CMake's own detection and FindCUDA read.

        CC and CXX: cmake-env-variables(7). CUDAHOSTCXX: the host compiler of language CUDA. FindCUDA, which
        BE v1.4 CMakeLists.txt:63 still uses, wants the cache variable CUDA_HOST_COMPILER besides.
        """
        return {"CC": self.cc, "CXX": self.cxx, "CUDAHOSTCXX": self.cxx}


def jobs(cores: int, memory_bytes: int) -> int:
    """Return the number of compile jobs of a machine: one per core, fewer where memory is short, at least 1.

    All builds on it share them, both trees of each (dockerfiles/steps/slot.py).
    """
    return max(1, min(cores, memory_bytes // MEMORY_PER_JOB_BYTES))


def trees(
    sms: tuple[Sm, ...], ft: str, backend: str, toolchain: Toolchain, left_out: LeftOut = NOTHING
) -> tuple[Tree, Tree]:
    """Return the backend tree and the pyt tree of FasterTransformer `ft` and its backend `backend`.

    Pure. Options:

    SM: FT v5.3 CMakeLists.txt:138-190 matches it by substring against its list, and an unknown SM silently
        builds four others; so the matrix validates it, a patch makes it an error, and the
        build counts the lines `Assign GPU architecture`.
    BUILD_MULTI_GPU: BE v1.4 CMakeLists.txt:36; FT v5.3 CMakeLists.txt:61. Always on: without it the triton
        sources still include MPI's headers.
    BUILD_PYT, PYTHON_PATH: FT v5.3 CMakeLists.txt:58 and :250; the default `python` exists in no base.
    FT_DIR: BE v1.3 CMakeLists.txt:104; v1.1 knows only FetchContent's own override.
    FETCHCONTENT_*: cmake module FetchContent; together they forbid any download while configuring.
    GIT_AUTOCLONE_CUTLASS: FT v5.2 CMakeLists.txt:40; cutlass is staged at 3rdparty/cutlass.
    USE_NVTX: FT v5.3 CMakeLists.txt:127 turned it on by default; serving needs no profiler ranges.
    CXX_STD: FT v5.3 CMakeLists.txt:113, default 14; the headers of torch 2 need 17, in the pyt tree only, and
        those of CUDA 13 in both (CCCL 3.0, cuda/std/__internal/dialect.h).
    CMAKE_PLATFORM_IMPLICIT_LINK_DIRECTORIES: folders that CMAKE_INSTALL_RPATH_USE_LINK_PATH leaves out. torch
        for CUDA 13 hands on such that exist nowhere, and a library must not search them.
    CMAKE_POLICY_DEFAULT_CMP0146: cmake-policies(7); without it a CMake from 3.27 on warns of FindCUDA.
    CMAKE_CXX_FLAGS, CMAKE_CUDA_FLAGS: Open MPI's mpi.h pulls in the C++ bindings that MPI 3 removed unless
        OMPI_SKIP_MPICXX is set; FT uses the C interface only, and the libraries would ask for MPI::* symbols.
    CMAKE_INSTALL_RPATH, CMAKE_BUILD_WITH_INSTALL_RPATH: the libraries are copied, not installed, and find
        each other in one folder; BE v1.4 CMakeLists.txt:193 sets $ORIGIN for an installed backend only.
    CMAKE_SHARED_LINKER_FLAGS: FT v5.3 CMakeLists.txt:470 links cuRAND, of which only headers are used; an
        image needs what a library asks for (also patches/backend/0290).
    CUDA_HOST_COMPILER, CMAKE_CUDA_HOST_COMPILER: FindCUDA and language CUDA, see `Toolchain`.
    FT_WITHOUT, FT_HEAD_SIZES: what a lean cell leaves out, patches/ft/0600 to 0620 and patches/backend/0300.
    """
    ft_version, backend_version = Version(ft), Version(backend)
    common = (*_toolchain(toolchain), *_ft(sms, ft_version), *_left_out(left_out))
    return (
        Tree(
            name="backend",
            source=f"{SOURCE_ROOT}/backend",
            options=(*common, *_backend(backend_version, toolchain)),
            targets=("transformer-shared", "triton-fastertransformer-backend"),
        ),
        Tree(
            name="pyt",
            source=f"{SOURCE_ROOT}/ft",
            options=(*common, *_pyt(toolchain)),
            targets=_pyt_targets(ft_version),
        ),
    )


def unit_tests(pyt: Tree, ft: str) -> Tree:
    """Return the tree of upstream's unit tests, with the pyt tree's options and so its objects in ccache.

    BUILD_FT_TESTS: patches/ft/0020 and 0021.
    FETCHCONTENT_SOURCE_DIR_GOOGLETEST: cmake module FetchContent; upstream would clone it while configuring
        (FT v5.3 tests/unittests/CMakeLists.txt:18). 5.0 tests without it.
    """
    return Tree(
        name="unittests",
        source=pyt.source,
        options=(
            *pyt.options,
            Option("BUILD_FT_TESTS", "ON", "patches/ft/0020 and 0021"),
            Option(
                "FETCHCONTENT_SOURCE_DIR_GOOGLETEST",
                f"{SOURCE_ROOT}/googletest",
                "FT v5.3 tests/unittests/CMakeLists.txt:18",
            ),
        ),
        targets=_unit_test_targets(Version(ft)),
    )


def _toolchain(toolchain: Toolchain) -> Iterator[Option]:
    yield Option(
        "CMAKE_BUILD_TYPE", "Release", "FT v5.3 CMakeLists.txt:208 sets -O3 and the ABI for Release only"
    )
    for language in ("C", "CXX", "CUDA"):
        yield Option(f"CMAKE_{language}_COMPILER_LAUNCHER", "ccache", "cmake-variables(7)")
    yield Option("CUDA_HOST_COMPILER", toolchain.cxx, "cmake module FindCUDA; BE v1.4 CMakeLists.txt:63")
    yield Option("CMAKE_CUDA_HOST_COMPILER", toolchain.cxx, "cmake-variables(7)")
    for language in ("CXX", "CUDA"):
        yield Option(f"CMAKE_{language}_FLAGS", "-DOMPI_SKIP_MPICXX", "Open MPI 4.1 mpi.h")
    yield Option("CMAKE_BUILD_WITH_INSTALL_RPATH", "ON", "cmake-variables(7)")
    yield Option("CMAKE_INSTALL_RPATH", r"\$ORIGIN", "cmake-variables(7); BE v1.4 CMakeLists.txt:193")


def _ft(sms: tuple[Sm, ...], ft: Version) -> Iterator[Option]:
    # Written with ';' the list would be read as several arguments in places; upstream matches by substring.
    yield Option("SM", sm_list(sms), "FT v5.3 CMakeLists.txt:138-190")
    yield Option("BUILD_MULTI_GPU", "ON", "FT v5.3 CMakeLists.txt:61; BE v1.4 CMakeLists.txt:36")
    yield Option("PYTHON_PATH", "python3", "FT v5.3 CMakeLists.txt:250")
    yield Option("USE_NVTX", "OFF", "FT v5.0 CMakeLists.txt:78; v5.3 CMakeLists.txt:127")
    if ft >= Version("5.2"):
        yield Option("GIT_AUTOCLONE_CUTLASS", "OFF", "FT v5.2 CMakeLists.txt:40")


def _left_out(left_out: LeftOut) -> Iterator[Option]:
    if left_out.features:
        yield Option(
            "FT_WITHOUT", ";".join(left_out.features), "patches/ft/0600 and 0610; patches/backend/0300"
        )
    if left_out.head_sizes:
        sizes = ";".join(map(str, left_out.head_sizes))
        yield Option("FT_HEAD_SIZES", sizes, "patches/ft/0620; patches/backend/0300")


def _backend(backend: Version, toolchain: Toolchain) -> Iterator[Option]:
    yield Option("BUILD_PYT", "OFF", "FT v5.3 CMakeLists.txt:58")
    yield Option("USE_TRITONSERVER_DATATYPE", "ON", "FT v5.3 CMakeLists.txt:64")
    yield Option("CMAKE_SHARED_LINKER_FLAGS", "-Wl,--as-needed", "cmake-variables(7); ld(1)")
    yield Option("FETCHCONTENT_FULLY_DISCONNECTED", "ON", "cmake module FetchContent")
    for name, folder in (("COMMON", "common"), ("CORE", "repo-core-src"), ("BACKEND", "triton-backend")):
        yield Option(
            f"FETCHCONTENT_SOURCE_DIR_REPO-{name}", f"{SOURCE_ROOT}/{folder}", "BE v1.4 CMakeLists.txt:83-101"
        )
    if backend >= Version("1.2"):
        yield Option("FT_DIR", f"{SOURCE_ROOT}/ft", "BE v1.3 CMakeLists.txt:104; v1.4 CMakeLists.txt:105")
    else:
        yield Option("FETCHCONTENT_SOURCE_DIR_REPO-FT", f"{SOURCE_ROOT}/ft", "BE v1.1 CMakeLists.txt:100-105")
    if toolchain.is_cuda_13:
        yield Option("CXX_STD", "17", "FT v5.3 CMakeLists.txt:113; CCCL 3.0 cuda/std/__internal/dialect.h")
        yield Option("CMAKE_POLICY_DEFAULT_CMP0146", "OLD", "cmake-policies(7)")


def _pyt(toolchain: Toolchain) -> Iterator[Option]:
    yield Option("BUILD_PYT", "ON", "FT v5.3 CMakeLists.txt:58")
    # torch 2's headers are C++17; upstream's default is 14.
    yield Option("CXX_STD", "17", "FT v5.0 CMakeLists.txt:64; v5.3 CMakeLists.txt:113")
    # torch's libraries lie in site-packages, not in a folder that the loader searches.
    yield Option("CMAKE_INSTALL_RPATH_USE_LINK_PATH", "ON", "cmake-variables(7)")
    if toolchain.is_cuda_13:
        absent = ("/lib/intel64", "/lib/intel64_win", "/lib/win-x64")
        yield Option(
            "CMAKE_PLATFORM_IMPLICIT_LINK_DIRECTORIES", ";".join(absent), "torch 2.11 Caffe2Targets.cmake"
        )


def _pyt_targets(ft: Version) -> tuple[str, ...]:
    """Return one library from v5.3 on (th_op/CMakeLists.txt:35), one per model before (CMakeLists.txt:15)."""
    if ft >= Version("5.3"):
        return ("th_transformer",)
    models = ("th_bert", "th_decoding", "th_gpt", "th_parallel_gpt", "th_t5")
    return (*models, "th_bart", "th_common", "th_weight_only_quant_ops") if ft >= Version("5.2") else models


def _unit_test_targets(ft: Version) -> tuple[str, ...]:
    """Return the programs of tests/unittests/CMakeLists.txt; from 5.2 on googletest's has most tests."""
    if ft >= Version("5.2"):
        return ("unittest", "test_gemm", "test_gpt_kernels", "test_activation", "test_context_decoder_layer")
    return ("test_gemm", "test_sampling", "test_logprob_kernels")
