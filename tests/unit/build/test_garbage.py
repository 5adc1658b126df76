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
from ftbuild.host import marker
from ftbuild.host.garbage import Removal, removal
from ftbuild.plan import Plan

OLDEST, OLDER, NEWEST = "000000000001", "000000000002", "000000000003"


@pytest.fixture
def plan(config: Config) -> Plan:
    (plan,) = plans(config, Selection(config.folder, ["22.12"], ["80"]))
    return plan


def marked(folder: Path) -> None:
    folder.mkdir(parents=True)
    marker.put(folder)


@pytest.fixture
def work(tmp_path: Path, plan: Plan) -> Path:
    """A work folder with today's key, which is the oldest, and three others."""
    for hour, key in enumerate((plan.key, OLDEST, OLDER, NEWEST)):
        folder = tmp_path / plan.cell.id / key
        marked(folder)
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
    size = 1000 + len(marker.TEXT)
    assert found == Removal("work folder", str(work / plan.cell.id / OLDEST), size, "to remove")
    assert left(work, plan) == before


def test_what_a_command_holds_is_left_alone(work: Path, plan: Plan) -> None:
    with FileLock(work / plan.cell.id / OLDEST / "lock"):
        os.utime(work / plan.cell.id / OLDEST, (0, 0))
        (found,) = cleaned(work, plan, 2)
    assert found.state == "in use"
    assert OLDEST in left(work, plan)


def test_unfinished_files_go_from_every_folder(work: Path, plan: Plan) -> None:
    folder = work / plan.cell.id / plan.key
    marked(folder / ".sources.abc.partial")
    marked(work / plan.cell.id / f".{OLDEST}.removed.partial")  # a killed `invoke clean`
    assert {found.kind for found in cleaned(work, plan, 9)} == {"unfinished"}
    assert {path.name for path in folder.iterdir()} - {"lock"} == {"build.log", marker.NAME}
    assert left(work, plan) == {plan.key, OLDEST, OLDER, NEWEST}


def everything(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.name != "lock"}


def test_what_ftbuild_has_not_made_stays_whatever_its_name_is(
    work: Path, plan: Plan, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere, cell = tmp_path_factory.mktemp("elsewhere"), work / plan.cell.id
    for place in (work / "thesis", cell, elsewhere):
        for number in range(4):
            (place / f"aaaaaaaaaaa{number}").mkdir(parents=True)
            (place / f"aaaaaaaaaaa{number}" / "chapter.txt").write_text("mine")
    (work / "photos" / ".album.x.partial").mkdir(parents=True)
    (cell / plan.key / ".mine.12345678.partial").mkdir()
    # Ours, and old, but behind a link: the folder of a cell, one of a key, and the mark itself.
    for number in range(4):
        marked(elsewhere / f"bbbbbbbbbbb{number}")
        (cell / f"ccccccccccc{number}").symlink_to(elsewhere / f"bbbbbbbbbbb{number}")
        (work / "thesis" / f"aaaaaaaaaaa{number}" / marker.NAME).symlink_to(
            elsewhere / "bbbbbbbbbbb0" / marker.NAME
        )
    (work / "linked").symlink_to(elsewhere)
    before, ours = everything(work) | everything(elsewhere), {cell / key for key in (OLDEST, OLDER, NEWEST)}
    assert {found.name for found in cleaned(work, plan, 0)} == set(map(str, ours))
    after = everything(work) | everything(elsewhere)
    assert before - after == {path for path in before if ours & {path, *path.parents}}


def test_what_a_killed_removal_leaves_is_removed_by_the_next_one(
    work: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    (work / plan.cell.id / OLDEST / "context").mkdir()
    os.utime(work / plan.cell.id / OLDEST, (3600, 3600))
    with monkeypatch.context() as at_that_moment:
        at_that_moment.setattr("shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            cleaned(work, plan, 2)
    assert [found.kind for found in cleaned(work, plan, 2)] == ["unfinished"]
    assert left(work, plan) == {plan.key, OLDER, NEWEST}


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
