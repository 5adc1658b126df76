"""Checks of our shared libraries: machine code, dependencies, search paths."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from ftbuild.gates.verify import elf, filesystem
from ftbuild.gates.verify.images import BACKEND, SERVER_FOLDER, Images
from ftbuild.gates.verify.verdict import REBUILD, REPORT_BUG, Verdict, judge
from ftbuild.sm import Sm, sm_codes
from ftbuild.text.results import State

# Without them a backend folder is not a backend (BE v1.4 CMakeLists.txt, targets).
# The last one is the name by which servers ask for room in the queue (patches/backend, 0270).
REQUIRED = ("libtriton_fastertransformer.so", "libtransformer-shared.so", "batchstrategy.so")
# With BUILD_MULTI_GPU the libraries need both (FT v5.3 CMakeLists.txt:61).
MULTI_GPU = ("libmpi.so", "libnccl.so")
# FT v5.3 CMakeLists.txt:295 adds it wherever it builds; only root can put anything there.
UPSTREAM_SEARCH = ("/usr/local/mpi/lib",)
# What Debian's packages bring for GPUs of others and for screens.
FOREIGN = re.compile(
    r".*/lib(?:amd|hip|hsa|rocm|rocr|LLVM|ze_|OpenCL|sycl|X11|xcb|XNVCtrl|GL|uct_rocm|ucm_rocm)[^/]*\.so[^/]*"
)
_NCCL = re.compile(r".*/libnccl\.so\.[\d.]+")


def machine_code(images: Images, product: str) -> Iterator[Verdict]:
    """Require SASS and PTX for exactly the cell's SMs, as FT v5.3 CMakeLists.txt:149 embeds them."""
    libraries = images.libraries(product)
    codes = {sm.code for sm in images.plan.cell.sms}
    facts = {
        "sass": elf.architectures(library.sass for library in libraries),
        "ptx": elf.architectures(library.ptx for library in libraries),
    }
    problems = [
        f"{kind.upper()} for {_join(counts) or 'no SM'}, the cell needs {_join(codes)}"
        for kind, counts in facts.items()
        if set(counts) != codes
    ]
    fine = ", ".join(f"{kind.upper()} {_counts(counts)}" for kind, counts in facts.items())
    hint = "build the cell again, its images came from another SM list; a GPU would hide this through JIT"
    yield judge(problems, fine, hint, facts)


def scripts(images: Images, product: str) -> Iterator[str]:
    """Yield the scripts that `resolve`, `complete` and `collectives` run in the image, as its user."""
    yield elf.resolution(_linked(images, product))
    if images.plan.base.local:
        yield elf.SEARCH
    if path := _nccl(images, product):
        yield images.listing(path)


def resolve(images: Images, product: str) -> Iterator[Verdict]:
    """Require that backend and server find every library and symbol, except those of the driver."""
    seen = _linked(images, product)
    text = images.run(product, elf.resolution(seen))
    missing = [f"{name} is not in {BACKEND}" for name in REQUIRED if f"{BACKEND}/{name}" not in seen]
    yield judge(
        [*missing, *elf.unresolved(text)],
        f"{len(seen)} libraries and programs find all that they are linked with",
        f"the base lacks a package or the image lost a file: compare it with the base, then {REBUILD}",
    )


def complete(images: Images, product: str) -> Iterator[Verdict]:
    """Require on a base of our own that all libraries find those that they need, and none is foreign."""
    if images.plan.base.local is None:
        yield Verdict(State.OK, "the base is a registry's")
        return
    absent = elf.absent(images.run(product, elf.SEARCH))
    files = images.contents(images.ids[product]).files
    foreign = [f"{p} is for another vendor's GPU or a screen" for p in files if FOREIGN.fullmatch(p)]
    yield judge(
        [*absent, *foreign],
        "each finds what it needs, none is foreign",
        "bases.yaml: `without` leaves out a package too many, or lacks one",
    )


def multi_gpu(images: Images, product: str) -> Iterator[Verdict]:
    """Require that MPI and NCCL are linked."""
    needed = {name for library in images.libraries(product) for name in library.needed}
    linked = sorted(name for name in needed if name.startswith(MULTI_GPU))
    absent = [name for name in MULTI_GPU if not any(lib.startswith(name) for lib in linked)]
    yield judge(
        (f"no library is linked with {name}" for name in absent),
        ", ".join(linked),
        "BUILD_MULTI_GPU must be ON (ftbuild/cmake.py): without it a model runs on one GPU only",
    )


def collectives(images: Images, product: str) -> Iterator[Verdict]:
    """Require machine code for every SM of the cell in NCCL, which comes with the base."""
    path = _nccl(images, product)
    if not path:
        yield Verdict(State.FAIL, "there is no libnccl.so.2", "the base must contain NCCL")
        return
    library = images.inspect_in_place(product, path)
    codes = sorted(Sm.parse(name.rstrip("a")) for name in library.sass)
    problems = [
        f"{path} has no machine code for {sm.code}, only for {sm_codes(codes)}"
        for sm in images.plan.cell.sms
        if not any(code.runs_on(sm) for code in codes)
    ]
    hint = "a model over several GPUs would end the server: the base needs an NCCL built for that SM"
    yield judge(problems, f"SASS {_counts(library.sass)}", hint, {"sass": dict(library.sass)})


def search_paths(images: Images, product: str) -> Iterator[Verdict]:
    """Require that RPATH and RUNPATH lead to folders of the image that are not world-writable."""
    contents = images.contents(images.ids[product])
    problems, seen = [], set()
    for library in images.libraries(product):
        for written, folder in library.searched():
            seen.add(written)
            if not contents.is_folder(folder) and folder not in UPSTREAM_SEARCH:
                problems.append(f"{library.path}: search path {written} is not a folder of the image")
            elif folder in contents.files and any(filesystem.open_to_all([contents.files[folder]])):
                problems.append(f"{library.path}: search path {written} is world-writable")
    yield judge(problems, ", ".join(sorted(seen)) or "none", REPORT_BUG)


def _linked(images: Images, product: str) -> list[str]:
    """Return the libraries of the backend, and what a server runs of its own."""
    files = images.contents(images.ids[product]).files
    own = [path for path in files if path.startswith(f"{BACKEND}/") and path.endswith(".so")]
    server_side = [
        f"{SERVER_FOLDER}/bin/tritonserver",
        f"{SERVER_FOLDER}/lib/libtritonserver.so",
        f"{SERVER_FOLDER}/backends/python/libtriton_python.so",
        f"{SERVER_FOLDER}/backends/python/triton_python_backend_stub",
    ]
    return [*sorted(own), *(path for path in server_side if path in files)]


def _nccl(images: Images, product: str) -> str:
    """Return the path of NCCL, which comes with the base; "" without one."""
    files = images.contents(images.ids[product]).files.values()
    return next((file.path for file in files if file.kind == "f" and _NCCL.fullmatch(file.path)), "")


def _join(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{sm} ({count})" for sm, count in counts.items()) or "none"
