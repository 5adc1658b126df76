"""What the patched backend lets through of a request, by its own headers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ftbuild.config.schema import Config
from ftbuild.sources import fetch, patched
from testing import needs

from .conftest import Need

PROGRAMS = Path(__file__).parent / "programs"


Compile = Callable[[str, str], Path]


@pytest.fixture
def compiled(config: Config, cache: Path, need: Need, tmp_path: Path) -> Compile:
    """Compile one of our programs against the patched headers of a release."""

    def run(release: str, name: str) -> Path:
        need("backend", "core")
        compiler = needs.program("g++")
        for source in ("backend", "core"):
            fetch.export(config, release, source, cache, tmp_path / source)
        patched.apply(config, release, {"backend": tmp_path / "backend"}, cache, print)
        includes = (PROGRAMS / "include", tmp_path / "backend/src", tmp_path / "core/include")
        flags = ["-std=c++14", "-Wall", "-Wextra", "-Werror", *(f"-I{folder}" for folder in includes)]
        program = tmp_path / name
        subprocess.run([compiler, *flags, str(PROGRAMS / f"{name}.cc"), "-o", str(program)], check=True)
        return program

    return run


@pytest.mark.parametrize(
    ("release", "computed"), [("22.03", [1, 2, 3, 4, 8, 16, 64]), ("22.07", [*range(1, 65)])]
)
def test_a_number_of_beams_that_has_no_kernel_is_refused(
    compiled: Compile, release: str, computed: list[int]
) -> None:
    """FasterTransformer 5.0 calls exit() at the others, and the server hangs."""
    program = compiled(release, "beam_widths")
    ran = subprocess.run([program, "70"], capture_output=True, text=True, check=True)
    assert [int(line) for line in ran.stdout.split()] == computed
    refused = [line for line in ran.stderr.splitlines() if "is 5," in line]
    assert refused == (
        ["beam_width[0] is 5, which is not 1, 2, 3, 4, 8, 16 or 64"] if release == "22.03" else []
    )


@pytest.mark.parametrize("release", ["22.03", "22.07", "22.12"])
def test_a_request_that_would_keep_too_much_memory_is_refused(compiled: Compile, release: str) -> None:
    """8 rows of 64 beams took 50 GB of a GPU, 8 rows without a length of answers all of it, for good."""
    program = compiled(release, "batch_tokens")

    def answer(*sizes: int, limit: str = "") -> str:
        ran = subprocess.run(
            [program, limit, *map(str, sizes)], capture_output=True, text=True, check=True, timeout=60
        )
        return ran.stdout.strip()

    refusal = (
        "the request has 8 rows of 64 beams with 700 tokens of prompt and 1025 of answer,"
        " and the server computes 262144 tokens at once"
    )
    assert answer(8, 64, 700, 1025) == refusal
    assert answer(8, 1, 700, 1025) == "computed"
    # 262144 in all, and one row more.
    assert answer(32, 4, 1024, 1024) == answer(128, 1, 1024, 1024) == "computed"
    assert answer(33, 4, 1024, 1024) != "computed" != answer(129, 1, 1024, 1024)
    assert answer(2, 4, 60, 40, limit="800") == answer(8, 1, 60, 40, limit="800") == "computed"
    assert answer(2, 4, 60, 41, limit="800").endswith("the server computes 800 tokens at once")
    # FasterTransformer would take whatever lies behind an empty tensor as the length of the answer.
    assert answer(8, 1, 60, 40, 0) == "request_output_len has 0 values for 8 rows"
    assert answer(8, 1, 60, 40, 2) == "request_output_len has 16 values for 8 rows"
