"""Parsers and rules of the gate without a GPU, on recorded output; the images are in tests/engine."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftbuild.errors import VerifyError
from ftbuild.gates.report import VERIFY, GateReport
from ftbuild.gates.verify import elf, filesystem
from ftbuild.gates.verify.checks import files, libraries, recipe
from ftbuild.gates.verify.images import BACKEND
from ftbuild.sm import Sm
from ftbuild.text.results import CheckResult, State

# cuobjdump 11.8, readelf 2.40 on the images of the sample stack, shortened.
INSPECTED = """\
== /opt/tritonserver/backends/fastertransformer/libTransformerTritonBackend.so

Dynamic section at offset 0x1cd28 contains 32 entries:
  Tag        Type                         Name/Value
 0x0000000000000001 (NEEDED)             Shared library: [libmpi.so.40]
 0x000000000000000e (SONAME)             Library soname: [libTransformerTritonBackend.so]
 0x000000000000001d (RUNPATH)            Library runpath: [$ORIGIN:/usr/local/mpi/lib:${ORIGIN}/../lib]
 0x000000000000000c (INIT)               0x5000
== /opt/tritonserver/backends/fastertransformer/libtransformer-shared.so
ELF file    1: libtransformer-shared.1.sm_80.cubin
ELF file    2: libtransformer-shared.2.sm_90a.cubin
ELF file   10: libtransformer-shared.10.sm_80.cubin
PTX file    1: libtransformer-shared.1.sm_80.ptx

Dynamic section at offset 0x3d20 contains 30 entries:
 0x0000000000000001 (NEEDED)             Shared library: [libcudart.so.11.0]
 0x0000000000000001 (NEEDED)             Shared library: [libnccl.so.2]
