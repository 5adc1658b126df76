"""What the patched backend lets through of a request, by its own headers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ftbuild.config.schema import Config
from ftbuild.sources import fetch, patched
from testing import needs

from .conftest import Need

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.parametrize(
    ("release", "computed"), [("22.03", [1, 2, 3, 4, 8, 16, 64]), ("22.07", [*range(1, 65)])]
)
def test_a_number_of_beams_that_has_no_kernel_is_refused(
    config: Config, cache: Path, need: Need, tmp_path: Path, release: str, computed: list[int]
) -> None:
    """FasterTransformer 5.0 calls exit() at the others, and the server hangs."""
    need("backend", "core")
    compiler = needs.program("g++")
    for name in ("backend", "core"):
        fetch.export(config, release, name, cache, tmp_path / name)
    patched.apply(config, release, {"backend": tmp_path / "backend"}, cache, print)
    includes = (PROGRAMS / "include", tmp_path / "backend/src", tmp_path / "core/include")
    program = tmp_path / "beam_widths"
    flags = ["-std=c++14", "-Wall", "-Wextra", "-Werror", *(f"-I{folder}" for folder in includes)]
    subprocess.run([compiler, *flags, str(PROGRAMS / "beam_widths.cc"), "-o", str(program)], check=True)
    ran = subprocess.run([program, "70"], capture_output=True, text=True, check=True)
    assert [int(line) for line in ran.stdout.split()] == computed
    refused = [line for line in ran.stderr.splitlines() if "is 5," in line]
    assert refused == (
        ["beam_width[0] is 5, which is not 1, 2, 3, 4, 8, 16 or 64"] if release == "22.03" else []
    )
