"""Small C++ programs around what a patch adds to FasterTransformer: warnings are errors, sanitizers watch."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from testing import ROOT, needs

_HEADERS = ROOT / "patches/ft/0450-step-graphs.patch"

_FLAGS = ("-std=c++14", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-pthread")


def added(patch: Path, file: str) -> str:
    """Return the lines that a patch adds to a file of upstream's."""
    _, _, rest = patch.read_text().partition(f"+++ b/{file}\n")
    hunks, *_ = re.split(r"\n(?:--- (?:a/|/dev/null)|diff --git )", rest)
    return "\n".join(line[1:] for line in hunks.splitlines() if line.startswith("+")) + "\n"


def unpack_headers(folder: Path) -> None:
    """Write the headers that patches add as a whole into `folder`, by their paths in upstream's tree.

    One has the graph of a step, one reads the variables that turn patches off.
    """
    subprocess.run(["git", "apply", "--include=*/utils/*.h", str(_HEADERS)], cwd=folder, check=True)


def compiled(source: Path, made: Path, *includes: Path, defines: Sequence[str] = ()) -> Path:
    """Compile a program to the file `made`; skip without a compiler."""
    options = [*(f"-I{folder}" for folder in includes), *(f"-D{name}" for name in defines)]
    subprocess.run([needs.program("g++"), *_FLAGS, *options, str(source), "-o", str(made)], check=True)
    return made


def run(program: Path, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it with no variable of FasterTransformer but those given; it must end well."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FT_")}
    command = [str(program), *map(str, words)]
    done = subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done
