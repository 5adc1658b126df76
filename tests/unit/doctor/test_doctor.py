from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from ftbuild import errors
from ftbuild.build import run as builds
from ftbuild.cmake import MEMORY_PER_JOB_BYTES
from ftbuild.config import loader
from ftbuild.config.schema import Config
from ftbuild.doctor import machine, network
from ftbuild.engine.gpu import listed
from ftbuild.errors import HostError
from ftbuild.text.results import CheckResult, State
from ftbuild.text.units import GIB
from testing import ROOT

H100 = "NVIDIA H100 80GB HBM3, 9.0, 580.95.05, 81559 MiB"


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("git version 2.39.5", "ok"),
        ("git version 2.50.1 (Apple Git-155)", "ok"),
        ("git version 2.43.0.windows.1", "ok"),
        ("git version 2.17.1", "fail"),
        ("git version 1.8.3.1", "fail"),
        ("git of my own", "warn"),
    ],
)
def test_a_git_that_cannot_fetch_the_sources_fails(text: str, state: str) -> None:
    check = machine.git_version(text)
    assert check.state == state
    assert (state == "ok") == (check.hint == "")


def test_an_entry_of_a_series_that_no_release_takes_is_a_warning(config: Config, config_folder: Path) -> None:
    assert machine.series_used(config).state == "ok"
    ranges = config_folder / "patches.yaml"
    text = ranges.read_text().replace("../patches", str(ROOT / "patches"))
    ranges.write_text(text.replace('"0050-reject-unknown-sm.patch": {versions: ">=5.0,<=5.3"}',
                                   '"0050-reject-unknown-sm.patch": {versions: "==22.12"}'))  # fmt: skip
    check = machine.series_used(loader.load(config_folder))
    assert (check.state, "0050-reject-unknown-sm.patch (==22.12)" in check.detail) == ("warn", True)
    ranges.write_text(text.replace(str(ROOT), "/nowhere"))
    assert machine.series_used(loader.load(config_folder)).state == "fail"


def test_python_before_3_11_fails() -> None:
    assert machine.python_version((3, 10)).state == "fail"
    assert machine.python_version((3, 11)).state == "ok"
    assert machine.python_version((4, 0)).state == "ok"


def test_a_storage_driver_that_copies_layers_is_a_warning() -> None:
    assert machine.storage({"ServerVersion": "26.1.5", "Driver": "overlay2"}).state == "ok"
    vfs = machine.storage({"ServerVersion": "26.1.5", "Driver": "vfs"})
    assert vfs.state == "warn"
    assert "ext4" in vfs.hint


def test_a_builder_that_forgets_compiled_objects_is_a_warning() -> None:
    assert machine.build_cache(builds.CACHE_BYTES).state == "ok"
    check = machine.build_cache(builds.CACHE_BYTES - 1)
    assert check.state == "warn"
    assert "defaultKeepStorage" in check.hint


def test_a_bridge_whose_address_changes_is_a_warning() -> None:
    assert machine.bridge("docker0", 3).state == "ok"
    check = machine.bridge("br-lan", 1)
    assert check.state == "warn"
    assert "ip link set dev br-lan address" in check.hint


@pytest.mark.parametrize(
    ("cores", "memory_in_jobs", "state", "jobs"),
    [(2, 20, "ok", 2), (64, 16, "warn", 16), (2, 0.5, "warn", 1)],
)
def test_memory_tells_how_many_jobs_a_build_runs(
    cores: int, memory_in_jobs: float, state: str, jobs: int
) -> None:
    check = machine.memory(cores, int(memory_in_jobs * MEMORY_PER_JOB_BYTES))
    assert check.state == state
    assert f"{jobs} compile jobs" in check.detail


def test_a_full_disk_fails_and_a_tight_one_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "not" / "there" / "yet"

    def free(size: int) -> str:
        monkeypatch.setattr(machine, "free_bytes", lambda _: size)
        return machine.disk("disk", folder, 12, 28).state

    assert [free(1 * GIB), free(20 * GIB), free(30 * GIB)] == ["fail", "warn", "ok"]
    assert str(tmp_path) in machine.disk("disk", folder, 12, 28).detail


def test_a_gpu_is_named_with_its_sm(config: Config) -> None:
    (check,) = machine.gpus(config, listed(H100))
    assert check == CheckResult("gpu", State.OK, "NVIDIA H100 80GB HBM3, sm_90, driver 580.95.05")


def test_an_old_driver_names_the_releases_it_cannot_run(config: Config) -> None:
    (check,) = machine.gpus(config, listed("NVIDIA A100-SXM4-80GB, 8.0, 470.57.02, 81920 MiB"))
    assert check.state == "warn"
    assert "22.12 (from 520), 24.10 (from 580)" in check.hint


def test_a_gpu_without_an_image_is_a_warning(config: Config) -> None:
    first, second = machine.gpus(config, listed(f"NVIDIA Thor, 11.0, 580.00, [N/A]\n{H100}\n"))
    assert (first.state, second.state) == ("warn", "ok")
    assert "sm_110" in first.detail


def test_no_gpu_only_skips_the_smoke_tests() -> None:
    none = machine.no_gpu([])
    assert none.state == "warn"
    assert "skipped" in none.hint
    assert "nvidia-smi" in machine.no_gpu(["/dev/nvidia0"]).detail


