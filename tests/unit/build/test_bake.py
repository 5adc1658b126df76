from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ftbuild.build import bake, build_log, definitions, machine, proxies
from ftbuild.build.machine import Host
from ftbuild.cli.selection import Selection, plans
from ftbuild.config.schema import Config
from ftbuild.engine import daemon
from ftbuild.errors import BuildError, ConfigError, HostError
from ftbuild.host import shell
from ftbuild.plan import Revision

COMPILE_ERROR = """\
#12 [backend 2/3] RUN --network=none build backend
#12 41.20 [12/333] Building CXX object src/a.cc.o
#12 61.33 FAILED: src/b.cc.o
#12 61.33 /usr/bin/g++-11 -O3 -c b.cc
#12 61.34 /src/ft/src/b.cc:14:5: error: 'array' is not a member of 'std'
#12 61.34    14 |     std::array<int, 2> x;
#12 61.40 ninja: build stopped: subcommand failed.
#12 ERROR: process "/bin/sh" did not complete successfully: exit code: 1
------
 > [backend 2/3] RUN --network=none build backend:
------
Dockerfile:40
--------------------
  40 | >>> RUN --network=none build backend
--------------------
ERROR: target backend: failed to solve: exit code: 1
"""


def test_a_failed_build_shows_the_compilers_line_first() -> None:
    lines = build_log.failing_lines(COMPILE_ERROR)
    assert lines[:2] == [
        "FAILED: src/b.cc.o",
        "/src/ft/src/b.cc:14:5: error: 'array' is not a member of 'std'",
    ]


def test_without_a_known_error_the_last_lines_are_shown() -> None:
    assert build_log.failing_lines("one\n\ntwo\n", limit=1) == ["two"]


def test_running_out_of_memory_is_a_failing_line() -> None:
    assert "c++: fatal error: Killed signal terminated program cc1plus" in build_log.failing_lines(
        "#9 1.0 c++: fatal error: Killed signal terminated program cc1plus\n"
    )


def test_the_time_of_an_image_is_that_of_the_revision(config: Config) -> None:
    (plan,) = plans(config, Selection(config.folder, ["22.12"], ["80"]))
    dated = replace(plan, revision=Revision("a" * 40, "2026-01-02T03:04:05+00:00"))
    assert plan.labels("runtime").keys() == dated.labels("runtime").keys()
    for target in definitions.cell(dated, Host(jobs=1))["target"].values():  # type: ignore[attr-defined]
        assert target["args"]["SOURCE_DATE_EPOCH"] == "1767323045"


def test_host_settings_are_key_value_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in machine.PASSED_ON:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CCACHE_MAXSIZE", "5G")
    lines = dict(line.split("=", 1) for line in Host(jobs=3).lines().splitlines())
    assert lines.keys() == {"JOBS", "JOB_BYTES", "HEAVIEST", "CCACHE_MAXSIZE"}
    assert (lines["JOBS"], lines["CCACHE_MAXSIZE"]) == ("3", "5G")


def test_a_variable_of_two_lines_cannot_be_another_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCACHE_MAXSIZE", "1G\nJOBS=-1")
    with pytest.raises(ConfigError, match="CCACHE_MAXSIZE has more than one line"):
        Host(jobs=3).lines()


def test_the_job_folder_has_all_files_for_a_run_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CCACHE_REMOTE_STORAGE", "https://user:secret@cache.invalid")
    job = bake.Job(tmp_path / "job", {"target": {"x": {}}})
    bake.write(job, Host(jobs=2))
    assert json.loads(job.file.read_text()) == {"target": {"x": {}}}
    script = (job.folder / "build.sh").read_text()
    assert "docker buildx bake --file docker-bake.json" in script
    assert os.access(job.folder / "build.sh", os.X_OK)
    assert "secret" not in script + job.file.read_text()
    assert "secret" not in "".join(file.read_text() for file in job.folder.iterdir())


