"""The doctor and our own folders: what stops a build later is told now."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ftbuild.cli import machine
from ftbuild.cli.options import ROOT
from ftbuild.doctor import network


def file(place: Path) -> Path:
    place.write_text("not a folder")
    return place


def below_a_file(place: Path) -> Path:
    return file(place) / "work"


def loop(place: Path) -> Path:
    place.symlink_to(place)
    return place


def link_to_nothing(place: Path) -> Path:
    place.symlink_to(place.with_name("nothing"))
    return place / "work"


def not_there_yet(place: Path) -> Path:
    return place / "work"


def linked(place: Path) -> Path:
    place.with_name("elsewhere").mkdir()
    place.symlink_to(place.with_name("elsewhere"))
    return place


@pytest.fixture
def found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_engine: None
) -> Callable[[], dict[str, tuple[str, str]]]:
    """What `invoke doctor` says, by check; it asks no other machine."""

    def ask() -> dict[str, tuple[str, str]]:
        with pytest.raises(SystemExit):
            machine.doctor(None, config=ROOT / "buildcfg" / "sample", format="json")
        rows = json.loads(capsys.readouterr().out)
        return {row["name"]: (row["state"], row["hint"]) for row in rows}

    monkeypatch.setattr(network, "endpoints", lambda config: [])
    return ask


CHECKS = {"FTBUILD_WORK": "disk: work folder", "FTBUILD_CACHE": "cache folder"}


@pytest.mark.parametrize("variable", CHECKS)
@pytest.mark.parametrize("make", [file, below_a_file, loop, link_to_nothing])
def test_a_folder_that_cannot_be_made_fails_and_its_variable_is_named(
    variable: str,
    make: Callable[[Path], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: Callable[[], dict[str, tuple[str, str]]],
) -> None:
    monkeypatch.setenv(variable, str(make(tmp_path / "place")))
    state, hint = found()[CHECKS[variable]]
    assert state == "fail"
    assert variable in hint


@pytest.mark.parametrize("make", [not_there_yet, linked])
def test_a_folder_that_can_be_made_is_fine(
    make: Callable[[Path], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: Callable[[], dict[str, tuple[str, str]]],
) -> None:
    monkeypatch.setenv("FTBUILD_CACHE", str(make(tmp_path / "place")))
    assert found()["cache folder"] == ("ok", "")
    assert sorted(path.name for path in tmp_path.iterdir()) in ([], ["elsewhere", "place"])


def test_a_folder_whose_name_is_too_long_is_a_finding_and_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Callable[[], dict[str, tuple[str, str]]]
) -> None:
    monkeypatch.setenv("FTBUILD_WORK", str(tmp_path / ("x" * 300)))
    assert found()["disk: work folder"][0] == "fail"


def test_a_user_without_a_home_is_told_where_the_cache_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Callable[[], dict[str, tuple[str, str]]]
) -> None:
    monkeypatch.chdir(tmp_path)  # where Docker's client would put its settings
    for name in ("FTBUILD_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 7)
    state, hint = found()["cache folder"]
    assert state == "fail"
    assert "FTBUILD_CACHE" in hint
