"""Nightly runs of the sample stack: start them, end them by signals, and read back what they leave."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild.gates.smoke.gate import COMPARED
from ftbuild.nightly import history
from ftbuild.nightly.record import CellRecord, NightlyRun
from ftbuild.nightly.report.write import RENDERERS
from ftbuild.plan import LABELS
from ftbuild.registry.client import Repository
from testing import ROOT, built_images
from testing.registries import Registry, named
from testing.sample import add_patch, command, copy_of_sample, environment, only_gpt, use_small_base
from testing.waiting import until

if TYPE_CHECKING:
    import docker
    from docker.models.containers import Container

NEW_SOURCE = "9000-new-source.patch"
# Of the smoke test what a record must show: that answers were compared. The rest takes six times as long,
# and is shown once, in tests/engine/test_smoke.py.
SHORT_SMOKE = {"PYTEST_ADDOPTS": f"-k test_{COMPARED.replace(' ', '_')}"}
# Time for the processes of a killed run to end; BuildKit's client alone may take ten seconds.
GONE_SECONDS = 40.0
DECODING = "src/fastertransformer/kernels/decoding_kernels.cu"


@dataclass(frozen=True)
class Ended:
    """A run that has ended: exit code, output, record, reports by file name, tags in the registry."""

    code: int
    output: str
    folder: Path
    run: NightlyRun
    reports: Mapping[str, str]
    tags: frozenset[str]

    def cell(self, name: str) -> CellRecord:
        """Return the record of a cell."""
        return next(record for record in self.run.cells if record.cell == name)

    @property
    def outcomes(self) -> dict[str, tuple[str, str]]:
        """Return state and reason by cell."""
        return {record.cell: (record.state.value, record.reason.value) for record in self.run.cells}


@dataclass(frozen=True)
class Place:
    """The place of nightly runs: a configuration, a work folder, a registry, their cells and their images.

    The name of the images is one of each file of tests, since nightly runs move tags.
    """

    config: Path
    work: Path
    registry: str
    variables: Mapping[str, str]
    cells: tuple[str, ...]
    image: str

    def only(self, *cells: str) -> Place:
        """Return the same place for other cells."""
        return replace(self, cells=cells)

    def start(self, *more: str, audit: bool = False) -> subprocess.Popen[str]:
        """Start a run, also from a checkout with changes."""
        chosen = [word for cell in self.cells for word in ("--cell", cell)]
        options = ["--config", str(self.config), "--registry", self.registry, *chosen, *more]
        options += ["--allow-dirty"] if audit else ["--allow-dirty", "--no-audit"]
        return subprocess.Popen(
            command("nightly", *options),
            cwd=ROOT,
            env=environment(self.work, **self.variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *more: str, audit: bool = False) -> Ended:
        """Start a run and wait for its end."""
        return self.end(self.start(*more, audit=audit))

    def end(self, process: subprocess.Popen[str], before: str = "") -> Ended:
        """Wait for the end of a run, and read what it leaves; `before` is its output so far."""
        try:
            output = before + process.communicate(timeout=900)[0]
        finally:
            if process.poll() is None:  # the test is interrupted, or its time is over
                process.terminate()
                process.wait(GONE_SECONDS)
        assert "Traceback" not in output, output[-5000:]
        found = history.last(self.work)
        assert found is not None, output[-5000:]
        folder, run = found
        reports = {name: (folder / name).read_text() for name in RENDERERS}
        return Ended(process.returncode, output, folder, run, reports, self.tags())

    def tags(self) -> frozenset[str]:
        """Return the tags in the registry."""
        return frozenset(named(Repository(self.repository).tags()))

    @property
    def repository(self) -> str:
        """Return the repository to which the cells are published."""
        return f"{self.registry}/{self.image}"

    def signalled(self, sign: signal.Signals, shows: str, *more: str) -> Ended:
        """Start a run, and send a signal as soon as a line of its output contains `shows`."""
        process = self.start(*more)
        before = output_until(process, shows)
        process.send_signal(sign)
        return self.end(process, before)

    def logs(self, text: str) -> bool:
        """Return whether the log of a cell's command contains `text`."""
        return any(text in log.read_text() for log in self.work.glob(f"{history.FOLDER}/*/cells/*/*.log"))

    def children(self) -> list[str]:
        """Return the command lines of all live processes that runs of this place have started."""
        mark = f"FTBUILD_WORK={self.work}\0".encode()
        return [line for pid in Path("/proc").glob("[0-9]*") if (line := _command_line(pid, mark))]

    def quiet(self) -> bool:
        """Return whether all its processes end within `GONE_SECONDS`."""
        return until(lambda: not self.children(), GONE_SECONDS)


def output_until(process: subprocess.Popen[str], shows: str) -> str:
    """Return the output up to the first line that contains `shows`."""
    assert process.stdout is not None
    output = ""
    for line in process.stdout:
        output += line
        if shows in line:
            return output
    raise AssertionError(f"{shows!r} never showed: {output[-5000:]}")


