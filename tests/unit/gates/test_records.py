"""What a gate's record is worth: only a complete one of these images by these checks counts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ftbuild.config.schema import Config
from ftbuild.errors import FtbuildError, SmokeError, VerifyError
from ftbuild.gates import evidence, records, report
from ftbuild.gates.report import SMOKE, VERIFY, Gate, GateReport
from ftbuild.gates.smoke import gate as smoke
from ftbuild.gates.verify import gate as verify
from ftbuild.matrix import select
from ftbuild.plan import Plan, Revision
from ftbuild.planning import make_plan
from ftbuild.text.results import CheckResult, State
from testing import gate_records

IDS = {"runtime": "sha256:1", "sdk": "sha256:2"}
WANTED = {product: (image,) for product, image in IDS.items()}
GATES = (VERIFY, SMOKE)
Change = Callable[[Any], None]


@pytest.fixture
def plan(config: Config) -> Plan:
    (cell,) = select(config, triton=["22.12"], sms=["80"])
    return make_plan(config, cell, Revision("a" * 40, "2026-01-01T00:00:00+00:00"))


def complete(gate: Gate, plan: Plan) -> GateReport:
    return GateReport(gate, plan, IDS, gate_records.results(gate, plan))


def objection(gate: Gate, plan: Plan, folder: Path) -> str | None:
    return evidence.objection(gate, plan, folder, WANTED)


def rewrite(gate: Gate, folder: Path, change: Change) -> None:
    file = folder / gate.record
    record = json.loads(file.read_text())
    change(record)
    file.write_text(json.dumps(record))


@pytest.mark.parametrize("gate", GATES)
def test_a_complete_record_of_these_images_counts(gate: Gate, plan: Plan, tmp_path: Path) -> None:
    complete(gate, plan).write(tmp_path)
    assert objection(gate, plan, tmp_path) is None


def test_the_checks_are_those_of_the_documentation(plan: Plan) -> None:
    assert [str(demand) for demand in evidence.DEMANDS[VERIFY](plan)] == [
        "machine code (runtime)",
        "machine code (sdk)",
        "libraries resolve (runtime)",
        "all libraries (runtime)",
        "multi GPU (runtime)",
        "NCCL (runtime)",
        "search paths (runtime)",
        "search paths (sdk)",
        "server starts (runtime)",
        "labels (runtime)",
        "labels (sdk)",
        "patches (sdk)",
        "python library (sdk)",
        "tokenization (runtime)",
        "left-overs (runtime)",
        "left-overs (sdk)",
        "owners (runtime)",
        "owners (sdk)",
        "rights (runtime)",
        "rights (sdk)",
        "user (runtime)",
        "user (sdk)",
        "environment (runtime)",
        "environment (sdk)",
        "layers (runtime)",
        "layers (sdk)",
        "size (runtime)",
        "size (sdk)",
    ]
    assert [demand.served for demand in evidence.DEMANDS[SMOKE](plan)] == [
        f"{family}-{dtype}" for family in plan.families for dtype in ("fp32", "fp16")
    ]
    compares = f"def test_{smoke.COMPARED.replace(' ', '_')}("
    assert compares in (smoke.SUITE / "test_answers.py").read_text()


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("state", [None, State.SKIP, State.WARN])
def test_each_demanded_result_must_be_there_and_passed(
    gate: Gate, plan: Plan, tmp_path: Path, state: State | None
) -> None:
    whole = complete(gate, plan)
    for number, demand in enumerate(evidence.DEMANDS[gate](plan)):
        results = list(whole.results)
        changed = results.pop(number)
        if state:
            results.insert(number, replace(changed, state=state))
        replace(whole, results=tuple(results)).write(tmp_path)
        assert objection(gate, plan, tmp_path) == f"{gate.name} has not shown: {demand}"


def test_of_many_lacking_results_the_first_are_named(plan: Plan, tmp_path: Path) -> None:
    figures = CheckResult("figures", State.OK, "passed", subject="runtime")
    replace(complete(SMOKE, plan), results=(figures,)).write(tmp_path)
    lacking = objection(SMOKE, plan, tmp_path) or ""
    assert lacking.count(smoke.COMPARED) == 4
    assert lacking.endswith(f"(opt-fp16) and {2 * len(plan.families) - 4} more")
    whole = complete(SMOKE, plan)
    replace(whole, results=whole.results[4:]).write(tmp_path)
    assert (objection(SMOKE, plan, tmp_path) or "").endswith("(opt-fp16)")


def fails_one(record: Any) -> None:
    record["findings"].append({**record["findings"][0], "check": "one more", "state": "fail"})


def says_it_failed(record: Any) -> None:
    record["passed"] = False


def is_of_the_other_gate(record: Any) -> None:
    record["gate"] = "unittest"


def is_of_another_cell(record: Any) -> None:
    record["cell"] = "22.12-sm86"


def is_of_other_inputs(record: Any) -> None:
    record["key"] = "0" * 12


def is_of_other_checks(record: Any) -> None:
    record["checks"] = "0" * 12


def is_of_another_image(record: Any) -> None:
    record["images"]["sdk"]["id"] = "sha256:3"


def names_no_sdk_image(record: Any) -> None:
    del record["images"]["sdk"]


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (fails_one, "{} failed: one more"),
        (says_it_failed, "{} failed: no check is named"),
        (is_of_the_other_gate, "the record of {} is about unittest of 22.12-sm80"),
        (is_of_another_cell, "the record of {} is about {} of 22.12-sm86"),
        (is_of_other_inputs, "the record of {} is about the inputs 000000000000, not "),
        (is_of_other_checks, "the record of {} comes from other checks than those of this checkout"),
        (is_of_another_image, "{} tested another sdk image than the present one"),
        (names_no_sdk_image, "{} tested another sdk image than the present one"),
    ],
)
def test_a_record_about_anything_else_does_not_count(
    gate: Gate, plan: Plan, tmp_path: Path, change: Change, why: str
) -> None:
    complete(gate, plan).write(tmp_path)
    rewrite(gate, tmp_path, change)
    assert (objection(gate, plan, tmp_path) or "").startswith(why.format(gate.name, gate.name))


def test_any_id_of_an_image_will_do(plan: Plan, tmp_path: Path) -> None:
    complete(VERIFY, plan).write(tmp_path)
    ids = {product: ("sha256:0", image) for product, image in IDS.items()}
    assert evidence.objection(VERIFY, plan, tmp_path, ids) is None
    assert evidence.objection(VERIFY, plan, tmp_path) is None


def test_no_record_is_no_evidence(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path, tmp_path / "nowhere", tmp_path / "file"):
        assert objection(SMOKE, plan, folder) == "there is no record of smoke"


DAMAGED = [
    b"",
    b"\xff\xfe",
    b"[]",
    b"{}",
    b"[" * 100_000,
    b'{"images": []}',
    b'{"ftbuild": "0.1.0", "key": "0", "images": {"runtime": "sha256:1"}, "passed": true, "findings": []}',
]


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
@pytest.mark.parametrize(("gate", "error"), [(VERIFY, VerifyError), (SMOKE, SmokeError)])
def test_a_damaged_record_is_named(
    gate: Gate, error: type[FtbuildError], tmp_path: Path, content: bytes
) -> None:
    (tmp_path / gate.record).write_bytes(content)
    with pytest.raises(error, match=f"the record of {gate.name} is damaged: ") as refused:
        records.read(gate, tmp_path)
    assert refused.value.where == str(tmp_path / gate.record)
    assert refused.value.hint == f"invoke {gate.name} with the options of this cell"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("passed", "yes"),
        ("passed", 1),
        ("findings", {}),
        ("findings", [{"check": "labels"}]),
        ("images", {"runtime": {"id": 1, "tag": "x"}}),
        ("key", "0\n1"),
        ("gate", "x" * 301),
        ("checks", None),
        ("figures", {"gpt-fp32": {"tokens_per_second": "many"}}),
        ("unknown", 1),
    ],
)
def test_a_wrong_value_in_a_record_is_named(plan: Plan, tmp_path: Path, field: str, value: object) -> None:
    complete(VERIFY, plan).write(tmp_path)
    rewrite(VERIFY, tmp_path, lambda record: record.update({field: value}))
    with pytest.raises(VerifyError, match=f"is damaged: {field}"):
        records.read(VERIFY, tmp_path)


def test_a_record_of_many_megabytes_is_not_read(plan: Plan, tmp_path: Path) -> None:
    complete(VERIFY, plan).write(tmp_path)
    with (tmp_path / VERIFY.record).open("ab") as file:
        file.write(b" " * (records.MAX_BYTES - file.tell()))
        file.flush()
        assert records.read(VERIFY, tmp_path)
        file.write(b" ")
    with pytest.raises(VerifyError, match="is larger than"):
        records.read(VERIFY, tmp_path)


def test_a_record_that_is_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / VERIFY.record).mkdir()
    with pytest.raises(VerifyError, match=r"cannot be read: Is a directory"):
        records.read(VERIFY, tmp_path)


def test_what_the_smoke_test_measured_is_read_back(plan: Plan, tmp_path: Path) -> None:
    facts = {
        "device": "gpu",
        "gpus": [{"name": "H200"}],
        "junit": "smoke.xml",
        "figures": {"gpt-fp32": {"x": 2}},
    }
    replace(complete(SMOKE, plan), facts=facts).write(tmp_path)
    found = records.read(SMOKE, tmp_path)
    assert found
    assert (found.device, found.gpus, found.figures) == ("gpu", ({"name": "H200"},), {"gpt-fp32": {"x": 2}})
    assert found.ids == IDS


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the checks, of which the gates think that it is the package."""
    for folder in {folder for gate in GATES for folder in gate.folders}:
        shutil.copytree(report.PACKAGE / folder, tmp_path / folder)
    monkeypatch.setattr(report, "PACKAGE", tmp_path)
    return tmp_path


