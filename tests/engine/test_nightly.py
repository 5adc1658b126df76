"""Nightly runs on the real engine with a real registry: failing and fixed ones, untested cells.

Those that a signal stops are in test_nightly_stopped.py and test_nightly_kill.py: a file is the unit of work
of a run of the tests, and these take as long as all of this one.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
import yaml

from testing import nightly
from testing.nightly import Ended, Place, linked_with, new_to_every_cache, patch, published, tags_of
from testing.registries import Registry
from testing.sample import wrong_token
from tests.engine.conftest import new_cache
from tests.unit.nightly.test_notify import Hook, serving

if TYPE_CHECKING:
    import docker

IMAGE = "triton_with_ft_sample_night"
JOBS = 2

GOOD = {"22.12-sm86": ("passed", "")}
BAD = {
    "22.03-sm80": ("error", "fetch"),
    "22.07-sm70": ("failed", "verify"),
    "22.07-sm80": ("failed", "smoke"),
    "22.07-sm86": ("failed", "build"),
}
QUIET = {"22.03-sm90": ("skipped", "excluded"), "22.12-sm80": ("skipped", "already-published")}
MESSAGES = {
    "22.03-sm80": "Moved.git",
    "22.07-sm70": "/no/such/folder",
    "22.07-sm80": "answers equal the references (runtime)",
    "22.07-sm86": "error: #error this test wants no sm_86",
    "22.03-sm90": "its FasterTransformer does not know sm_90",
}
# The step of each cell in JUnit, and its element.
CASES = {
    "22.03-sm80": ("build", "error"),
    "22.07-sm70": ("build", "failure"),
    "22.07-sm80": ("smoke", "failure"),
    "22.07-sm86": ("build", "failure"),
    "22.03-sm90": ("build", "skipped"),
    "22.12-sm80": ("publish", "skipped"),
    "22.12-sm86": ("publish", None),
}

NOT_FOR_SM_86 = """\
--- a/src/fastertransformer/kernels/custom_ar_kernels.cu
+++ b/src/fastertransformer/kernels/custom_ar_kernels.cu
@@ -1,1 +1,4 @@
+#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 860
+#error this test wants no sm_86
+#endif
 #include "src/fastertransformer/kernels/custom_ar_kernels.h"