"""
# glibc 2.36's ldd, shortened.
RESOLVED = """\
== /opt/tritonserver/backends/fastertransformer/libtransformer-shared.so
\tlinux-vdso.so.1 (0x00007ffd0b7d4000)
\tlibnccl.so.2 => not found
\tlibcuda.so.1 => not found
\tlibnvidia-ml.so.1 => not found
\tlibgpg-error.so.0 => /lib/x86_64-linux-gnu/libgpg-error.so.0 (0x00007f1c3f000000)
undefined symbol: ncclCommDestroy\t(/opt/tritonserver/backends/fastertransformer/libtransformer-shared.so)
undefined symbol: cuGetErrorString\t(/opt/tritonserver/backends/fastertransformer/libtransformer-shared.so)
undefined symbol: nvmlInit_v2\t(/opt/tritonserver/backends/fastertransformer/libtransformer-shared.so)
undefined symbol: cudaMalloc\t(/opt/tritonserver/backends/fastertransformer/libtransformer-shared.so)
== /opt/tritonserver/bin/tritonserver
/opt/tritonserver/bin/tritonserver: /lib/libc.so.6: version `GLIBC_2.99' not found (required by tritonserver)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1c3ee00000)
"""
LISTED = """\
file d 755 0 0 /
file d 1777 0 0 /tmp
file f 4755 0 0 /usr/bin/su
file l 777 0 0 /usr/bin/ld.so
file f 644 0 0 /opt/model with spaces
user root:x:0:0:root:/root:/bin/bash
user triton:x:1000:1000::/home/triton:/bin/sh
user nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
group root:x:0:
group triton:x:1000:
secret /etc/key.pem
"""


def test_code_needed_libraries_and_search_paths_are_read_per_library() -> None:
    plain, shared = elf.libraries(INSPECTED)
    assert plain.sass == plain.ptx == {}
    assert plain.needed == ("libmpi.so.40",)
    assert list(plain.searched()) == [
        ("$ORIGIN", BACKEND),
        ("/usr/local/mpi/lib", "/usr/local/mpi/lib"),
        ("${ORIGIN}/../lib", "/opt/tritonserver/backends/lib"),
    ]
    assert shared.sass == {"sm_80": 2, "sm_90a": 1}
    assert shared.ptx == {"sm_80": 1}
    assert elf.architectures([shared.sass, shared.sass, plain.sass]) == {"sm_80": 4, "sm_90a": 2}


def test_no_output_is_no_library() -> None:
    assert elf.libraries("") == ()


@pytest.mark.parametrize(
    "line", ["ELF file   3: libx.3.cubin", "PTX file: sm_80", "ELF file 1 libx.1.sm_80.cubin"]
)
def test_a_line_about_machine_code_that_is_not_understood_is_an_error(line: str) -> None:
    with pytest.raises(VerifyError, match="a line of cuobjdump is not understood") as refused:
        elf.libraries(f"{INSPECTED}{line}\n")
    assert refused.value.where == f"{BACKEND}/libtransformer-shared.so"
    assert line in refused.value.what


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("\tlibx.so => /lib/libx.so (0x00007f1c3ee00000)", None),
        ("\t/lib64/ld-linux-x86-64.so.2 (0x00007f1c3ee00000)", None),
        ("\tstatically linked", None),
        ("liby.so: /lib/libx.so: no version information available (required by liby.so)", None),
        ("\tlibx.so => not found", "liby.so: libx.so => not found"),
        ("\tnot a dynamic executable", "liby.so: not a dynamic executable"),
        ("ldd: exited with unknown exit code (139)", "liby.so: ldd: exited with unknown exit code (139)"),
        ("symbol lookup error: oops", "liby.so: symbol lookup error: oops"),
        ("/bin/sh: 2: ldd: not found", "liby.so: /bin/sh: 2: ldd: not found"),
        ("", "liby.so: ldd printed nothing"),
    ],
)
def test_whatever_the_loader_says_but_that_it_found_something_is_a_complaint(
    said: str, complaint: str | None
) -> None:
    found = elf.unresolved(f"== /opt/liby.so\n{said}\n== /opt/libz.so\n\tstatically linked\n")
    assert found == ([complaint] if complaint else [])


def test_every_path_is_asked_about_as_it_is_written() -> None:
    assert elf.resolution(["/opt/a b", "/opt/c"]).splitlines() == [
        "echo '== /opt/a b'; ldd -r '/opt/a b' 2>&1 || true",
        "echo '== /opt/c'; ldd -r /opt/c 2>&1 || true",
    ]


NCCL = "/usr/local/lib/libnccl.so.2"
LISTED_CODE = "ELF file    1: libnccl.1.sm_80.cubin\nELF file    2: libnccl.2.sm_90.cubin"


@pytest.mark.parametrize(
    ("tool", "found"),
    [
        (f'[ "$*" = "--list-elf {NCCL}" ] && echo "{LISTED_CODE}"', {"sm_80": 1, "sm_90": 1}),
        (f'echo "{LISTED_CODE}"; echo "cannot read" >&2; exit 1', None),
        ("echo 'version GLIBC_2.99 not found' >&2; exit 1", None),
        (None, None),
    ],
)
def test_a_tool_that_does_not_run_or_ends_early_has_listed_nothing(
    tool: str | None, found: dict[str, int] | None, tmp_path: Path
) -> None:
    """Part of a list would be machine code that is said to be absent."""
    if tool:
        (tmp_path / "cuobjdump").write_text(f"#!/bin/sh\n{tool}\n")
        (tmp_path / "cuobjdump").chmod(0o755)
    script = elf.in_place("/usr/local/cuda/bin/cuobjdump", NCCL).replace("/tmp/", f"{tmp_path}/")
    done = subprocess.run(["/bin/sh", "-ec", script], capture_output=True, text=True, check=True)
    libraries_found = elf.libraries(done.stdout)
    assert [(library.path, library.sass) for library in libraries_found] == ([(NCCL, found)] if found else [])
    assert done.stderr == ""


def test_what_the_driver_brings_may_be_unresolved_and_nothing_else() -> None:
    shared = "libtransformer-shared.so"
    found = elf.unresolved(RESOLVED)
    assert [line.split(" (")[0] for line in found] == [
        f"{shared}: libnccl.so.2 => not found",
        f"{shared}: undefined symbol: ncclCommDestroy",
        f"{shared}: undefined symbol: cudaMalloc",
        "tritonserver: /opt/tritonserver/bin/tritonserver: /lib/libc.so.6: version `GLIBC_2.99' not found",
    ]


