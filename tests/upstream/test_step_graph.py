"""Steps replayed as CUDA graphs: the class that a patch adds, with a CUDA that notes its calls.

The class is whole in the patch, so this needs none of upstream's sources.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from testing import patch_programs

PROGRAM = Path(__file__).parent / "programs/step_graph"
LEFT = "left 0"
# Fewer steps than these are not worth a graph; the header says so.
FEWEST = 12


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("step_graph")
    patch_programs.unpack_headers(folder)
    return patch_programs.compiled(PROGRAM / "step_graph.cc", folder / "step_graph", PROGRAM, folder)


def run(program: Path, *requests: tuple[int, int, int, str], **environment: str) -> tuple[list[str], str]:
    """Return what became of each step of the requests (first, last, beams, fault), and the warnings."""
    words = [word for request in requests for word in request]
    done = patch_programs.run(program, *words, **environment)
    *steps, left = done.stdout.splitlines()
    assert left == LEFT
    return steps, done.stderr


def launched(first: int, last: int) -> list[str]:
    return [f"{step} launched {step}" for step in range(first, last + 1)]


def replayed(first: int, last: int, sized: int) -> list[str]:
    return [f"{step} replayed {sized}" for step in range(first, last + 1)]


def test_all_steps_but_the_first_of_a_request_are_replayed(program: Path) -> None:
    assert run(program, (129, 255, 1, "none"))[0] == [*launched(129, 129), *replayed(130, 255, 256)]


def test_a_graph_ends_where_the_attention_gets_other_threads(program: Path) -> None:
    """The kernel has 64 threads below 32 tokens in the cache, 128 below 2048; step s has s - 1 tokens."""
    few = [*launched(2, 2), *replayed(3, 32, 32), *launched(33, 33), *replayed(34, 60, 256)]
    assert run(program, (2, 60, 1, "none"))[0] == few
    many = [*launched(2030, 2030), *replayed(2031, 2048, 2048), *launched(2049, 2049)]
    assert run(program, (2030, 2100, 1, "none"))[0] == [*many, *replayed(2050, 2100, 2304)]


def test_beams_have_a_graph_for_each_of_their_two_caches(program: Path) -> None:
    found, _ = run(program, (100, 140, 4, "none"))
    assert found == [*launched(100, 101), *replayed(102, 140, 256)]


def test_few_steps_are_launched(program: Path) -> None:
    assert run(program, (100, 100 + FEWEST, 1, "none"))[0] == launched(100, 100 + FEWEST)
    one_more = 101 + FEWEST
    assert run(program, (100, one_more, 1, "none"))[0] == [*launched(100, 100), *replayed(101, one_more, 256)]


def test_the_next_request_captures_anew(program: Path) -> None:
    found, _ = run(program, (100, 140, 1, "none"), (100, 140, 1, "none"))
    assert found == 2 * [*launched(100, 100), *replayed(101, 140, 256)]


@pytest.mark.parametrize("fault", ["begin", "throw", "end", "instantiate"])
def test_what_cannot_be_captured_is_launched_and_said(program: Path, fault: str) -> None:
    found, said = run(program, (100, 140, 1, fault), (100, 140, 1, "none"))
    assert found == [*launched(100, 140), *launched(100, 100), *replayed(101, 140, 256)]
    assert said.count("kernel by kernel") == 1


@pytest.mark.parametrize(
    "environment", [{"FT_STEP_GRAPHS": "0"}, {"FT_DEBUG_LEVEL": "DEBUG"}], ids=["off", "debugged"]
)
def test_the_environment_turns_graphs_off(program: Path, environment: dict[str, str]) -> None:
    assert run(program, (100, 140, 1, "none"), **environment) == (launched(100, 140), "")


def test_a_request_whose_steps_differ_otherwise_is_launched(program: Path) -> None:
    assert run(program, (100, 140, 1, "unusable"))[0] == launched(100, 140)


def test_it_is_on_unless_turned_off(program: Path) -> None:
    assert run(program, (100, 140, 1, "none"), FT_STEP_GRAPHS="1")[0][1:] == replayed(101, 140, 256)