@pytest.mark.parametrize(
    ("info", "specs", "state"),
    [
        ({"Runtimes": {"runc": {}, "nvidia": {}}}, [], "ok"),
        ({"Runtimes": {"runc": {}}}, ["/etc/cdi/nvidia.yaml"], "ok"),
        ({"Runtimes": {"runc": {}}}, [], "warn"),
        ({}, [], "warn"),
    ],
)
def test_containers_get_a_gpu_by_runtime_or_by_cdi(
    info: machine.EngineInfo, specs: list[str], state: str
) -> None:
    assert machine.gpu_in_containers(info, specs).state == state


def test_a_ca_bundle_must_exist_and_reach_builds(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.touch()
    assert machine.certificates({}) == []
    assert machine.certificates({"SSL_CERT_FILE": str(bundle)})[0].state == "ok"
    assert machine.certificates({"REQUESTS_CA_BUNDLE": str(bundle)})[0].state == "warn"
    (missing,) = machine.certificates({"SSL_CERT_FILE": str(bundle), "PIP_CERT": "/nowhere/ca.pem"})
    assert missing.state == "fail"
    assert "PIP_CERT=/nowhere/ca.pem" in missing.detail


def test_only_a_failed_check_is_an_environment_error() -> None:
    warnings = [CheckResult("a", State.OK), CheckResult("b", State.WARN)]
    assert machine.exit_code(warnings) == 0
    assert machine.exit_code([*warnings, CheckResult("c", State.FAIL)]) == HostError.exit_code


def test_the_report_gives_a_hint_below_the_check_it_belongs_to() -> None:
    found = [
        CheckResult("git", State.OK, "2.39.5"),
        CheckResult("gpu", State.WARN, "none [red]", "plug one in"),
    ]
    human = machine.render(found, "human")
    assert re.search(r"warn +gpu +none \[red\]\n +-> plug one in", human)
    assert "failed: 0, warnings: 1" in human
    assert json.loads(machine.render(found, "json"))[1] == {
        "name": "gpu",
        "state": "warn",
        "found": "none [red]",
        "hint": "plug one in",
    }


def test_the_report_gives_a_hint_that_several_checks_share_once() -> None:
    found = [CheckResult("source", State.WARN, name, "check the network") for name in ("a", "b", "c")]
    assert machine.render(found, "human").count("check the network") == 1


def test_buildx_that_is_missing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = tmp_path / "docker"
    client.write_text("#!/bin/sh\necho \"docker: 'buildx' is not a docker command.\" >&2\nexit 1\n")
    client.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (check,) = machine._buildx()
    assert check.state == "fail"
    assert "./bootstrap" in check.hint


def test_every_registry_and_source_of_the_configuration_is_asked_once(config: Config) -> None:
    endpoints = network.endpoints(config)
    addresses = [target.address for target in endpoints]
    assert len(addresses) == len(set(addresses))
    security = "http://security.debian.org/debian-security/dists/bookworm-security/Release"
    assert {"nvcr.io", security} <= set(addresses)
    assert {repository.url for repository in config.sources.repositories.values()} <= set(addresses)


def test_a_source_beside_the_configuration_is_a_path(config: Config) -> None:
    repository = next(iter(config.sources.repositories.values()))
    near = repository.model_copy(update={"url": "../near", "mirrors": ("git@host.example:far.git",)})
    sources = config.sources.model_copy(update={"repositories": {"near": near}})
    asked = network.endpoints(Config(**{**config.__dict__, "sources": sources}))
    addresses = [target.address for target in asked if target.name == "source near"]
    assert addresses == [str(config.folder.parent / "near"), "git@host.example:far.git"]


@pytest.fixture
def server() -> Iterator[str]:
    class Refuse(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(404 if self.path == "/missing" else 200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Refuse) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


def target(ask: Callable[[], None]) -> network.Endpoint:
    return network.Endpoint("thing", "somewhere", ask, "mend it")


def test_an_answer_that_is_an_error_is_a_problem(server: str) -> None:
    asked = [
        target(lambda: network._ask_http(f"{server}/there")),
        target(lambda: network._ask_http(f"{server}/missing")),
    ]
    there, missing = network.ask(asked)()
    assert there.problem is None
    assert missing.problem == "status 404"
    assert machine.reached(there).state == "ok"
    assert machine.reached(missing) == CheckResult("thing", State.WARN, "somewhere: status 404", "mend it")


def test_a_repository_that_is_not_there_is_a_problem_in_gits_words(tmp_path: Path) -> None:
    (answer,) = network.ask([target(lambda: network._ask_git(str(tmp_path)))])()
    assert answer.problem is not None
    assert "repository" in answer.problem


def test_a_silent_host_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "PATIENCE_SECONDS", 2)
    start = time.monotonic()
    silent, quick = network.ask([target(lambda: time.sleep(30)), target(lambda: None)])()
    assert time.monotonic() - start < 10
    assert silent.problem is not None
    assert "no answer" in silent.problem
    assert quick.problem is None


def test_the_table_of_exit_codes_is_true() -> None:
    text = (ROOT / "docs" / "exit-codes.md").read_text()
    documented = {name: int(code) for code, name in re.findall(r"^\| (\d+) \| `(\w+)` \|", text, re.M)}
    classes = {
        name: kind.exit_code
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.FtbuildError)
    }
    assert documented == classes