"""
# Verify finds a search path of the libraries that does not exist in the image.
BAD_SEARCH_PATH_FOR_SM_70 = linked_with(
    'if(SM STREQUAL "70")',
    "  target_link_options(transformer-shared PRIVATE -Wl,-rpath,/no/such/folder)",
    "endif()",
)
# As the kernel's OOM killer does it, unless there is one job only.
HUNGRY = (
    "add_custom_command(TARGET transformer-shared PRE_LINK",
    '  COMMAND sh -c "test $JOBS -le 1 || kill -9 $$" VERBATIM)',
)


@pytest.fixture(scope="module", autouse=True)
def tidy_images(client: docker.DockerClient, sample_repositories: None) -> Iterator[None]:
    with nightly.tidy(client, IMAGE):
        yield


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_cache(tmp_path_factory.mktemp("cache"))


def place(registry: Registry, cache: Path, folder: Path, *cells: str) -> Place:
    return nightly.place(registry, cache, folder, IMAGE, *cells)


@dataclass(frozen=True)
class Story:
    """A first run of one cell, a bad one of seven, and the same resumed once its causes are fixed."""

    place: Place
    first: Ended
    bad: Ended
    bad_logs: dict[Path, int]
    fixed: Ended
    hook: Hook


@pytest.fixture(scope="module")
def story(base_registry: Registry, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("story")
    here = place(base_registry, cache, folder, *BAD, *QUIET, *GOOD)
    patch(here.config, "==5.3", "9000-hungry.patch", linked_with(*HUNGRY, f"# {time.time()}"))
    patch(here.config, "==5.2", "9010-new.patch", new_to_every_cache(only_backend=True))
    with serving(Hook()) as hook:
        first = here.only("22.12-sm80").run("--jobs", "1", "--notify", hook.url)
        shutil.copytree(here.config, folder / "good" / "buildcfg")
        shutil.copytree(here.config.parent / "patches", folder / "good" / "patches")
        spoil(here.config)
        # Three at a time: beside 22.12-sm86, which is first, there are two that compile everything.
        bad = here.run("--jobs", str(JOBS), "--parallel", "3", "--notify", hook.url)
        logs = {log: log.stat().st_mtime_ns for log in bad.folder.rglob("*.log")}
        for name in ("buildcfg", "patches"):
            shutil.rmtree(folder / name)
            shutil.copytree(folder / "good" / name, folder / name)
        fixed = here.run("--jobs", str(JOBS), "--resume", "--notify", hook.url)
    return Story(here, first, bad, logs, fixed, hook)


def spoil(config: Path) -> None:
    """Make one cell fail to compile, one fail verify, one the smoke test, and one miss its sources."""
    patch(config, "==5.2", "9020-not-for-sm-86.patch", NOT_FOR_SM_86)
    patch(config, "==5.2", "9030-search-path.patch", BAD_SEARCH_PATH_FOR_SM_70)
    patch(config, "==5.2", "9040-wrong-token.patch", wrong_token())
    move_away(config, "22.03", "core")


def move_away(config: Path, release: str, name: str) -> None:
    """Pin one release to a commit that no cache has, in a repository that does not exist."""
    file, lock = config / "sources.yaml", config / "sources.lock.yaml"
    sources, locked = yaml.safe_load(file.read_text()), yaml.safe_load(lock.read_text())
    sources["repositories"]["moved"] = {**sources["repositories"][name], "url": "/nowhere/Moved.git"}
    sources["releases"][release]["moved"] = sources["releases"][release].pop(name)
    locked["sources"][release]["moved"] = {**locked["sources"][release].pop(name), "commit": "0123456789" * 4}
    file.write_text(yaml.safe_dump(sources, sort_keys=False))
    lock.write_text(yaml.safe_dump(locked, sort_keys=False))


def test_a_bad_run_reports_the_outcome_of_every_cell_and_its_reason(story: Story) -> None:
    assert story.first.code == 0, story.first.output[-5000:]
    assert story.bad.outcomes == {**GOOD, **BAD, **QUIET}, story.bad.output[-5000:]
    for cell, message in MESSAGES.items():
        assert message in story.bad.cell(cell).detail


def test_a_run_ends_with_the_worst_code(story: Story) -> None:
    codes = [story.bad.cell(cell).exit_code for cell in BAD]
    assert codes == [5, 8, 9, 7]
    assert story.bad.code == story.bad.run.exit_code == 9


def test_junit_has_every_cell_with_its_outcome(story: Story) -> None:
    root = ElementTree.fromstring(story.bad.reports["junit.xml"])
    cases = {case.get("name"): case for case in root.iter("testcase")}
    for cell, (step, element) in CASES.items():
        results = [found.tag for found in cases[f"{cell}: {step}"] if found.tag != "system-out"]
        assert results == ([element] if element else []), cell
    assert (root.get("failures"), root.get("errors")) == ("3", "1")


def test_markdown_and_page_agree(story: Story) -> None:
    markdown, page = story.bad.reports["report.md"], story.bad.reports["report.html"]
    assert "4 of 6 cells went wrong" in markdown
    for cell, (state, reason) in BAD.items():
        assert re.search(rf"^\| {cell} \| \S+ {state} \({reason}\) \|", markdown, re.M)
        assert re.search(rf"{cell}.*?{state}", page, re.S)
        assert MESSAGES[cell] in page
    for cell, word in {"22.03-sm90": "excluded", "22.12-sm80": "already published"}.items():
        assert re.search(rf"^\| {cell} \| \S+ {word} \|", markdown, re.M)
        assert word in page


def test_only_what_passed_both_gates_is_published(story: Story) -> None:
    assert published(story.first) == tags_of(story.first, "22.12-sm80")
    assert published(story.bad) == tags_of(story.bad, "22.12-sm80", "22.12-sm86")
    everything = [cell for cell in story.place.cells if cell != "22.03-sm90"]
    assert published(story.fixed) == tags_of(story.fixed, *everything)


def test_a_build_that_ran_out_of_memory_is_retried_with_fewer_jobs(story: Story) -> None:
    record = story.bad.cell("22.12-sm86")
    builds = [(step.jobs, step.code) for step in record.steps if step.name == "build"]
    assert builds == [(2, 7), (1, 0)]
    (note,) = record.notes
    assert note == "ran out of memory with 2 compile jobs, retried with 1"
    assert note in story.bad.reports["report.html"]


def test_a_resumed_run_does_only_what_is_left(story: Story) -> None:
    assert story.fixed.code == 0, story.fixed.output[-5000:]
    assert story.fixed.folder == story.bad.folder
    assert story.fixed.outcomes == {**GOOD, **QUIET, **dict.fromkeys(BAD, ("passed", ""))}
    for cell in (*GOOD, *QUIET):
        assert story.fixed.cell(cell) == story.bad.cell(cell)
    settled = [log for log in story.bad_logs if log.parent.name in GOOD]
    assert settled
    assert [log.stat().st_mtime_ns for log in settled] == [story.bad_logs[log] for log in settled]


def test_the_webhook_gets_success_after_a_good_run_only(story: Story) -> None:
    assert [body["status"] for body in story.hook.bodies] == ["success", "failure", "success"]
    sent = {failed["cell"]: (failed["state"], failed["reason"]) for failed in story.hook.bodies[1]["failed"]}
    assert sent == BAD
    assert story.hook.url not in story.bad.output + "".join(story.bad.reports.values())


def test_two_cells_are_built_at_the_same_time_within_one_budget(story: Story) -> None:
    cells = ("22.07-sm70", "22.07-sm80")
    builds = [step for cell in cells for step in story.bad.cell(cell).steps if step.name == "build"]
    assert max(build.start for build in builds) < min(build.start + build.seconds for build in builds)
    compiled = [run for cell in cells for run in compilers(story, cell)]
    assert {slot for *_, slot in compiled} == set(range(JOBS))
    assert max(running(compiled)) == JOBS


Compiler = tuple[int, int, int]


def compilers(story: Story, cell: str) -> list[Compiler]:
    """Return start and end in milliseconds since 1970, and slot, of each compiler of a cell's build."""
    info = story.place.work / cell / story.bad.cell(cell).key / "info"
    rows = [line.split("\t") for log in info.glob("*/slots.tsv") for line in log.read_text().splitlines()]
    assert len(rows) > 5, "it was to compile all that the backend is made of"
    return [(int(start), int(end), int(slot)) for start, end, slot, *_ in rows]


