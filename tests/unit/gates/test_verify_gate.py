"""The gate without a GPU around its checks: what breaks has failed, what has passed is not made again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError, ImageNotFound
from requests import ConnectionError as Unreachable

from ftbuild import pipeline
from ftbuild.build.run import BuildOptions
from ftbuild.config.schema import Config
from ftbuild.engine.container import ContainerError
from ftbuild.errors import Interrupted, VerifyError
from ftbuild.gates.report import VERIFY, GateReport
from ftbuild.gates.subject import Subject
from ftbuild.gates.verify import gate
from ftbuild.gates.verify.checks import libraries
from ftbuild.gates.verify.gate import verify
from ftbuild.gates.verify.verdict import SHOWN, Verdict, judge
from ftbuild.matrix import select
from ftbuild.plan import PRODUCTS, Plan, Revision
from ftbuild.planning import make_plan
from ftbuild.text.results import State
from testing import gate_records

IDS = {"runtime": "sha256:1", "sdk": "sha256:2"}


@dataclass
class Engine:
    """The images of an engine, by name or id, and the names that it was asked to give."""

    names: dict[str, str]
    tagged: dict[str, str] = field(default_factory=dict)

    @property
    def images(self) -> Engine:
        return self

    def get(self, name: str) -> Any:
        image = self.names.get(name) or (name if name in self.names.values() else None)
        if image is None:
            raise ImageNotFound(name)
        return SimpleNamespace(id=image, tag=lambda repository, tag: self.tag(image, f"{repository}:{tag}"))

    def tag(self, image: str, name: str) -> None:
        self.tagged[name] = image


@dataclass
class Cell:
    """A cell whose images an engine has, and every report of a verification."""

    plan: Plan
    engine: Engine
    subject: Subject
    said: list[str]

    def record(self) -> Any:
        return json.loads((self.subject.folder / VERIFY.record).read_text())


@pytest.fixture
def cell(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cell:
    (chosen,) = select(config, triton=["22.12"], sms=["80"])
    plan = make_plan(config, chosen, Revision("a" * 40, "2026-01-01T00:00:00+00:00"))
    engine, said = Engine({plan.tag(product): image for product, image in IDS.items()}), list[str]()
    client: Any = engine

    def verify(
        subject: Subject, *, staged: Path | None, before: gate.Beforehand = gate.NOTHING_BEFORE
    ) -> GateReport:
        ids = {product: engine.names[plan.tag(product)] for product in IDS}
        return GateReport(VERIFY, plan, ids, gate_records.results(VERIFY, plan))

    monkeypatch.setattr(gate, "verify", verify)
    return Cell(plan, engine, Subject(client, plan, tmp_path, tmp_path, said.append), said)


def test_images_that_these_checks_have_passed_are_not_verified_again(cell: Cell) -> None:
    assert gate.require(cell.subject) == IDS
    assert cell.said == ["verifying both images"]
    assert gate.require(cell.subject) == IDS
    assert len(cell.said) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"checks": "0" * 12},
        {"key": "0" * 12},
        {"passed": False},
        {"findings": []},
        {"images": {product: {"id": "sha256:3", "tag": ""} for product in IDS}},
        {"images": []},
    ],
)
def test_a_record_that_proves_less_is_no_reason_to_trust_the_images(
    cell: Cell, change: Mapping[str, object]
) -> None:
    gate.require(cell.subject)
    before = cell.record()
    file = cell.subject.folder / VERIFY.record
    file.write_text(json.dumps(before | change))
    gate.require(cell.subject)
    assert cell.said.count("verifying both images") == 2
    assert cell.record() == before


def test_failed_images_are_not_accepted_and_are_tested_again(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = gate_records.results(VERIFY, cell.plan, State.FAIL)
    monkeypatch.setattr(gate, "verify", lambda *_, **__: GateReport(VERIFY, cell.plan, IDS, failed))
    for _ in range(2):
        with pytest.raises(VerifyError, match=f"1 of {len(failed)} checks failed"):
            gate.require(cell.subject)
    assert cell.said == ["verifying both images"] * 2


def test_an_earlier_record_does_not_survive_a_run_that_breaks(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.run(cell.subject)

    def breaks(*_: object, **__: object) -> GateReport:
        raise VerifyError("no base")

    monkeypatch.setattr(gate, "verify", breaks)
    with pytest.raises(VerifyError):
        gate.run(cell.subject)
    assert not (cell.subject.folder / VERIFY.record).exists()


def test_the_moving_tags_follow_the_images_that_were_verified(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when another image takes the name in between."""
    verified = gate.require

    def require(subject: Subject, before: gate.Beforehand) -> Mapping[str, str]:
        ids = verified(subject)
        cell.engine.names |= {cell.plan.tag(product): "sha256:9" for product in IDS}
        cell.engine.names |= {f"{image}@": image for image in IDS.values()}
        return ids

    monkeypatch.setattr(gate, "require", require)
    client: Any = cell.engine
    options = BuildOptions(cache=cell.subject.cache, work=cell.subject.folder)
    built: Any = SimpleNamespace(
        plan=cell.plan,
        client=client,
        folder=cell.subject.folder,
        options=options,
        report=cell.said.append,
    )
    pipeline._accept(built)
    assert cell.engine.tagged == {cell.plan.tag(p, moving=True): image for p, image in IDS.items()}


