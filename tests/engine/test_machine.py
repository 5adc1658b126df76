"""`invoke doctor` and `./bootstrap` on this machine, and with settings that lead nowhere."""

from __future__ import annotations

import json
import sys
import time

import pytest

from ftbuild.host import shell
from ftbuild.text.results import CheckResult, State
from testing import ROOT

NOWHERE = "127.0.0.1:9"  # the port of discard (RFC 863), on which nothing listens


def doctor(**environment: str) -> tuple[int, dict[str, CheckResult]]:
    """The exit code and the checks, by name."""
    result = shell.run(
        [sys.executable, "-m", "invoke", "doctor", "--format", "json"],
        cwd=ROOT,
        env=environment,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in result.stderr
    return result.code, {
        check["name"]: CheckResult(check["name"], State(check["state"]), check["found"], check["hint"])
        for check in json.loads(result.stdout)
    }


@pytest.mark.usefixtures("client")
def test_an_engine_that_answers_is_fit_to_build_on() -> None:
    _, checks = doctor()
    for name in ("python", "git", "engine", "buildx", "cpu, memory"):
        assert checks[name].state in ("ok", "warn"), checks[name]
    assert "storage driver" in checks["engine"].detail
    assert "disk: engine" in checks
    assert "compile jobs" in checks["cpu, memory"].detail


@pytest.mark.parametrize("host", [f"tcp://{NOWHERE}", "unix:///nowhere/docker.sock", "ssh-less-nonsense"])
def test_no_engine_is_an_environment_error_with_a_way_out(host: str) -> None:
    code, checks = doctor(DOCKER_HOST=host)
    assert code == 4
    assert checks["engine"].state == "fail"
    assert f"DOCKER_HOST={host}" in checks["engine"].hint
    assert checks["buildx"].state == "ok"
    assert "disk: engine" not in checks


def test_a_dead_network_costs_seconds_and_is_no_failure() -> None:
    start = time.monotonic()
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), f"http://{NOWHERE}")
    no_detour = {"NO_PROXY": "", "no_proxy": "", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    code, checks = doctor(**proxies, **no_detour)
    assert time.monotonic() - start < 20
    silent = {
        name: check for name, check in checks.items() if name.startswith(("registry", "PyPI", "source"))
    }
    assert silent
    assert {check.state for check in silent.values()} == {"warn"}
    assert all(check.hint for check in silent.values())
    failed = {name for name, check in checks.items() if check.state == "fail"}
    assert code == (4 if failed else 0)
    assert failed <= {"disk: work folder", "disk: engine"}


@pytest.fixture
def ready() -> None:
    if not (ROOT / ".venv" / ".ftbuild-stamp").exists():
        pytest.skip("./bootstrap has not made .venv here, and a test should not")
    bootstrap("--list")


def bootstrap(*arguments: str, **environment: str) -> shell.Result:
    return shell.run([str(ROOT / "bootstrap"), *arguments], env=environment, timeout=300, check=False)


@pytest.mark.usefixtures("ready", "client")
def test_a_second_bootstrap_has_nothing_to_do_or_say() -> None:
    result = bootstrap()
    assert result.code == 0
    assert result.stderr == ""
    assert "Build and test images:" in result.stdout


@pytest.mark.usefixtures("ready")
def test_bootstrap_hands_on_arguments_output_and_exit_code() -> None:
    assert json.loads(bootstrap("matrix", "--format", "json").stdout)
    assert bootstrap("matrix", "--sm", "1").code == 2


@pytest.mark.usefixtures("ready")
def test_bootstrap_leaves_a_foreign_engine_alone() -> None:
    result = bootstrap("build", DOCKER_HOST=f"tcp://{NOWHERE}")
    assert result.code == 4
    assert NOWHERE in result.stderr
    assert "unset DOCKER_HOST" in result.stderr


@pytest.mark.usefixtures("ready")
def test_what_only_reads_files_needs_no_engine() -> None:
    for arguments in (["matrix"], ["build", "--sm", "80", "--triton", "22.12", "--dry-run"]):
        result = bootstrap(*arguments, DOCKER_HOST=f"tcp://{NOWHERE}")
        assert (result.code, result.stderr) == (0, "")