def test_a_listing_is_read_with_names_owners_and_secrets() -> None:
    image = filesystem.parse(LISTED)
    assert image.files["/usr/bin/su"] == filesystem.File("/usr/bin/su", "f", 0o4755, 0, 0)
    assert "/opt/model with spaces" in image.files
    assert image.users == {"root": 0, "triton": 1000, "nobody": 65534}
    assert image.secrets == ("/etc/key.pem",)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "find: '/x': Permission denied",
        "file ? 644 0 0 /x",
        "file f 9 0 0 /x",
        "file f 644 0 0 relative",
        "file f 644 nobody 0 /x",
        "user root:x",
        "user root:x:zero:0:root:/root:/bin/sh",
        "group wheel",
        "secret key.pem",
        "second half of a name with a line break",
    ],
)
def test_a_line_of_a_listing_that_is_not_understood_is_an_error(line: str) -> None:
    with pytest.raises(VerifyError, match="a line of the image's listing is not understood") as refused:
        filesystem.parse(f"{LISTED}{line}\nfile f 644 0 0 /last\n")
    assert repr(line) in refused.value.what
    assert "LISTING" in (refused.value.hint or "")


@pytest.mark.parametrize("kind", ["file d 755 0 0 /\n", "user ", "group "])
def test_a_listing_without_files_users_or_groups_is_an_error(kind: str) -> None:
    less = "".join(line for line in LISTED.splitlines(keepends=True) if not line.startswith(kind))
    with pytest.raises(VerifyError, match="the image's listing lacks files, users or groups"):
        filesystem.parse(less)


def test_an_empty_listing_is_an_error() -> None:
    with pytest.raises(VerifyError):
        filesystem.parse("")


def test_names_are_read_as_they_are() -> None:
    odd = "/opt/caf\u00e9\u2028\x0b\x85 x"
    assert odd in filesystem.parse(f"{LISTED}file f 644 0 0 {odd}\n").files


def beyond(*entries: str) -> tuple[filesystem.Contents, filesystem.Contents]:
    """The base with more lines, and the base."""
    return filesystem.parse(LISTED + "".join(f"{entry}\n" for entry in entries)), filesystem.parse(LISTED)


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("/usr/bin/gcc", "compiler or build tool"),
        ("/usr/bin/x86_64-linux-gnu-gcc-11", "compiler or build tool"),
        ("/usr/bin/c++", "compiler or build tool"),
        ("/usr/local/cuda/bin/nvcc", "compiler or build tool"),
        ("/usr/local/cuda-11.8/nvvm/bin/cicc", "compiler or build tool"),
        ("/usr/bin/ld.gold", "compiler or build tool"),
        ("/usr/lib/gcc/x86_64-linux-gnu/11/cc1plus", "compiler or build tool"),
        ("/usr/sbin/sshd", "ssh server"),
        ("/var/lib/apt/lists/deb.debian.org_debian_dists_bookworm_InRelease", "package list or archive"),
        ("/var/cache/apt/archives/gcc_12.deb", "package list or archive"),
        ("/root/.cache/pip/http/1", "cache"),
        ("/build/backend/CMakeCache.txt", "build tree"),
        ("/home/triton/.netrc", "credential"),
        ("/root/.docker/config.json", "credential"),
        ("/root/.ssh/id_ed25519", "credential"),
        ("/run/secrets/ca", "build secret"),
        ("/usr/local/share/ca-certificates/company.crt", "certificate"),
    ],
)
def test_left_overs_are_recognised_unless_the_base_has_them(path: str, what: str) -> None:
    image, base = beyond(f"file f 755 0 0 {path}")
    assert f"{what}: {path}" in list(filesystem.leftovers(image, base))
    assert list(filesystem.leftovers(image, image)) == []
    assert filesystem.brought_by_base(image) == [what]


@pytest.mark.parametrize(
    "path",
    [
        "/usr/bin/ldd",
        "/usr/sbin/ldconfig",
        "/usr/bin/ssh",
        "/usr/bin/md5sum.textutils",
        "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
        "/opt/tritonserver/backends/fastertransformer/libtransformer-shared.so",
        "/usr/local/lib/python3.11/dist-packages/torch/bin/protoc",
        "/usr/local/lib/python3.11/dist-packages/certifi/cacert.pem",
    ],
)
def test_what_an_image_needs_is_no_left_over(path: str) -> None:
    assert list(filesystem.leftovers(*beyond(f"file f 755 0 0 {path}"))) == []