def version(gate: Gate) -> str:
    return replace(gate).checks


@pytest.mark.parametrize(
    ("gate", "file"),
    [
        (VERIFY, "gates/verify/gate.py"),
        (VERIFY, "gates/verify/checks/files.py"),
        (SMOKE, "gates/smoke/suite/test_answers.py"),
        (SMOKE, "gates/smoke/suite/pytest.ini"),
        (SMOKE, "gates/smoke/reference.py"),
        (SMOKE, "client/golden.py"),
    ],
)
def test_a_changed_check_has_another_version(gate: Gate, file: str, sources: Path) -> None:
    before = version(gate)
    assert before == gate.checks
    (sources / file).write_text((sources / file).read_text() + "# changed\n")
    assert version(gate) != before


def test_a_renamed_check_has_another_version_and_what_python_caches_has_none(sources: Path) -> None:
    before = version(VERIFY)
    cached = sources / "gates/verify/__pycache__"
    cached.mkdir(exist_ok=True)
    (cached / "gate.cpython-311.pyc").write_bytes(b"new")
    assert version(VERIFY) == before
    (sources / "gates/verify/elf.py").rename(sources / "gates/verify/elves.py")
    assert version(VERIFY) != before


def test_a_release_that_serves_no_family_cannot_pass_the_smoke_test(plan: Plan, tmp_path: Path) -> None:
    barren = replace(plan, families=())
    with pytest.raises(
        SmokeError, match=r"22\.12-sm80 serves no family: there is nothing to test"
    ) as refused:
        smoke.demands(barren)
    assert refused.value.where == "models.yaml"
    assert "FasterTransformer 5.3" in (refused.value.hint or "")
    GateReport(SMOKE, barren, IDS, (CheckResult("figures", State.OK, "", "", "runtime"),)).write(tmp_path)
    with pytest.raises(SmokeError):
        objection(SMOKE, barren, tmp_path)


def test_every_product_that_a_check_is_for_is_demanded() -> None:
    assert {d.check for d in verify.demands()} == {name for name, _, _ in verify.CHECKS}
    assert len(verify.demands()) == sum(len(products) for _, products, _ in verify.CHECKS)
