"""What holds for every command of `invoke --list`: words that it does not know, and dry runs.

`--help` is in test_help.py, Ctrl-C in test_interrupts.py, options without effect in test_idle_options.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from invoke.program import Program

import tasks
from ftbuild.cli.command import Command
from testing import forked
from tests.unit.cli.test_help import given
from tests.unit.models.test_conversion import SETTINGS, safetensors

COMMANDS = [member for members in tasks.namespace.groups.values() for member in members]
WRONG = {
    "an option": (["--no-such-option"], "unknown option '--no-such-option'"),
    "an option with a value": (["--no-such-option=7"], "unknown option '--no-such-option'"),
    "a short option": (["-q"], "unknown option '-q'"),
    "a word": (["no-such-word"], "unknown command or value 'no-such-word'"),
}


@pytest.mark.parametrize("wrong", WRONG, ids=str)
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "after all options"])
@pytest.mark.parametrize("member", COMMANDS, ids=lambda member: member.path)
def test_what_a_command_does_not_know_ends_with_2_and_has_no_effect(
    member: Command,
    beside: bool,
    wrong: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def ran(*arguments: object, **values: object) -> None:
        raise AssertionError(f"{member} ran in spite of {words}")

    words, said = WRONG[wrong]
    if wrong == "a word" and not beside and any(option.required for option in member.signature.options):
        words, said = [*words] * 9, said  # the first ones are values of what the command requires
    monkeypatch.setattr(Command, "__call__", ran)
    with pytest.raises(SystemExit) as ended:
        Program(namespace=tasks.namespace).run(
            ["invoke", member.typed, *(given(member) if beside else []), *words]
        )
    shown = capsys.readouterr()
    assert (ended.value.code, shown.out) == (2, "")
    assert shown.err.startswith("error: ")
    assert said in shown.err


CELL = ("--sm", "80", "--triton", "22.12")
# Dry runs by their commands, on a machine without an engine; {models} is a model repository, {checkpoint} a
# checkpoint.
DRY: Mapping[str, Sequence[str]] = {
    "build": ("build", *CELL),
    "unittest": ("unittest", *CELL),
    "nightly": ("nightly", *CELL),
    "publish": ("publish", *CELL, "--registry", "127.0.0.1:9/x"),
    "serve.docker": ("serve", "--model-repo", "{models}", "--image", "triton_with_ft:22.12-sm80"),
    "convert": ("convert", "--model", "gpt", "--checkpoint", "{checkpoint}", "--out", "{checkpoint}/out"),
    "clean": ("clean",),
    "dev.ci": ("dev.ci",),
}
# Those that look at the engine, or at a registry, fail as the real run does.
FAILS = {"nightly": (4, "the Docker Engine does not answer"), "publish": (4, "cannot be reached")}


def test_every_command_with_a_dry_run_is_tried() -> None:
    dry = {m.path for m in COMMANDS if any(option.name == "dry_run" for option in m.signature.options)}
    assert set(DRY) == dry


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("name", DRY)
def test_a_dry_run_changes_nothing(name: str, tmp_path: Path) -> None:
    models = tmp_path / "models"
    (models / "model").mkdir(parents=True)
    (models / "model" / "config.pbtxt").write_text('name: "model"\n')
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text(json.dumps(SETTINGS["gpt"]))
    (checkpoint / "model.safetensors").write_bytes(safetensors())
    words = [word.format(models=models, checkpoint=checkpoint) for word in DRY[name]]
    places = {"FTBUILD_WORK": "work", "FTBUILD_CACHE": "cache", "HOME": "home", "TMPDIR": "tmp"}
    for place in places.values():
        (tmp_path / place).mkdir()
    (tmp_path / "here").mkdir()
    before = tree(tmp_path)
    done = forked.invoke(
        *words,
        "--dry-run",
        cwd=tmp_path / "here",
        env={
            **os.environ,
            **{variable: str(tmp_path / place) for variable, place in places.items()},
            "DOCKER_HOST": "unix:///nowhere",
        },
    )
    code, said = FAILS.get(name, (0, ""))
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout or code
    assert tree(tmp_path) == before
