"""The compile of a cell as `invoke build` has left it: in `info` beside its log, a folder for each tree."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.harness import compiles
from benchmarks.harness.origin import Measured
from ftbuild.build import bake
from ftbuild.errors import ConfigError
from ftbuild.nightly import ninja

INFO = "info"
_IMAGE, _ID = "image.name", "containerimage.config.digest"


@dataclass(frozen=True)
class Build:
    """A compile: cell and SMs, when it began, the most jobs at a time, wall seconds, and ccache's hits.

    Units are named TREE/OUTPUT: `seconds` are the CPU seconds of those that a compiler made, `others` the
    objects that none made in a slot: ccache's hits, and what a build compiles without its launcher.
    """

    measured: Measured
    sms: tuple[int, ...]
    started: str
    jobs: int
    wall: float
    hits: int
    seconds: Mapping[str, float]
    others: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the data for a record."""
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Build:
        """Return a build from its plain data."""
        lists = {"sms": tuple(data["sms"]), "others": tuple(data["others"])}
        return cls(**{**data, **lists, "measured": Measured(**data["measured"])})


def read(folder: Path) -> Build:
    """Read the folder of a cell below `.ftbuild`; ConfigError unless all of it was compiled there."""
    plan, info = folder / "plan.json", folder / INFO
    planned = json.loads(plan.read_text(encoding="utf-8")) if plan.is_file() else {"trees": []}
    trees = [info / tree["name"] for tree in planned["trees"]]
    if not trees or not all(tree.is_dir() for tree in trees):
        raise ConfigError(
            "no compiled cell is here", where=str(folder), hint=".ftbuild/CELL/KEY of a finished invoke build"
        )
    compiled = compiles.read(info)
    jobs = [(tree, job) for tree in trees for job in compiles.jobs((tree / "slots.tsv").read_text())]
    seconds = {f"{tree.name}/{job.output}": job.cpu for tree, job in jobs}
    objects = (f"{tree.name}/{output}" for tree in trees for output in _objects(tree))
    began = min(int((tree / "started").read_text()) for tree in trees) / 1000
    return Build(
        Measured(planned["cell"], planned["key"], _images(folder, planned["tags"])),
        tuple(planned["sms"]),
        datetime.fromtimestamp(began, UTC).isoformat(timespec="seconds"),
        1 + max((job.slot for _, job in jobs), default=0),
        round(compiled.wall, 3),
        compiled.hits("")[0],
        seconds,
        tuple(unit for unit in objects if unit not in seconds),
    )


def _objects(tree: Path) -> Iterator[str]:
    units = ninja.units((tree / "ninja_log").read_text())
    return (unit.output for unit in units if compiles.is_compiled(unit.output))


def _images(folder: Path, tags: Mapping[str, list[str]]) -> dict[str, str]:
    """Return the ids of the images by product, from BuildKit's metadata; none of an unfinished build."""
    try:
        metadata = json.loads((folder / bake.METADATA).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    built = [target for target in metadata.values() if isinstance(target, dict) and _ID in target]
    return {
        product: target[_ID]
        for product, (tag, *_) in tags.items()
        for target in built
        if target.get(_IMAGE, "").removeprefix("docker.io/library/").split(",")[0] == tag
    }