def running(compiled: Sequence[Compiler]) -> Iterator[int]:
    """Yield the number of compilers that run between each change and the next."""
    moments = sorted({moment for start, end, _ in compiled for moment in (start, end)})
    for begin, end in pairwise(moments):
        yield sum(start < end and begin < stop for start, stop, _ in compiled)


def test_resuming_without_a_run_is_a_usage_error(
    base_registry: Registry, cache: Path, tmp_path: Path
) -> None:
    process = place(base_registry, cache, tmp_path, "22.12-sm80").start("--resume")
    output = process.communicate(timeout=100)[0]
    assert process.returncode == 2
    assert "there is no nightly run to resume" in output
    assert "Traceback" not in output


def test_fail_fast_starts_no_further_cell(base_registry: Registry, cache: Path, tmp_path: Path) -> None:
    here = place(base_registry, cache, tmp_path, "22.03-sm80", "22.07-sm80", "22.12-sm80")
    patch(here.config, "==5.3", "9000-conflict.patch", NOT_FOR_SM_86.replace("#include", "no such line"))
    ended = here.run("--fail-fast", "--parallel", "1")
    assert ended.code == 6
    assert ended.outcomes == {
        "22.03-sm80": ("skipped", "not-run"),
        "22.07-sm80": ("skipped", "not-run"),
        "22.12-sm80": ("failed", "patch"),  # the newest release comes first
    }
    assert [len(record.steps) for record in ended.run.cells] == [0, 0, 1]
    assert not ended.tags


def test_an_untested_cell_never_passes(base_registry: Registry, cache: Path, tmp_path: Path) -> None:
    here = place(base_registry, cache, tmp_path, "22.12-sm80")
    held_back = here.run("--no-smoke")
    assert held_back.code == 0
    assert held_back.outcomes == {"22.12-sm80": ("skipped", "no-gpu")}
    assert not held_back.tags
    let_out = here.run("--no-smoke", "--allow-unsmoked", audit=True)
    assert let_out.code == 0, let_out.output[-5000:]
    assert let_out.outcomes == {"22.12-sm80": ("skipped", "no-gpu")}
    assert "published as untested" in let_out.cell("22.12-sm80").detail
    # Beside the cells, this one was audited: local sources have no mirrors, which is worth a warning.
    (mirrors,) = (found for found in let_out.run.audit if found.check.endswith("ft: mirrors"))
    assert mirrors.check in let_out.reports["report.md"]
    assert {tag for tag in let_out.tags if not tag.startswith("staging-")} == {
        f"22.12-sm80-{let_out.cell('22.12-sm80').key}{product}-unsmoked" for product in ("", "-sdk")
    }
