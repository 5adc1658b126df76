"""Run a file of unittest's tests, and write what became of each as JSON.

qa_tests.py OUTPUT MODULE ONLY [LEFT_OUT...]: ONLY is a part of the names of tests, or nothing.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path


def tests(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    """Yield the tests of a suite."""
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from tests(each)
        else:
            yield each


def bound_fuzzing() -> None:
    """Let boofuzz make one fault a request, as 0.3.0 does, which upstream's test.sh installs for Python 3.8.

    Those from 0.4 on combine two faults, then three, and so on without end (Session.fuzz, max_depth).
    """
    with contextlib.suppress(ImportError):
        boofuzz = importlib.import_module("boofuzz")

        boofuzz.Session.fuzz = functools.partialmethod(boofuzz.Session.fuzz, max_depth=1)


def main(output: str, module: str, only: str, *left_out: str) -> None:
    """Run the tests one after the other, each suite of a class with its fixtures."""
    sys.path.insert(0, ".")
    bound_fuzzing()
    found = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(module))
    chosen = [test for test in tests(found) if only in test.id()]
    chosen = [test for test in chosen if test.id().rpartition(".")[2] not in left_out]
    result = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite(chosen))
    failed = {test.id(): text.strip().splitlines()[-1] for test, text in [*result.failures, *result.errors]}
    skipped = {test.id(): reason for test, reason in result.skipped}
    passed = result.testsRun - len(failed) - len(skipped)
    Path(output).write_text(json.dumps({"passed": passed, "failed": failed, "skipped": skipped}))


if __name__ == "__main__":
    main(*sys.argv[1:])
