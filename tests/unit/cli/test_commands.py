"""What a user sees who types a command: messages, exit codes, and how long it takes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tasks
from ftbuild.cli.command import Command, command
from testing import ROOT, forked, processor

COMMANDS = [member for members in tasks.namespace.groups.values() for member in members]


def invoke(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # Engine and proxy point nowhere: a command that needs neither must not notice.
    nowhere = {"DOCKER_HOST": "unix:///nowhere", "https_proxy": "http://127.0.0.1:9"}
    return forked.invoke(*arguments, env={**os.environ, **nowhere, **environment})


def test_the_matrix_needs_no_engine_and_no_network() -> None:
    done = invoke("matrix")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0][:2] == ["Triton", "Base"]
    assert ["22.12", "open", "(default)"] in [row[:3] for row in rows]
    assert ["22.12", "ngc"] in [row[:2] for row in rows]
    assert "too old for sm_90" not in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert len(rows) <= 24


def test_the_matrix_says_why_what_cannot_be_built_cannot() -> None:
    done = invoke("matrix", "--triton", "22.07", "--sm", "90", "--sm", "89", "--why")
    assert done.returncode == 0, done.stderr
    assert "too old for sm_90" in done.stdout
    assert "22.07-sm90-ngc" in done.stdout
    assert "22.07-sm89 " in done.stdout
    assert "R: ran on a GPU" in done.stdout


def test_a_build_on_a_base_that_nobody_has_built_on_is_warned_of() -> None:
    done = invoke("build", "--sm", "80", "--triton", "22.12", "--base", "ngc", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "warning: nothing on base ngc, which is nvcr.io/nvidia/tritonserver:22.12-py3" in done.stderr
    assert re.search(r"known +sm_80: never built", done.stdout)
    proven = invoke("build", "--sm", "80", "--triton", "22.12", "--dry-run")
    assert "warning" not in proven.stderr
    assert re.search(r"base +open: ", proven.stdout)


def test_an_old_id_is_understood_and_told_of() -> None:
    done = invoke("build", "--cell", "22.12-sm80-open", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert re.search(r"cell +22\.12-sm80\n", done.stdout)
    assert "22.12-sm80-open is called 22.12-sm80: open is the base of 22.12" in done.stderr


def succeed(*arguments: str) -> None:
    """Start a program, whose processor time is measured."""
    command = [sys.executable, "-m", "invoke", *arguments]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def test_the_matrix_takes_little_more_processor_time_than_its_imports() -> None:
    most = 4 * processor.start_seconds()
    # Other work on the machine slows some of them.
    assert any(processor.seconds(lambda: succeed("matrix", "--format", "json")) < most for _ in range(3))


def test_the_dry_run_of_the_main_job_needs_no_engine_and_no_network() -> None:
    done = invoke("build", "--sm", "80", "--triton", "22.12", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "triton_with_ft:22.12-sm80-" in done.stdout


def test_a_plan_loads_no_library_that_only_other_commands_need() -> None:
    """A night starts hundreds of commands; numpy alone takes a fifth of one that only plans."""
    loaded = """
import sys
sys.argv = ["invoke", "build", "--sm", "80", "--triton", "22.12", "--dry-run"]
from invoke.main import program
try:
    program.run()
