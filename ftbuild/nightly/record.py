"""The record of a nightly run, one entry per cell: `report.json`, the source of all reports.

Pure data. Times are in seconds since the run began unless a name has another unit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, TypeAdapter

from ftbuild import errors
from ftbuild.audit import record as audit_record
from ftbuild.host import files
from ftbuild.text import bounded_json
from ftbuild.text.results import CheckResult
from ftbuild.text.units import MIB

FILE = "report.json"
# With the keys of `invoke audit --format json`.
AuditResult = Annotated[
    CheckResult, PlainSerializer(audit_record.as_dict), BeforeValidator(audit_record.from_dict)
]


def _time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


# ISO 8601.
Time = Annotated[str, AfterValidator(_time)]
Seconds = Annotated[float, Field(allow_inf_nan=False)]
# A cell that compiled everything has some 400 units of three values, and 100 KB.
MAX_BYTES, MAX_VALUES = 64 * MIB, 2_000_000
_FEW = Field(max_length=100_000, fail_fast=True)


class State(StrEnum):
    """Outcome of a cell, in JUnit's terms: a failure is the image's fault, an error the infrastructure's."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"


class Reason(StrEnum):
    """The step that decided the state or, for a skip, why there was nothing to do."""

    NONE = ""
    PATCH = "patch"
    BUILD = "build"
    VERIFY = "verify"
    SMOKE = "smoke"
    PUBLISH = "publish"
    FETCH = "fetch"
    MACHINE = "machine"
    UNEXPECTED = "unexpected"
    EXCLUDED = "excluded"
    NO_GPU = "no-gpu"
    PUBLISHED = "already-published"
    NOT_RUN = "not-run"


# By the exit codes of ftbuild's commands (docs/exit-codes.md).
OUTCOMES: Mapping[int, tuple[State, Reason]] = {
    0: (State.PASSED, Reason.NONE),
    errors.HostError.exit_code: (State.ERROR, Reason.MACHINE),
    errors.PinError.exit_code: (State.ERROR, Reason.FETCH),
    errors.PatchError.exit_code: (State.FAILED, Reason.PATCH),
    errors.BuildError.exit_code: (State.FAILED, Reason.BUILD),
    errors.VerifyError.exit_code: (State.FAILED, Reason.VERIFY),
    errors.SmokeError.exit_code: (State.FAILED, Reason.SMOKE),
    errors.PublishError.exit_code: (State.ERROR, Reason.PUBLISH),
    errors.Interrupted.exit_code: (State.SKIPPED, Reason.NOT_RUN),
}


def outcome(code: int) -> tuple[State, Reason]:
    """Return state and reason of a step that ended with this exit code."""
    return OUTCOMES.get(code, (State.ERROR, Reason.UNEXPECTED))


@dataclass(frozen=True)
class Step:
    """One command run for a cell; `log` is a path relative to the report's folder.

    `builder` is the one that built, empty for the engine's own.
    """

    name: str
    command: str
    log: str
    start: Seconds
    seconds: Seconds
    code: int
    jobs: int | None = None
    builder: str = ""


@dataclass(frozen=True)
class Unit:
    """One edge of a build tree, from `.ninja_log`: seconds since the tree's first edge, and its output."""

    start: Seconds
    end: Seconds
    output: str


@dataclass(frozen=True)
class Image:
    """One image of a cell: id in the engine, bytes unpacked, published reference and digest, if any."""

    id: str
    bytes: int
    reference: str = ""
    digest: str = ""

    @property
    def pull(self) -> str:
        """Return the command that pulls this image by digest; empty if it is not published."""
        return f"docker pull {self.reference.rpartition(':')[0]}@{self.digest}" if self.digest else ""


@dataclass(frozen=True)
class Patch:
    """A patch in the images of a cell: `component/file`, and its DEP-3 Origin."""

    name: str
    origin: str


