"""Nightly runs over three cells whose commands only pretend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftbuild import matrix, plan_file
from ftbuild.build import bake
from ftbuild.config.schema import Config
from ftbuild.engine import builders, buildx, daemon
from ftbuild.engine.builders import Builder, Machine
from ftbuild.errors import HostError
from ftbuild.gates.smoke import gate
from ftbuild.host import shell
from ftbuild.nightly import run as nightly_run
from ftbuild.nightly import scheduler
from ftbuild.nightly.record import NightlyRun
from ftbuild.nightly.request import NightlyOptions, Request
from ftbuild.plan import PRODUCTS, Plan, Revision
from ftbuild.planning import make_plan
from ftbuild.publishing import signing
from ftbuild.publishing.status import PublishStatus
from ftbuild.registry.client import Repository

CELLS = ("22.12-sm70", "22.12-sm80", "22.12-sm86")
HERE, THERE = "registry.example.com/team", "elsewhere.example.com/team"
DIGEST = "sha256:" + "7" * 64
REVISION = Revision("a" * 40, "2026-01-01T00:00:00+00:00")


@dataclass
class Commands:
    """The commands of the cells: those that ran, and the codes with which they end (0 otherwise).

    Builds on a builder in `silent` fail, and it answers no more; `vanish` holds the builders that are silent
    once they have so many builds. `bases` has the options of each base that was made, which `base_code` ends.
    """

    work: Path
    ran: list[tuple[str, str]] = field(default_factory=list)
    lines: list[list[str]] = field(default_factory=list)
    codes: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    failures: dict[tuple[str, str], Exception] = field(default_factory=dict)
    published: set[tuple[str, str]] = field(default_factory=set)
    signed: set[tuple[str, str]] = field(default_factory=set)
    log: str = ""
    silent: set[str] = field(default_factory=set)
    vanish: dict[str, int] = field(default_factory=dict)
    bases: list[list[str]] = field(default_factory=list)
    base_code: int = 0
    audit: list[str] = field(default_factory=lambda: ["[]", ""])
    engine: dict[str, Any] = field(
        default_factory=lambda: {"ID": "EN:GI:NE", "NCPU": 4, "MemTotal": 64 << 30}
    )

    def stream(self, argv: Sequence[str], *, log: Path, on_line: Callable[[str], None], **more: Any) -> int:
        """Stand for the start of a command."""
        assert Path(argv[4], "tasks.py").is_file()
        name, *options = argv[5:]
        value = dict(zip(options[::2], options[1::2], strict=False))
        if name == "base":
            self.bases.append(options)
            log.write_text("error: no network\n" if self.base_code else "done\n")
            return self.base_code
        cell = plan_file.read(Path(value["--plan"])).cell.id
        self.ran.append((cell, name))
        self.lines.append([name, *options])
        if failure := self.failures.get((cell, name)):
            raise failure
        code = (self.codes.get((cell, name)) or [0]).pop(0)
        if name == "build" and (builder := value.get("--builder")):
            self.vanish[builder] = self.vanish.get(builder, 1000) - 1
            if self.vanish[builder] <= 0:
                self.silent.add(builder)
            code = 4 if builder in self.silent else code
        log.write_text(f"[{cell}] failed: {name} of {cell}\n  next:  nothing\n" if code else "done\n")
        on_line(f"[{cell}] a line about it")
        on_line(f"[{cell}] #12 a line of BuildKit")
        on_line(f"[{cell}] #13 [x backend 1/1] RUN /steps/compile.sh backend /src")
        on_line(f"[{cell}] #13 DONE 9.9s")
        on_line(f"[{cell}] ")
        if name == "build" and self.log:
            for folder in (self.work / cell).iterdir():
                (folder / bake.LOG).write_text(self.log)
        if name == "publish" and not code:
            self.published.add((value["--registry"], cell))
        return code

    def answer(self, argv: Sequence[str], **more: Any) -> shell.Result:
        """Stand for the audit, with its answer and what it says beside."""
        assert argv[5] == "audit"
        self.lines.append(list(argv[5:]))
        return shell.Result(tuple(argv), 0, *self.audit)

    def silence(self, builder: str) -> str:
        """Stand for the question whether a builder answers."""
        return "no route to host" if builder in self.silent else ""

    def find(self, builder: str, *, start: bool = False) -> Builder:
        """Stand for the inspection of a builder; those that begin with `same` are one engine."""
        if builder in self.silent:
            raise HostError(f"builder {builder} does not answer: no route to host")
        if builder.startswith("pod"):
            return Builder(builder, "kubernetes", None)
        engine = "SAME" if builder.startswith("same") else "EN:GI:NE" if builder == "default" else builder
        return Builder(builder, "docker", Machine(8, 12 << 30), engine=engine, attests=False)

    def of(self, cell: str) -> list[str]:
        """Return the commands that ran for a cell, and forget them."""
        found = [name for ran, name in self.ran if ran == cell]
        self.ran = [one for one in self.ran if one[0] != cell]
        return found


@dataclass
class Night:
    """Runs over three cells."""

    config: Config
    work: Path
    commands: Commands
    selected: tuple[str, ...] = CELLS
    revision: Revision = REVISION
    cache: Path = Path()

    def run(self, **options: Any) -> NightlyRun:
        """Run over `selected` (default: all three cells; when resuming, those of the record)."""
        cells = options.pop("selected", None) or (() if options.get("resume") else self.selected)
        table = matrix.select_with_excluded(self.config, cells=cells) if cells else None
        request = Request(self.config, table, ["--cell", "x"], self.revision, self.work, self.cache)
        settings: dict[str, Any] = {"registry": HERE, "audit": False, "jobs": 4, "parallel": 1, **options}
        return nightly_run.execute(request, NightlyOptions(**settings))


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    found = Commands(tmp_path)
    client = SimpleNamespace(info=lambda: found.engine, containers=SimpleNamespace(list=lambda **more: []))
    monkeypatch.setattr(daemon, "connect", lambda: client)
    monkeypatch.setattr(daemon, "image", lambda client, name: None)
    monkeypatch.setattr(buildx, "version", lambda: None)
    monkeypatch.setattr(builders, "find", found.find)
    monkeypatch.setattr(builders, "silence", found.silence)
    monkeypatch.setattr(gate, "needs_gpu", lambda config: False)
    monkeypatch.setattr(shell, "stream", found.stream)
    monkeypatch.setattr(shell, "run", found.answer)
    monkeypatch.setattr(signing.Signer, "has_signed", lambda signer, name, report: bool(found.signed))

    def query(plans: Sequence[Plan], repository: Repository) -> list[PublishStatus]:
        registry = repository.name.rpartition("/")[0]
        return [status(plan, (registry, plan.cell.id) in found.published) for plan in plans]

    monkeypatch.setattr(nightly_run, "query", query)
    return found


def status(plan: Plan, there: bool) -> PublishStatus:
    digests = dict.fromkeys(PRODUCTS, DIGEST if there else None)
    return PublishStatus(plan, digests, digests, dict.fromkeys(PRODUCTS))


@pytest.fixture(scope="module")
def planned(config: Config) -> dict[str, Plan]:
    return {cell.id: make_plan(config, cell, REVISION) for cell in matrix.select(config, cells=CELLS)}


@pytest.fixture
def night(
    config: Config,
    planned: Mapping[str, Plan],
    tmp_path: Path,
    commands: Commands,
    monkeypatch: pytest.MonkeyPatch,
) -> Night:
    for plan in planned.values():
        plan.folder(tmp_path).mkdir(parents=True)
    # Plans and pages take more time than all else, and have their own tests.
    monkeypatch.setattr(
        nightly_run, "make_plans", lambda config, cells, revision: [planned[cell.id] for cell in cells]
    )
    monkeypatch.setattr(scheduler, "write_reports", lambda run, folder: run.write(folder))
    return Night(config, tmp_path, commands, cache=tmp_path / "cache")
