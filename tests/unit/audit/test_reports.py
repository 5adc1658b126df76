"""What an audit prints and writes, whole: for a reader, and for a program that reads it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from ftbuild.audit import job, pins, record, report
from ftbuild.audit.contents import Component, Contents
from ftbuild.audit.holes import Finding, Report
from ftbuild.audit.osv import Database, Entry
from ftbuild.audit.remote import Answer
from ftbuild.sources.objects import Change, Snapshot
from ftbuild.sources.store import Store
from ftbuild.text.results import CheckResult, State

CONTENTS = Contents(
    ("22.12-sm80 runtime", "22.12-sm90 runtime"),
    (
        Component("PyPI", "numpy", "1.0", ("pkg:pypi/numpy",)),
        Component("", "krb5", "1", ("pkg:generic/krb5",)),
    ),
    True,
    ("brotli", "krb5"),
)
OPEN = (
    Finding("CVE-2000-0001", "numpy", "1.0", 9.8, "1.1", ("GHSA-1", "PYSEC-1", "holes.yaml"), "update it"),
    Finding("CVE-2000-0002", "krb5 (in a wheel)", "1", None, "", ("OSV-1", "OSV-2")),
    Finding("CVE-2000-0004", "numpy", "1.0", 0.0, "", ("OSV-3",)),
)
STATED = (
    Finding("CVE-2000-0003", "numpy", "1.0", 5.0, "", ("PYSEC-3",), "not linked"),
    Finding("CVE-2000-0005", "numpy", "1.0", 5.0, "", ("PYSEC-4",), "not linked"),
)
FOUND = Report(CONTENTS, OPEN, STATED, {"numpy": 2, "krb5": 1}, {"Debian:12": 7, "PyPI": 1})
EMPTY = Report(Contents(("another",), (), False), (), ())
DATABASE = Database(
    Path("/data/all.zip"),
    12,
    Counter({"withdrawn": 2, "not JSON": 1}),
    {"PyPI"},
    [Entry({}, {}, "PyPI", "numpy")],
)
TEXT = """\
all.zip: records: 12; skipped: withdrawn: 2, not JSON: 1
other.zip: records: 0
holes.yaml: bulletins up to 2026-02-01

22.12-sm80 runtime, 22.12-sm90 runtime
Hole           Class     Component            Version  Fixed in    Says
-------------  --------  -----------------  ---------  ----------  --------------------
CVE-2000-0001  critical  numpy                      1  1.1         GHSA-1, PYSEC-1, ...
CVE-2000-0002  unknown   krb5 (in a wheel)          1              OSV-1, OSV-2
CVE-2000-0004  none      numpy                      1              OSV-3
components: 2, open holes: 3: critical: 1, none: 1, unknown: 1
not in these images, says holes.yaml: CVE-2000-0003, CVE-2000-0005
no database is about Debian:12: 7, PyPI: 1
records without versions that can be compared, for numpy: 2, krb5: 1
of unknown release: brotli, krb5

another
components: 0, open holes: 0"""


def plainly(text: str) -> list[list[str]]:
    """The words of each line: how wide the columns are is the table's business."""
    return [line.split() for line in text.splitlines() if set(line) - set("-─ ")]


def test_a_reader_gets_holes_counts_and_what_was_not_looked_at() -> None:
    text = report.render([FOUND, EMPTY], [DATABASE, Database(Path("/data/other.zip"))], "2026-02-01")
    expected = TEXT.replace("numpy                      1 ", "numpy 1.0")
    assert plainly(text) == plainly(expected)


