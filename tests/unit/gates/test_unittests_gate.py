"""Upstream's own unit tests around their programs: the gate's record, and how their image comes to be."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound

from ftbuild.build import bake, base, context
from ftbuild.build import run as builds
from ftbuild.build.machine import Host
from ftbuild.build.run import BuildOptions
from ftbuild.config.schema import Config
from ftbuild.engine import buildx, container, gpu
from ftbuild.engine.container import ContainerError
from ftbuild.engine.gpu import Access, Gpu
from ftbuild.errors import BuildError, HostError, SmokeError
from ftbuild.features import LeftOut
from ftbuild.gates.cell_test import Skipped
from ftbuild.gates.report import GateReport
from ftbuild.gates.subject import Subject
from ftbuild.gates.unittests import gate, image, runner
from ftbuild.host import disk
from ftbuild.plan import Plan
from ftbuild.sources import taking
from ftbuild.text.results import State
from ftbuild.text.units import GIB
from tests.unit.gates.test_unittests import planned

A100, H100 = Gpu("A100", 8, 0, 2**30, "12.4"), Gpu("H100", 9, 0, 2**30, "12.4")
SUITES = [
    {"program": "unittest", "suite": "A/0", "passed": 2, "failed": [], "skipped": ["x"], "seconds": 1.25},
    {
        "program": "test_gemm",
        "suite": "test_gemm",
        "passed": 1,
        "failed": [{"test": "n=4", "said": "a\nb"}],
        "skipped": [],
        "seconds": 2.0,
    },
]


@dataclass
class Cell:
    """A cell whose engine has these images; what is said, started and staged."""

    subject: Subject
    made_of: image.Recipe
    images: dict[str, Any]
    said: list[str]
    started: list[Any]

    @property
    def name(self) -> str:
        return self.subject.plan.tag("unittests")


@pytest.fixture
def cell(config: Config, tmp_path: Path) -> Cell:
    images: dict[str, Any] = {}
    said: list[str] = []

    def get(name: str) -> Any:
        if name not in images:
            raise ImageNotFound(name)
        return images[name]

    client: Any = SimpleNamespace(images=SimpleNamespace(get=get))
    plan = planned(config)
    subject = Subject(client, plan, plan.folder(tmp_path), tmp_path / "cache", said.append)
    subject.folder.mkdir(parents=True)
    return Cell(subject, image.recipe(config, plan), images, said, [])


@pytest.fixture
def tested(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run the gate on GPUs, where the container prints the suites or fails."""

    def go(*gpus: Gpu, printed: list[Any] = SUITES, error: ContainerError | None = None) -> Any:
        def run(client: object, name: str, script: str, **options: Any) -> str:
            cell.started.append((name, script, options))
            if error:
                raise error
            return json.dumps(printed)

        monkeypatch.setattr(gpu, "find", lambda client, image: Access("cdi", gpus) if gpus else None)
        monkeypatch.setattr(container, "run", run)
        cell.images[cell.name] = SimpleNamespace(id="sha256:3", labels={})
        return gate.run(cell.subject, "sha256:3", cell.made_of)

    return go


def test_the_record_holds_every_suite_the_gpus_and_the_sums(
    cell: Cell, tested: Callable[..., Any], config: Config
) -> None:
    found = tested(A100, H100)
    assert (found.exit_code, found.notes) == (9, ("3 passed, 1 failed, 1 skipped",))
    assert [(r.check, r.state, r.subject) for r in found.results] == [
        ("unittest: A/0", State.OK, "unittests"),
        ("test_gemm", State.FAIL, "unittests"),
    ]
    assert found.results[0].detail == "2 passed, 0 failed, 1 skipped, 1.2 s"
    assert found.results[1].detail == "1 passed, 1 failed, 0 skipped, 2.0 s\nn=4: b"
    record = json.loads((cell.subject.folder / "unittest.json").read_text())
    assert (record["gate"], record["passed"]) == ("unittest", False)
    assert record["images"]["unittests"]["id"] == "sha256:3"
    assert [device["name"] for device in record["gpus"]] == ["A100", "H100"]
    assert record["tests"] == {"passed": 3, "failed": 1, "skipped": 1}
    assert record["recipe"] == image.recipe(config, cell.subject.plan).key
    assert [finding["check"] for finding in record["findings"]] == ["unittest: A/0", "test_gemm"]
    assert cell.said == [f"testing on {A100}, some minutes"]


def test_the_runner_gets_the_gpus_and_hours_and_may_find_failures(
    cell: Cell, tested: Callable[..., Any]
) -> None:
    tested(A100)
    ((name, script, options),) = cell.started
    assert name == "sha256:3"
    assert script == "/opt/ftbuild/unittests/run --json || [ $? -eq 1 ]"
    assert options == {"devices": gpu.requests("cdi"), "seconds": 4 * 60 * 60}


