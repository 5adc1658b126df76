"""The folders of our own: where they are, whatever the environment says, or what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tasks
from ftbuild.build import proxies
from ftbuild.cli.options import ROOT, work_folder
from ftbuild.host.paths import cache_folder

NOBODY = 2**31 - 7
VARIABLES = ("FTBUILD_CACHE", "XDG_CACHE_HOME", "HOME", "DOCKER_CONFIG")


@pytest.fixture
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user as containers have them: a number that passwd(5) does not know, and no HOME."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: NOBODY)


def ended_with(capsys: pytest.CaptureFixture[str], name: str, **options: object) -> tuple[object, str]:
    command = next(
        each for members in tasks.namespace.groups.values() for each in members if each.path == name
    )
    with pytest.raises(SystemExit) as ended:
        command(None, config=ROOT / "buildcfg" / "sample", **options)
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize("name", ["patches", "clean", "bundle", "audit.pins"])
def test_a_user_without_a_home_is_told_to_name_a_folder(
    name: str,
    no_home: None,
    no_engine: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FTBUILD_WORK", str(tmp_path / "work"))
    code, told = ended_with(capsys, name)
    assert code == 4
    assert "no home folder" in told
    assert "FTBUILD_CACHE" in told


def test_a_user_without_a_home_has_no_proxies_in_dockers_configuration(
    no_home: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in proxies.NAMES:
        monkeypatch.delenv(name, raising=False)
    assert not proxies.are_set()


@pytest.mark.parametrize("variable", ["FTBUILD_WORK", "FTBUILD_CACHE"])
@pytest.mark.parametrize("name", ["~", "~/ftbuild", "~ci/ftbuild"])
def test_a_home_that_no_shell_has_filled_in_is_refused(
    variable: str,
    name: str,
    no_engine: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(variable, name)
    code, told = ended_with(capsys, "clean", dry_run=True)
    assert code == 2
    assert f"{variable} begins with ~" in told
    assert name in told


def test_an_empty_variable_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("FTBUILD_WORK", *VARIABLES):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert work_folder() == ROOT / ".ftbuild"
    assert cache_folder() == tmp_path / ".cache" / "ftbuild"


def test_a_relative_folder_of_caches_is_ignored_as_its_specification_asks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("FTBUILD_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "caches")
    assert cache_folder() == tmp_path / ".cache" / "ftbuild"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert cache_folder() == tmp_path / "caches" / "ftbuild"