@dataclass(frozen=True)
class CellRecord:
    """The record of one cell: its outcome (`detail` has one line or more), steps and artifacts.

    `registry` is the one that has its images, by this run or an earlier one; empty: none. `builder` is the
    one that built them; empty: the engine's own.
    """

    cell: str
    triton: str
    sms: Annotated[tuple[int, ...], _FEW]
    base: str
    state: State
    reason: Reason
    detail: str = ""
    exit_code: int = 0
    key: str = ""
    start: Seconds = 0.0
    seconds: Seconds = 0.0
    steps: Annotated[tuple[Step, ...], _FEW] = ()
    notes: Annotated[tuple[str, ...], _FEW] = ()
    tail: Annotated[tuple[str, ...], _FEW] = ()
    patches: Annotated[tuple[Patch, ...], _FEW] = ()
    images: Annotated[Mapping[str, Image], _FEW] = field(default_factory=dict)
    compiles: Annotated[Mapping[str, Annotated[tuple[Unit, ...], _FEW]], _FEW] = field(default_factory=dict)
    figures: Annotated[Mapping[str, Annotated[Mapping[str, float], _FEW]], _FEW] = field(default_factory=dict)
    registry: str = ""
    builder: str = ""


@dataclass(frozen=True)
class BuilderRecord:
    """One builder of a run: its machine (None: unknown), its compile jobs, and its cells at a time.

    `lost` says why it was given up, `lost_at` when; empty and None for one that worked to the end.
    """

    name: str
    driver: str
    cores: int | None
    memory_bytes: int | None
    jobs: int
    cells: int
    lost: str = ""
    lost_at: Seconds | None = None


@dataclass(frozen=True)
class PastRun:
    """An earlier run, for the trends: state, seconds (if it was built) and bytes of the image by cell."""

    id: str
    seconds: Seconds
    exit_code: int
    states: Annotated[Mapping[str, str], _FEW]
    cell_seconds: Annotated[Mapping[str, Seconds], _FEW]
    cell_bytes: Annotated[Mapping[str, int], _FEW]


@dataclass(frozen=True)
class NightlyRun:
    """One run over the matrix. `id` is its start in UTC, later than that of each run before; `started` is the
    time by the machine's clock, in RFC 3339.

    `jobs` are those of all builders; `builders` are the named ones, none for the engine's own. `config` is
    the folder of the configuration, below the checkout where it lies there; empty: not known.
    """

    id: str
    started: Time
    seconds: Seconds
    exit_code: int
    command: str
    ftbuild: str
    revision: str
    registry: str
    cores: int
    memory_bytes: int
    jobs: int
    cells: Annotated[tuple[CellRecord, ...], _FEW]
    audit: Annotated[tuple[AuditResult, ...], _FEW] = ()
    past: Annotated[tuple[PastRun, ...], _FEW] = ()
    builders: Annotated[tuple[BuilderRecord, ...], _FEW] = ()
    config: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of cells in each state; every state is a key."""
        return {state.value: sum(c.state is state for c in self.cells) for state in State}

    @property
    def is_good(self) -> bool:
        """Return whether the run ended with 0."""
        return self.exit_code == 0

    @property
    def lost(self) -> tuple[BuilderRecord, ...]:
        """Return the builders that were lost."""
        return tuple(builder for builder in self.builders if builder.lost)

    def summary(self) -> PastRun:
        """Return the part that later runs keep for their trends."""
        return PastRun(
            self.id,
            self.seconds,
            self.exit_code,
            {c.cell: c.state.value for c in self.cells},
            {c.cell: c.seconds for c in self.cells if any(step.name == "build" for step in c.steps)},
            {c.cell: c.images["runtime"].bytes for c in self.cells if "runtime" in c.images},
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the run as plain data."""
        record: dict[str, Any] = _RUN.dump_python(self, mode="json")
        return record

    def write(self, folder: Path) -> None:
        """Write `report.json` into `folder`, atomically."""
        files.write_atomic(folder / FILE, json.dumps(self.as_dict(), indent=1) + "\n")


def read(folder: Path) -> NightlyRun:
    """Read what `NightlyRun.write` wrote; ValueError if it is not a report."""
    with (folder / FILE).open("rb") as stream:
        content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    return bounded_json.adapted(_RUN, content, MAX_VALUES)


_RUN: TypeAdapter[NightlyRun] = TypeAdapter(NightlyRun)