def test_a_private_key_is_found_but_for_test_data_of_python_packages() -> None:
    packaged = "secret /usr/local/lib/python3.11/dist-packages/gevent/tests/keycert.pem"
    found = list(filesystem.leftovers(*beyond("secret /opt/server.key", packaged)))
    assert found == ["key or password: /opt/server.key"]


def test_programs_with_capabilities_are_found_but_for_those_of_the_base() -> None:
    image, base = beyond("capable /opt/program", "capable /usr/bin/ping")
    assert filesystem.capable(image, base) == ["/opt/program", "/usr/bin/ping"]
    assert filesystem.capable(image, replace(base, capable=("/usr/bin/ping",))) == ["/opt/program"]
    images: Any = SimpleNamespace(
        plan=SimpleNamespace(base=SimpleNamespace(local=True)),
        ids={"sdk": "id"},
        contents=lambda image_id: image,
    )
    (verdict,) = files.rights(images, "sdk")
    assert verdict.state is State.FAIL
    assert "with capabilities: /opt/program" in verdict.detail


@pytest.mark.parametrize(
    ("path", "content", "found"),
    [
        ("etc/notes.txt", "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n", "secret"),
        ("opt/a/b", "text\n-----BEGIN RSA PRIVATE KEY-----\n", "secret"),
        ("root/.x", "-----BEGIN PGP PRIVATE KEY BLOCK-----\n", "secret"),
        ("opt/key.pem", "x -----BEGIN PRIVATE KEY-----\n", "secret"),
        ("etc/some.conf", "proxy http://me:secret@host:3128\n", "secret"),
        ("home/me/.config/x", "https://me:secret@host/\n", "secret"),
        ("opt/server.key", "x -----BEGIN PRIVATE KEY-----\n", "secret"),
        ("srv/pip.conf", "password = x\n", "secret"),
        ("srv/.pypirc", "Password: x\n", "secret"),
        ("srv/auth.conf", "machine https://me:secret@host/\n", "secret"),
        ("srv/.pypirc.md", "Password: x\n", ""),
        ("opt/lib.so", "\0-----BEGIN PRIVATE KEY-----\n", ""),
        ("opt/manual.txt", "  a file with -----BEGIN PRIVATE KEY----- in it\n", ""),
        ("etc/motd", "see https://host/@scope and http://host:8080/x@y\n", ""),
    ],
)
def test_a_key_or_password_is_found_whatever_its_file_is_called(
    path: str, content: str, found: str, tmp_path: Path
) -> None:
    """The listing itself, on a folder in place of the root."""
    for folder in ("etc", "root", "home", "opt", "usr/local/etc"):
        (tmp_path / folder).mkdir(parents=True)
    for names in ("etc/passwd", "etc/group"):
        (tmp_path / names).write_text("root:x:0:0:root:/root:/bin/sh\n")
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    searched = " ".join(f"{tmp_path}/{part}" for part in ("etc", "root", "home", "opt", "usr/local/etc"))
    script = (
        filesystem.LISTING.replace("find / ", f"find {tmp_path} ")
        .replace("find /etc /root /home /opt /usr/local/etc", f"find {searched}")
        .replace(" /etc/passwd", f" {tmp_path}/etc/passwd")
        .replace(" /etc/group", f" {tmp_path}/etc/group")
    )
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("secret", "capable"))]
    assert lines == ([f"{found} {file}"] if found else []), done.stdout


def test_owners_without_a_name_and_nobody_are_found() -> None:
    both = beyond(
        "file f 644 4242 0 /a", "file f 644 0 4242 /b", "file d 755 65534 0 /c", "file f 644 1000 0 /d"
    )
    assert [line.split()[0] for line in filesystem.unknown_owners(*both)] == ["/a", "/b", "/c"]


def test_added_rights_are_found_also_on_a_file_of_the_base() -> None:
    both = beyond("file f 2755 0 0 /opt/model with spaces", "file f 666 0 0 /x", "file d 1777 0 0 /scratch")
    assert list(filesystem.setuid(*both)) == ["/opt/model with spaces (mode 2755)"]
    assert list(filesystem.world_writable(*both)) == ["/x (mode 666)"]


