"""Requests that join a running batch: the patched backend's own header, a batch that is a function.

Twice: answers that go on prompts, and answers to prompts that an encoder reads.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ftbuild.config.schema import Config
from testing import in_flight, patch_programs

from .conftest import Need

PROGRAMS = Path(__file__).parent / "programs"
SEED, REQUESTS, SLOTS = 1, 500, 6


# The backend is compiled with 22.12's headers in all releases; later servers tell who has left.
SERVERS = pytest.mark.parametrize("defines", [(), ("SERVER_CANCELS",)], ids=["22.12", "from 23.10 on"])


@pytest.fixture
def includes(config: Config, cache: Path, need: Need, tmp_path: Path) -> tuple[Path, ...]:
    """Return the folders of the backend's headers, patched, and of what they include."""
    need("backend", "core")
    return in_flight.headers(config, cache, tmp_path)


@SERVERS
def test_requests_that_join_a_batch_get_what_they_get_alone(
    includes: tuple[Path, ...], tmp_path: Path, defines: tuple[str, ...]
) -> None:
    source = PROGRAMS / "in_flight_requests.cc"
    program = patch_programs.compiled(source, tmp_path / "in_flight_requests", *includes, defines=defines)
    done = patch_programs.run(program, SEED, REQUESTS)
    right, failed, left, parts, largest = map(int, done.stdout.split())
    assert right + failed + left == 8 * REQUESTS
    assert failed, "a batch that fails is tried, too"
    assert (left > 0) == bool(defines)
    assert parts > 2 * (right + failed + left), "streams have parts"
    assert largest == SLOTS, "all slots are taken at some time"


@SERVERS
def test_requests_wait_by_the_policy_of_the_queue(
    includes: tuple[Path, ...], tmp_path: Path, defines: tuple[str, ...]
) -> None:
    """Its limit, time-outs, order, who leaves, what the server may hand over, and metrics."""
    source = PROGRAMS / "in_flight_queue.cc"
    program = patch_programs.compiled(source, tmp_path / "in_flight_queue", *includes, defines=defines)
    assert patch_programs.run(program).stdout == f"{int(bool(defines))}\n"
