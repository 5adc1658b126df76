"""What the gate with a GPU decides without one: which GPU fits, which token is wrong, what a run found."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packaging.specifiers import SpecifierSet

from ftbuild.cli.selection import Selection, plans
from ftbuild.client import golden, server_container
from ftbuild.client.golden import Row
from ftbuild.config.schema import Config
from ftbuild.engine.gpu import Access, Gpu
from ftbuild.errors import SmokeError
from ftbuild.features import LeftOut
from ftbuild.gates.records import Demand
from ftbuild.gates.smoke import gate, job, junit, memory, models, served, spoiled
from ftbuild.gates.smoke.job import Job, Model, Variant
from ftbuild.gates.subject import Subject
from ftbuild.host import shell
from ftbuild.input_key import digest_of
from ftbuild.models import config_pbtxt
from ftbuild.sm import Sm
from ftbuild.text.results import CheckResult, State
from tests.unit.models.test_converters import DECODER
from tests.unit.models.test_repository import converted

ROW = Row(tokens=(5, 6, 7), log_probs=(-0.1, -0.2, -0.3), runner_up=(1, 2, 3), gap=(1.0, 0.05, 1.0))
# pytest 9's, shortened.
XML = """\
<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite>
<testcase classname="test_figures" name="test_figures[gpt-fp32]" time="0.5">
  <properties>
    <property name="ready_seconds" value="1.5"/><property name="gpu_memory_bytes" value="None"/>
  </properties>
</testcase>
<testcase classname="test_load" name="test_many_clients[gpt-fp32]" time="0.1">
  <properties>
    <property name="served" value="gpt-fp32"/><property name="load_p99_seconds" value="0.07"/>
  </properties>
</testcase>
<testcase classname="test_answers" name="test_a_stop_word_ends_the_answer[gpt-fp32]" time="0.1"/>
<testcase classname="test_answers" name="test_several_gpus_answer_as_one[gpt-fp32-tp2]" time="0">
  <skipped type="pytest.skip" message="needs 2 GPUs, 1 is there">...</skipped>
</testcase>
<testcase classname="test_answers" name="test_answers_equal_the_references[http-gpt-fp32-one]" time="0.1">
  <properties><property name="what" value="token 1 is 4"/><property name="hint" value="look"/></properties>
  <failure message="ftbuild.errors.SmokeError: token 1 is 4 ...">...</failure>
</testcase>
<testcase classname="test_figures" name="test_figures[gpt-fp16]" time="0.1">
  <error message="boom">...</error>