@pytest.mark.parametrize(
    ("search", "files", "problem"),
    [
        ("$ORIGIN", (), None),
        ("/usr/local/mpi/lib", (), None),
        ("/build/backend/lib", (), "search path /build/backend/lib is not a folder of the image"),
        ("", (), "search path  is not a folder of the image"),
        ("/opt/lib", ("file d 777 0 0 /opt/lib",), "search path /opt/lib is world-writable"),
    ],
)
def test_search_paths_stay_inside_the_image(search: str, files: tuple[str, ...], problem: str | None) -> None:
    image, _ = beyond(f"file d 755 0 0 {BACKEND}", *files)
    library = elf.Library(f"{BACKEND}/libx.so", {}, {}, (), (search,))
    images: Any = SimpleNamespace(
        ids={"runtime": "id"}, contents=lambda image_id: image, libraries=lambda product: (library,)
    )
    (verdict,) = libraries.search_paths(images, "runtime")
    assert verdict.state is (State.FAIL if problem else State.OK)
    assert problem is None or problem in verdict.detail


NEEDED_ANYWHERE = """\
/usr/lib/libone.so.1:
\tlibc.so.6 => not found
\tlibcuda.so.1 => not found
/usr/lib/libtwo.so:
"""


@pytest.mark.parametrize("loader", ["", "/bin/false", "/nowhere/ld-linux.so.2"])
def test_without_a_loader_for_its_programs_an_image_has_not_been_searched(
    loader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would print no complaint about any library."""
    find = tmp_path / "find"
    find.write_text(f"#!/bin/sh\necho {loader}\n")
    find.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert subprocess.run(["/bin/sh", "-ec", elf.SEARCH], capture_output=True, check=False).returncode


def test_what_a_library_anywhere_needs_must_be_there_but_for_the_driver() -> None:
    assert elf.absent(NEEDED_ANYWHERE) == ["/usr/lib/libone.so.1 needs libc.so.6"]
    with pytest.raises(VerifyError, match="the image lists no library"):
        elf.absent("")


@pytest.mark.parametrize(
    ("path", "foreign"),
    [
        ("/usr/lib/x86_64-linux-gnu/libLLVM-17.so.1", True),
        ("/usr/lib/x86_64-linux-gnu/libamd_comgr.so.2.6.0", True),
        ("/usr/lib/x86_64-linux-gnu/ucx/libuct_rocm.so.0.0.0", True),
        ("/usr/lib/aarch64-linux-gnu/libX11.so.6.4.0", True),
        ("/usr/lib/x86_64-linux-gnu/libze_loader.so.1", True),
        ("/usr/lib/x86_64-linux-gnu/libhwloc.so.15.6.0", False),
        ("/usr/lib/x86_64-linux-gnu/libglib-2.0.so.0", False),
        ("/usr/local/cuda/lib/libcublasLt.so.13", False),
    ],
)
@pytest.mark.parametrize("local", [True, False])
def test_a_library_for_another_vendor_is_refused_on_a_base_of_our_own(
    path: str, foreign: bool, local: bool
) -> None:
    image, _ = beyond(f"file f 644 0 0 {path}")
    images: Any = SimpleNamespace(
        ids={"runtime": "id"},
        contents=lambda image_id: image,
        run=lambda product, script: "/usr/lib/libtwo.so:\n",
        plan=SimpleNamespace(base=SimpleNamespace(local=object() if local else None)),
    )
    (verdict,) = libraries.complete(images, "runtime")
    assert verdict.state is (State.FAIL if foreign and local else State.OK)


@pytest.mark.parametrize(("most", "state"), [(3000, State.OK), (2999, State.FAIL), (None, State.OK)])
def test_all_layers_of_an_image_together_are_within_its_limit(most: int | None, state: State) -> None:
    image = SimpleNamespace(history=lambda: [{"Size": 1000}, {"Size": 0}, {"Size": 2000}])
    images: Any = SimpleNamespace(
        ids={"sdk": "id"},
        client=SimpleNamespace(images=SimpleNamespace(get=lambda image_id: image)),
        plan=SimpleNamespace(max_bytes={"sdk": most} if most else {}),
    )
    (verdict,) = recipe.unpacked_size(images, "sdk")
    assert verdict.state is state
    assert verdict.facts["bytes"] == 3000


@pytest.mark.parametrize(
    ("needed", "state"),
    [
        (("libmpi.so.40", "libnccl.so.2"), State.OK),
        (("libmpi.so.40", "libc.so.6"), State.FAIL),
        (("libmpi_cxx.so.40", "libnccl.so.2"), State.FAIL),
    ],
)
def test_mpi_and_nccl_must_be_linked(needed: tuple[str, ...], state: State) -> None:
    library = elf.Library("/libx.so", {}, {}, needed, ())
    images: Any = SimpleNamespace(libraries=lambda product: (library,))
    (verdict,) = libraries.multi_gpu(images, "runtime")
    assert verdict.state is state
    assert state is State.OK or "BUILD_MULTI_GPU" in verdict.hint


@pytest.mark.parametrize(
    ("sass", "ptx", "problem"),
    [
        ({"sm_80": 2, "sm_90": 1}, {"sm_80": 2, "sm_90": 1}, None),
        ({"sm_80": 2}, {"sm_80": 2, "sm_90": 1}, "SASS for sm_80, the cell needs sm_80, sm_90"),
        (
            {"sm_80": 2, "sm_90": 1, "sm_70": 1},
            {"sm_80": 2, "sm_90": 1},
            "SASS for sm_70, sm_80, sm_90, the cell needs sm_80, sm_90",
        ),
        ({"sm_80": 2, "sm_90": 1}, {"sm_80": 2}, "PTX for sm_80, the cell needs sm_80, sm_90"),
        ({}, {}, "SASS for no SM, the cell needs sm_80, sm_90"),
    ],
)
def test_machine_code_is_exactly_the_cells(
    sass: dict[str, int], ptx: dict[str, int], problem: str | None
) -> None:
    library = elf.Library("/libx.so", sass, ptx, (), ())
    images: Any = SimpleNamespace(
        libraries=lambda product: (library,),
        plan=SimpleNamespace(cell=SimpleNamespace(sms=(Sm(80), Sm(90)))),
    )
    (verdict,) = libraries.machine_code(images, "runtime")
    assert verdict.facts == {"sass": dict(sorted(sass.items())), "ptx": ptx}
    assert (problem is None) == (verdict.state is State.OK)
    assert problem is None or problem in verdict.detail


def report(*results: CheckResult) -> GateReport:
    plan: Any = SimpleNamespace(
        cell=SimpleNamespace(id="22.12-sm80"), key="0123", tag=lambda product: f"image:{product}"
    )
    return GateReport(VERIFY, plan, {"runtime": "sha256:1"}, results)


def test_a_failed_report_names_every_failed_check_and_what_to_do() -> None:
    failed = report(
        CheckResult("user", State.FAIL, "the image runs as root", "set USER", "runtime"),
        CheckResult("labels", State.OK, "22 labels", subject="runtime"),
        CheckResult("patches", State.SKIP, "3 patches", subject="sdk"),
    )
    with pytest.raises(VerifyError) as caught:
        failed.require()
    assert "1 of 3 checks failed" in caught.value.what
    assert "user (runtime): the image runs as root" in caught.value.what
    assert caught.value.hint == "set USER"
    assert failed.exit_code == caught.value.exit_code == 8
    assert re.search(r"fail +user +runtime +the image runs as root\n +-> set USER\n", failed.render())
    assert failed.render().endswith("failed: 1, warnings: 0, skipped: 1")
    assert re.search(r"^image:runtime  sha256:1\nState +Check +Image +Detail\n", failed.render())
    assert replace(failed, notes=("a note",)).render().endswith("skipped: 1\na note")
    record = failed.as_dict()
    assert record["passed"] is False
    assert record["images"]["runtime"] == {"id": "sha256:1", "tag": "image:runtime"}


def test_a_skipped_check_does_not_fail_the_gate() -> None:
    skipped = CheckResult("patches", State.SKIP, "3 patches", subject="sdk")
    passed = report(skipped, CheckResult("labels", State.OK, "22 labels", subject="runtime"))
    passed.require()
    assert passed.exit_code == 0
    assert passed.as_dict()["passed"] is True


@pytest.mark.parametrize("states", [(), (State.SKIP,), (State.SKIP, State.SKIP)])
def test_a_gate_that_has_shown_nothing_has_not_passed(states: tuple[State, ...]) -> None:
    empty = report(*(CheckResult("patches", state, "3 patches", subject="sdk") for state in states))
    with pytest.raises(VerifyError, match=r"22\.12-sm80: no check passed, none failed: nothing was tested"):
        empty.require()
    assert empty.exit_code == 8
    assert empty.as_dict()["passed"] is False