def place(registry: Registry, cache: Path, folder: Path, image: str, *cells: str) -> Place:
    """Return a new place below `folder` for runs over `cells`, which publish below the folder's name.

    Runs with the same cache exclude each other, so each file of tests has one (FTBUILD_CACHE).
    """
    variables = {
        **registry.environment,
        "NO_PROXY": "127.0.0.1",
        # The user's git may serve commits that a test wants to be gone.
        "GIT_CONFIG_GLOBAL": os.devnull,
        "FTBUILD_CACHE": str(cache),
        **SHORT_SMOKE,
    }
    prefix = f"{registry.host}/{folder.name.lower()}"
    return Place(copied(folder, image), folder / "work", prefix, variables, cells, image)


@contextmanager
def tidy(client: docker.DockerClient, image: str) -> Iterator[None]:
    """Remove the images of nightly runs and their containers at the end."""
    try:
        yield
    finally:
        for container in left_containers(client, image):
            container.remove(force=True)
        built_images.remove(client, image)


def left_containers(client: docker.DockerClient, image: str) -> list[Container]:
    """Return the containers that nightly runs have made of images with this name."""
    ours = client.containers.list(all=True, filters={"label": f"{LABELS}.role"}, ignore_removed=True)
    return [
        one for one in ours if one.labels.get("org.opencontainers.image.title", "").split(" ")[0] == image
    ]


def published(ended: Ended) -> set[str]:
    """Return the tags that a user may pull."""
    return {tag for tag in ended.tags if not tag.startswith("staging-")}


def tags_of(ended: Ended, *cells: str) -> set[str]:
    """Return the immutable and the moving tags of both images of cells."""
    names = (name for cell in cells for name in (cell, f"{cell}-{ended.cell(cell).key}"))
    return {f"{name}{suffix}" for name in names for suffix in ("", "-sdk")}


def is_good(ended: Ended) -> bool:
    """Return whether every cell is published, by this run or before it was resumed."""
    return set(ended.outcomes.values()) <= {("passed", ""), ("skipped", "already-published")}


def copied(parent: Path, image: str) -> Path:
    """Copy the sample configuration below `parent`, with its patches, one model family and a small base."""
    folder = copy_of_sample(parent, image)
    use_small_base(folder)
    only_gpt(folder)
    return folder


def patch(config: Path, versions: str, name: str, diff: str) -> None:
    """Add a patch to FasterTransformer for some of its versions, for instance `==5.2`."""
    add_patch(config, "ft", name, diff)
    ranges = config / "patches.yaml"
    every = f'"{name}": {{versions: ">=1"}}'
    ranges.write_text(ranges.read_text().replace(every, f'"{name}": {{versions: "{versions}"}}'))


def repatch(config: Path, name: str, diff: str) -> None:
    """Replace the diff of a patch that was added before."""
    file = config.parent / "patches" / "ft" / name
    header, _, _ = file.read_text().partition("\n\n")
    file.write_text(f"{header}\n\n{diff}")


def new_source() -> str:
    """Return a diff that makes one source new to every cache, so that it is compiled."""
    first = '#include "src/fastertransformer/kernels/decoding_kernels.h"'
    line = f'static const char* touched_by_a_test = "{time.time()}";'
    return f"--- a/{DECODING}\n+++ b/{DECODING}\n@@ -1,1 +1,2 @@\n+{line}\n {first}\n"


def new_to_every_cache(*, only_backend: bool = False) -> str:
    """Return a diff that makes a build compile every source of FasterTransformer, or those of the backend."""
    before = "set(CMAKE_POSITION_INDEPENDENT_CODE ON)"
    after = "set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)"
    # ccache hashes the preprocessor's output, which an unused macro does not change.
    seed = f'string(APPEND CMAKE_CXX_FLAGS " -frandom-seed={time.time_ns()}-${{SM}}")'
    lines = ("if(NOT BUILD_PYT)", f"  {seed}", "endif()") if only_backend else (seed,)
    return _in_cmake(before, after, *lines)


def linked_with(*lines: str) -> str:
    """Return a diff that adds lines of CMake below the library `transformer-shared`."""
    before = "set_target_properties(transformer-shared PROPERTIES LINKER_LANGUAGE CXX)"
    return _in_cmake(before, "target_link_libraries(transformer-shared PUBLIC cudart)", *lines)


def _in_cmake(before: str, after: str, *lines: str) -> str:
    """Return a diff that inserts lines between two neighbours in FasterTransformer's CMakeLists.txt."""
    hunk = [f" {before}", *(f"+{line}" for line in lines), f" {after}"]
    head = ["--- a/CMakeLists.txt", "+++ b/CMakeLists.txt", f"@@ -99,2 +99,{len(hunk)} @@"]
    return "\n".join([*head, *hunk, ""])


def _command_line(process: Path, mark: bytes) -> str:
    """Return the command line of a process that has `mark` in its environment; empty for any other."""
    try:
        if mark in (process / "environ").read_bytes():
            return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:  # it has ended, or is not ours
        pass
    return ""
