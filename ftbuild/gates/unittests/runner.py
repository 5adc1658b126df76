#!/usr/bin/env python3
"""The runner of upstream's unit tests: /opt/ftbuild/unittests/run in their image, for Python 3.8 alone.

`run` prints how each suite ended, `run --json` the same as JSON. Exit code 0: all passed, 1: some did not.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "bin"
DATA = HERE.parent / "FasterTransformer" / "tests" / "data"
SECONDS = 1200
# The driver must not compile missing machine code from PTX. Checks are logged at level INFO.
ENVIRONMENT = {"CUDA_DISABLE_PTX_JIT": "1", "FT_LOG_LEVEL": "INFO"}
# It wants the weights of a trained model of 345M parameters; without the files they stay random (FT v5.3
# ParallelGptWeight.cc:293, memory_utils.cu:318), which is enough to compare two runs of the same input.
ARGUMENTS = {"test_context_decoder_layer": ["/nonexistent", str(DATA)]}
GOOGLETEST = "unittest"
# Upstream logs to a buffered stdout, whose end, with the failure, is lost when a program aborts.
BY_LINE = ["stdbuf", "--output=L"]
LINES = 6


def main(arguments: list[str]) -> int:
    """Run every program that the release has."""
    suites = []
    for program in sorted(PROGRAMS.iterdir()):
        print(f"running {program.name}", file=sys.stderr, flush=True)
        suites += run(program)
    print(json.dumps(suites) if arguments == ["--json"] else table(suites))
    return int(any(suite["failed"] for suite in suites))


def run(program: Path) -> list[dict[str, Any]]:
    """Return its suites: program, suite, number passed, failures (test, said), names skipped, seconds.

    Each suite of googletest gets a process of its own: a crash ends no other suite.
    """
    if program.name != GOOGLETEST:
        return [suite(program, program.name)]
    code, listed = execute([str(program), "--gtest_list_tests"], "/")
    names = re.findall(r"^(\S+)\.(?:\s+#.*)?$", listed, re.M)
    if code or not names:
        return [plain(program.name, program.name, code or 1, listed, 0.0)]
    return [suite(program, name, f"--gtest_filter={name}.*") for name in names]


def suite(program: Path, name: str, *options: str) -> dict[str, Any]:
    """Run one suite, and read googletest's own report if there is one.

    What a whole suite sets up or takes down is in no test of the report, only in how the program ended.
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.json")
        reporting = [*options, f"--gtest_output=json:{report}"] if options else []
        command = [str(program), *ARGUMENTS.get(program.name, []), *reporting]
        code, output = execute(command, scratch)
        if report.exists():
            reported = googletest(program.name, json.loads(report.read_text())["testsuites"][0])
            reported["failed"] += unexplained(code, reported["failed"], output)
            return reported
    return plain(program.name, name, code, output, time.monotonic() - start)


def execute(command: list[str], folder: str) -> tuple[int, str]:
    """Run a program for at most SECONDS; return its exit code and both streams."""
    try:
        done = subprocess.run(
            [*BY_LINE, *command],
            cwd=folder,
            env={**os.environ, **ENVIRONMENT},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired as late:
        return -signal.SIGKILL, (late.stdout or b"").decode("utf-8", "replace")
    return done.returncode, done.stdout.decode("utf-8", "replace")


def googletest(program: str, suite: dict[str, Any]) -> dict[str, Any]:
    """Return a suite of googletest's report (its docs/advanced.md, Generating a JSON Report)."""
    tests = suite["testsuite"]
    kind = next((f" ({test['type_param']})" for test in tests if "type_param" in test), "")
    failed = [
        {"test": test["name"], "said": _last(test["failures"][0]["failure"])}
        for test in tests
        if test.get("failures")
    ]
    skipped = [test["name"] for test in tests if test["result"] != "COMPLETED"]
    return {
        "program": program,
        "suite": suite["name"] + kind,
        "passed": len(tests) - len(failed) - len(skipped),
        "failed": failed,
        "skipped": skipped,
        "seconds": float(suite["time"].rstrip("s")),
    }


def plain(program: str, name: str, code: int, output: str, seconds: float) -> dict[str, Any]:
    """Return the suite of a program without a report: lines about single checks, or only its exit code.

    Several end with 0 whatever they found (FT v5.0 test_sampling.cu:372, v5.3 test_gpt_kernels.cu:19).
    """
    lines = [line.strip() for line in output.splitlines()]
    checks = [line for line in lines if re.search(r"check\.\.\.|\[ +OK \]|\[  FAILED  \]", line)]
    bad = [line for line in checks if "FAILED" in line]
    failed = [
        {"test": line, "said": ""} for line in bad or [x for x in lines if re.search("FAILED|TEST FAIL", x)]
    ]
    failed += unexplained(code, failed, output)
    return {
        "program": program,
        "suite": name,
        "passed": len(checks) - len(bad) if checks else int(not failed),
        "failed": failed,
        "skipped": [],
        "seconds": round(seconds, 3),
    }


def unexplained(code: int, failed: list[dict[str, str]], output: str) -> list[dict[str, str]]:
    """Return the end of a program as a failure: a signal, or an error that no failed test explains."""
    if code < 0 or (code and not failed):
        names = {-each.value: each.name for each in signal.Signals}
        ending = names.get(code) or (f"signal {-code}" if code < 0 else f"code {code}")
        return [{"test": f"ended with {ending}", "said": _last(output)}]
    return []


def _last(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-LINES:])


def table(suites: list[dict[str, Any]]) -> str:
    """Return one line for each suite, then the failures, then the sum."""
    width = max((len(suite["suite"]) for suite in suites), default=0)
    rows = [
        f"{suite['suite']:<{width}}  {suite['passed']:>4} passed  {len(suite['failed']):>3} failed  "
        f"{len(suite['skipped']):>3} skipped  {suite['seconds']:8.1f} s"
        for suite in suites
    ]
    failed = [
        "\n    ".join([f"FAILED {suite['suite']}: {failure['test']}", *failure["said"].splitlines()])
        for suite in suites
        for failure in suite["failed"]
    ]
    passed = sum(suite["passed"] for suite in suites)
    bad, skipped = (sum(len(suite[state]) for suite in suites) for state in ("failed", "skipped"))
    return "\n".join([*rows, *failed, f"{passed} passed, {bad} failed, {skipped} skipped"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
