"""Old keys: which of them stay, and what is left alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from filelock import FileLock

from ftbuild.build import garbage
from ftbuild.build.garbage import Tagged
from ftbuild.cli.selection import Selection, plans
from ftbuild.config.schema import Config
from ftbuild.host.garbage import Removal, removal
from ftbuild.plan import Plan

OLDEST, OLDER, NEWEST = "000000000001", "000000000002", "000000000003"


@pytest.fixture
def plan(config: Config) -> Plan:
    (plan,) = plans(config, Selection(config.folder, ["22.12"], ["80"]))
    return plan


@pytest.fixture
def work(tmp_path: Path, plan: Plan) -> Path:
    """A work folder with today's key, which is the oldest, and three others."""
    for hour, key in enumerate((plan.key, OLDEST, OLDER, NEWEST)):
        folder = tmp_path / plan.cell.id / key
        folder.mkdir(parents=True)
        (folder / "build.log").write_text("x" * 1000)
        os.utime(folder, (hour * 3600, hour * 3600))
    (tmp_path / "nights").mkdir()
    return tmp_path


def cleaned(work: Path, plan: Plan, keep: int, *, dry_run: bool = False) -> list[Removal]:
    return [removal(found, dry_run=dry_run) for found in garbage.folders(work, [plan], keep)]


def left(work: Path, plan: Plan) -> set[str]:
    return {path.name for path in (work / plan.cell.id).iterdir()}


@pytest.mark.parametrize(
    ("keep", "stay"), [(0, set()), (1, {NEWEST}), (2, {OLDER, NEWEST}), (9, {OLDEST, OLDER, NEWEST})]
)
def test_the_key_of_todays_inputs_and_the_newest_others_stay(
    work: Path, plan: Plan, keep: int, stay: set[str]
) -> None:
    cleaned(work, plan, keep)
    assert left(work, plan) == {plan.key, *stay}
    assert (work / "nights").exists()


def test_a_dry_run_lists_what_would_go_with_its_size_and_removes_nothing(work: Path, plan: Plan) -> None:
    before = left(work, plan)
    (found,) = cleaned(work, plan, 2, dry_run=True)
    assert found == Removal("work folder", str(work / plan.cell.id / OLDEST), 1000, "to remove")
    assert left(work, plan) == before


def test_what_a_command_holds_is_left_alone(work: Path, plan: Plan) -> None:
    with FileLock(work / plan.cell.id / OLDEST / "lock"):
        os.utime(work / plan.cell.id / OLDEST, (0, 0))
        (found,) = cleaned(work, plan, 2)
    assert found.state == "in use"
    assert OLDEST in left(work, plan)


def test_passwords_of_earlier_versions_and_unfinished_files_go_from_every_folder(
    work: Path, plan: Plan
) -> None:
    folder = work / plan.cell.id / plan.key
    (folder / "host.env").write_text("PIP_INDEX_URL=https://me:secret@host/\n")
    (folder / ".sources.abc.partial").mkdir()
    (work / plan.cell.id / f".{OLDEST}.removed.partial").mkdir()  # a killed `invoke clean`
    assert {found.kind for found in cleaned(work, plan, 9)} == {"passwords", "unfinished"}
    assert {path.name for path in folder.iterdir()} - {"lock"} == {"build.log"}
    assert left(work, plan) == {plan.key, OLDEST, OLDER, NEWEST}


def tagged(*names: str, size: int = 10, shared: int = 4) -> list[Tagged]:
    listed = [{"RepoTags": list(names), "Size": size, "SharedSize": shared, "Created": 7}]
    return list(garbage._tagged(listed, {"triton_with_ft", "ftbuild-base-open"}))


def test_an_image_is_known_by_its_tag_and_has_its_own_bytes() -> None:
    assert tagged(f"triton_with_ft:22.12-sm80_86-{OLDEST}-sdk") == [
        Tagged(
            f"triton_with_ft:22.12-sm80_86-{OLDEST}-sdk", "triton_with_ft:22.12-sm80_86", OLDEST, 7, 6, True
        )
    ]
    (base,) = tagged(f"ftbuild-base-open:{OLDEST}-devel")
    assert (base.group, base.key) == ("ftbuild-base-open:", OLDEST)


def test_other_images_and_moving_tags_are_not_ours_to_remove() -> None:
    assert tagged("triton_with_ft:22.12-sm80", f"other:22.12-sm80-{OLDEST}", "triton_with_ft:latest") == []
    moving = tagged("triton_with_ft:22.12-sm80", f"triton_with_ft:22.12-sm80-{OLDEST}")
    assert [tag.is_alone for tag in moving] == [False]