def test_a_program_gets_everything() -> None:
    text = report.as_json([FOUND, EMPTY], [DATABASE], "2026-02-01")
    assert text.startswith('{\n  "known": "2026-02-01",\n')

    def listed(finding: Finding, word: str) -> dict[str, object]:
        return {
            "id": finding.id,
            "component": finding.component,
            "version": finding.version,
            "score": finding.score,
            "fixed": finding.fixed,
            "by": [*finding.by],
            "text": finding.text,
            "severity": word,
        }

    assert json.loads(text) == {
        "known": "2026-02-01",
        "databases": [
            {
                "file": "/data/all.zip",
                "records": 12,
                "matching": 1,
                "skipped": {"withdrawn": 2, "not JSON": 1},
            }
        ],
        "images": [
            {
                "images": ["22.12-sm80 runtime", "22.12-sm90 runtime"],
                "components": 2,
                "counts": {"critical": 1, "unknown": 1, "none": 1},
                "open": [listed(f, w) for f, w in zip(OPEN, ("critical", "unknown", "none"), strict=True)],
                "stated": [listed(finding, "medium") for finding in STATED],
                "undecided": {"numpy": 2, "krb5": 1},
                "unchecked": {"Debian:12": 7, "PyPI": 1},
                "unversioned": ["brotli", "krb5"],
            },
            {
                "images": ["another"],
                "components": 0,
                "counts": {},
                "open": [],
                "stated": [],
                "undecided": {},
                "unchecked": {},
                "unversioned": [],
            },
        ],
    }


@pytest.mark.parametrize(
    ("fail_on", "score", "code"),
    [
        ("critical", 9.0, 8),
        ("critical", 8.9, 0),
        ("high", 7.0, 8),
        ("high", 6.9, 0),
        ("medium", 4.0, 8),
        ("medium", 3.9, 0),
        ("low", 0.1, 8),
        ("low", 0.0, 0),
        ("low", None, 0),
        ("any", 0.0, 8),
        ("any", None, 8),
        ("none", 10.0, 0),
    ],
)
def test_a_class_begins_at_its_lowest_score(fail_on: report.FailOn, score: float | None, code: int) -> None:
    found = Report(CONTENTS, (Finding("A", "numpy", "1", score, "", ()),), ())
    assert report.exit_code([found], fail_on) == code
    assert report.exit_code([], fail_on) == 0


@pytest.mark.parametrize("state", list(State))
def test_a_result_is_read_as_it_was_written(state: State) -> None:
    result = CheckResult("base ngc 22.12", state, "moved")
    written = record.as_dict(result)
    assert written == {"what": "base ngc 22.12", "state": state.value, "detail": "moved"}
    assert record.from_dict(written) == result


@pytest.mark.parametrize(
    "broken",
    [
        *({}, None, 7, []),
        {"what": "a", "state": "ok"},
        {"what": "a", "state": "good", "detail": ""},
        {"what": 1.5, "state": "ok", "detail": ""},
        {"what": "a", "state": "ok", "detail": 1.5},
    ],
)
def test_what_is_no_result_is_an_error_of_value(broken: object) -> None:
    with pytest.raises(ValueError, match=r"not a result of an audit|not a valid State"):
        record.from_dict(broken)


def test_results_are_json_that_people_can_read() -> None:
    text = job.render([CheckResult("a", State.OK, "fine")], "json")
    assert text == '[\n  {\n    "what": "a",\n    "state": "ok",\n    "detail": "fine"\n  }\n]'


# Pins

IDS = [letter * 40 for letter in "abcdef"]
REF = "refs/heads/main"
URL, MIRROR = "https://example.invalid/ft.git", "https://mirror.example.invalid/ft.git"


def judged(folder: Path, found: tuple[pins.Pin, ...], *answers: Answer) -> list[tuple[str, str, str]]:
    store = Store(folder, "ft", [answer.url for answer in answers])
    return [(each.check, each.state.value, each.detail) for each in pins.judge("ft", found, answers, store)]


def pin(number: int, *users: str, ref: str | None = None) -> pins.Pin:
    return pins.Pin(Snapshot(IDS[number], (), ref), users or (f"22.{number:02d}",))