def test_the_settings_reach_buildx_by_a_variable_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker_that(tmp_path, monkeypatch, 'printf %s "$HOST_SETTINGS" > got')
    monkeypatch.setenv("CCACHE_REMOTE_STORAGE", "redis://secret@storage.invalid")
    job, host = bake.Job(tmp_path / "job", {}), Host(jobs=2, progress="plain")
    bake.write(job, host)
    bake.run(job, host)
    assert (job.folder / "got").read_text() == host.lines()
    assert "secret" in host.lines()
    (job.folder / "got").unlink()
    shell.run([str(job.script)])
    by_hand = (job.folder / "got").read_text().splitlines()
    assert by_hand == host.lines().splitlines()


def test_an_unknown_progress_is_refused(tmp_path: Path) -> None:
    from ftbuild.errors import ConfigError

    with pytest.raises(ConfigError, match="auto, tty, plain"):
        bake.run(bake.Job(tmp_path, {}), Host(jobs=1, progress="fancy"))


def runtime(config: Config, host: Host) -> Any:
    (plan,) = plans(config, Selection(config.folder, ["22.12"], ["80"]))
    definition: Any = definitions.cell(plan, host)
    return definition["target"][definitions.target_name(plan, "runtime")]


def test_images_are_loaded_into_the_engine(config: Config) -> None:
    assert runtime(config, Host(jobs=1))["output"] == ["type=docker"]


def without_proxies(monkeypatch: pytest.MonkeyPatch, docker: Path) -> None:
    for name in proxies.NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(docker))


@pytest.mark.parametrize("full", [False, True])
def test_only_a_capable_builder_attests_and_fills_the_layer_cache(
    config: Config, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_proxies(monkeypatch, config.folder)
    target = runtime(config, Host(jobs=1, cache="registry.example.com/cache", full=full))
    assert target["cache-from"] == ["type=registry,ref=registry.example.com/cache:22.12-sm80"]
    assert ("cache-to" in target) == ("attest" in target) == full


def test_provenance_never_holds_a_proxy_with_its_password(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://user:secret@proxy.invalid")
    target = runtime(config, Host(jobs=1, full=True))
    assert "attest" not in target
    assert target["args"]["HTTPS_PROXY"] is None


PROXY = '{"proxies": {"default": {"httpsProxy": "http://user:secret@proxy.invalid"}}}'


@pytest.mark.parametrize(
    ("settings", "full"),
    [
        (PROXY, False),
        (PROXY.replace("default", "tcp://builder.invalid:2376"), False),
        ("{", False),
        ("[]", False),
        ('{"auths": {}}', True),
        ('{"proxies": {}}', True),
        (None, True),
    ],
)
def test_proxies_of_dockers_own_configuration_keep_provenance_short(
    config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: str | None, full: bool
) -> None:
    """They become build arguments, too, which the full provenance holds."""
    without_proxies(monkeypatch, tmp_path)
    if settings is not None:
        (tmp_path / "config.json").write_text(settings)
    assert ("attest" in runtime(config, Host(jobs=1, full=True))) == full
    docker_that(tmp_path, monkeypatch, 'echo "metadata: $BUILDX_METADATA_PROVENANCE"')
    said: list[str] = []
    job = bake.Job(tmp_path, {})
    bake.run(job, Host(jobs=1, progress="plain"), report=said.append)
    assert said == [f"metadata: {'max' if full else 'disabled'}"]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ([["driver-type", "io.containerd.snapshotter.v1"]], True),
        ([["Backing Filesystem", "extfs"]], False),
        (None, False),
    ],
)
def test_the_engine_reports_its_image_store(status: list[list[str]] | None, expected: bool) -> None:
    assert daemon.keeps_attestations({"DriverStatus": status}) is expected


# What a docker does first whose builders answer.
ANSWERS = 'case "$*" in "buildx inspect"*) echo "Status: running"; exit;; esac'


