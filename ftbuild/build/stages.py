"""What a build does, in words: the steps of a Dockerfile, and BuildKit's plain log read line by line.

BuildKit numbers the steps of a build (`#12 [target stage 1/3] RUN ...`) and begins each line with the number
of its step. Times are seconds of any clock that only goes forward.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from ftbuild.text.reporter import Reporter

_STEP = re.compile(
    r"#(?P<number>\d+) \[(?:(?P<target>[^ \]]+) )?(?P<stage>[^ \]]+) \d+/\d+\] (?P<text>[A-Z]+ .*)"
)
_EXPORT = re.compile(r"#(?P<number>\d+) (?:\[(?P<target>[^ \]]+)\] )?exporting to (?P<where>\w+)")
_SENDING = re.compile(r"#(?P<number>\d+) \[(?:[^ \]]+ )?context (?P<what>[^ \]]+)\] load from client")
_LINE = re.compile(r"#(?P<number>\d+) (?P<text>.*)")
_END = re.compile(r"(?P<how>DONE|CACHED|ERROR|CANCELED)\b(?: (?P<seconds>\d+\.\d+)s)?")
_NINJA = re.compile(r"\d+\.\d+ \[(?P<done>\d+)/(?P<of>\d+)\] ")
_FROM = re.compile(r"FROM (?:--\S+ )*(?P<base>\S+)(?: AS (?P<stage>\S+))?", re.I)
_REFERENCE = re.compile(r"(?:--from=|[,=]from=)([\w.-]+)")
# What runs is told at least so often.
HEARTBEAT_SECONDS = 60.0
# A step that took less is not told.
_QUICK_SECONDS = 1.0
_PROGRAMS = (
    (re.compile(r"/steps/compile\.sh (?P<name>\S+)"), "compile {name}"),
    (re.compile(r"/steps/compile-server\.sh"), "compile the server"),
    (re.compile(r"/steps/pip-install\.sh /recipe/(?P<name>[\w-]+)\.txt"), "install Python packages ({name})"),
    (re.compile(r"/steps/apt-install\.sh"), "install Debian packages ({stage})"),
    (re.compile(r"/steps/put\.sh|/steps/fixed-times\.sh"), "assemble {stage}"),
)


def words(stage: str, instruction: str) -> str | None:
    """Return what a step of a stage does, None for one that takes no time (COPY, ENV, WORKDIR)."""
    if not instruction.startswith("RUN"):
        return None
    for pattern, text in _PROGRAMS:
        if found := pattern.search(instruction):
            return text.format(stage=stage, **found.groupdict())
    return f"prepare {stage}"


def expected(dockerfile: str, targets: Collection[str]) -> tuple[str, ...]:
    """Return what the stages do that some targets need, each once, in the Dockerfile's order."""
    stages = dict(_stages(dockerfile))
    wanted, left = set(), [name for name in targets if name in stages]
    while left:
        name = left.pop()
        if name in wanted:
            continue
        wanted.add(name)
        base, steps = stages[name]
        named = {base, *(reference for step in steps for reference in _REFERENCE.findall(step))}
        left += named & stages.keys()
    found = (words(name, step) for name in stages if name in wanted for step in stages[name][1])
    return tuple(dict.fromkeys(text for text in found if text))


def _stages(dockerfile: str) -> Iterator[tuple[str, tuple[str, list[str]]]]:
    """Yield each stage with its base and its instructions, each on one line, here-documents left out."""
    name, base, steps = "", "", list[str]()
    lines = iter(dockerfile.splitlines())
    for line in lines:
        if line.lstrip().startswith("#"):
            continue
        while line.endswith("\\"):
            line = line[:-1] + next(lines, "").strip()
        if here := re.search(r"<<-?'?(\w+)'?", line):
            for skipped in lines:
                if skipped.strip() == here[1]:
                    break
        if found := _FROM.match(line):
            if name:
                yield name, (base, steps)
            name, base, steps = found["stage"] or "", found["base"], []
        elif line.strip():
            steps.append(line)
    if name:
        yield name, (base, steps)