def test_a_cell_that_leaves_something_out_is_skipped_by_name_before_anything_is_built(cell: Cell) -> None:
    lean = replace(cell.subject.plan.cell, left_out=LeftOut(("beams",)))
    subject = replace(cell.subject, plan=replace(cell.subject.plan, cell=lean))
    tests: Any = gate.UnitTests({}, None)  # type: ignore[arg-type]
    tests.prepare(subject)
    skipped = tests.run(subject)
    assert isinstance(skipped, Skipped)
    assert skipped.reason == "upstream's tests need what it leaves out: without beams"


def test_tests_for_another_gpu_are_skipped(cell: Cell, tested: Callable[..., Any]) -> None:
    skipped = tested(H100)
    assert isinstance(skipped, Skipped)
    assert skipped.reason == f"its machine code is for sm_80, here is {H100}"
    assert cell.started == []


def test_without_a_gpu_or_a_container_nothing_was_tested(cell: Cell, tested: Callable[..., Any]) -> None:
    with pytest.raises(HostError, match="no GPU") as missing:
        tested()
    assert missing.value.where == f"containers of {cell.name}"
    with pytest.raises(SmokeError, match="the unit tests could not be run: no such file") as broken:
        tested(A100, error=ContainerError("no such file"))
    assert broken.value.where == "sha256:3"
    assert not (cell.subject.folder / "unittest.json").exists()


def test_a_long_line_of_a_failure_is_cut() -> None:
    suite = {**SUITES[1], "failed": [{"test": "t" * 300, "said": ""}]}
    assert gate.result(suite).detail.splitlines()[1] == "t" * 160


def test_what_is_found_is_in_the_facts_of_its_result() -> None:
    assert gate.result(SUITES[0]).facts == SUITES[0]