finally:
    print(*sorted({"numpy", "docker", "requests", "tritonclient"} & sys.modules.keys()), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", loaded], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "22.12-sm80" in done.stdout
    assert done.stderr.splitlines()[-1] == ""


def test_the_dry_run_as_json_is_json_only() -> None:
    done = invoke("build", "--sm", "80", "--triton", "22.12", "--dry-run", "--format", "json")
    assert [entry["cell"] for entry in json.loads(done.stdout)] == ["22.12-sm80"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("build", "--sm", "110", "--triton", "22.12"), 2, "sm_110 is not in the matrix"),
        (("build", "--sm", "8.8", "--triton", "22.12"), 2, "sm_88 is not in the matrix"),
        (("build", "--sm", "8", "--triton", "22.12"), 2, "'8' is not an SM"),
        (("build", "--sm", "80", "--triton", "22.13"), 2, "releases: 22.03, 22.07, 22.12, 24.10"),
        (("build", "--sm", "90", "--triton", "22.03", "--base", "ngc"), 2, "too old for sm_90"),
        (("build", "--cell", "22.12-sm8O"), 2, "no cell is called"),
        (("build", "--cell", "22.12-*", "--triton", "22.03"), 3, "no cell is selected"),
        (("build", "--sm", "80", "--base", "alpine"), 2, "bases: ngc, open"),
        (("matrix", "--format", "xml"), 2, "one of human, json, github"),
        (("matrix", "--config", "nowhere"), 2, "folder does not exist"),
        (("build", "--sm", "80", "--triton", "22.12", "--ca", "/nowhere.pem"), 2, "CA bundle does not exist"),
        (("build", "--sm", "80", "--triton", "22.12"), 4, "the Docker Engine does not answer"),
        (("build", "--sm", "80", "--triton", "22.12", "--sources", "/nowhere.tar"), 5, "/nowhere.tar"),
    ],
)
def test_a_mistake_gives_its_exit_code_and_a_message_without_traceback(
    arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = invoke(*arguments)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert message in done.stderr


CELL = ("--sm", "80", "--triton", "22.12")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("build", *CELL, "--ca", "/nowhere.pem"), 2, "CA bundle does not exist"),
        (("build", *CELL, "--sources", "/nowhere.tar"), 5, "/nowhere.tar"),
        (("build", *CELL, "--push", "registry.example.com/x"), 2, "--push needs --builder"),
        (("build", *CELL, "--from", "::"), 2, "is not the host of a registry"),
        (("build", *CELL, "--from", "localhost:5000/x"), 2, "whose signatures count is not said"),
        (
            ("build", *CELL, "--from", "localhost:5000/x", "--trust", "/nowhere.pub"),
            2,
            "there is no public key",
        ),
        (("build", *CELL, "--objects", "--trust", "/nowhere.pub"), 2, "there is no public key"),
        (("unittest", *CELL, "--ca", "/nowhere.pem"), 2, "CA bundle does not exist"),
        (("nightly", *CELL, "--ca", "/nowhere.pem"), 2, "CA bundle does not exist"),
        (("nightly", *CELL, "--builder", "a", "--builder", "a"), 2, "names 'a' twice"),
        (("nightly", "--resume"), 2, "no nightly run to resume"),
        (("publish", *CELL), 2, "no registry is named"),
        (("clean", "--config", "/nowhere"), 2, "folder does not exist"),
        (("dev.ci", "--cron", "never"), 2, "--cron"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_dry_run_refuses_what_the_command_refuses(
    arguments: tuple[str, ...], code: int, message: str, tmp_path: Path
) -> None:
    for more in ((), ("--dry-run",)):
        done = invoke(*arguments, *more, FTBUILD_WORK=str(tmp_path), FTBUILD_REGISTRY="")
        assert done.returncode == code, done.stderr
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


@pytest.mark.parametrize("member", COMMANDS, ids=lambda member: member.path)
def test_every_option_of_a_command_is_explained(member: Command) -> None:
    shown = invoke("--help", member.path)
    assert shown.returncode == 0, shown.stderr
    text = " ".join(shown.stdout.split())
    for option in member.signature.options:
        assert option.help, f"{option.flag} has no help text"
        assert f"{option.flag} " in text or f"{option.flag}=" in text or f"[no-]{option.flag[2:]}" in text
        assert " ".join(option.help.split()) in text


def test_the_list_has_every_command_below_a_heading() -> None:
    listed = invoke("--list").stdout
    sections = [section.splitlines() for section in listed.strip().split("\n\n")]
    assert all(head.endswith(":") and not head.startswith(" ") for head, *_ in sections)
    names = [line.split()[0] for _, *lines in sections for line in lines if not line.startswith("    ")]
    assert sorted(names) == sorted(member.typed for member in COMMANDS)


def test_the_list_takes_hardly_more_processor_time_than_its_imports() -> None:
    # In turn, since other work on the machine slows both.
    pairs = ((processor.seconds(lambda: succeed("--list")), processor.start_seconds()) for _ in range(4))
    assert any(taken / start < 1.6 for taken, start in pairs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("build", "--sm"), "--sm needs a value"),
        (("build", "--sm", "--dry-run"), "--sm needs a value"),
        (("build", "--sm", "80", "--sm"), "--sm needs a value"),
        (("build", "--sm", "", "--dry-run"), "--sm needs a value"),
        (("build", "--base=", "--dry-run"), "--base needs a value"),
        (("build", "--triton", "--cell", "22.12-*", "--dry-run"), "--triton needs a value"),
        (("publish", "--registry", ""), "--registry needs a value"),
        (("which", "--index", ""), "--index needs a value"),
        (("publish", "--registry", "127.0.0.1:9/x", "--attest"), "--attest signs, and no key is named"),
        (("build", "--jobs", "0"), "--jobs must be between 1 and 1000, not 0"),
        (("build", "--jobs", "-1"), "--jobs must be between 1 and 1000, not -1"),
        (("build", "--jobs", "abc"), "--jobs must be a whole number, not 'abc'"),
        (("nightly", "--jobs", "1.5"), "--jobs must be a whole number, not '1.5'"),
        (("nightly", "--parallel", "0"), "--parallel must be at least 1"),
        (("unittest", "--jobs", "1001"), "--jobs must be between 1 and 1000"),
        (("convert", "--jobs", "0"), "--jobs must be between 1 and 1024, not 0"),
        (("convert", "--gpus", "1025"), "--gpus must be between 1 and 1024, not 1025"),
        (("plan-model", "--batch", "1025"), "--batch must be between 1 and 1024, not 1025"),
        (("model-repo", "--pipeline", "1025"), "--pipeline must be between 1 and 1024, not 1025"),
        (
            ("model-repo", "--max-batch-size", "2147483648"),
            "--max-batch-size must be between 1 and 2147483647, not 2147483648",
        ),
        (("model-repo", "--max-batch-tokens", "0"), "--max-batch-tokens must be between 1 and 2147483647"),
        (("model-repo", "--queue-delay", "9" * 20), "--queue-delay must be between 0 and 2147483647"),
        (("model-repo", "--queue-limit", "-1"), "--queue-limit must be between 0 and 2147483647"),
        (("model-repo", "--queue-timeout", "9" * 20), "--queue-timeout must be between 0 and 2147483647"),
        (("model-repo", "--priorities", "17"), "--priorities must be between 0 and 16"),
        (("serve", "--http-port", "abc"), "--http-port must be a whole number"),
        (("serve", "--http-port", "99999"), "--http-port must be between 1 and 65535"),
        (("serve", "--timeout", "0"), "--timeout must be at least 1"),
        (("serve.k8s", "--gpu-count", "-3"), "--gpu-count must be"),
        (("serve.k8s", "--replicas", "1.5"), "--replicas must be a whole number"),
        (("client-test", "--model", "gpt", "--threshold", "nan"), "--threshold must be"),
        (("client-test", "--model", "gpt", "--threshold", "101"), "--threshold must be between 0 and 100"),
        (("dev.bench", "--rounds", "0"), "--rounds must be at least 1"),
        (("dev.mutate", "--area", "everything"), "there is no area 'everything'"),
        (("build", "--format", "xml"), "one of human, all, json"),
        (("build", "--progress", "fancy"), "one of auto, tty, plain"),
        (("build", "--smm", "80"), "unknown option '--smm'"),
        (("build", "-s", "80"), "unknown option '-s'"),
        (("build", "22.12"), "unknown command or value '22.12'"),
        (("bulid",), "did you mean build or rebuild?"),  # codespell:ignore bulid
        (("compose",), "did you mean serve.compose?"),
        (("convert", "--model", "gpt"), "convert needs --checkpoint, --out"),
        (("--help", "nothing"), "unknown command or value 'nothing'"),
        (("--list", "nothing"), "nothing"),
        (("build", "--jobs", "9" * 5000), "--jobs must be a whole number, not '999"),
    ],
)
def test_wrong_usage_ends_with_2_and_a_message(arguments: tuple[str, ...], message: str) -> None:
    done = invoke(*arguments)
    assert (done.returncode, done.stderr.startswith("error: ")) == (2, True), done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 1000


