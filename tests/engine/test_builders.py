"""A night over this machine's engine and another one, reached by TLS as on another host, which dies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftbuild.registry.client import Repository
from testing import nightly
from testing.engines import Engine, engine
from testing.nightly import GONE_SECONDS, Ended, Place
from testing.registries import Registry
from testing.waiting import until

from .conftest import new_cache

if TYPE_CHECKING:
    import docker

# `default` is buildx's name for the engine that all other tests use.
HERE, FAR = "default", "ftbuild-far"
# Another file's nights are on this engine at the same time, and one takes away the images of its name.
IMAGE = "triton_with_ft_sample_builders"
CELLS = ("22.12-sm80", "22.12-sm86")
STAGE = "waiting"
BOTH = ("--builder", f"{HERE}=1", "--builder", f"{FAR}=1", "--parallel", "1", "--stage", STAGE)
COMPILING = "Building CUDA object"
COMPILES_SECONDS = 600.0


@dataclass(frozen=True)
class Night:
    """A night that lost a builder: its place, how it ended, and the dry run and refusal before it."""

    place: Place
    ended: Ended
    cell: str
    planned: str
    after: str


@pytest.fixture(scope="module")
def registry(
    client: docker.DockerClient,
    base_registry: Registry,
    sample_repositories: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Registry]:
    """The registry, with a configuration of Docker that knows the other engine."""
    ours = replace(base_registry, config=tmp_path_factory.mktemp("builders"))
    ours.logout()
    with nightly.tidy(client, IMAGE):
        yield ours


@pytest.fixture(scope="module")
def far(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engine(tmp_path_factory.mktemp("far"), "ftb-far", "192.0.2.129/25", tls=True) as running:
        running.add_context(FAR, registry.config)
        yield running


@pytest.fixture(scope="module")
def place(registry: Registry, far: Engine, tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("builders-night")
    return nightly.place(registry, new_cache(folder), folder, IMAGE, *CELLS)


@pytest.fixture(scope="module")
def night(place: Place, far: Engine) -> Night:
    """Kill the other engine while it compiles."""
    planned = output(place, *BOTH, "--dry-run")
    process = place.start(*BOTH)
    until(lambda: process.poll() is not None or bool(compiling_on(place, FAR)), COMPILES_SECONDS)
    if not (compiling := compiling_on(place, FAR)):
        process.terminate()
        pytest.fail(f"{FAR} compiled nothing: {process.communicate(timeout=GONE_SECONDS)[0]}")
    (cell,) = compiling
    far.die()
    ended = place.end(process)
    return Night(place, ended, cell, planned, output(place, *BOTH))


def output(place: Place, *options: str) -> str:
    """Return the exit code and the output of a run that ends before it begins."""
    process = place.start(*options)
    said = process.communicate(timeout=100)[0]
    return f"{process.returncode}\n{said}"


def compiling_on(place: Place, builder: str) -> set[str]:
    """Return the cells that a builder compiles at this moment."""
    lines = [line for line in place.children() if " build " in line and f"--builder {builder} " in line]
    named = [re.search(r"--plan \S*/([^/ ]+)/[^/ ]+/closed-plan\.json", line) for line in lines]
    cells = {found[1] for found in named if found}
    return {cell for cell in cells if any(COMPILING in log.read_text() for log in logs(place, cell))}


def logs(place: Place, cell: str) -> Iterator[Path]:
    return place.work.glob(f"nights/*/cells/{cell}/build*.log")


def test_the_dry_run_names_the_builders_and_their_jobs(night: Night) -> None:
    code, said = night.planned.split("\n", 1)
    assert code == "0", said
    for name in (HERE, FAR):
        assert re.search(rf"{name} +docker +\d+ cores, \d+ GiB +1 +1", said), said
    for cell in CELLS:
        assert re.search(rf"{cell} +build", said)


def test_every_cell_is_published_once_though_a_builder_died(night: Night) -> None:
    ended = night.ended
    assert ended.code == 0, ended.output[-5000:]
    assert ended.outcomes == dict.fromkeys(CELLS, ("passed", ""))
    for cell in CELLS:
        assert [step.name for step in ended.cell(cell).steps].count("publish") == 1
    names = [name for cell in CELLS for name in (cell, f"{cell}-{ended.cell(cell).key}")]
    assert ended.tags == {f"{name}{suffix}" for name in names for suffix in ("", "-sdk")}
    published = Repository(night.place.repository)
    for cell in CELLS:
        for suffix in ("", "-sdk"):
            pair = published.heads([f"{cell}{suffix}", f"{cell}-{ended.cell(cell).key}{suffix}"])
            assert len({known.digest for known in pair.values() if known}) == 1


def test_the_cell_of_the_dead_builder_is_built_by_the_other_one(night: Night) -> None:
    record = night.ended.cell(night.cell)
    builds = [(step.builder, step.code) for step in record.steps if step.name == "build"]
    assert builds == [(FAR, 4), (HERE, 0)]
    assert record.builder == HERE
    assert [Path(step.log).name for step in record.steps[:2]] == ["build.log", "build-2.log"]


def test_the_report_says_which_builder_was_lost_and_why(night: Night) -> None:
    here, far = night.ended.run.builders
    assert (here.name, here.lost, here.lost_at) == (HERE, "", None)
    assert far.name == FAR
    assert far.lost
    assert 0 < (far.lost_at or 0) < night.ended.run.seconds
    for report in ("report.md", "report.html"):
        assert far.lost.splitlines()[0][:40] in night.ended.reports[report].replace("&#34;", '"')
        assert "Nothing failed, but 1 builder lost" in night.ended.reports[report]


def test_a_builder_that_does_not_answer_at_the_start_is_an_error(night: Night) -> None:
    code, said = night.after.split("\n", 1)
    assert code == "4", said
    assert f"builder {FAR} does not answer" in said
    assert "Traceback" not in said
