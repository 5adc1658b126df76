"""Publishing killed at any moment: tags always refer to complete images, and the next run finishes the work.

FTBUILD_KILLS is the number of kills; FTBUILD_SEED repeats the moments of another run.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest

from ftbuild.plan import Plan
from ftbuild.registry.client import Repository
from testing import registries
from testing.chance import SEED, kills, share
from testing.publishing import CELL, Bench, bench, complete_ids, immutable, moving
from testing.registries import Registry, free_port, named, plain

if TYPE_CHECKING:
    import docker

KILLS = kills(8)


@dataclass(frozen=True)
class Undisturbed:
    """A pair of tested images, and the result of publishing it undisturbed to an empty registry."""

    bench: Bench
    plan: Plan
    images: dict[str, str]
    port: int
    seconds: float
    left: dict[str, bytes]


@pytest.fixture(scope="module")
def undisturbed(
    client: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Undisturbed]:
    folder = tmp_path_factory.mktemp("undisturbed")
    with bench(client, folder / "bench") as made:
        plan, images = made.tested(size=5_000_000)
        port, seconds, left = free_port(), [], {}
        for attempt in ("first", "second", "third"):
            with empty(folder / attempt, port) as registry:
                start = time.monotonic()
                there = elsewhere(made, plan, folder / f"work-{attempt}")
                with started(there, registry) as process:
                    _, errors = process.communicate(timeout=300)
                seconds.append(time.monotonic() - start)
                assert process.returncode == 0, errors
                left = meanings(made.repository(registry))
        print(f"undisturbed: {min(seconds):.2f} s; seed {SEED}")
        yield Undisturbed(made, plan, images, port, min(seconds), left)


@pytest.mark.parametrize("part", range(KILLS))
def test_killed_at_any_moment_publishing_leaves_sound_tags_and_can_be_resumed(
    undisturbed: Undisturbed, part: int, tmp_path: Path
) -> None:
    """Kill at one random moment in each part of the run."""
    calm = undisturbed
    moment = share(part, KILLS) * calm.seconds
    one = elsewhere(calm.bench, calm.plan, tmp_path / "work")
    with empty(tmp_path / "registry", calm.port) as registry:
        there = one.repository(registry)
        with started(one, registry) as process:
            time.sleep(moment)
            process.kill()
            process.communicate()
        found = assert_sound(there, calm.plan, calm.images)
        how = "killed" if process.returncode < 0 else "over"
        print(f"{how} after {moment:.2f} s (seed {SEED}): {', '.join(found) or 'no tag'}")
        done = one.publish(registry)
        assert done.returncode == 0, done.stderr
        left = meanings(there)
        other = [tag for tag in {**left, **calm.left} if left.get(tag) != calm.left.get(tag)]
        assert not other, "\n".join(f"{tag}: {left.get(tag)!r}, not {calm.left.get(tag)!r}" for tag in other)


def test_a_moving_tag_always_refers_to_the_old_image_or_the_new_one(
    client: docker.DockerClient, tmp_path: Path
) -> None:
    with bench(client, tmp_path / "bench") as one, plain(tmp_path / "registry") as registry:
        there, ended = one.repository(registry), Event()
        seen: list[tuple[str, frozenset[str]]] = []
        plan, old = one.tested()
        assert one.publish(registry).returncode == 0
        one.change()
        _, new = one.tested()

        def look() -> None:
            while not ended.wait(0.02):
                seen.extend((product, complete_ids(there, tag)) for product, tag in moving(plan).items())

        with ThreadPoolExecutor(1) as pool:
            watching = pool.submit(look)
            try:
                done = one.publish(registry)
            finally:
                ended.set()
            watching.result()
        assert done.returncode == 0, done.stderr
        for product in moving(plan):
            ids = [found for name, found in seen if name == product]
            meant = [
                "old" if old[product] in found else "new" if new[product] in found else found for found in ids
            ]
            assert set(meant) <= {"old", "new"}
            assert meant == sorted(meant, reverse=True), "a tag went back"
        print(f"looked {len(seen)} times")


@contextmanager
def empty(folder: Path, port: int) -> Iterator[Registry]:
    """Start a registry at the same address each time, since it is in the SBOM, and so in the digests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registries, "free_port", lambda: port)
        with plain(folder) as running:
            yield running


def started(at: Bench, registry: Registry) -> subprocess.Popen[str]:
    return at.start(registry, "publish", "--registry", registry.prefix, *CELL)


def elsewhere(at: Bench, plan: Plan, work: Path) -> Bench:
    """Return the same bench with another work folder that holds only the gate records."""
    other = replace(at, work=work)
    shutil.copytree(at.folder(plan), other.folder(plan))
    return other


def assert_sound(there: Repository, plan: Plan, images: dict[str, str]) -> list[str]:
    """Return the tags; fail unless each one that a user may pull refers to the complete tested image."""
    tags = named(there.tags())
    for each in (immutable(plan), moving(plan)):
        for product, tag in each.items():
            assert tag not in tags or images[product] in complete_ids(there, tag)
    known = {*immutable(plan).values(), *moving(plan).values()}
    assert {tag.removeprefix("staging-") for tag in tags} <= known
    if any(tag in tags for tag in moving(plan).values()):
        assert {*immutable(plan).values()} <= {*tags}
    return sorted(tags)


def meanings(there: Repository) -> dict[str, bytes]:
    """Return the manifest of every tag."""
    return {tag: found.raw for tag in there.tags() if (found := there.manifest(tag))}
