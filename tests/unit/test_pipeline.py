"""The loop over cells, without an engine: failures of a cell, and interrupts."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from filelock import FileLock

from ftbuild import pipeline
from ftbuild.build import bake, base, run
from ftbuild.build.machine import Host
from ftbuild.build.run import BuildOptions, CellBuild
from ftbuild.cli.selection import Selection, plans
from ftbuild.config.schema import Config
from ftbuild.engine import buildx, daemon, orphans
from ftbuild.errors import BuildError, HostError, PinError, PublishError
from ftbuild.gates.verify import gate, sources
from ftbuild.gates.verify.gate import NOTHING_BEFORE, Beforehand, Checked
from ftbuild.gates.verify.sources import Expected
from ftbuild.host import locks
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import bases, names, substituted, substitution
from ftbuild.publishing.substituted import Substituted

DIGEST = "sha256:" + "1" * 64
EXPECTED = Expected({}, {}, {})


@pytest.fixture
def cells(config: Config, monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    monkeypatch.setattr(daemon, "connect", lambda: None)
    monkeypatch.setattr(buildx, "version", lambda: None)
    monkeypatch.setattr(daemon, "image", lambda client, name: None)
    monkeypatch.setattr(orphans, "remove", lambda client, report: None)
    monkeypatch.setattr(pipeline, "host_settings", lambda client, options, **more: Host(jobs=1))
    return plans(config, Selection(config.folder, ["22.12"], ["70", "80"]))


def build(cells: list[Plan], tmp_path: Any) -> list[pipeline.Outcome]:
    return pipeline.build_cells(cells, BuildOptions(tmp_path, tmp_path), report=lambda line: None)


def test_a_full_disk_fails_its_cell_and_not_the_next(
    config: Config, cells: list[Plan], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    def ensure(cell: CellBuild, session: None) -> str:
        if cell.plan is cells[0]:
            raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path))
        return "built"

    monkeypatch.setattr(pipeline, "_ensure_images", ensure)
    first, second = build(cells, tmp_path)
    assert (first.exit_code, second.state) == (4, "built")
    assert "the disk is full" in str(first.error)


def test_no_cell_begins_after_an_interrupt_whose_clean_up_failed(
    config: Config, cells: list[Plan], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    begun: list[Plan] = []

    def ensure(cell: CellBuild, session: None) -> str:
        begun.append(cell.plan)
        try:
            raise KeyboardInterrupt
        finally:
            raise FileNotFoundError(2, "No such file or directory", "/gone")

    monkeypatch.setattr(pipeline, "_ensure_images", ensure)
    with pytest.raises(KeyboardInterrupt):
        build(cells, tmp_path)
    assert begun == cells[:1]


def test_a_builder_that_is_no_engine_needs_a_registry_for_a_base_that_is_built_here(
    config: Config, cells: list[Plan], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    container = Host(jobs=1, builder="far", driver="docker-container")
    monkeypatch.setattr(pipeline, "host_settings", lambda client, options, **more: container)
    monkeypatch.setattr(base, "ensure", lambda *args, **more: None)
    monkeypatch.setattr(daemon, "image", lambda client, name: None)
    monkeypatch.setattr(run, "require_room", lambda *arguments: None)  # whatever is free on this machine
    local = plans(config, Selection(config.folder, ["22.12"], ["80"], base=["open"]))
    (outcome,) = build(local, tmp_path)
    assert outcome.exit_code == 2
    assert "builder far cannot get the base open" in str(outcome.error)


@pytest.mark.parametrize(("rebuild", "builds"), [(False, 0), (True, 1)])
def test_a_build_waits_for_another_one_of_its_cell_and_takes_what_that_has_made(
    config: Config,
    cells: list[Plan],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    rebuild: bool,
    builds: int,
) -> None:
    there: list[str] = []
    said: list[str] = []
    image = SimpleNamespace(attrs={"Size": 1_540_000_000})
    folder = cells[0].folder(tmp_path)
    folder.mkdir(parents=True)
    other = FileLock(folder / locks.NAME, thread_local=False)
    other.acquire()

    def report(line: str) -> None:
        said.append(line)
        if "waiting" in line:
            there.extend(map(cells[0].tag, PRODUCTS))
            other.release()

    monkeypatch.setattr(daemon, "image", lambda client, name: image if name in there else None)
    monkeypatch.setattr(base, "ensure", lambda *arguments, **more: None)
    monkeypatch.setattr(pipeline, "_accept", lambda cell: None)
    monkeypatch.setattr(run, "require_room", lambda *arguments: None)  # whatever is free on this machine
    ran: list[str] = []
    for name in ("stage", "wheels"):
        monkeypatch.setattr(f"ftbuild.build.context.{name}", lambda *arguments, **more: None)
    monkeypatch.setattr(bake, "run", lambda *arguments, **more: ran.append("run"))
    options = BuildOptions(tmp_path, tmp_path, rebuild=rebuild)
    (outcome,) = pipeline.build_cells(cells[:1], options, report=report)
    assert (outcome.error, len(ran)) == (None, builds)
    assert outcome.images == dict.fromkeys(PRODUCTS, 1_540_000_000)
    (waited,) = [line for line in said if "another command is working on this cell" in line]
    assert "waiting up to 600 s for it" in waited


def test_the_end_of_a_build_names_images_log_and_script_and_failures_last(
    config: Config, cells: list[Plan], tmp_path: Path
) -> None:
    failed, built = cells
    for name in (bake.LOG, bake.SCRIPT):
        (tmp_path / name).touch()
    outcomes = [
        pipeline.Outcome(failed, "failed", 61, BuildError("it broke\nthere"), folder=tmp_path / "none"),
        pipeline.Outcome(built, "built", 372, None, {"runtime": 1_540_000_000}, tmp_path),
    ]
    lines = [line.split() for line in pipeline.summary(outcomes).splitlines()]
    assert lines == [
        [built.cell.id, "built", "6", "min", "12", "s"],
        ["runtime", "1.54", "GB", built.tag("runtime")],
        ["log", str(tmp_path / bake.LOG)],
        ["again", f"{tmp_path / bake.SCRIPT},", "with", "Docker", "alone"],
        [failed.cell.id, "failed", "1", "min", "01", "s"],
        ["error", "it", "broke"],
    ]


@pytest.mark.parametrize("make", [pipeline.build_cells, pipeline.make_bases])
def test_a_registry_that_cannot_be_reached_is_found_before_any_work(
    make: Callable[..., object], cells: list[Plan], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun: list[object] = []
    monkeypatch.setattr(base, "ensure", lambda *arguments, **more: begun.append(arguments))
    monkeypatch.setattr(pipeline, "_ensure_images", lambda *arguments: begun.append(arguments))
    dead = names.resolve("127.0.0.1:1/team", None, cells[0].image)
    with pytest.raises(HostError, match=r"127\.0\.0\.1:1 cannot be reached"):
        make(cells, BuildOptions(tmp_path, tmp_path), dead)
    assert not begun


# Published images in place of a build


@dataclass
class Published:
    """Both images of a cell in a registry: what was done with them, in this order, and what fails."""

    cell: Plan
    work: Path
    done: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    before: Beforehand = NOTHING_BEFORE
    unfetched: bool = False
    comparable: bool = True
    refused: str = ""
    verified: Event = field(default_factory=Event)

    def take(self, session: object, plan: Plan, found: Mapping[str, Any], report: object) -> Any:
        (product,) = found
        if product == "sdk" and self.comparable and not self.refused:
            assert self.verified.wait(20), "the runtime image waits for the SDK image"
        if product == self.refused:
            raise PublishError(f"cannot pull {product}")
        self.done.append(f"pulled {product}")
        return {product: Substituted("x@y", DIGEST, f"sha256:{product}", "the key k")}

    def check(self, subject: object, product: str, image: str) -> Checked:
        self.done.append(f"checked {product} {image}")
        self.verified.set()
        return Checked(product, image, {})

    def accept(self, cell: CellBuild, before: Beforehand) -> None:
        self.done.append("accepted")
        self.before = before

    def prepare(self, subject: object) -> Expected:
        if self.unfetched:
            raise PinError("ft cannot be had")
        return EXPECTED

    def build(self) -> pipeline.Outcome:
        names = SimpleNamespace(name="registry.example.com/x")
        substitutes: Any = SimpleNamespace(
            session=lambda: SimpleNamespace(repository=names), trusted=(), work=self.work
        )
        options = BuildOptions(self.work, self.work)
        (outcome,) = pipeline.build_cells([self.cell], options, None, substitutes, report=self.said.append)
        return outcome


@pytest.fixture
def published(cells: list[Plan], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Published:
    made = Published(cells[0], tmp_path)
    found = {"runtime": SimpleNamespace(bytes=1), "sdk": SimpleNamespace(bytes=2)}
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    monkeypatch.setattr(orphans, "remove_own", lambda client: None)
    monkeypatch.setattr(CellBuild, "make_base", lambda cell: made.done.append("made base"))
    for module, name, does in (
        (substitution, "find", lambda *arguments: found),
        (substitution, "take", made.take),
        (substitution, "drop", lambda *arguments: made.done.append("dropped")),
        (bases, "take", lambda *arguments, **more: made.done.append("took base")),
        (base, "is_comparable", lambda *arguments: made.comparable),
        (gate, "check_product", made.check),
        (sources, "prepare", made.prepare),
        (pipeline, "_accept", made.accept),
        (pipeline, "_ensure_named", lambda *arguments: "built"),
    ):
        monkeypatch.setattr(module, name, does)
    return made


def test_an_image_is_verified_while_the_larger_one_is_pulled(published: Published) -> None:
    assert published.build().state == "substituted"
    others = ["pulled runtime", "took base", "checked runtime sha256:runtime"]
    assert published.done == [*others, "pulled sdk", "accepted"]
    assert published.before == Beforehand([Checked("runtime", "sha256:runtime", {})], EXPECTED)
    assert f"[{published.cell.cell.id}] verifying the runtime image meanwhile" in published.said
    assert set(substituted.read(published.cell.folder(published.work))) == set(PRODUCTS)


def test_one_processor_pulls_the_larger_image_first(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the other would wait for what is pulled after it, to write that to disk."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    published.verified.set()
    assert published.build().state == "substituted"
    others = ["pulled runtime", "took base", "checked runtime sha256:runtime"]
    assert published.done == ["pulled sdk", *others, "accepted"]


def test_without_a_base_to_compare_with_both_images_are_verified_once_it_is_made(
    published: Published,
) -> None:
    published.comparable = False
    assert published.build().state == "substituted"
    assert published.done[-2:] == ["made base", "accepted"]
    assert published.before == Beforehand([], EXPECTED)


def test_sources_that_cannot_be_had_meanwhile_are_for_verify_to_tell(published: Published) -> None:
    published.unfetched = True
    assert published.build().state == "substituted"
    assert published.before.expected is None


@pytest.mark.parametrize("product", PRODUCTS)
def test_if_one_image_cannot_be_pulled_neither_is_taken(published: Published, product: str) -> None:
    published.refused = product
    assert published.build().state == "built"
    assert "dropped" in published.done
    assert "accepted" not in published.done
    assert substituted.read(published.cell.folder(published.work)) == {}
    assert f"so this cell is built: cannot pull {product}" in published.said[-1]


def test_what_was_pulled_is_on_record_when_the_other_image_is_not_here_yet(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is killed then finds at the next build where it was from."""
    seen: list[set[str]] = []

    def check(*arguments: Any) -> Checked:
        seen.append(set(substituted.read(published.cell.folder(published.work))))
        return published.check(*arguments)

    monkeypatch.setattr(gate, "check_product", check)
    published.build()
    assert seen == [{"runtime"}]