</testcase>
</testsuite></testsuites>
"""


def device(major: int, minor: int) -> Gpu:
    return Gpu("GPU", major, minor, 2**30, "12.4")


@pytest.mark.parametrize(
    ("sms", "capability", "runs"),
    [
        ([80], (8, 0), True),
        ([80], (8, 6), True),
        ([86], (8, 0), False),
        ([80], (9, 0), False),
        ([80, 90], (9, 0), True),
        ([60], (6, 1), True),
        ([75], (7, 0), False),
    ],
)
def test_machine_code_runs_within_its_major_version(
    sms: list[int], capability: tuple[int, int], runs: bool
) -> None:
    assert device(*capability).runs(map(Sm, sms)) is runs


def test_a_cell_that_no_gpu_here_runs_says_why(config: Config) -> None:
    (plan,) = plans(config, Selection(config.folder, ["22.12"], ["80"]))
    hopper = Access("gpus", (device(9, 0), device(9, 0)))
    reason = gate.unfit(plan, hopper)
    assert reason == "its machine code is for sm_80, here is GPU (compute capability 9.0)"
    assert gate.unfit(plan, Access("cdi", (device(9, 0), device(8, 9)))) is None


def test_fp32_must_answer_every_token() -> None:
    assert golden.mismatch(ROW, [5, 6, 7], 0) is None
    assert "token 2 is 2, the reference says 6, 0.05 ahead of 2" in str(golden.mismatch(ROW, [5, 2, 9], 0))


def test_fp16_may_take_a_close_second_and_nothing_else() -> None:
    assert golden.mismatch(ROW, [5, 2, 9], 0.1) is None
    assert "token 2 is 9" in str(golden.mismatch(ROW, [5, 9, 7], 0.1))
    assert "token 1 is 1" in str(golden.mismatch(ROW, [1, 6, 7], 0.1))


def test_bf16_may_take_the_third_where_it_is_close() -> None:
    row = replace(ROW, near=((), ((2, 0.05), (9, 0.6)), ()))
    assert golden.mismatch(row, [5, 9, 1], 0.8) is None
    assert "token 2 is 9" in str(golden.mismatch(row, [5, 9, 7], 0.1))


def test_a_wrong_token_is_told_with_both_answers() -> None:
    assert golden.mismatch(ROW, [5, 2, 9], 0) == (
        "token 2 is 2, the reference says 6, 0.05 ahead of 2; answered [5, 2, 9], reference [5, 6, 7]"
    )
    assert golden.mismatch(Row((5, 6)), [5, 9], 0.1) == (
        "token 2 is 9, the reference says 6; answered [5, 9], reference [5, 6]"
    )


def test_a_server_that_malformed_requests_let_take_the_gpu_fails() -> None:
    gib = 2**30
    memory.check_memory(1 * gib, 12 * gib, "20 requests")
    with pytest.raises(SmokeError, match="77 GiB more of the GPU are in use after 40 requests of seed 7"):
        memory.check_memory(1 * gib, 78 * gib, "40 requests of seed 7")


def test_the_reference_script_gets_every_case() -> None:
    cases = json.loads(golden.questions())["cases"]
    assert list(cases) == ["one", "eight", "long", "beams"]
    assert cases["one"] == {"prompts": [[71, 3, 12, 200, 41]], "length": 16, "beams": 1}
    assert cases["beams"] == {"prompts": [[17, 34, 51, 68, 85, 102, 119]], "length": 16, "beams": 4}


def test_a_variant_is_named_by_family_data_type_gpus_and_streaming() -> None:
    assert str(Variant("gpt")) == "gpt-fp32"
    assert str(Variant("gpt", "fp16", tensor_para=2, decoupled=True)) == "gpt-fp16-tp2-streamed"
    assert str(Variant("gpt", pipeline_para=2)) == "gpt-fp32-pp2"


def test_every_served_family_must_be_compared_in_every_data_type(config: Config) -> None:
    (plan,) = plans(config, Selection(config.folder, ["22.03"], ["80"]))
    assert gate.demands(plan) == tuple(
        Demand(GREEDY, "runtime", served) for served in ("gpt-fp32", "gpt-fp16", "t5-fp32", "t5-fp16")
    )
    with pytest.raises(SmokeError, match=r"22\.03-sm80 serves no family") as refused:
        gate.demands(replace(plan, families=()))
    assert refused.value.where == "models.yaml"
    assert refused.value.hint == "describe the converters of FasterTransformer 5.0 in models.yaml"


@pytest.mark.parametrize(("tokens", "says"), [([5, 6], "token 3 is None"), ([5, 6, 7, 8], "token 4 is 8")])
def test_an_answer_of_another_length_is_wrong(tokens: list[int], says: str) -> None:
    assert says in str(golden.mismatch(ROW, tokens, 0.1))


def test_the_reference_is_read_as_its_script_writes_it(tmp_path: Path) -> None:
    constants = {"vocab_size": 9, "start_id": 7, "end_id": 8, "layers": 2, "max_length": None, "seed": 3}
    file = tmp_path / "answers.json"
    file.write_text(json.dumps({**constants, "cases": {"one": [vars(ROW)], "beams": [{"tokens": [1]}]}}))
    expected = golden.expected(file)
    assert (expected.vocab_size, expected.end_id, expected.layers, expected.max_length) == (9, 8, 2, None)
    assert list(expected.cases["one"][0].log_probs) == [-0.1, -0.2, -0.3]
    assert list(expected.cases["one"][0].tokens) == [5, 6, 7]
    assert list(expected.cases["one"][0].gap) == [1.0, 0.05, 1.0]
    assert expected.cases["beams"][0].runner_up == ()


def test_a_run_is_read_from_its_junit(tmp_path: Path) -> None:
    file = tmp_path / "smoke.xml"
    file.write_text(XML)
    found = junit.results(file, "runtime")
    assert [(f.check, f.state) for f in found] == [
        ("figures", State.OK),
        ("many clients", State.OK),
        ("a stop word ends the answer", State.OK),
        ("several gpus answer as one", State.SKIP),
        ("answers equal the references", State.FAIL),
        ("figures", State.FAIL),
    ]
    assert found[3].detail == "needs 2 GPUs, 1 is there"
    assert (found[4].detail, found[4].hint) == ("token 1 is 4", "look")
    assert found[5].detail == "boom"
    assert junit.figures(file) == {"gpt-fp32": {"ready_seconds": 1.5, "load_p99_seconds": 0.07}}
    assert [f.facts["seconds"] for f in found] == [0.5, 0.1, 0.1, 0, 0.1, 0.1]
    assert found[2].facts["variant"] == "gpt-fp32"
    assert [f.facts["served"] for f in found[1:3]] == ["gpt-fp32", ""]
    assert {f.subject for f in found} == {"runtime"}


def test_a_test_of_no_variant_is_read_without_one(tmp_path: Path) -> None:
    (tmp_path / "smoke.xml").write_text('<x><testcase name="test_ready" time="2.5"/></x>')
    (only,) = junit.results(tmp_path / "smoke.xml", "sdk")
    assert (only.check, only.state, only.detail, only.hint) == ("ready", State.OK, "passed", "")
    assert only.facts == {"variant": "", "served": "", "seconds": 2.5}
    assert only.subject == "sdk"


@pytest.mark.parametrize("outcome", ["failure", "error", "skipped"])
def test_a_test_that_says_nothing_has_no_detail(tmp_path: Path, outcome: str) -> None:
    text = f'<x><testcase name="test_ready" time="0"><{outcome}/></testcase></x>'
    (tmp_path / "smoke.xml").write_text(text)
    (only,) = junit.results(tmp_path / "smoke.xml", "runtime")
    assert only.state is (State.SKIP if outcome == "skipped" else State.FAIL)
    assert (only.detail, only.hint) == ("", "")


GREEDY = "answers equal the references"


def found(served: str, state: State, check: str = GREEDY) -> CheckResult:
    return CheckResult(check, state, "", "", "runtime", {"served": served})


@pytest.mark.parametrize(
    ("results", "lacking"),
    [
        ((found("gpt-fp32", State.OK), found("t5-fp16", State.OK)), None),
        ((found("gpt-fp32", State.FAIL), found("t5-fp16", State.OK)), None),
        ((found("gpt-fp32", State.SKIP), found("t5-fp16", State.OK)), "gpt-fp32"),
        ((found("gpt-fp32", State.OK), found("gpt-fp16", State.OK)), "t5-fp16"),
        ((found("gpt-fp32", State.OK), found("t5-fp16", State.OK, "figures")), "t5-fp16"),
        ((), "gpt-fp32, t5-fp16"),
    ],
)
def test_a_family_that_nothing_was_compared_of_has_failed(
    results: tuple[CheckResult, ...], lacking: str | None
) -> None:
    wanted = [Demand(GREEDY, "runtime", "gpt-fp32"), Demand(GREEDY, "runtime", "t5-fp16")]
    more = gate.complete(results, wanted)[len(results) :]
    assert [r.detail for r in more] == ([f"not compared: {lacking}"] if lacking else [])
    assert all((r.state, r.check, r.subject) == (State.FAIL, GREEDY, "runtime") for r in more)
    assert all(gate.LOG in r.hint for r in more)


def test_a_suite_that_skips_every_test_has_failed(tmp_path: Path) -> None:
    """The suite itself, which needs no engine as long as no test can be made."""
    task = Job("sha256:1", tmp_path, {"gpt": Model(DECODER, streams=True)}, "cdi", [])
    task.write(tmp_path / gate.JOB)
    gate._suite(tmp_path, lambda line: None)
    results = junit.results(tmp_path / gate.JUNIT, "runtime")
    assert {r.state for r in results} == {State.SKIP}
    assert {r.facts["served"] for r in results if r.check == GREEDY} == {"gpt-fp32", "gpt-fp16"}
    several = {r.facts["served"] for r in results if r.check == "several gpus answer as one"}
    assert several == {"gpt-fp32-tp2", "gpt-fp32-pp2"}
    wanted = [Demand(GREEDY, "runtime", f"gpt-{dtype}") for dtype in job.DTYPES]
    assert gate.complete(results, wanted)[-1].detail == "not compared: gpt-fp32, gpt-fp16"


def test_a_job_without_a_family_is_an_error_and_no_pass(config: Config, tmp_path: Path) -> None:
    (plan,) = plans(config, Selection(config.folder, ["22.12"], ["80"]))
    client: Any = None
    barren = replace(plan, families=())
    with pytest.raises(SmokeError, match="there is nothing to test"):
        gate.run(config, Subject(client, barren, tmp_path, tmp_path, lambda message: None))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "written", "ending"),
    [
        *((code, True, f"ended with code {code}") for code in (2, 3, 5)),
        (0, False, "ended with code 0"),
        (-9, True, r"was ended by signal 9 \(Killed\)"),
    ],
)
def test_a_suite_that_broke_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, written: bool, ending: str
) -> None:
    (tmp_path / gate.JUNIT).write_text("of an earlier run")

    def stream(*_: object, **__: object) -> int:
        if written:
            (tmp_path / gate.JUNIT).write_text(XML)
        return code

    monkeypatch.setattr(shell, "stream", stream)
    with pytest.raises(SmokeError, match=rf"the suite broke \(pytest {ending}\)") as broken:
        gate._suite(tmp_path, lambda line: None)
    assert broken.value.where == str(tmp_path / gate.LOG)


@pytest.mark.parametrize("content", ["", "<testsuites>", XML.replace("test_figures[", "figures[")])
def test_a_report_of_pytest_that_is_cut_or_foreign_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / gate.JUNIT).write_text(content)
    with pytest.raises(SmokeError, match="pytest's report"):
        junit.results(tmp_path / gate.JUNIT, "runtime")


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"inputs": "x"}', '"x"'])
def test_a_damaged_manifest_of_models_is_as_none(tmp_path: Path, manifest: str) -> None:
    (tmp_path / models.MANIFEST).write_text(manifest)
    assert models._manifest(tmp_path) == {}


def test_the_questions_are_those_that_the_models_are_drawn_for() -> None:
    """Eight prompts of unequal length and a long one, of tokens that all models know; greedily, by beams."""
    assert [len(prompt) for prompt in golden.PROMPTS] == [5, 3, 12, 4, 7, 8, 3, 9]
    assert len(golden.LONG_PROMPT) == 300
    assert all(0 < token < 256 for prompt in (*golden.PROMPTS, golden.LONG_PROMPT) for token in prompt)
    assert {
        name: (len(case["prompts"]), case["length"], case["beams"]) for name, case in golden.CASES.items()
    } == {"one": (1, 16, 1), "eight": (8, 16, 1), "long": (1, 16, 1), "beams": (1, 16, 4)}
    assert digest_of(golden.PROMPTS) == "728fbacf68d8"


def test_fp32_allows_no_error_and_fp16_a_tenth() -> None:
    assert golden.TOLERANCE == {"fp32": 0.0, "fp16": 0.1, "int8": 0.1, "bf16": 0.8}
    assert set(golden.TOLERANCE) == {*job.DTYPES, job.BF16, job.INT8}


@pytest.mark.parametrize(("gap", "right"), [(0.1, True), (0.1000001, False)])
def test_the_tolerance_is_the_largest_gap_that_counts_as_none(gap: float, right: bool) -> None:
    row = replace(ROW, gap=(1.0, gap, 1.0))
    assert (golden.mismatch(row, [5, 2, 9], golden.TOLERANCE["fp16"]) is None) is right


def test_a_tested_server_has_what_a_served_one_has_and_compiles_no_ptx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(server_container, "serve", lambda *given, **more: started.append((given, more)))
    task = Job("sha256:1", tmp_path, {"gpt": Model(DECODER, streams=True)}, "gpus", ["GPU", "GPU"])
    for dtype, tensor_para, stages in (("fp32", 1, 1), ("fp16", 1, 1), ("fp32", 2, 1), ("fp32", 1, 2)):
        served.start(task, Variant("gpt", dtype, tensor_para, stages), tmp_path)
        given, more = started.pop()
        assert given == ("sha256:1", tmp_path)
        assert more["environment"]["CUDA_DISABLE_PTX_JIT"] == "1"
        assert more["environment"]["NCCL_LAUNCH_MODE"] == "GROUP"  # as `invoke serve` has it
        assert more["environment"]["CUDA_VISIBLE_DEVICES"] == ",".join("01"[: tensor_para * stages])
        assert len(more["devices"]) == 1
    served.start(replace(task, style=None), Variant("gpt"), tmp_path)
    assert started.pop()[1] == {"environment": {}, "devices": (), "options": served.CONTROL}


@pytest.mark.parametrize(
    ("release", "sms", "able"),
    [
        ("22.12", "90", {"gpt", "opt", "bloom", "mpt"}),
        ("22.12", "70", {"gpt", "opt", "bloom", "mpt"}),
        ("22.12", "60,70", set()),
        ("22.12", "60", set()),
        ("22.03", "80", set()),
    ],
)
def test_int8_is_tested_where_release_gpu_and_family_have_it(
    config: Config, release: str, sms: str, able: set[str]
) -> None:
    (plan,) = plans(config, Selection(config.folder, [release], [sms]))
    tested = gate.tested_models(config, plan, ())
    assert {name for name, model in tested.items() if model.int8} == able
    found = Job("sha256:1", Path(), tested, "gpus", ["GPU"]).variants(tested, ["fp32", "int8"])
    assert {each.model for each in found if each.dtype == "int8"} == able
    assert {each.model for each in found if each.dtype == "fp32"} == set(tested)


def test_int8_weights_are_served_in_fp16_and_compared_with_answers_of_their_own(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, str]] = []

    @contextlib.contextmanager
    def started(_: object, folder: Path, **options: object) -> Iterator[Any]:
        text = (folder / "fastertransformer/config.pbtxt").read_text()
        seen.append({n: v.string_value for n, v in config_pbtxt.parse(text).parameters.items()})
        yield server_container.Server.__new__(server_container.Server)

    monkeypatch.setattr(server_container, "serve", started)
    folder = tmp_path / "gpt"
    converted(folder / "weights", "gpt", {"head_num": 2, "size_per_head": 64, "inter_size": 512})
    (folder / "config.pbtxt").write_text(
        'backend: "fastertransformer"\ninput [{ name: "input_ids" data_type: TYPE_UINT32 dims: [-1] }]\n'
        'parameters { key: "int8_mode" value: { string_value: "0" } }\n'
    )
    constants = {"vocab_size": 9, "end_id": 8, "layers": 2, "max_length": None}
    for name, token in (("answers.json", 1), ("answers-int8.json", 2)):
        cases = {"one": [{"tokens": [token]}]}
        (folder / name).write_text(json.dumps({**constants, "cases": cases}))
    task = Job("sha256:1", tmp_path, {"gpt": Model(DECODER, streams=True, int8=True)}, None, [])
    for dtype, mode, token in (("fp16", "0", 1), ("int8", "1", 2)):
        with served.serving(task, Variant("gpt", dtype)) as made:
            assert made.row().tokens == [token]
        assert (seen[-1]["data_type"], seen[-1]["int8_mode"]) == ("fp16", mode)


def test_a_job_is_read_as_it_was_written(tmp_path: Path) -> None:
    task = Job("sha256:1", tmp_path, {"gpt": Model(DECODER, streams=True, int8=True)}, "cdi", ["GPU"])
    for made in (task, replace(task, left_out=LeftOut(("beams",), (64,)))):
        made.write(tmp_path / "job.json")
        assert job.read(tmp_path / "job.json") == made


@pytest.mark.parametrize(
    ("variant", "style", "number"),
    [
        (Variant("gpt"), "cdi", 64),
        (Variant("gpt", instances=4), "cdi", 64),
        (Variant("gpt", tensor_para=2), "cdi", 24),
        (Variant("gpt", pipeline_para=2), "gpus", 24),
        (Variant("gpt", tensor_para=2), None, 8),
    ],
)
def test_a_model_that_has_gpus_alone_is_asked_less(variant: Variant, style: str | None, number: int) -> None:
    server: Any = None
    here = served.Connected(variant, server, Job("sha256:1", Path(), {}, style, ["GPU"] * 4))
    assert served.Numbers(on_gpu=64, over_gpus=24, on_cpu=8).at(here) == number


@pytest.mark.parametrize(
    ("test", "served"),
    [
        ("test_load.py::test_many[gpt-fp32]", "gpt-fp32"),
        ("test_a.py::test_x[http-gpt-head-48-fp16-too_long]", "gpt-head-48-fp16"),
        ("test_a.py::test_x[gpt-four-fp32-tp2-pp2]", "gpt-four-fp32-tp2-pp2"),
        ("test_a.py::test_x[gpt-four-fp32-x4-cut]", "gpt-four-fp32-x4"),
        ("test_a.py::test_x[gpt-fp32-streamed]", "gpt-fp32-streamed"),
        ("test_a.py::test_x[gpt-bf16]", "gpt-bf16"),
        ("test_a.py::test_x[grpc-gpt-int8]", "gpt-int8"),
        ("test_a.py::test_x[bert-fp32]", ""),
        ("test_gpt-fp32.py::test_x", ""),
    ],
)
def test_the_server_of_a_test_is_told_by_its_name(test: str, served: str, tmp_path: Path) -> None:
    names = ("gpt", "gpt-head-48", "gpt-four")
    task = Job("sha256:1", tmp_path, {name: Model(DECODER, streams=True) for name in names}, None, [])
    assert task.served(test) == served


def test_the_load_of_each_variant_has_a_file_beside_the_job(tmp_path: Path) -> None:
    file = job.load_file(tmp_path / "smoke-job.json", Variant("gpt", tensor_para=2))
    assert file == tmp_path / "smoke-load-gpt-fp32-tp2.json"


def test_a_variant_that_cannot_be_tested_here_says_why(tmp_path: Path) -> None:
    task = Job("sha256:1", tmp_path, {"t5": Model(DECODER, streams=False)}, "cdi", ["GPU"])
    assert task.lacks(Variant("t5")) is None
    assert task.lacks(Variant("t5", tensor_para=2)) == "needs 2 GPUs, 1 is there"
    assert replace(task, style=None).lacks(Variant("t5", tensor_para=2)) is None
    assert task.lacks(Variant("t5", decoupled=True)) == "this release does not stream t5"


HEADS = "gptneox-head-48"


@pytest.mark.parametrize(
    "variant",
    [
        Variant(HEADS),
        Variant(HEADS, tensor_para=2),
        Variant(HEADS, tensor_para=2, pipeline_para=2),
        Variant(HEADS, instances=4),
    ],
    ids=str,
)
@pytest.mark.parametrize("there", [1, 2, 4])
def test_a_test_that_needs_more_gpus_is_known_by_its_name(variant: Variant, there: int) -> None:
    """To the process that estimates, which collects no tests, as to those that run them."""
    task = Job("sha256:1", Path(), {HEADS: Model(DECODER, streams=True)}, "cdi", ["GPU"] * there)
    name = f"suite/test_answers.py::test_answers[http-{variant}-eight]"
    assert task.has_too_few_gpus(name) is (variant.gpus > there)
    assert not replace(task, style=None).has_too_few_gpus(name)
    assert not task.has_too_few_gpus("suite/test_other.py::test_of_no_server")


def test_a_model_that_the_image_is_built_without_is_skipped_by_name(tmp_path: Path) -> None:
    task = Job("sha256:1", tmp_path, {"mpt": Model(DECODER, streams=True)}, "cdi", ["GPU"])
    weights = tmp_path / "mpt" / models.WEIGHTS / "1-gpu"
    weights.mkdir(parents=True)
    (weights / "config.ini").write_text("[gpt]\nsize_per_head=32\n")
    lean = replace(task, left_out=LeftOut(("int8",), (64,)))
    assert "heads of 64, and the model has heads of 32" in (lean.lacks(Variant("mpt")) or "")
    assert "without int8" in (lean.lacks(Variant("mpt", "int8")) or "")
    for whole in (task, replace(task, left_out=LeftOut(("beams",)))):
        assert whole.lacks(Variant("mpt")) is None


def test_a_model_whose_layers_cannot_be_split_is_not_served_by_stages(tmp_path: Path) -> None:
    task = Job("sha256:1", tmp_path, {"gpt": Model(DECODER, streams=True)}, "cdi", ["GPU", "GPU"])
    weights = tmp_path / "gpt" / models.WEIGHTS / "1-gpu"
    weights.mkdir(parents=True)
    for layers, reason in ((4, None), (3, "its 3 layers cannot be split over 2 stages")):
        (weights / "config.ini").write_text(f"[gpt]\nnum_layer={layers}\n")
        assert task.lacks(Variant("gpt", pipeline_para=2)) == reason


@pytest.mark.parametrize(
    ("seeds", "reason"), [("INT32", "a model of this release has one instance"), ("UINT64", None)]
)
def test_several_instances_are_asked_of_a_release_that_has_them(
    seeds: str, reason: str | None, tmp_path: Path
) -> None:
    """The release whose seeds have 32 bits has one stream for each GPU, whatever the number of instances."""
    task = Job("sha256:1", tmp_path, {"gpt": Model(DECODER, streams=True)}, "cdi", ["GPU", "GPU"])
    template = f'input [ {{ name: "random_seed" data_type: TYPE_{seeds} dims: [ 1 ] }} ]'
    (tmp_path / "gpt").mkdir()
    (tmp_path / "gpt" / models.CONFIG).write_text(template)
    assert task.lacks(Variant("gpt", instances=2)) == reason
    assert task.lacks(Variant("gpt")) is None


def test_processes_share_the_gpus_evenly() -> None:
    task = Job("sha256:1", Path(), {}, "cdi", ["GPU"] * 4, indices=(0, 2, 3, 5))
    one, two, four = Variant("gpt"), Variant("gpt", tensor_para=2), Variant("gpt", "fp32", 2, 2)
    at = [replace(task, place=place) for place in range(5)]
    assert [tuple(each.devices(one)) for each in at] == [(0,), (2,), (3,), (5,), (0,)]
    assert [tuple(each.devices(two)) for each in at[:3]] == [(0, 2), (3, 5), (0, 2)]
    assert {tuple(each.devices(four)) for each in at} == {(0, 2, 3, 5)}
    assert list(replace(at[3], style=None).devices(one)) == []


def test_four_gpus_serve_a_model_in_every_way_there_is() -> None:
    """Each split of tensors and layers over all four, and as many instances as GPUs."""

    def variant(way: Mapping[str, Any]) -> Variant:
        return Variant("gpt", **way)

    ways = list(map(variant, job.OVER_FOUR))
    split = {(way.tensor_para, way.pipeline_para) for way in ways if way.instances == 1}
    assert split == {(number, 4 // number) for number in (1, 2, 4)}
    assert {way.instances for way in ways} == {1, 2, 4}
    assert len(ways) == len(set(map(str, ways))) == 5
    assert [str(variant(way)) for way in job.OVER_TWO] == ["gpt-fp32-tp2", "gpt-fp32-pp2"]


def test_bf16_is_a_variant_of_the_families_that_have_it() -> None:
    models = {"gpt": Model(DECODER, streams=True, bf16=True), "t5": Model(DECODER, streams=True)}
    task = Job("sha256:1", Path(), models, "cdi", ["GPU"])
    assert task.variants(task.names(), (job.BF16,)) == [Variant("gpt", job.BF16)]


def test_bf16_is_tested_where_release_and_gpu_compute_in_it(config: Config) -> None:
    cells = plans(config, Selection(config.folder, ["22.07", "22.12"], ["80"]))
    older, newer = sorted(cells, key=lambda plan: plan.cell.triton)
    ampere, turing = (Gpu("x", *capability, 1, "12.0") for capability in ((8, 0), (7, 5)))
    assert gate._model(config, newer, "gptneox", [ampere]).bf16
    assert not gate._model(config, newer, "gptneox", [ampere, turing]).bf16
    assert not gate._model(config, older, "gptneox", [ampere]).bf16


def test_extra_models_are_tested_only_where_a_test_asks_for_them(config: Config) -> None:
    (plan,) = plans(config, Selection(config.folder, ["22.12"], ["90"]))
    tested = gate.tested_models(config, plan, ())
    extra = config.models.extra_models("5.3")
    assert {"gpt-initialised", "gptneox-serial", "mt5"} <= set(extra)
    both = {**tested, **{name: replace(tested[family], family=family) for name, family in extra.items()}}
    found = Job("sha256:1", Path(), both, "gpus", ["GPU"])
    assert set(found.names()) | set(found.names(vectors=True)) == set(tested)
    assert set(found.names(extra=True)) | set(found.names(vectors=True, extra=True)) == set(extra)
    assert found.family(Variant("mt5")) == "t5"
    assert found.family(Variant("t5")) == "t5"


def test_every_size_of_a_head_that_is_computed_has_a_model(config: Config) -> None:
    """GPT-NeoX's, which rotates a part of a head; the families' own models have heads of 32 and 64 values."""
    (computed,) = (
        sizes
        for versions, sizes in config.models.families["gptneox"].checkpoint.head_sizes.items()
        if "5.3" in SpecifierSet(versions)
    )
    models = {f"gptneox-head-{size}" for size in computed if size not in (32, 64)}
    assert models == {name for name in config.models.extra_models("5.3") if "gptneox-head-" in name}


def test_a_release_makes_the_extra_models_that_it_converts(config: Config) -> None:
    assert set(config.models.extra_models("5.0")) == {"gpt-initialised", "gpt-four", "t5-four"}
    assert "gptneox-serial" in config.models.extra_models("5.2")


def test_a_spoiled_copy_of_a_model_has_one_wrong_file(tmp_path: Path) -> None:
    weights = tmp_path / "1-gpu"
    weights.mkdir()
    norm = "model.final_layernorm.weight.bin"
    for name in (norm, "model.wte.bin"):
        (weights / name).write_bytes(bytes(64))
    spoiled.write(tmp_path / "models", 'name: "fastertransformer"\n', weights)
    sizes = {
        name: {file.name: file.stat().st_size for file in (tmp_path / "models" / name / "1/1-gpu").iterdir()}
        for name in spoiled.WRONG
    }
    assert sizes["cut"] == {norm: 60, "model.wte.bin": 64}
    assert sizes["missing"] == {"model.wte.bin": 64}
    assert sizes["too-long"] == {norm: 128, "model.wte.bin": 64}
    assert (weights / norm).stat().st_size == 64
    assert 'name: "cut"' in (tmp_path / "models/cut/config.pbtxt").read_text()


def test_outputs_are_compared_by_name_shape_and_where_asked_by_value() -> None:
    alone = {"output_ids": np.array([[[1, 2]]], np.uint32), "cum_log_probs": np.array([[-1.5]], np.float32)}
    assert served.unlike(alone, alone, exact=True) is None
    rounded = {**alone, "cum_log_probs": np.array([[-1.5001]], np.float32)}
    assert served.unlike(rounded, alone, exact=True) is None
    for name, values in (
        ("output_ids", np.array([[[1, 3]]], np.uint32)),
        ("cum_log_probs", np.array([[-1.6]], np.float32)),
        ("cum_log_probs", np.array([[np.nan]], np.float32)),
    ):
        wrong = served.unlike({**alone, name: values}, alone, exact=True)
        assert wrong
        assert name in wrong
        assert served.unlike({**alone, name: values}, alone, exact=False) is None
    wider = {**alone, "output_ids": np.array([[[1, 2, 3]]], np.uint32)}
    assert served.unlike(wider, alone, exact=False)
    assert served.unlike({"output_ids": alone["output_ids"]}, alone, exact=False)


def test_memory_that_a_repeated_load_takes_is_a_fault() -> None:
    memory.check_flat(10 * 2**30, 10 * 2**30 + 100 * 2**20, "a model after a load")
    memory.check_flat(2**20, 16 * 2**20, "a model after a load")
    with pytest.raises(SmokeError, match="a model after a load: 110 MiB more than 10240 MiB are in use"):
        memory.check_flat(10 * 2**30, 10 * 2**30 + 110 * 2**20, "a model after a load")