def docker_that(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program named docker before the real one on PATH."""
    program = folder / "docker"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    "failure",
    [
        "no active sessions",
        "failed to get edge: inconsistent graph state",
        "failed to compute cache key: failed to get state for index 0 on [backend 1/1] RUN true",
    ],
)
def test_a_failure_of_buildkit_itself_is_retried(
    failure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = f"if [ -e was-here ]; then exit 0; fi; touch was-here; echo 'ERROR: {failure}'; exit 1"
    docker_that(tmp_path, monkeypatch, again)
    reports: list[str] = []
    bake.run(bake.Job(tmp_path, {}), Host(jobs=1, progress="plain"), report=reports.append)
    assert [line for line in reports if "trying again" in line]


@pytest.mark.parametrize(
    "failure",
    [
        "layer does not exist",
        "failed to get layer sha256:0123: layer does not exist",
        "failed to prepare x as y: open /var/docker/overlay2/z/.tmp-committed1: no such file or directory",
        "failed to prepare x as y: open /var/lib/docker/btrfs/subvolumes/z: no such file or directory",
        "failed to read dockerfile: stat /var/lib/docker/overlay2/z: no such file or directory",
        "failed to stat /var/lib/buildkit/runc-overlayfs/snapshots/snapshots/7/fs: no such file or directory",
    ],
)
@pytest.mark.parametrize("target", ["", "target x: "], ids=["", "as newer buildx tells it"])
def test_a_layer_of_the_cache_that_is_gone_is_made_again(
    failure: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without cached layers, only once: BuildKit has then made all that it listed."""
    gone = f"echo 'ERROR: {target}failed to solve: {failure}'; exit 1"
    script = f'{ANSWERS}\necho "$*" >> runs; case "$*" in *--no-cache) exit;; esac; {gone}'
    docker_that(tmp_path, monkeypatch, script)
    reports: list[str] = []
    bake.run(bake.Job(tmp_path, {}), Host(jobs=1, progress="plain"), report=reports.append)
    assert (
        f"a layer of the build cache is gone ({failure}): trying again without cached layers; " in reports[1]
    )
    first, second = (tmp_path / "runs").read_text().splitlines()
    assert second == f"{first} --no-cache"


@pytest.mark.parametrize(
    ("failure", "runs"),
    [("failed to solve: layer does not exist", 2), ("failed to solve: no active sessions", bake.TRIES)],
)
def test_what_helps_no_build_is_tried_a_few_times(
    failure: str, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker_that(tmp_path, monkeypatch, f"{ANSWERS}\necho x >> runs; echo 'ERROR: {failure}'; exit 1")
    reports: list[str] = []
    with pytest.raises((HostError, BuildError)):
        bake.run(bake.Job(tmp_path, {}), Host(jobs=1, progress="plain"), report=reports.append)
    assert (tmp_path / "runs").read_text() == "x\n" * runs
    assert len([line for line in reports if "trying again" in line]) == runs - 1


def test_any_other_failure_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker_that(tmp_path, monkeypatch, f"{ANSWERS}\necho x >> runs; echo 'fatal error: no.h'; exit 1")
    with pytest.raises(BuildError, match=r"no\.h"):
        bake.run(bake.Job(tmp_path, {}), Host(jobs=1, progress="plain"), report=lambda line: None)
    assert (tmp_path / "runs").read_text() == "x\n"


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("kill -KILL $$", "docker buildx bake was ended by signal 9 (Killed)"),
        ("exit 255", "docker buildx bake was ended by a signal"),
    ],
    ids=["docker", "its plugin"],
)
def test_a_build_whose_program_is_killed_is_a_fault_of_the_machine(
    end: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker_that(tmp_path, monkeypatch, f"{ANSWERS}\necho '#1 still compiling'; {end}")
    with pytest.raises(HostError) as killed:
        bake.run(bake.Job(tmp_path, {}), Host(jobs=1, progress="plain"), report=lambda line: None)
    assert killed.value.what == said
    assert "dmesg" in (killed.value.hint or "")