@pytest.fixture
def builder(cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Ensure the image, with an engine that builds it at once."""

    def go(*, rebuild: bool = False, made: bool = True) -> str:
        host = Host(jobs=3)

        def stage(plan: Plan, options: BuildOptions, folder: Path, report: object) -> None:
            cell.started.append(("stage", plan))
            (folder / context.RECIPE).mkdir(parents=True, exist_ok=True)

        def run(job: bake.Job, host: Host, *, report: object) -> None:
            cell.started.append((host, job))
            if made:
                labels = {"io.ftbuild.unittests": cell.made_of.key}
                cell.images[cell.name] = SimpleNamespace(id="sha256:new", labels=labels)

        monkeypatch.setattr(buildx, "version", lambda: cell.started.append("buildx"))
        monkeypatch.setattr(builds, "host_settings", lambda client, options: host)
        monkeypatch.setattr(base, "ensure", lambda *given, **_: cell.started.append(("base", given[1:])))
        monkeypatch.setattr(disk, "require", lambda *given: cell.started.append(("disk", given)))
        monkeypatch.setattr(builds, "stage", stage)
        monkeypatch.setattr(bake, "run", run)
        monkeypatch.setattr(taking, "export", lambda *given, **_: cell.started.append(("export", given)))
        options = BuildOptions(tmp_path / "cache", tmp_path, rebuild=rebuild)
        return image.ensure(cell.subject, cell.made_of, options)

    return go


def test_an_image_is_built_with_googletest_its_initial_cache_and_the_runner(
    cell: Cell, builder: Callable[..., str], tmp_path: Path
) -> None:
    assert builder() == "sha256:new"
    plan, folder = cell.subject.plan, cell.subject.folder
    buildx_version, based, space, staged, exported, (host, job) = cell.started
    assert buildx_version == "buildx"
    assert based == ("base", (plan, Host(jobs=3), tmp_path, tmp_path / "cache"))
    needed = plan.base.cell_gib * GIB
    assert space == ("disk", (tmp_path, needed, f"building the unit tests of {plan.cell.id}"))
    assert staged == ("stage", plan)
    assert (host, job.folder) == (Host(jobs=3), folder)
    assert json.loads(job.file.read_text()) == job.definition
    assert job.prefix == "unittests-"
    made_of = cell.made_of
    assert job.definition == image.definition(plan, made_of, Host(jobs=3))
    assert exported == ("export", (made_of.googletest, tmp_path / "cache", folder / "googletest"))
    recipe = folder / context.RECIPE
    assert (recipe / "unittests.cmake").read_text() == made_of.tree.initial_cache()
    assert (recipe / "unittests.py").read_bytes() == Path(runner.__file__).read_bytes()


def test_an_image_of_the_same_inputs_is_not_built_again_unless_that_is_wanted(
    cell: Cell, builder: Callable[..., str]
) -> None:
    key = cell.made_of.key
    old = SimpleNamespace(id="sha256:old", labels={"io.ftbuild.unittests": key})
    cell.images[cell.name] = old
    assert builder() == "sha256:old"
    assert cell.said == [f"{cell.name} is already built from these inputs"]
    assert cell.started == []
    assert builder(rebuild=True) == "sha256:new"
    cell.images[cell.name] = SimpleNamespace(id="sha256:old", labels={"io.ftbuild.unittests": "other"})
    assert builder() == "sha256:new"


def test_an_image_that_another_command_built_meanwhile_is_not_built_again(cell: Cell, tmp_path: Path) -> None:
    options = BuildOptions(tmp_path / "cache", tmp_path)
    waiting = image.TestImage(cell.subject, cell.made_of, options, Host(jobs=3))
    assert not waiting.is_made()
    cell.images[cell.name] = SimpleNamespace(id="sha256:1", labels={"io.ftbuild.unittests": cell.made_of.key})
    assert waiting.is_made()
    cell.images[cell.name] = SimpleNamespace(id="sha256:1", labels={})
    assert not waiting.is_made()


def test_a_build_that_makes_no_image_is_an_error(cell: Cell, builder: Callable[..., str]) -> None:
    with pytest.raises(BuildError, match=f"there is no image {cell.name}"):
        builder(made=False)


def test_an_earlier_googletest_is_removed_and_a_release_without_one_has_an_empty_folder(
    cell: Cell, builder: Callable[..., str], config: Config
) -> None:
    folder = cell.subject.folder
    (folder / context.RECIPE).mkdir()
    (folder / "googletest").mkdir()
    (folder / "googletest" / "old.cc").touch()
    made_of = image.recipe(config, planned(config, "22.03"))
    image._stage(cell.subject, made_of)
    assert list((folder / "googletest").iterdir()) == []


def test_the_key_of_the_image_covers_options_googletest_and_the_runner(
    config: Config,
) -> None:
    made_of = image.recipe(config, planned(config))
    taken = made_of.googletest
    assert taken
    keys = {
        made_of.key,
        replace(made_of, googletest=None).key,
        replace(made_of, googletest=replace(taken, ref="refs/tags/another")).key,
        replace(made_of, googletest=replace(taken, commit="0" * 40)).key,
        replace(made_of, googletest=replace(taken, tree="0" * 40)).key,
        replace(made_of, tree=replace(made_of.tree, targets=("unittest",))).key,
        replace(made_of, runner=b"# another one\n").key,
    }
    assert len(keys) == 7


def test_an_image_that_was_built_keeps_its_key(config: Config) -> None:
    """As another program computes it from the record; another key would build all of them again."""
    made_of = image.recipe(config, planned(config))
    taken = made_of.googletest
    assert taken
    pinned = {name: getattr(taken, name) for name in ("ref", "commit", "tree")}
    made = [asdict(made_of.tree), pinned, hashlib.sha256(made_of.runner).hexdigest()]
    text = json.dumps(made, sort_keys=True, separators=(",", ":"))
    assert made_of.key == hashlib.sha256(text.encode()).hexdigest()[:12]


def test_the_gate_builds_the_image_of_a_cell_runs_it_and_demands_nothing(
    cell: Cell,
    builder: Callable[..., str],
    tested: Callable[..., Any],
    tmp_path: Path,
) -> None:
    tested(A100)
    builder()
    cell.images.clear()
    cell.started.clear()
    plan = cell.subject.plan
    tests = gate.UnitTests({plan.cell: cell.made_of}, BuildOptions(tmp_path / "cache", tmp_path))
    assert tests.demands(plan) == ()
    tests.prepare(cell.subject)
    assert list(cell.images) == [cell.name]
    cell.started.clear()
    found = tests.run(cell.subject)
    assert [name for name, *_ in cell.started] == ["sha256:new"]  # built already
    assert isinstance(found, GateReport)
    assert found.images == {"unittests": "sha256:new"}
    assert (found.gate, found.exit_code) == (gate.GATE, 9)


def test_the_bake_file_makes_the_image_and_exports_the_figures_of_its_compile(config: Config) -> None:
    plan, host = planned(config), Host(jobs=1)
    made_of = image.recipe(config, plan)
    definition: Any = image.definition(plan, made_of, host)
    info = definition["target"]["22_12-sm80-unittests-info"]
    assert info["output"] == ["type=local,dest=info/unittests"]
    for target in definition["target"].values():
        assert target["contexts"]["googletest"] == "googletest"
        assert target["contexts"]["sources"] == "sources"
        assert target["args"]["UNITTEST_TARGETS"] == " ".join(made_of.tree.targets)
        assert target["args"]["HOST_CC"] == "gcc-11"
    labels = definition["target"]["22_12-sm80-unittests"]["labels"]
    assert (labels["io.ftbuild.product"], labels["io.ftbuild.unittests"]) == ("unittests", made_of.key)