def test_what_is_required_cannot_be_left_out() -> None:
    for arguments in (("rebuild", ""), ("compare", "--old", "", "--new", "x", "--prompts", "y")):
        done = invoke(*arguments)
        assert (done.returncode, "needs a value" in done.stderr) == (2, True), done.stderr
        assert "leave" not in done.stderr


def test_an_empty_variable_of_the_environment_counts_as_unset() -> None:
    done = invoke("matrix", "--format", "json", FTBUILD_CONFIG="", FTBUILD_REGISTRY="", FTBUILD_WORK="")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "message"),
    [
        (("-f", "/nowhere.toml", "matrix"), {}, 2, "Invoke's own settings cannot be read"),
        (("-f", str(ROOT / "README.md"), "matrix"), {}, 2, "Invoke's own settings cannot be read"),
        (("matrix",), {"INVOKE_RUN_WATCHERS": "x"}, 2, "Invoke's own settings cannot be read"),
        (("build", "--dry-run"), {"SOURCE_DATE_EPOCH": "abc"}, 2, "SOURCE_DATE_EPOCH must be a number"),
        (("build", "--dry-run"), {"SOURCE_DATE_EPOCH": "9" * 30}, 2, "SOURCE_DATE_EPOCH must be a number"),
        (("build", "--dry-run"), {"FTBUILD_CONFIG": "/etc/passwd"}, 2, "folder does not exist"),
        (
            ("build", "--cell", "22.12-sm80"),
            {"DOCKER_HOST": "tcp://h:abc"},
            4,
            ("the Docker Engine does not answer"),
        ),
        (
            ("build", "--cell", "22.12-sm80"),
            {"DOCKER_HOST": "nonsense://[::"},
            4,
            ("the Docker Engine does not answer"),
        ),
        (("patches",), {"FTBUILD_CACHE": "/etc/passwd"}, 4, "/etc/passwd"),
        (("publish", "--registry", "user:secret@h.invalid/x"), {}, 2, "--registry ***@h.invalid/x"),
        (
            ("publish",),
            {"FTBUILD_REGISTRY": "https://user:secret@h.invalid/x"},
            2,
            "without user and password",
        ),
    ],
)
def test_a_variable_or_an_address_that_cannot_work_is_refused_without_its_password(
    arguments: tuple[str, ...], environment: dict[str, str], code: int, message: str
) -> None:
    done = invoke(*arguments, **environment)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert message in done.stderr
    assert "secret" not in done.stdout + done.stderr