@dataclass
class Running:
    """A step that runs: what it does, since when, and how many compile commands of how many are done."""

    words: str
    since: float
    done: int = 0
    of: int = 0

    def line(self, now: float) -> str:
        """Return it in a line, for instance `compile backend  212/438  3:12`."""
        counts = f"  {self.done}/{self.of}" if self.of else ""
        return f"{self.words}{counts}  {clock(now - self.since)}"


def clock(seconds: float) -> str:
    """Return a duration as `3:12` or `1:02:09`."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@dataclass
class Watch:
    """The state of a build by its log.

    `expected` is what it will do. What came from a cache, or took no time, is done and not told. Several
    steps can do the same for several targets; they are told as one.
    """

    expected: tuple[str, ...] = ()
    running: dict[str, Running] = field(default_factory=dict)
    _numbers: dict[str, str] = field(default_factory=dict)
    _open: dict[str, set[str]] = field(default_factory=dict)
    _finished: set[str] = field(default_factory=set)
    _told: set[str] = field(default_factory=set)

    def read(self, line: str, now: float) -> list[str]:
        """Take a line of the log; return what has ended with it, in lines for people."""
        found = _LINE.match(line)
        if found is None:
            return []
        if named := _named(line):
            self._begin(found["number"], named, now)
            return []
        known = self._numbers.get(found["number"])
        if known is None:
            return []
        if counted := _NINJA.match(found["text"]):
            step = self.running.setdefault(known, Running(known, now))
            step.done, step.of = int(counted["done"]), int(counted["of"])
            return []
        if ended := _END.match(found["text"]):
            return self._end(found["number"], known, ended["how"], now, float(ended["seconds"] or 0))
        return []

    @property
    def left(self) -> tuple[str, ...]:
        """What neither runs nor has ended."""
        begun = self.running.keys() | self._finished
        return tuple(text for text in self.expected if text not in begun)

    def lines(self, now: float) -> list[str]:
        """Return a line for each running step, the longest-running first."""
        return [each.line(now) for each in sorted(self.running.values(), key=lambda each: each.since)]

    def _begin(self, number: str, named: str, now: float) -> None:
        if self._numbers.get(number) == named:
            return
        self._numbers[number] = named
        self._open.setdefault(named, set()).add(number)
        self._finished.discard(named)
        self.running.setdefault(named, Running(named, now))

    def _end(self, number: str, named: str, how: str, now: float, told: float) -> list[str]:
        """Take the end of a step, which took as long as BuildKit says: it may print its beginning late."""
        numbers = self._open.get(named, set())
        numbers.discard(number)
        if numbers or named not in self.running:
            return []
        step = self.running.pop(named)
        seconds = max(now - step.since, told)
        self._finished.add(named)
        if how == "CACHED" or (how == "DONE" and seconds < _QUICK_SECONDS):
            return []
        if how == "DONE" and named in self._told:
            # The same sources go to several targets, one after the other.
            return []
        self._told.add(named)
        wrong = {"ERROR": "failed: ", "CANCELED": "canceled: "}.get(how, "")
        counts = f"  {step.of} commands" if step.of and not wrong else ""
        return [f"{wrong}{named}{counts}  {clock(seconds)}"]


class Progress:
    """A build by the lines of its log, told in words: what has ended, and at times what runs.

    Without a thread: what runs is told when a line comes and nothing was told for `every` seconds.
    """

    def __init__(self, report: Reporter, every: float = HEARTBEAT_SECONDS) -> None:
        self._report, self._every = report, every
        self._watch, self._told = Watch(), time.monotonic()

    def read(self, line: str, prefix: str = "") -> None:
        """Take a line of the log; what is reported begins with `prefix`."""
        now = time.monotonic()
        told = self._watch.read(line, now)
        if not told and now - self._told >= self._every and (running := self._watch.lines(now)):
            told = [f"running: {'; '.join(running)}"]
        for text in told:
            self._told = now
            self._report(f"{prefix}{text}")


def _named(line: str) -> str | None:
    """Return what the step that a line names does, None for a line that names none that is told."""
    if step := _STEP.fullmatch(line):
        return words(step["stage"], step["text"])
    if sending := _SENDING.fullmatch(line):
        return f"send {sending['what']}"
    if export := _EXPORT.match(line):
        target: Mapping[str, str] = {"image": "write images", "docker": "write images"}
        return target.get(export["where"])
    return None
