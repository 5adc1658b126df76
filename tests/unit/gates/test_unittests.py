"""Upstream's own unit tests: who gets their sources, how they are built, what is made of their output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ftbuild.build import definitions
from ftbuild.build.machine import Host
from ftbuild.cli import explain
from ftbuild.cli.selection import Selection, plans
from ftbuild.config import loader
from ftbuild.config.schema import Config, SourcesConfig
from ftbuild.errors import NothingSelected
from ftbuild.gates.unittests import gate, image, runner
from ftbuild.plan import Plan
from ftbuild.sources import lock
from ftbuild.text.results import State
from testing import ROOT

REPORT = {
    "testsuites": [
        {
            "name": "LogProbKernelTest/1",
            "time": "0.5s",
            "testsuite": [
                {"name": "SingleStep", "type_param": "__half", "result": "COMPLETED"},
                {
                    "name": "LongStep",
                    "type_param": "__half",
                    "result": "COMPLETED",
                    "failures": [{"failure": "test_logprob_kernels.cu:42\nValue of: passed", "type": ""}],
                },
                {"name": "Other", "type_param": "__half", "result": "SKIPPED"},
            ],
        }
    ]
}
# A program of googletest, asked which tests it has.
LISTING = (
    'case "$1" in --gtest_list_tests) printf "Running main()\\n'
    'LogProbKernelTest/1.  # TypeParam = __half\\n  SingleStep\\n"; exit ;; esac',
)


def planned(config: Config, triton: str = "22.12") -> Plan:
    (made,) = plans(config, Selection(config.folder, [triton], ["80"]))
    return made


def without_googletest(config: Config) -> Config:
    text = (config.folder / "sources.yaml").read_text()
    lines = [line for line in text.splitlines(keepends=True) if "release-1.12.1" not in line]
    return replace(config, sources=SourcesConfig.model_validate(yaml.safe_load("".join(lines))))


def test_an_optional_source_is_no_part_of_a_cell_and_of_its_key(config: Config) -> None:
    assert image.GOOGLETEST in config.sources.releases["22.12"]
    assert image.GOOGLETEST not in [source.repository for source in planned(config).sources]
    assert planned(config).key == planned(without_googletest(config)).key
    assert image.GOOGLETEST not in explain.plan(planned(config))


def test_an_optional_source_is_locked_like_all_others(config: Config) -> None:
    assert len(lock.pinned(config, "22.12", image.GOOGLETEST).tree) == 40


@pytest.mark.parametrize(("triton", "program"), [("22.03", "test_sampling"), ("22.07", "unittest")])
def test_each_release_has_the_programs_that_its_tests_are_in(
    config: Config, triton: str, program: str
) -> None:
    made_of = image.recipe(config, planned(config, triton))
    assert program in made_of.tree.targets
    assert (made_of.googletest is None) == (triton == "22.03")


def test_the_tests_are_compiled_with_the_options_of_the_library_for_pytorch(config: Config) -> None:
    plan = planned(config)
    tree = image.recipe(config, plan).tree
    assert tree.options[: len(plan.trees[1].options)] == plan.trees[1].options
    assert {option.name: option.value for option in tree.options}["BUILD_FT_TESTS"] == "ON"


def test_only_the_bake_file_of_the_unit_tests_knows_of_them(config: Config) -> None:
    plan, host = planned(config), Host(jobs=1)
    assert "unittest" not in json.dumps(definitions.cell(plan, host)).lower()
    definition: Any = image.definition(plan, image.recipe(config, plan), host)
    assert definition["group"]["default"]["targets"] == ["22_12-sm80-unittests", "22_12-sm80-unittests-info"]
    made = definition["target"]["22_12-sm80-unittests"]
    assert made["tags"] == [f"triton_with_ft:22.12-sm80-{plan.key}-unittests"]
    assert made["contexts"]["googletest"] == "googletest"
    assert made["args"]["UNITTEST_TARGETS"].startswith("unittest ")
    assert made["labels"][image.LABEL] == image.recipe(config, plan).key


def test_a_stack_without_kernels_has_no_unit_tests() -> None:
    sample = loader.load(ROOT / "buildcfg/sample")
    with pytest.raises(NothingSelected, match="kernels"):
        image.recipe(sample, planned(sample))


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(runner, "PROGRAMS", folder)
    return folder


def test_the_runner_looks_where_the_image_has_programs_and_data() -> None:
    recipe = (ROOT / "dockerfiles/triton-ft.Dockerfile").read_text()
    folder = Path(image.RUN).parent
    programs, data = (
        os.path.normpath(folder / os.path.relpath(path, runner.HERE))
        for path in (runner.PROGRAMS, runner.DATA)
    )
    assert f"unittests.py {image.RUN}\n" in recipe
    assert f"/out/bin/ {programs}/\n" in recipe
    assert f"ft/tests/ {Path(data).parent}/\n" in recipe
    assert runner.ARGUMENTS["test_context_decoder_layer"][1] == str(runner.DATA)


@pytest.mark.parametrize("code", [0, 1])
def test_the_runner_is_a_program_that_tells_by_its_code_whether_all_passed(tmp_path: Path, code: int) -> None:
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin", "test_gemm", f"exit {code}")
    (tmp_path / "run").write_bytes(image.RUNNER.read_bytes())
    argv = [sys.executable, str(tmp_path / "run"), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    (suite,) = json.loads(done.stdout)
    assert (done.returncode, len(suite["failed"])) == (code, code)
    assert "running test_gemm\n" in done.stderr


def program(folder: Path, name: str, *lines: str) -> None:
    (folder / name).write_text("\n".join(["#!/bin/sh", *lines, ""]))
    (folder / name).chmod(0o755)


def suites(capsys: pytest.CaptureFixture[str], expected: int) -> Any:
    assert runner.main(["--json"]) == expected
    return json.loads(capsys.readouterr().out)


def test_googletests_report_gives_a_suite_with_its_type(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report").write_text(json.dumps(REPORT))
    program(programs, "unittest", *LISTING, f"cp {tmp_path}/report ${{2#--gtest_output=json:}}", "exit 1")
    (suite,) = suites(capsys, 1)
    assert (suite["suite"], suite["passed"]) == ("LogProbKernelTest/1 (__half)", 1)
    assert suite["failed"] == [{"test": "LongStep", "said": "test_logprob_kernels.cu:42\nValue of: passed"}]
    assert suite["skipped"] == ["Other"]


def test_a_crash_fails_its_suite_alone_and_names_the_signal_and_the_last_lines(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listing = [line.replace("esac", "*B.*) exit 0 ;; esac") for line in LISTING]
    listing[0] = listing[0].replace("SingleStep", "SingleStep\\nB.\\n  d")
    crash = ("echo '[       OK ] A.b (3 ms)'", "echo '[ RUN      ] A.c'", "kill -ABRT $$")
    program(programs, "unittest", *listing, *crash)
    crashed, other = suites(capsys, 1)
    assert (crashed["suite"], crashed["passed"]) == ("LogProbKernelTest/1", 1)
    assert crashed["failed"][0]["test"] == "ended with SIGABRT"
    assert "[ RUN      ] A.c" in crashed["failed"][0]["said"]
    assert (other["suite"], other["failed"]) == ("B", [])


def test_a_program_of_googletest_that_does_not_start_fails(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(programs, "unittest", "echo 'libtorch.so: cannot open shared object file'", "exit 127")
    (suite,) = suites(capsys, 1)
    assert "cannot open" in suite["failed"][0]["said"]


def test_a_check_that_failed_counts_even_where_the_program_ends_with_0(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = [
        f"echo '[FT][INFO] check.......TestCase : {ending} (failures: 0%)'" for ending in ("OK", "FAILED")
    ]
    program(programs, "test_sampling", *checks)
    program(programs, "test_gpt_kernels", "echo .X", "echo 'test_compact: FAILED'")
    kernels, sampling = suites(capsys, 1)
    assert (kernels["passed"], kernels["failed"]) == (0, [{"test": "test_compact: FAILED", "said": ""}])
    assert (sampling["passed"], len(sampling["failed"])) == (1, 1)


def test_programs_that_pass_end_with_0_and_say_how_many_did(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(programs, "test_gpt_kernels", "echo ...")
    assert runner.main([]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"


def test_a_program_that_ends_with_an_error_and_says_nothing_fails(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(programs, "test_gemm", "exit 127")
    (suite,) = suites(capsys, 1)
    assert suite["failed"][0]["test"] == "ended with code 127"


def test_tests_see_machine_code_only_and_log_their_checks(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(programs, "test_gemm", '[ "$CUDA_DISABLE_PTX_JIT $FT_LOG_LEVEL" = "1 INFO" ]')
    suites(capsys, 0)


def test_tests_have_the_environment_of_the_container_and_lose_no_line_when_they_abort(
    programs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """stdbuf(1) has standard output written line by line."""
    monkeypatch.setenv("LD_LIBRARY_PATH", "/usr/local/mine")
    monkeypatch.setenv("CUDA_DISABLE_PTX_JIT", "0")
    program(
        programs,
        "test_gemm",
        '[ "$LD_LIBRARY_PATH $CUDA_DISABLE_PTX_JIT $_STDBUF_O" = "/usr/local/mine 1 L" ]',
    )
    suites(capsys, 0)


@pytest.mark.parametrize("end", ["exit 3", "sleep 30"])
def test_what_a_failed_program_says_is_shown_whatever_its_encoding(
    programs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(runner, "SECONDS", 2)
    program(programs, "test_gemm", "printf 'CUDA \\351\\n'", f"exec {end}" if "sleep" in end else end)
    (suite,) = suites(capsys, 1)
    (failure,) = suite["failed"]
    assert failure["said"] == "CUDA \N{REPLACEMENT CHARACTER}"
    assert failure["test"] == ("ended with SIGKILL" if "sleep" in end else "ended with code 3")


@pytest.mark.parametrize(
    ("end", "failed"),
    [
        ("exit 0", []),
        ("exit 1", ["ended with code 1"]),
        ("kill -SEGV $$", ["ended with SIGSEGV"]),
        ("kill -40 $$", ["ended with signal 40"]),  # a real-time signal, which has no name
    ],
)
def test_a_suite_whose_program_fails_after_its_report_has_not_passed(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str, failed: list[str]
) -> None:
    """As it does for what a whole suite sets up, of which no single test is blamed."""
    tests = [{"name": "Once", "result": "COMPLETED"}]
    report = {"testsuites": [{"name": "LogProbKernelTest/1", "time": "1s", "testsuite": tests}]}
    (tmp_path / "report").write_text(json.dumps(report))
    copy = f"cp {tmp_path}/report ${{2#--gtest_output=json:}}"
    program(programs, "unittest", *LISTING, copy, "echo set up: out of memory", end)
    (suite,) = suites(capsys, int(bool(failed)))
    assert [failure["test"] for failure in suite["failed"]] == failed
    assert all(failure["said"] == "set up: out of memory" for failure in suite["failed"])
    assert suite["passed"] == 1


def test_programs_run_by_name_in_an_empty_folder_without_options(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("test_b", "test_a"):
        program(programs, name, '[ "$#" = 0 ] && [ -z "$(ls -A)" ]')
    assert [suite["suite"] for suite in suites(capsys, 0)] == ["test_a", "test_b"]


def test_the_test_that_wants_a_model_gets_a_place_without_one_and_the_data(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = "/nonexistent */FasterTransformer/tests/data"
    program(programs, "test_context_decoder_layer", f'case "$*" in {wanted.replace(" ", chr(92) + " ")}) ;;',
            "*) exit 1 ;; esac")  # fmt: skip
    suites(capsys, 0)


def test_a_program_that_hangs_is_killed_with_what_it_said(
    programs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "SECONDS", 0.5)
    program(programs, "test_gemm", "echo stuck >&2", "exec sleep 60")
    (suite,) = suites(capsys, 1)
    assert suite["failed"] == [{"test": "ended with SIGKILL", "said": "stuck"}]
    assert 0.5 <= suite["seconds"] < 60


def test_only_the_last_six_lines_of_a_failed_program_are_kept(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(programs, "test_gemm", "seq 9", "exit 3")
    (suite,) = suites(capsys, 1)
    assert suite["failed"] == [{"test": "ended with code 3", "said": "4\n5\n6\n7\n8\n9"}]
    assert (suite["program"], suite["passed"], suite["skipped"]) == ("test_gemm", 0, [])


def test_a_crash_after_a_failed_check_is_another_failure(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(programs, "test_gemm", "echo '[  FAILED  ] A.b (3 ms)'", "kill -SEGV $$")
    program(programs, "test_int8", "echo 'TEST FAIL at 3'", "exit 1")
    gemm, int8 = suites(capsys, 1)
    assert [f["test"] for f in gemm["failed"]] == ["[  FAILED  ] A.b (3 ms)", "ended with SIGSEGV"]
    assert [f["test"] for f in int8["failed"]] == ["TEST FAIL at 3"]


def test_a_program_of_googletest_without_tests_fails(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(programs, "unittest", "echo Running main")
    (suite,) = suites(capsys, 1)
    assert suite["suite"] == "unittest"
    assert suite["failed"] == [{"test": "ended with code 1", "said": "Running main"}]
    assert suite["seconds"] == 0


def test_googletests_report_of_a_suite_without_types_has_its_own_time(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tests = [{"name": "Once", "result": "COMPLETED"}]
    found = {"testsuites": [{"name": "A", "time": "12.5s", "testsuite": tests}]}
    (tmp_path / "report").write_text(json.dumps(found))
    listing = ("case \"$1\" in --gtest_list_tests) printf 'A.\\n  Once\\n'; exit ;; --gtest_filter=A.\\*) ;;"
               " *) exit 1 ;; esac")  # fmt: skip
    program(programs, "unittest", listing, f"cp {tmp_path}/report ${{2#--gtest_output=json:}}")
    assert suites(capsys, 0) == [
        {"program": "unittest", "suite": "A", "passed": 1, "failed": [], "skipped": [], "seconds": 12.5}
    ]


def test_the_table_has_a_line_for_each_suite_then_the_failures_then_the_sum(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [
        suite(suite="Long name", passed=12, skipped=["x"], seconds=0.25),
        suite(passed=1, failed=[{"test": "T.a", "said": "one\ntwo"}]),
    ]
    assert runner.table(found).splitlines() == [
        "Long name    12 passed    0 failed    1 skipped       0.2 s",
        "A/0           1 passed    1 failed    0 skipped       1.0 s",
        "FAILED A/0: T.a",
        "    one",
        "    two",
        "13 passed, 1 failed, 1 skipped",
    ]
    assert runner.main([]) == 0
    assert capsys.readouterr().out == "0 passed, 0 failed, 0 skipped\n"


def suite(**facts: Any) -> dict[str, Any]:
    base = {"program": "unittest", "suite": "A/0", "passed": 0, "failed": [], "skipped": [], "seconds": 1.0}
    return {**base, **facts}


def test_a_finding_shows_the_first_failures_and_counts_the_rest() -> None:
    failed = [{"test": f"Test{number}", "said": "one\ntwo" * number} for number in range(2)] * 2
    found = gate.result(suite(passed=2, failed=failed))
    assert (found.check, found.state) == ("unittest: A/0", State.FAIL)
    assert found.detail.splitlines() == [
        "2 passed, 4 failed, 0 skipped, 1.0 s",
        "Test0",
        "Test1: two",
        "Test0",
        "and 1 more",
    ]


def test_as_many_failures_as_are_shown_leave_none_to_count() -> None:
    failed = [{"test": f"Test{number}", "said": ""} for number in range(3)]
    found = gate.result(suite(failed=failed))
    assert found.detail.splitlines() == ["0 passed, 3 failed, 0 skipped, 1.0 s", "Test0", "Test1", "Test2"]


def test_a_suite_that_was_only_skipped_is_no_pass() -> None:
    assert gate.result(suite(skipped=["Other"])).state is State.SKIP
