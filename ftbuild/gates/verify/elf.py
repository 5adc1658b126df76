"""Inspection of shared libraries by NVIDIA's and GNU's tools: the commands, and parsers of their output.

cuobjdump lists the machine code (SASS, one cubin per SM) and the PTX in a library (CUDA Binary Utilities,
section cuobjdump); readelf its needed libraries and search paths; glibc's ld.so in trace mode (ldd) what the
loader cannot resolve.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ftbuild.errors import VerifyError

# Brought by the driver, when a container is started with a GPU (NVIDIA Container Toolkit).
DRIVER_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_DRIVER_SYMBOL = re.compile(r"undefined symbol: (?:cu[A-Z]|nvml)\w*\b")
_CODE = re.compile(r"(ELF|PTX) file +\d+: .*\.(sm_\w+)\.(?:cubin|ptx)")
_LISTED = re.compile(r"(?m)^(?:ELF|PTX) file.*$")
_DYNAMIC = re.compile(r"\((NEEDED|RPATH|RUNPATH)\).*\[(.*)\]")
# ld.so in trace mode: `name => file (address)`, `file (address)`; a library without version information is
# linked all the same.
_RESOLVED = re.compile(
    r"\t(?:\S+ => )?\S+ \(0x[0-9a-f]+\)|\tstatically linked|.*: no version information available .*|\s*"
)
_HEAD = "== "
# The programs that `inspection` runs.
TOOLS = ("cuobjdump", "readelf")
# Where the image with the tools has the one that `in_place` runs.
FIND_TOOL = 'tool=$(command -v cuobjdump)\nreadlink -f "$tool"'
# Lists what libraries anywhere need, below a line of each, as ldd does, which starts a shell and the loader
# twice for each file and takes six times as long. The loader fails for a file that is no library. One that
# cannot list the shell, of another architecture, would tell of no library what it lacks.
SEARCH = """\
loader=$(find /lib64/ /lib/ -maxdepth 1 -name 'ld-linux*.so.*' 2> /dev/null | head -n 1)
"$loader" --list /bin/sh > /dev/null
find / -xdev -type f -name '*.so*' -exec sh -c '
    for file do echo "$file:"; LD_TRACE_LOADED_OBJECTS=1 "$0" "$file" 2> /dev/null || true; done
' "$loader" {} + | grep -e '^/' -e 'not found' || true
"""
_ABSENT = re.compile(r"\t(?P<name>\S+) => not found")


@dataclass(frozen=True)
class Library:
    """One library: pieces of machine code and PTX by SM (`sm_80`), needed libraries, search paths."""

    path: str
    sass: Mapping[str, int]
    ptx: Mapping[str, int]
    needed: tuple[str, ...]
    search: tuple[str, ...]

    def searched(self) -> Iterator[tuple[str, str]]:
        """Yield each search path as written, and its folder ($ORIGIN is the library's own, ld.so(8))."""
        origin = posixpath.dirname(self.path)
        for written in self.search:
            yield written, posixpath.normpath(re.sub(r"\$(ORIGIN|\{ORIGIN\})", origin, written) or ".")


def inspection(files: str, origin: str) -> str:
    """Return a script for an image with `TOOLS` that describes every library in `files`, a glob.

    `libraries` parses its output, which names the libraries in `origin`, the folder they were copied from.
    cuobjdump fails on a library without device code, which is not a failure here.
    """
    return (
        f"command -v {' '.join(TOOLS)} > /dev/null\n"
        f"for library in {files}; do\n"
        f'  echo "{_HEAD}{origin}/${{library##*/}}"\n'
        '  cuobjdump --list-elf "$library" || true\n'
        '  cuobjdump --list-ptx "$library" || true\n'
        '  readelf --dynamic --wide "$library"\n'
        "done\n"
    )


def in_place(tool: str, library: str) -> str:
    """Return a script that lists a library's machine code with a copy of `tool` in /tmp, for `libraries`.

    It prints nothing where the tool does not run, as on an older glibc, or cannot read the library.
    """
    copy, path = shlex.quote(f"/tmp/{posixpath.basename(tool)}"), shlex.quote(library)
    head = shlex.quote(f"{_HEAD}{library}")
    return f"if code=$({copy} --list-elf {path}); then printf '%s\\n' {head} \"$code\"; fi 2> /dev/null"


def libraries(text: str) -> tuple[Library, ...]:
    """Parse the output of `inspection` or `in_place`.

    Raises VerifyError for a line of cuobjdump's that is not understood.
    """
    return tuple(_library(*section.split("\n", 1)) for section in f"\n{text}".split(f"\n{_HEAD}")[1:])


def architectures(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Sum the pieces of code by SM over several libraries."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))


def resolution(paths: Iterable[str]) -> str:
    """Return a script for the image itself, whose output `unresolved` parses."""
    quoted = [(shlex.quote(f"{_HEAD}{path}"), shlex.quote(path)) for path in paths]
    return "\n".join(f"echo {head}; ldd -r {path} 2>&1 || true" for head, path in quoted)


def absent(text: str) -> list[str]:
    """Return what libraries need and do not find by the output of SEARCH, as `file needs name`.

    Raises VerifyError where it names no library at all.
    """
    needs, path = [], ""
    for line in text.splitlines():
        if line.startswith("/"):
            path = line.rstrip(":")
        elif (match := _ABSENT.fullmatch(line)) and match["name"] not in DRIVER_LIBRARIES:
            needs.append(f"{path} needs {match['name']}")
    if not path:
        raise VerifyError("the image lists no library", hint="find, grep and the loader must be there")
    return needs


def unresolved(text: str) -> list[str]:
    """Return what the loader cannot resolve, as `library: complaint`, except the driver's part.

    Lines that are not understood are complaints, and so is a file about which there is no line.
    """
    complaints: dict[str, None] = {}
    for section in f"\n{text}".split(f"\n{_HEAD}")[1:]:
        path, *lines = section.splitlines()
        name = posixpath.basename(path)
        wrong = (line for line in lines if not _RESOLVED.fullmatch(line) and not _of_driver(line))
        complaints |= {f"{name}: {' '.join(line.split())}": None for line in wrong}
        if not any(map(str.strip, lines)):
            complaints[f"{name}: ldd printed nothing"] = None
    return list(complaints)


def _library(path: str, text: str = "") -> Library:
    code = Counter(_CODE.findall(text))
    if unknown := [line for line in _LISTED.findall(text) if not _CODE.search(line)]:
        raise VerifyError(
            f"a line of cuobjdump is not understood: {unknown[0]!r}",
            where=path,
            hint="another version of the CUDA toolkit? Adapt the parser (ftbuild/gates/verify/elf.py)",
        )
    dynamic = _DYNAMIC.findall(text)
    return Library(
        path=path,
        sass={sm: count for (kind, sm), count in code.items() if kind == "ELF"},
        ptx={sm: count for (kind, sm), count in code.items() if kind == "PTX"},
        needed=tuple(value for tag, value in dynamic if tag == "NEEDED"),
        search=tuple(entry for tag, value in dynamic if tag != "NEEDED" for entry in value.split(":")),
    )


def _of_driver(line: str) -> bool:
    return any(name in line for name in DRIVER_LIBRARIES) or bool(_DRIVER_SYMBOL.search(line))
