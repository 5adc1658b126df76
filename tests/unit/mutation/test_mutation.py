"""Mutation testing of a small project: which faults are made, and which of them its tests notice."""

from __future__ import annotations

import ast
import json
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ftbuild.errors import ConfigError, FtbuildError
from ftbuild.text.reporter import Reporter
from testing import ROOT
from testing.mutation import campaign, trial, workers
from testing.mutation.campaign import Area, Result
from testing.mutation.mutants import mutants

SOURCE = '''
LIMIT = 10


def is_allowed(number: int) -> bool:
    """Return whether a number is within the limit."""
    return number < LIMIT
'''
WEAK = """
from adder import is_allowed


def test_it() -> None:
    assert is_allowed(3)
    assert not is_allowed(30)
"""
STRONG = WEAK + "    assert is_allowed(9)\n    assert not is_allowed(10)\n"


def described(source: str) -> list[str]:
    return [mutant.what for mutant in mutants(source)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a == b", ["a == b -> a != b"]),
        ("x = a in b", ["a in b -> a not in b"]),
        ("x = a <= b", ["a <= b -> a < b"]),
        ("x = a and b", ["a and b -> a or b"]),
        ("x = not a", ["not a -> a"]),
        ("x = a + b", ["a + b -> a - b"]),
        ("x = True", ["True -> False"]),
        ("x = 41", ["41 -> 42"]),
        ("x = 'gpt'", ["'gpt' -> 'gptmutated'"]),
        ("x = f'{a}-{b}'", ["'-' -> '-mutated'"]),
        ("x = (a, b)", ["without a", "without b"]),
        ("x = {'a': b, **c}", ["without 'a'", "without c", "'a' -> 'amutated'"]),
        ("x = f(a, key=b)", ["f without key="]),
        ("x = [a for a in b if a]", ["for a in b if a -> for a in b"]),
        ("x = a if b else c", ["a if b else c -> a if not b else c"]),
        ("if a:\n    f()", ["if a: -> if not a:", "f() -> pass"]),
        ("for a in b:\n    continue", ["continue -> break"]),
        ("x += a", ["x += a -> pass"]),
        ("def f(a=1):\n    return a", ["1 -> 2", "return a -> return None"]),
        ("def f():\n    raise E(1)", ["raise E(1) -> pass"]),
        ("match a:\n    case 1:\n        f()", ["f() -> pass"]),
        ("try:\n    f()\nexcept E:\n    g()", ["f() -> pass", "g() -> pass"]),
        ("try:\n    f()\nfinally:\n    h()", ["f() -> pass", "h() -> pass"]),
    ],
)
def test_each_fault_is_one_small_change(source: str, expected: list[str]) -> None:
    assert described(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""Docstring."""',
        "class C(Base, kind='a'):\n    'Docstring.'\n    x: Mapping[str, Literal['a']]",
        "x = 'a text for people'",
        "x = f'{a} of {b}'",
        "import a",
        "Place = tuple[str, Literal['a']]\nPath = Mapping[str, 'Path']",
        "@decorated('a')\ndef f() -> Literal['a']:\n    'Docstring.'\n    return None",
        "if TYPE_CHECKING:\n    x = 1",
        "__all__ = ['a', 'b']",
        "B = TypeVar('B', bound=C)",
        "Array = np.ndarray[Any, Any]",
        "x = f(hint='a', where='b', indent=2)",
    ],
)
def test_what_is_no_behaviour_is_left_alone(source: str) -> None:
    assert described(source) == []


def test_each_mutant_is_a_whole_module_and_the_source_is_not_changed() -> None:
    made = list(mutants(SOURCE))
    for mutant, line in zip(made, ["LIMIT = 11", "return None"], strict=False):
        assert line in ast.unparse(mutant.tree)
    assert [(m.first, m.last, m.in_function) for m in made] == [(2, 2, False), (7, 7, True), (7, 7, True)]
    assert made[2].what == "number < LIMIT -> number <= LIMIT"


@pytest.fixture
def area(tmp_path: Path) -> Area:
    (tmp_path / "adder.py").write_text(SOURCE)
    return Area("sums", tmp_path, ("adder.py",), ("test_*.py",))


def run(
    area: Area,
    tests: str,
    report: Reporter = lambda message: None,
    **options: Any,
) -> Result:
    (area.root / "test_adder.py").write_text(tests)
    return campaign.run(area, area.root / "work", report, **options)


def test_faults_that_no_test_notices_are_listed_and_may_be_tried_again(area: Area) -> None:
    weak = run(area, WEAK)
    assert (weak.made, weak.killed) == (3, 1)
    assert weak.survivors == ("adder.py:2: 10 -> 11", "adder.py:7: number < LIMIT -> number <= LIMIT")
    assert round(weak.percent) == 33
    better = run(area, STRONG, again=True)
    assert (better.made, better.survivors, better.percent) == (2, (), 100)
    assert (area.root / "adder.py").read_text() == SOURCE


def test_an_interrupted_run_keeps_what_it_has_found(area: Area) -> None:
    def report(line: str) -> None:
        if "survives" in line:
            raise KeyboardInterrupt

    (area.root / "test_adder.py").write_text(WEAK)
    work = area.root / "work"
    with pytest.raises(KeyboardInterrupt):
        campaign.run(area, work, report)
    assert json.loads((work / f"{area.name}.json").read_text()) == ["adder.py:2: 10 -> 11"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_campaign_that_was_killed_goes_on_with_what_it_has_not_tried(area: Area, jobs: int) -> None:
    whole = run(area, WEAK)
    journal = area.root / "work" / "sums.tried"
    key, *lines = journal.read_text().splitlines()
    noted = [line for line in lines if line]
    assert len(noted) == whole.made
    journal.write_text("\n".join([key, noted[0], noted[1][:-3]]))  # killed while it wrote
    said: list[str] = []
    assert run(area, WEAK, said.append, resume=True, jobs=jobs) == whole
    assert said[0] == "area sums: 1 of 3 were tried before"
    assert run(area, WEAK, said.append, resume=True) == whole
    assert "area sums: 3 of 3 were tried before" in said
    assert len(run(area, WEAK).survivors) == len(whole.survivors), "without the option all are tried again"


@pytest.mark.parametrize("changed", ["tests", "sources", "nothing was tried", "the file is empty"])
def test_what_was_tried_with_other_sources_or_tests_counts_for_nothing(area: Area, changed: str) -> None:
    run(area, WEAK)
    journal = area.root / "work" / "sums.tried"
    if changed == "sources":
        (area.root / "adder.py").write_text(f"{SOURCE}\n")
    elif changed == "nothing was tried":
        journal.unlink()
    elif changed == "the file is empty":
        journal.write_text("")
    said: list[str] = []
    found = run(area, STRONG if changed == "tests" else WEAK, said.append, resume=True)
    assert said[0] == "area sums: 0 of 3 were tried before"
    assert len(found.survivors) == (0 if changed == "tests" else 2)
    run(area, STRONG if changed == "tests" else WEAK, said.append, resume=True)
    assert said[-1] == "area sums: 3 of 3 were tried before"


def test_files_of_tests_that_are_traced_apart_notice_what_they_notice_together(area: Area) -> None:
    (area.root / "test_helpers.py").write_text("HELP = 1\n")
    (area.root / "test_other.py").write_text(
        "import adder\n\n\ndef test_limit() -> None:\n    assert adder.LIMIT == 10\n"
    )
    skipped = "import pytest\n\npytest.skip('not here', allow_module_level=True)\n"
    (area.root / "test_skipped.py").write_text(skipped)
    alone = run(area, WEAK)
    assert len(alone.survivors) == 1
    assert run(area, WEAK, jobs=3) == alone
    assert alone.skipped


def test_programs_are_left_out_and_every_area_has_files(area: Area, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SOURCE)
    both = replace(area, sources=("*er.py", "program.py"), programs=("prog*.py",))
    assert both.files() == area.files() == [tmp_path / "adder.py"]
    for known in campaign.areas(ROOT).values():
        assert known.files()
        assert not {*known.files()} & {file for each in known.programs for file in ROOT.glob(each)}


def test_a_part_of_the_faults_may_be_tried(area: Area) -> None:
    assert run(area, STRONG, every=2).made == 2
    parts = [run(area, WEAK, every=2, first=first) for first in (1, 2)]
    assert [part.made for part in parts] == [2, 1]
    assert sorted(line for part in parts for line in part.survivors) == sorted(run(area, WEAK).survivors)


def test_several_processes_find_what_one_finds(area: Area) -> None:
    """In the order of the lines, whichever process is the first."""
    body = "".join(f"\n\ndef f{n}(a):\n    return a < {n}\n" for n in range(12))
    (area.root / "adder.py").write_text(body)
    asked = "".join(f"    assert adder.f{n}({n - 3})\n" for n in range(12))
    tests = f"import adder\n\n\ndef test_it():\n{asked}"
    alone = run(area, tests)
    assert 0 < len(alone.survivors) < alone.made
    assert run(area, tests, jobs=3) == alone


def test_processes_end_after_what_they_do_when_the_caller_stops_reading(tmp_path: Path) -> None:
    """As after Ctrl-C or SIGTERM: a group of faults may take minutes."""

    def work(number: int) -> int:
        Path(tmp_path, str(number)).touch()
        time.sleep(0.05)
        return number

    groups = workers.outcomes(lambda: nullcontext(work), 101, jobs=2, together=100)
    assert next(groups) == (100, 100)  # alone in the second group
    groups.close()  # type: ignore[attr-defined]
    assert len(list(tmp_path.iterdir())) < 50


def test_processes_whose_tests_fail_by_themselves_say_so(area: Area) -> None:
    with pytest.raises(FtbuildError, match="the tests fail without a mutant"):
        run(area, WEAK + "    assert is_allowed(10)\n", jobs=2)


def test_a_fault_that_makes_a_loop_is_noticed(area: Area, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "LEAST_SECONDS", 0)
    monkeypatch.setattr(trial, "PATIENCE", 1)
    (area.root / "adder.py").write_text("def f(a):\n    while a:\n        a -= 1\n    return a\n")
    tests = "from adder import f\n\n\ndef test_it():\n    assert f(3) == 0\n"
    assert run(area, tests).survivors == ()


def test_a_fault_by_which_a_test_waits_again_when_its_time_is_over_is_noticed(
    area: Area, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the twenty minutes that nothing may take a process of a campaign waits for seconds only."""
    monkeypatch.setattr(trial, "LEAST_SECONDS", 2)
    monkeypatch.setattr(trial, "LEAST_WAITING_SECONDS", 1)
    monkeypatch.setattr(trial, "WAITING", 2)
    waits = ("import threading", "", "", "def f():", "    event = threading.Event()", "    event.set()")
    twice = ("    try:", "        event.wait()", "    finally:", "        event.wait()")
    (area.root / "adder.py").write_text("\n".join((*waits, *twice, "")))
    found = run(area, "from adder import f\n\n\ndef test_it():\n    f()\n")
    assert found.survivors == ("adder.py:8: event.wait() -> pass", "adder.py:10: event.wait() -> pass")


def test_faults_in_every_kind_of_function_are_noticed(area: Area) -> None:
    (area.root / "adder.py").write_text(KINDS)
    assert run(area, TESTS_OF_KINDS) == Result("sums", 12, ())


KINDS = """
class Sum:
    def __init__(self, number):
        self.number = number

    @property
    def more(self):
        return self.number + 1

    @classmethod
    def of(cls, text):
        return [cls(int(part)) for part in text.split("-")]


class Larger(Sum):
    @property
    def more(self):
        return super().more * 2


def adding(number):
    def add(other):
        return number + other

    return add


add_three = adding(3)
"""
TESTS_OF_KINDS = """
import adder


def test_it():
    assert adder.Sum(1).more == 2
    assert adder.Larger(2).more == 6
    assert [each.number for each in adder.Sum.of("1-2")] == [1, 2]


def test_more():
    assert adder.add_three(1) == 4
"""


@pytest.mark.parametrize(
    ("source", "tests"),
    [
        (
            "import functools\n\n\n@functools.cache\ndef table():\n    return entries()\n\n\n"
            "def entries():\n    return {1: 2}\n",
            "import adder\n\n\ndef test_first():\n    adder.table()\n\n\n"
            "def test_second():\n    assert adder.table() == {1: 2}\n",
        ),
        (
            "def entries():\n    return {1: 2}\n",
            "import adder\nimport pytest\n\n\n@pytest.fixture(scope='module')\ndef table():\n"
            "    return adder.entries()\n\n\ndef test_first(table):\n    pass\n\n\n"
            "def test_second(table):\n    assert table == {1: 2}\n",
        ),
    ],
)
def test_what_one_test_keeps_for_others_is_judged_by_all(area: Area, source: str, tests: str) -> None:
    (area.root / "adder.py").write_text(source)
    assert run(area, tests).survivors == ()


def test_a_plugin_that_is_imported_before_pytest_breaks_no_trial(area: Area) -> None:
    """Else each trial would fail, and every fault would seem to be noticed."""
    (area.root / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    assert run(area, f"import hypothesis\n{WEAK}").killed == 1


def test_a_fault_that_ends_the_process_of_the_tests_ends_no_campaign(
    area: Area, monkeypatch: pytest.MonkeyPatch
) -> None:
    (area.root / "adder.py").write_text("def f():\n    return 1\n\n\ndef g():\n    return 2\n")
    tests = (
        "import os, signal\nimport adder\n\n\ndef test_f():\n    if adder.f() is None:\n"
        "        os.kill(os.getppid(), signal.SIGKILL)\n    assert adder.f() == 1\n\n\n"
        "def test_g():\n    assert adder.g() == 2\n"
    )
    assert run(area, tests) == Result("sums", 4, ())
    monkeypatch.setattr(trial, "MAX_ENDED", 1)
    with pytest.raises(FtbuildError, match="their process has ended in 1 trials one after the other"):
        run(area, tests)


def test_a_test_that_recurses_without_end_hides_no_other(area: Area) -> None:
    """Python traces nothing any more once the trace itself has met a RecursionError."""
    (area.root / "adder.py").write_text(
        "def deep(n):\n    return deep(n + 1)\n\n\ndef add(a, b):\n    return a + b\n"
    )
    tests = (
        "import adder\nimport pytest\n\n\ndef test_deep():\n    with pytest.raises(RecursionError):\n"
        "        adder.deep(0)\n\n\ndef test_add():\n    assert adder.add(2, 3) == 5\n"
    )
    assert not [line for line in run(area, tests).survivors if ":6:" in line]


def test_functions_are_exchanged_although_the_tests_hide_what_they_have_made(
    area: Area, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each fault would need a process that imports everything anew: a second in place of a tenth."""
    (area.root / "conftest.py").write_text(
        "import gc\n\n\ndef pytest_collection_finish():\n    gc.collect()\n    gc.freeze()\n"
    )
    anew: list[Path] = []
    of_module = trial.Trials.of_module

    def noting(self: trial.Trials, file: Path, tree: ast.Module) -> bool:
        anew.append(file)
        return of_module(self, file, tree)

    monkeypatch.setattr(trial.Trials, "of_module", noting)
    assert run(area, STRONG) == Result("sums", 3, ())
    assert len(anew) == 1  # LIMIT = 11


def test_tests_that_fail_by_themselves_show_nothing(area: Area) -> None:
    with pytest.raises(
        FtbuildError, match=r"area sums: the tests fail without a mutant: test_adder.py::test_it"
    ):
        run(area, WEAK + "    assert is_allowed(10)\n")


def test_an_area_without_a_test_says_so(area: Area) -> None:
    with pytest.raises(FtbuildError, match="the tests fail without a mutant: there is no test"):
        run(area, "import adder\n")


def test_a_fixture_that_fails_behind_its_test_is_named_by_it(area: Area) -> None:
    """As one does that measures memory, of which a trace takes much."""
    fixture = (
        "\n\nimport pytest\n\n\n@pytest.fixture(autouse=True)\ndef after():\n    yield\n    assert not 1\n"
    )
    with pytest.raises(FtbuildError, match=r"fail without a mutant: test_adder\.py::test_it\n"):
        run(area, WEAK + fixture)


def test_folders_with_settings_of_their_own_belong_to_one_area(area: Area) -> None:
    """pytest then looks through the plugins for those that a file has nothing to do with."""
    for folder in ("weak", "strong"):
        (area.root / folder).mkdir()
        (area.root / folder / "conftest.py").write_text("")
    (area.root / "weak" / "test_weak.py").write_text(WEAK)
    (area.root / "strong" / "test_strong.py").write_text(STRONG.replace("test_it", "test_more"))
    (area.root / "conftest.py").write_text("import sys\n\nsys.path.insert(0, '.')\n")
    both = Area("sums", area.root, ("adder.py",), ("weak/test_*.py", "strong/test_*.py"))
    assert campaign.run(both, area.root / "work", lambda message: None) == Result("sums", 3, ())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("def pytest_unconfigure(config):\n    raise SystemError('odd end')\n", "odd end"),
        ("import adder_of_others\n", "No module named 'adder_of_others'"),
        ("def pytest_runtest_logreport(report):\n    raise SystemError('odd hook')\n", "odd hook"),
        ("import os\n\n\ndef pytest_sessionstart():\n    os._exit(7)\n", "pytest ended with 7"),
    ],
)
def test_of_an_end_without_a_failed_test_pytest_s_own_words_are_said(
    area: Area, settings: str, said: str
) -> None:
    (area.root / "conftest.py").write_text(settings)
    with pytest.raises(FtbuildError, match=r"(?s)area sums: the tests fail without a mutant: .*" + said):
        run(area, WEAK)


def test_tests_that_cannot_be_collected_are_named(area: Area) -> None:
    with pytest.raises(FtbuildError, match=r"(?s)pytest ended with 2.*test_adder\.py:1.*adder_of_others"):
        run(area, "import adder_of_others\n")


def test_tests_that_do_not_run_here_are_counted_with_their_reason(area: Area) -> None:
    """On a machine that lacks a program, what its tests notice would else be taken for a missing test."""
    skips = (
        "\n\nimport pytest\n\n\n@pytest.mark.skip(reason='needs a registry')\ndef test_nine() -> None:\n"
        "    assert is_allowed(9)\n\n\n@pytest.mark.xfail\ndef test_known() -> None:\n    assert 0\n"
    )
    said: list[str] = []
    (area.root / "test_adder.py").write_text(WEAK + skips)
    found = campaign.run(area, area.root / "work", said.append)
    assert found.skipped == ("    1  needs a registry  [test_adder.py]",)
    assert said[0] == (
        "area sums: tests that do not run here notice nothing: 1  needs a registry  [test_adder.py]"
    )
    (area.root / "test_adder.py").write_text(WEAK)
    assert campaign.run(area, area.root / "work", said.append).skipped == ()


def test_a_pattern_without_a_file_is_named(area: Area) -> None:
    with pytest.raises(ConfigError, match=r"no file matches test_\*\.py"):
        area.test_files()


def test_the_areas_of_this_project_have_files() -> None:
    for area in campaign.areas(ROOT).values():
        assert area.files()
        assert area.test_files()