def test_pins_that_are_served_are_counted_once(tmp_path: Path) -> None:
    both = (pin(0, ref=REF), pins.Pin(Change(IDS[0]), ("0001.backport",)), pin(1))
    answer = Answer(URL, "", {REF: IDS[0]}, frozenset(IDS[:2]))
    assert judged(tmp_path, both, answer) == [
        (f"source ft: {URL}", "ok", "pinned commits available: 2"),
        ("source ft: commits", "ok", "pinned: 2, all can be fetched"),
    ]


def test_many_commits_that_are_lost_are_named_in_part(tmp_path: Path) -> None:
    lost = tuple(pin(number) for number in range(6))
    said = judged(tmp_path, lost, Answer(URL))
    named = ", ".join(f"{IDS[number][:12]} (22.{number:02d})" for number in range(4))
    assert said == [
        (f"source ft: {URL}", "warn", f"lacks {named} and 2 more"),
        (
            "source ft: commits",
            "fail",
            f"no URL has {named} and 2 more\n"
            "what the cache lacks is only in older files of invoke bundle: invoke build --sources",
        ),
    ]
    assert judged(tmp_path, lost[:4], Answer(URL))[0][2] == f"lacks {named}"


class Cache(Store):
    """A cache that holds some of the commits."""

    kept: frozenset[str] = frozenset()

    def holds(self, pinned: object) -> bool:
        return getattr(pinned, "commit", "") in self.kept


@pytest.mark.parametrize(
    ("kept", "says"),
    [
        (
            IDS[:1],
            [
                f"the cache here still holds {IDS[0][:12]} (22.00): save it now with invoke bundle, "
                "and add a mirror",
                "what the cache lacks is only in older files of invoke bundle: invoke build --sources",
            ],
        ),
        (IDS[:2], ["the cache here still holds it all: save it now with invoke bundle, and add a mirror"]),
        ([], ["what the cache lacks is only in older files of invoke bundle: invoke build --sources"]),
    ],
)
def test_what_the_cache_still_has_of_lost_commits_is_said(
    tmp_path: Path, kept: list[str], says: list[str]
) -> None:
    cache = Cache(tmp_path, "ft", [URL])
    cache.kept = frozenset(kept)
    *_, lost = pins.judge("ft", (pin(0), pin(1)), [Answer(URL)], cache)
    assert lost.detail.splitlines() == [f"no URL has {IDS[0][:12]} (22.00), {IDS[1][:12]} (22.01)", *says]


def test_refs_are_those_of_the_first_url_that_answers(tmp_path: Path) -> None:
    found = (pin(0, ref=REF), pin(1, ref=IDS[1]), pin(2), pin(3, ref="refs/heads/gone"))
    everything = frozenset(IDS)
    said = judged(
        tmp_path,
        found,
        Answer(URL, "fatal: silent"),
        Answer(MIRROR, "", {REF: IDS[5]}, everything),
        Answer(f"{MIRROR}/2", "", {}, everything),
    )
    assert said[0] == (f"source ft: {URL}", "warn", "does not answer: fatal: silent")
    assert said[4:] == [
        (
            f"source ft: {REF}",
            "warn",
            f"points to {IDS[5][:12]} now; the lock has {IDS[0][:12]} (22.00): invoke lock --check",
        ),
        (
            "source ft: refs/heads/gone",
            "warn",
            f"is gone; the lock has {IDS[3][:12]} (22.03): invoke lock --check",
        ),
    ]


def test_nothing_is_said_of_refs_while_nobody_answers(tmp_path: Path) -> None:
    said = judged(tmp_path, (pin(0, ref=REF),), Answer(URL, "silent"))
    assert [what for what, _, _ in said] == [f"source ft: {URL}", "source ft: commits"]


def test_mirrors_are_counted() -> None:
    assert pins.mirrors("ft", [MIRROR, URL]) == CheckResult("source ft: mirrors", State.OK, "configured: 2")
    assert pins.mirrors("ft", []) == CheckResult(
        "source ft: mirrors",
        State.WARN,
        "none: add one to sources.yaml, or keep a file of invoke bundle, before upstream vanishes",
    )