def yields_nothing(images: Any, product: str) -> Iterator[Verdict]:
    yield from ()


def only_skips(images: Any, product: str) -> Iterator[Verdict]:
    yield Verdict(State.SKIP, "nothing to compare")


def has_no_shell(images: Any, product: str) -> Iterator[Verdict]:
    yield Verdict(State.OK, "so far")
    raise ContainerError("a script ended with code 127", hint="repeat it")


def is_refused(images: Any, product: str) -> Iterator[Verdict]:
    raise APIError("no such container")
    yield


def loses_the_engine(images: Any, product: str) -> Iterator[Verdict]:
    raise Unreachable("connection refused")
    yield


@pytest.mark.parametrize(
    ("check", "detail", "hint"),
    [
        (yields_nothing, "the check has proved nothing", "the recipe is wrong"),
        (only_skips, "the check has proved nothing", "the recipe is wrong"),
        (has_no_shell, "a script ended with code 127", "repeat it"),
        (is_refused, "the engine refused: no such container", "the recipe is wrong"),
        (loses_the_engine, "the engine refused: connection refused", "the recipe is wrong"),
    ],
)
def test_a_check_that_breaks_has_failed(check: gate.Check, detail: str, hint: str) -> None:
    images: Any = None
    last = gate._outcome(check, images, "runtime")[-1]
    assert (last.state, last.detail) == (State.FAIL, detail)
    assert hint in last.hint


def test_a_check_that_ctrl_c_ends_is_no_failure() -> None:
    def check(images: Any, product: str) -> Iterator[Verdict]:
        raise Interrupted("a container is no longer started")
        yield

    images: Any = None
    with pytest.raises(Interrupted):
        gate._outcome(check, images, "runtime")


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (ContainerError("a script ended with code 127"), "a script ended with code 127"),
        (VerifyError("a line is not understood"), "a line is not understood"),
        (APIError("no such container"), "the engine refused: no such container"),
        (Unreachable("connection refused"), "the engine refused: connection refused"),
    ],
)
def test_images_that_cannot_be_read_fail_check_by_check(
    cell: Cell, monkeypatch: pytest.MonkeyPatch, error: Exception, detail: str
) -> None:
    """Although what several checks run is run before the first of them."""

    def contents(image: str) -> None:
        raise error

    images = SimpleNamespace(client=None, ids=IDS, contents=contents, run_together=None)
    checks = (
        ("libraries resolve", gate.RUNTIME, libraries.resolve),
        ("NCCL", gate.RUNTIME, libraries.collectives),
    )
    monkeypatch.setattr(gate, "Images", lambda *_: images)
    monkeypatch.setattr(gate, "CHECKS", checks)
    assert [(r.check, r.state, r.detail) for r in verify(cell.subject).results] == [
        (check, State.FAIL, detail) for check in ("libraries resolve", "NCCL")
    ]


