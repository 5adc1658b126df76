"""What a user sees who types a command: messages, exit codes, and how long it takes."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testing import ROOT


def invoke(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # Engine and proxy point nowhere: a command that needs neither must not notice.
    env = {**os.environ, "DOCKER_HOST": "unix:///nowhere", "https_proxy": "http://127.0.0.1:9", **environment}
    return subprocess.run(
        [sys.executable, "-m", "invoke", *arguments],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_matrix_needs_no_engine_and_no_network() -> None:
    done = invoke("matrix")
    assert done.returncode == 0, done.stderr
    assert "22.12-sm89" in done.stdout
    assert "too old for sm_90" in done.stdout


def test_the_matrix_takes_less_than_half_a_second_of_processor_time() -> None:
    durations = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        invoke("matrix", "--format", "json")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        durations.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(durations) < 0.5


def test_the_dry_run_of_the_main_job_needs_no_engine_and_no_network() -> None:
    done = invoke("build", "--sm", "80", "--triton", "22.12", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "triton_with_ft:22.12-sm80-" in done.stdout


def test_the_dry_run_as_json_is_json_only() -> None:
    done = invoke("build", "--sm", "80", "--triton", "22.12", "--dry-run", "--format", "json")
    assert [entry["cell"] for entry in json.loads(done.stdout)] == ["22.12-sm80"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("build", "--sm", "100", "--triton", "22.12"), 2, "sm_100 is not in the matrix"),
        (("build", "--sm", "8.8", "--triton", "22.12"), 2, "sm_88 is not in the matrix"),
        (("build", "--sm", "8", "--triton", "22.12"), 2, "'8' is not an SM"),
        (("build", "--sm", "80", "--triton", "22.13"), 2, "releases: 22.03, 22.07, 22.12"),
        (("build", "--sm", "90", "--triton", "22.03"), 2, "too old for sm_90"),
        (("build", "--cell", "22.12-sm8O"), 2, "no cell is called"),
        (("build", "--cell", "22.12-*", "--triton", "22.03"), 3, "no cell is selected"),
        (("build", "--sm", "80", "--base", "alpine"), 2, "bases: ngc, open"),
        (("matrix", "--format", "xml"), 2, "one of human, json, github"),
        (("matrix", "--config", "nowhere"), 2, "folder does not exist"),
        (("build", "--sm", "80", "--triton", "22.12", "--ca", "/nowhere.pem"), 2, "CA bundle does not exist"),
        (("build", "--sm", "80", "--triton", "22.12"), 4, "no Docker Engine answers"),
        (("build", "--sm", "80", "--triton", "22.12", "--sources", "/nowhere.tar"), 5, "/nowhere.tar"),
    ],
)
def test_a_mistake_gives_its_exit_code_and_a_message_without_traceback(
    arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = invoke(*arguments)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert message in done.stderr


def test_a_broken_configuration_names_file_and_line(tmp_path: Path) -> None:
    folder = tmp_path / "buildcfg"
    shutil.copytree(ROOT / "buildcfg", folder)
    with (folder / "matrix.yaml").open("a") as file:
        file.write("colour: blue\n")
    lines = len((folder / "matrix.yaml").read_text().splitlines())
    done = invoke("matrix", "--config", str(folder))
    assert done.returncode == 2
    assert f"matrix.yaml:{lines}: colour: unknown key" in done.stderr


def test_every_command_explains_every_option() -> None:
    listed = json.loads(invoke("--list", "--list-format", "json").stdout)
    for task in listed["tasks"]:
        text = invoke("--help", task["name"]).stdout
        options = [
            line.strip()
            for line in text.partition("Options:")[2].splitlines()
            if line.strip().startswith("-")
        ]
        assert options or "none" in text


def test_a_machine_without_git_can_still_plan() -> None:
    done = invoke("build", "--sm", "80", "--triton", "22.12", "--dry-run", PATH="/nowhere")
    assert done.returncode == 0, done.stderr
    assert "input key" in done.stdout


def test_a_reader_who_has_seen_enough_causes_no_traceback() -> None:
    command = f"{sys.executable} -m invoke build --triton 22.12 --dry-run --format json | head -n 1"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "[\n"
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("options", "says"),
    [(["--format", "xml"], "'xml' is unknown"), (["--sm", "100"], "100")],
)
def test_smoke_refuses_wrong_options_before_it_looks_for_an_engine(options: list[str], says: str) -> None:
    done = invoke("smoke", "--triton", "22.12", *options)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
