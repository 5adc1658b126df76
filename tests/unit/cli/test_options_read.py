"""Options that nothing would read, found by what a command writes rather than by a list."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

import tasks
from ftbuild.cli import ci
from ftbuild.cli.command import Command
from ftbuild.cli.options import SELECTING

COMMANDS = [member for members in tasks.namespace.groups.values() for member in members]
# How the files are made, and a value of each option that changes them.
SYSTEMS: tuple[dict[str, bool], ...] = (
    {},
    {"github": True},
    {"gitlab": True},
    {"github": True, "gitlab": True},
)
VALUES = {
    "sign_keyless": True,
    "trust": ["azurekms://key"],
    "registry": "registry.example/team",
    "cpu_runner": "large",
    "gpu_runner": "h100",
    "test_runner": "small",
    "cron": "5 1 * * *",
}


def printed(capsys: pytest.CaptureFixture[str], **options: object) -> str | None:
    """What `invoke dev.ci --dry-run` prints, but for the lines that name the command; None: refused."""
    code: object = None
    try:
        ci.ci(None, triton=["22.12"], dry_run=True, **options)
    except SystemExit as ended:
        code = ended.code
    told = capsys.readouterr()
    if code:
        assert (code, "does nothing" in told.err) == (2, True)
        return None
    lines = told.out.splitlines()
    return "\n".join(line for line in lines if not line.startswith("# Made by"))


def test_the_values_are_of_all_options_of_the_files() -> None:
    modes = {"github", "gitlab", "one_host"}
    assert {field.name for field in dataclasses.fields(ci.CiOptions)} == {*VALUES, *modes}


@pytest.mark.parametrize("one_host", [False, True])
@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: "and ".join(system) or "both")
def test_an_option_of_workflow_files_changes_them_or_is_refused(
    system: dict[str, bool], one_host: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    without = printed(capsys, one_host=one_host, **system)
    assert without
    idle = [
        name
        for name, value in VALUES.items()
        if printed(capsys, one_host=one_host, **system, **{name: value}) == without
    ]
    assert idle == []


@pytest.mark.parametrize("name", [*VALUES, "github", "gitlab", "one_host"])
def test_an_option_of_workflow_files_is_refused_beside_the_summary(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        ci.ci(None, summary=True, **{name: VALUES.get(name, True)})
    assert ended.value.code == 2
    flag = f"--{name.replace('_', '-')}"
    assert f"{flag} does nothing beside --summary" in capsys.readouterr().err


@pytest.mark.parametrize("member", COMMANDS, ids=lambda member: member.path)
def test_what_takes_the_place_of_a_selection_takes_that_of_all_its_options(member: Command) -> None:
    """An SBOM or a plan file: either no option that selects cells does anything beside it, or each does."""
    has = {option.name for option in member.signature.options} & {*SELECTING}
    beside = member.idle.beside
    for other in {*itertools.chain.from_iterable(beside.get(name, ()) for name in has)}:
        assert {name for name in has if other in beside.get(name, ())} == has, other
    for name, others in beside.items():
        assert not {*others} & has or {*others} >= has, name


@pytest.mark.parametrize("output", ["json", "github"])
def test_reasons_are_a_part_of_the_table_for_people_only(
    output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    matrix = next(member for member in COMMANDS if member.path == "matrix")
    with pytest.raises(SystemExit) as ended:
        matrix(None, why=True, format=output)
    assert ended.value.code == 2
    assert "--why does nothing beside --format" in capsys.readouterr().err