def test_checks_that_stand_apart_run_beside_the_others(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    both = Barrier(2)

    def check(images: Any, product: str) -> Iterator[Verdict]:
        both.wait(20)
        yield Verdict(State.OK, product)

    def apart(images: Any, product: str) -> Iterator[Verdict]:
        yield from check(images, product)

    def contents(image: str) -> None:
        raise ContainerError("this image is for no other check")

    checks = (("first", gate.SDK, apart), ("second", gate.RUNTIME, check))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    monkeypatch.setattr(
        gate, "Images", lambda *_: SimpleNamespace(client=None, ids=IDS, contents=contents, run_together=None)
    )
    monkeypatch.setattr(gate, "CHECKS", checks)
    monkeypatch.setattr(gate, "APART", (apart,))
    assert [(r.check, r.subject, r.state) for r in verify(cell.subject).results] == [
        ("first", "sdk", State.OK),
        ("second", "runtime", State.OK),
    ]


def test_a_product_that_was_checked_before_is_not_checked_again_unless_it_is_another_image(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where one image is verified while the other is still being pulled."""
    ran: list[tuple[str, str]] = []

    def check(images: Any, product: str) -> Iterator[Verdict]:
        ran.append((product, images.ids[product]))
        yield Verdict(State.OK, f"of {images.ids[product]}")

    def contents(image: str) -> None:
        raise ContainerError("no check reads it")

    monkeypatch.setattr(gate, "CHECKS", (("first", PRODUCTS, check), ("second", gate.SDK, check)))
    monkeypatch.setattr(
        gate,
        "Images",
        lambda subject, ids, *more: SimpleNamespace(
            client=None, ids=ids, contents=contents, run_together=None
        ),
    )
    checked = [gate.check_product(cell.subject, "runtime", IDS["runtime"])]
    assert ran == [("runtime", "sha256:1")]
    whole = [
        ("first", "runtime", "of sha256:1"),
        ("first", "sdk", "of sha256:2"),
        ("second", "sdk", "of sha256:2"),
    ]
    report = verify(cell.subject, before=gate.Beforehand(checked))
    assert [(r.check, r.subject, r.detail) for r in report.results] == whole
    assert (ran.count(("runtime", "sha256:1")), report.images) == (1, IDS)
    cell.engine.names[cell.plan.tag("runtime")] = "sha256:3"
    report = verify(cell.subject, before=gate.Beforehand(checked))
    assert report.results[0].detail == "of sha256:3"
    checked = [gate.check_product(cell.subject, product, image) for product, image in report.images.items()]
    ran.clear()
    assert (verify(cell.subject, before=gate.Beforehand(checked)).results, ran) == (report.results, [])


def test_a_skip_beside_a_result_is_kept() -> None:
    def check(images: Any, product: str) -> Iterator[Verdict]:
        yield Verdict(State.OK, "3 patches")
        yield from only_skips(images, product)

    images: Any = None
    assert [v.state for v in gate._outcome(check, images, "sdk")] == [State.OK, State.SKIP]


def test_an_image_that_is_not_built_is_an_error_of_verify(cell: Cell) -> None:
    cell.engine.names.pop(cell.plan.tag("sdk"))
    with pytest.raises(VerifyError, match=f"there is no image {cell.plan.tag('sdk')}"):
        gate.require(cell.subject)


def test_of_many_problems_the_first_are_shown_and_the_rest_is_counted() -> None:
    assert judge([], "all", "mend it", {"n": 1}) == Verdict(State.OK, "all", "", {"n": 1})
    problems = [f"problem {n}" for n in range(SHOWN + 2)]
    assert judge(problems[:SHOWN], "all", "mend it").detail.splitlines() == problems[:SHOWN]
    found = judge(problems, "all", "mend it", {"n": 1})
    assert (found.state, found.hint, found.facts) == (State.FAIL, "mend it", {"n": 1})
    assert found.detail.splitlines() == [*problems[:SHOWN], "and 2 more"]