def test_a_checkout_of_another_user_has_a_revision() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    arguments = ("--cell", "22.12-sm80", "--dry-run", "--format", "all")
    done = invoke("build", *arguments, GIT_TEST_ASSUME_DIFFERENT_OWNER="1")
    assert re.search(r"image\.revision +[0-9a-f]{40}", done.stdout), done.stderr


def test_a_revision_that_git_does_not_tell_is_not_passed_over_in_silence() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    done = invoke("build", "--cell", "22.12-sm80", "--dry-run", GIT_DIR="/nowhere")
    assert (done.returncode, "labels will lack the revision" in done.stderr) == (0, True), done.stderr


def test_a_machine_without_git_can_still_plan() -> None:
    done = invoke("build", "--sm", "80", "--triton", "22.12", "--dry-run", PATH="/nowhere")
    assert done.returncode == 0, done.stderr
    assert "input key" in done.stdout


def shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which `invoke` is ours; its output ends with the exit code of each part."""
    return subprocess.run(
        [
            "bash",
            "-c",
            f'invoke() {{ "{sys.executable}" -m invoke "$@"; }}; {script}; echo "${{PIPESTATUS[@]}}"',
        ],
        cwd=ROOT,
        env={**os.environ, "DOCKER_HOST": "unix:///nowhere", "OUT": str(folder), "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_reader_who_leaves_causes_neither_a_traceback_nor_another_exit_code(tmp_path: Path) -> None:
    done = shell("invoke build --triton 22.12 --dry-run --format json | head -n 1", tmp_path)
    assert (done.stdout, done.stderr) == ("[\n0 0\n", "")


def test_a_reader_who_leaves_does_not_turn_a_failure_into_success(tmp_path: Path) -> None:
    done = shell("invoke build --cell 22.12-sm80 2>&1 | true", tmp_path)
    assert done.stdout == "4 0\n"


def test_the_work_goes_on_when_its_reader_has_left(tmp_path: Path) -> None:
    done = shell('invoke matrix dev.ci --out "$OUT" | true', tmp_path)
    assert (done.stdout, done.stderr) == ("0 0\n", "")
    assert (tmp_path / ".gitlab-ci.yml").exists()


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_closed_streams_change_nothing(closed: str, tmp_path: Path) -> None:
    done = shell(f'invoke dev.ci --out "$OUT" {closed}', tmp_path)
    assert (done.stdout, done.stderr) == ("0\n", "")
    assert (tmp_path / ".gitlab-ci.yml").exists()


@pytest.mark.parametrize("out", ["/dev/null", "/proc/nothing", "x" * 300])
def test_a_path_that_cannot_be_used_is_named_without_a_traceback(out: str) -> None:
    done = invoke("dev.ci", "--out", out)
    assert (done.returncode, "Traceback" in done.stderr) == (4, False), done.stderr
    assert out in done.stderr


def test_invoke_of_the_checkout_works_from_any_folder(tmp_path: Path) -> None:
    command = [str(ROOT / "invoke"), "matrix", "--format", "json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    if (ROOT / ".venv/bin/invoke").exists():
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)
    else:
        assert (done.returncode, "bootstrap" in done.stderr) == (4, True)


@pytest.mark.parametrize(
    ("options", "says"),
    [(["--format", "xml"], "'xml' is unknown"), (["--sm", "100"], "100")],
)
def test_smoke_refuses_wrong_options_before_it_looks_for_an_engine(options: list[str], says: str) -> None:
    done = invoke("smoke", "--triton", "22.12", *options)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr


@pytest.mark.parametrize("arguments", [("serve", "--dry-run"), ("serve.compose",)])
def test_a_server_is_opened_to_other_machines_on_request_only(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.pbtxt").write_text('name: "model"\n')
    command = (*arguments, "--image", "a/b:c", "--model-repo", str(tmp_path))
    for more, address in (((), "127.0.0.1"), (("--listen", "0.0.0.0"), "0.0.0.0")):
        done = invoke(*command, *more)
        assert done.returncode == 0, done.stderr
        assert re.findall(r"([0-9.]+):(\d+):8000\b", done.stdout) == [(address, "8000")]


def test_what_fails_while_an_interrupted_command_cleans_up_does_not_hide_the_interrupt(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def body() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise FileNotFoundError(2, "No such file or directory", "/gone")

    with pytest.raises(SystemExit) as end:
        command()(body)(None)
    assert end.value.code == 130
    assert capsys.readouterr().err == "interrupted: the same command resumes\n"
