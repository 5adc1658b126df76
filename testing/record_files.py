"""Mutated records of gates, builds and nightly runs, and what becomes of them: for a property test.

    FTBUILD_FUZZ=10 python -m pytest -s tests/unit/gates/test_mutations.py

tries mutations of random seeds for ten minutes; `python -m testing.record_files SEED...` repeats some.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ftbuild.build.bake import METADATA
from ftbuild.build.definitions import target_name
from ftbuild.config import loader
from ftbuild.errors import PublishError
from ftbuild.gates.report import Gate, GateReport
from ftbuild.matrix import select
from ftbuild.nightly import history
from ftbuild.nightly import record as nightly
from ftbuild.nightly.record import NightlyRun
from ftbuild.nightly.report import junit, markdown, page
from ftbuild.plan import PRODUCTS, Plan, Revision
from ftbuild.planning import make_plan
from ftbuild.publishing import attestations, gates
from testing import ROOT, gate_records, mutations, recorded_runs
from testing.outcomes import Outcome, repeat, timed

REVISION = Revision("a" * 40, "2026-01-01T00:00:00+00:00")
IDS = {product: f"sha256:{number}{'0' * 63}" for number, product in enumerate(PRODUCTS)}
WANTED = {product: (image,) for product, image in IDS.items()}
FORGED = "changed where it counts"


@dataclass(frozen=True)
class Scene:
    """A folder for records, a plan, and the nightly run whose record is changed."""

    folder: Path
    plan: Plan = field(repr=False)
    run: Mapping[str, Any] = field(repr=False)

    @property
    def cell(self) -> Path:
        """The work folder of the plan's cell."""
        return self.folder / "cell"

    def record(self, gate: Gate) -> dict[str, Any]:
        """Return the complete record of a gate."""
        return GateReport(gate, self.plan, IDS, gate_records.results(gate, self.plan)).as_dict()


@contextlib.contextmanager
def scene() -> Iterator[Scene]:
    """Yield a scene in a scratch folder."""
    config = loader.load(ROOT / "buildcfg")
    (cell,) = select(config, triton=["22.12"], sms=["80"])
    with tempfile.TemporaryDirectory(prefix="ftbuild-mutations-") as scratch:
        found = Scene(Path(scratch), make_plan(config, cell, REVISION), recorded_runs.good().as_dict())
        found.cell.mkdir()
        yield found


def examine(seed: int, found: Scene) -> Outcome:
    """Make the change of a seed and read the result; any other exception than FtbuildError passes through."""
    rng = random.Random(seed)
    kind = rng.choices(tuple(KINDS), [weight for weight, _ in KINDS.values()])[0]
    return KINDS[kind][1](seed, rng, found)


def changed(rng: random.Random, content: Any) -> bytes:
    """Return JSON with some places changed, or what is no JSON any more."""
    if rng.random() < 0.7:
        return json.dumps(mutations.data(rng, content)).encode()
    text = json.dumps(content, indent=1)
    if rng.random() < 0.5:
        return mutations.lines(rng, text).encode("utf-8", "surrogatepass")
    return mutations.raw(rng, text)


def _gate(seed: int, rng: random.Random, found: Scene) -> Outcome:
    """Change the record of one gate; the other's is complete."""
    which = rng.choice(gates.ALL)
    content = changed(rng, found.record(which))
    return _publishable(seed, "gate record", found, which, content)


def _forged(seed: int, rng: random.Random, found: Scene) -> Outcome:
    """Change in the record of a gate one thing that it is judged by."""
    which = rng.choice(gates.ALL)
    content = found.record(which)
    finding = rng.randrange(len(content["findings"]))
    other: Callable[[str], str] = lambda text: text[:-1] + ("0" if text[-1:] != "0" else "1")  # noqa: E731
    what = rng.randrange(6)
    if what == 0:
        key = rng.choice(("gate", "cell", "key", "checks"))
        content[key] = other(content[key])
    elif what == 1:
        content["passed"] = False
    elif what == 2:
        image = content["images"][rng.choice(list(content["images"]))]
        image["id"] = other(image["id"])
    elif what == 3:
        content["images"].pop(rng.choice(list(content["images"])))
    elif what == 4:
        content["findings"].pop(finding)
    else:
        place = rng.choice(("check", "image", "state"))
        content["findings"][finding][place] = rng.choice(("", "skip", "fail", "other"))
    return _publishable(seed, FORGED, found, which, json.dumps(content).encode())


def _publishable(seed: int, kind: str, found: Scene, which: Gate, content: bytes) -> Outcome:
    for gate in gates.ALL:
        text = content if gate is which else json.dumps(found.record(gate)).encode()
        (found.cell / gate.record).write_bytes(text)
    return timed(seed, kind, _shown(content), lambda: gates.require(found.plan, found.cell, WANTED))


def _night(seed: int, rng: random.Random, found: Scene) -> Outcome:
    """Change the record of the last nightly run, which `nightly --resume` reads and writes again."""
    folder = found.folder / history.FOLDER / "one"
    folder.mkdir(parents=True, exist_ok=True)
    content = changed(rng, found.run)
    (folder / nightly.FILE).write_bytes(content)
    return timed(seed, "nightly record", _shown(content), lambda: _rendered(found.folder))


def _rendered(folder: Path) -> None:
    history.remembered(folder, history.UNKNOWN)
    last = history.last(folder)
    if last is None:
        raise PublishError("there is no nightly run to resume", where=str(folder))
    run: NightlyRun = last[1]
    for render in (page.render, markdown.render, junit.render):
        render(run)


def _metadata(seed: int, rng: random.Random, found: Scene) -> Outcome:
    """Change what BuildKit wrote about a build."""
    target = target_name(found.plan, "runtime")
    content = changed(rng, {target: {"buildx.build.provenance": {"buildDefinition": {"a": "b"}}}})
    (found.cell / METADATA).write_bytes(content)

    def read() -> None:
        attestations.builder_statements(found.cell, found.plan, "runtime", "image", "sha256:" + "0" * 64)

    return timed(seed, "build metadata", _shown(content), read)


def _shown(content: bytes) -> str:
    return content.decode("utf-8", "replace")[:400]


KINDS: Mapping[str, tuple[int, Callable[[int, random.Random, Scene], Outcome]]] = {
    "gate record": (5, _gate),
    FORGED: (3, _forged),
    "nightly record": (2, _night),
    "build metadata": (1, _metadata),
}


def main(seeds: list[str]) -> None:
    """Print what becomes of the changes of some seeds."""
    with scene() as found:
        repeat(seeds, lambda seed: examine(seed, found))


if __name__ == "__main__":
    main(sys.argv[1:])
