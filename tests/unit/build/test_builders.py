"""Builders that are not this engine: what docker says of them, what they are told, and how one is missed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftbuild.build import bake, definitions, lost
from ftbuild.build import run as builds
from ftbuild.build.definitions import Staging
from ftbuild.build.machine import Host
from ftbuild.build.run import BuildOptions
from ftbuild.cli import cells
from ftbuild.cli.building import Building
from ftbuild.cli.selection import Selection, plans
from ftbuild.config.schema import Config
from ftbuild.engine import builders
from ftbuild.engine.builders import Builder, Machine
from ftbuild.errors import BuildError, ConfigError, HostError, PublishError
from ftbuild.host import shell
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import from_builder
from ftbuild.publishing.names import Names
from tests.unit.build.test_bake import ANSWERS, docker_that

DIGEST = "sha256:" + "7" * 64
INSPECTED = """\
Name:          far
Driver:        {driver}
Last Activity: 2026-01-01 00:00:00 +0000 UTC

Nodes:
Name:                  far0
Endpoint:              {endpoint}
Driver Options:        {options}
Status:                {status}
{error}
Platforms:             linux/amd64
"""
INFO = {"ID": "EN:GI:NE", "NCPU": 16, "MemTotal": 64 << 30, "DriverStatus": []}
CONTAINERD = {**INFO, "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]}


@pytest.fixture
def plan(config: Config) -> Plan:
    return plans(config, Selection(config.folder, ["22.12"], ["80"]))[0]


def described(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    info: Mapping[str, Any] = INFO,
    **fields: str,
) -> None:
    """Let `docker` describe a builder; what it is called with is in the file `calls`."""
    usual = {"driver": "docker", "endpoint": "far", "options": "", "status": "running", "error": ""}
    (folder / "inspected").write_text(INSPECTED.format(**{**usual, **fields}))
    (folder / "info").write_text(json.dumps(info))
    answer = f'case "$*" in *info*) cat {folder}/info;; *) cat {folder}/inspected;; esac'
    docker_that(folder, monkeypatch, f'echo "$*" >> {folder}/calls\n{answer}')


@pytest.mark.parametrize("name", ["-x", "--help", "", " ", "a b", "a\nb", "\x1b[2J", "a/b", "x\u00e9"])
def test_what_can_be_no_builder_reaches_no_program(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that begins with a hyphen would be an option of buildx."""
    monkeypatch.setattr(shell, "run", lambda *_, **__: pytest.fail("a program was started"))
    asking: list[Callable[[str], object]] = [builders.find, builders.silence]
    asking.append(lambda word: builders.require_platform(word, "linux/amd64"))
    for ask in asking:
        with pytest.raises(ConfigError, match="there can be no builder"):
            ask(name)


def test_a_docker_context_is_a_builder_with_the_machine_of_its_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described(tmp_path, monkeypatch)
    found = builders.find("far", start=True)
    assert found == Builder("far", "docker", Machine(16, 64 << 30), None, "EN:GI:NE", attests=False)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == ["buildx inspect --bootstrap far", "--context far info --format {{json .}}"]


def test_an_engine_with_containerds_store_attests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described(tmp_path, monkeypatch, CONTAINERD)
    assert builders.find("far").attests


def test_a_builder_in_a_container_is_apart_from_its_engine_and_has_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described(
        tmp_path,
        monkeypatch,
        driver="docker-container",
        endpoint="ssh://me@far.example.com",
        options='memory="8g"',
    )
    assert builders.find("far") == Builder("far", "docker-container", Machine(16, 64 << 30), 8 << 30)
    assert "--host ssh://me@far.example.com info" in (tmp_path / "calls").read_text()


@pytest.mark.parametrize(
    ("options", "machine"),
    [
        ('limits.cpu="8" limits.memory="24Gi" replicas="1"', Machine(8, 24 << 30)),
        ('limits.cpu="2500m" limits.memory="24Gi"', Machine(2, 24 << 30)),
        ('limits.cpu="100m" limits.memory="24Gi"', Machine(1, 24 << 30)),
        ('limits.memory="24Gi"', None),
        ('requests.cpu="8" limits.memory="24Gi"', None),
        ('limits.cpu="8"', None),
    ],
)
def test_a_pod_has_the_machine_of_its_limits(
    options: str, machine: Machine | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described(tmp_path, monkeypatch, driver="kubernetes", endpoint="", options=options)
    found = builders.find("far")
    assert found.machine == machine
    assert (found.engine, found.attests) == ("", True)
    assert "info" not in (tmp_path / "calls").read_text()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"status": "error", "error": "Error: Cannot connect to the daemon"}, "Cannot connect to the daemon"),
        ({"status": "", "error": "Error:  no route to host"}, "no route to host"),
        ({"status": "inactive"}, "it is inactive"),
        ({"status": ""}, "it is not running"),
    ],
)
def test_a_builder_that_is_not_running_does_not_answer(
    fields: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described(tmp_path, monkeypatch, INFO, **fields)
    assert builders.silence("far") == message
    with pytest.raises(HostError, match=f"builder far does not answer: {message}"):
        builders.find("far")


def test_a_builder_that_runs_is_not_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described(tmp_path, monkeypatch)
    assert builders.silence("far") == ""


# Builds elsewhere


class Client(SimpleNamespace):
    """An engine with its own image store."""

    def info(self) -> Mapping[str, Any]:
        return {**INFO, "ID": "HERE"}


PLATFORMS = """\
Name:          near
Nodes:
Name:          near0
Status:        running
Platforms:     linux/amd64*, linux/386
Name:          near1
Status:        running
Platforms:     linux/arm64
"""


@pytest.mark.parametrize(
    ("described_as", "platform"),
    [
        (PLATFORMS, "linux/amd64"),
        (PLATFORMS, "linux/arm64"),
        ("Status: running\nPlatforms: \n", "linux/arm64"),
        ("Status: running\n", "linux/arm64"),
    ],
)
def test_a_builder_that_runs_the_platform_or_names_none_is_taken(
    described_as: str, platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker_that(tmp_path, monkeypatch, f"cat <<'EOF'\n{described_as}EOF")
    builders.require_platform("near", platform)


@pytest.mark.parametrize(("name", "what"), [("default", "the engine"), ("near", "builder near")])
def test_a_builder_without_the_platform_is_refused_with_those_that_it_has(
    name: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker_that(tmp_path, monkeypatch, "echo 'Platforms: linux/amd64, linux/amd64/v2, linux/386'")
    with pytest.raises(HostError) as refused:
        builders.require_platform(name, "linux/arm64")
    assert refused.value.what == f"{what} runs no programs of linux/arm64"
    assert refused.value.where == f"docker buildx inspect {name}: linux/386, linux/amd64, linux/amd64/v2"
    assert "--dry-run" in (refused.value.hint or "")


def test_the_images_of_another_engine_would_stay_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described(tmp_path, monkeypatch)
    options = BuildOptions(tmp_path, tmp_path, builder="far")
    client: Any = Client()
    with pytest.raises(ConfigError, match="builder far is another engine"):
        builds.host_settings(client, options)
    host = builds.host_settings(client, options, pushes=True)
    assert (host.jobs, host.builder, host.is_engine, host.full) == (16, "far", True, False)


def test_another_engine_is_the_context_of_its_builds(tmp_path: Path) -> None:
    job = bake.Job(tmp_path, {})
    far = Host(1, builder="far", driver="docker")
    assert bake.command_line(job, "plain", far)[:5] == ["docker", "--context", "far", "buildx", "bake"]
    container = Host(1, builder="far", driver="docker-container")
    assert bake.command_line(job, "plain", container)[:5] == ["docker", "buildx", "bake", "--builder", "far"]


def targets(plan: Plan, staging: Staging) -> dict[str, Any]:
    definition: Any = definitions.cell(plan, Host(jobs=1), staging)
    return {product: definition["target"][definitions.target_name(plan, product)] for product in PRODUCTS}


def test_a_builder_pushes_by_digest_and_takes_the_base_from_the_registry(plan: Plan) -> None:
    made = targets(plan, Staging("r.example/x", "r.example/x@sha256:1", "r.example/x@sha256:2"))
    for target in made.values():
        assert target["tags"] == []
        (output,) = target["output"]
        assert output.startswith("type=image,name=r.example/x,")
        assert {"push-by-digest=true", "push=true"} <= set(output.split(","))
        assert target["contexts"]["base"] == "docker-image://r.example/x@sha256:1"
        assert target["contexts"]["toolchain-base"] == "docker-image://r.example/x@sha256:2"


def test_a_builder_whose_pushes_need_a_tag_gets_the_staged_one(plan: Plan) -> None:
    tags = {"runtime": "staging-a", "sdk": "staging-a-sdk"}
    made = targets(plan, Staging("r.example/x", "base", "devel", tags))
    for product, target in made.items():
        assert target["tags"] == [f"r.example/x:{tags[product]}"]
        assert target["output"] == ["type=image,push=true"]


@pytest.mark.parametrize(
    ("staging", "serving", "devel"),
    [
        ("r.example/x", "staging-base-open-0123456789ab", "staging-base-open-0123456789ab-devel"),
        ("r.example/wait/x", "base-open-0123456789ab", "base-open-0123456789ab-devel"),
    ],
)
def test_the_base_of_builders_has_a_staged_tag(staging: str, serving: str, devel: str) -> None:
    names = Names("r.example/x", staging)
    assert names.staged_base("ftbuild-base-open:0123456789ab") == serving
    assert names.staged_base("ftbuild-base-open:0123456789ab-devel") == devel


def test_the_digests_of_what_a_builder_pushed_are_in_buildxs_metadata(plan: Plan, tmp_path: Path) -> None:
    file = tmp_path / "metadata.json"
    made = {definitions.target_name(plan, product): {"containerimage.digest": DIGEST} for product in PRODUCTS}
    file.write_text(json.dumps(made))
    assert from_builder.pushed(file, plan) == dict.fromkeys(PRODUCTS, DIGEST)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"22_12-sm80-runtime": {}}', "0"])
def test_without_digests_nothing_is_fetched(text: str, plan: Plan, tmp_path: Path) -> None:
    file = tmp_path / "metadata.json"
    file.write_text(text)
    with pytest.raises(PublishError, match="buildx does not tell which images"):
        from_builder.pushed(file, plan)


@pytest.mark.parametrize(
    ("building", "message"),
    [
        (Building(push="r.example"), "--push needs --builder"),
        (Building(stage="x"), "--stage needs --push"),
        (Building(stage="x", builder="far"), "--stage needs --push"),
    ],
)
def test_pushing_is_for_builders(config: Config, building: Building, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        cells.build.function(Selection(config.folder, ["22.12"], ["80"]), building=building, dry_run=True)


# Losses

BROKEN = (
    "ERROR: failed to receive status: rpc error: code = Unavailable desc = error reading from server: EOF"
)
CACHE_GONE = (
    "ERROR: failed to solve: failed to prepare x as y: "
    "open /var/lib/docker/overlay2/z/.tmp-committed1: no such file or directory"
)
REFUSED = """\
#7 [22_12-sm80-sdk] pushing r.example/x:y with docker
#8 [22_12-sm80-runtime] pushing r.example/x:z with docker
#8 DONE 0.1s
#7 ERROR: Get "http://r.example/v2/": dial tcp 192.0.2.1:80: connect: connection refused
ERROR: Get "http://r.example/v2/": dial tcp 192.0.2.1:80: connect: connection refused
"""
STEP = 'ERROR: target x: failed to solve: process "curl" did not complete: connection refused'


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (f"#9 1.0 compiling\n{BROKEN}\n", BROKEN.removeprefix("ERROR: ")),
        (
            "ERROR: Cannot connect to the Docker daemon at tcp://h:1. Is the docker daemon running?",
            "Cannot connect to the Docker daemon at tcp://h:1. Is the docker daemon running?",
        ),
        (STEP, ""),
        (f"#9 1.0 {BROKEN}\n{STEP}\n", ""),
        ("#9 1.0 ccache: connection refused\nERROR: target x: failed to solve: exit code: 1", ""),
        (REFUSED, ""),
        ("", ""),
    ],
)
def test_the_loss_of_a_builder_is_told_from_what_steps_print(log: str, line: str) -> None:
    assert lost.line(log) == line


def test_the_reason_of_a_loss_is_read_back_from_the_message() -> None:
    assert lost.reason(f"[x] failed: {lost.message('far', 'EOF')}\n  where: log\n") == "EOF"
    assert lost.reason("[x] failed: the build failed\n") == ""


@pytest.mark.parametrize(
    ("last", "kind", "message"),
    [
        (BROKEN, HostError, "builder far was lost during the build: failed to receive status"),
        ("ERROR: failed to solve: failed to push r.example/x: 401", PublishError, "could not push: .*401"),
        (REFUSED, PublishError, "could not push: Get .*connection refused"),
        (
            CACHE_GONE,
            HostError,
            "a layer of the build cache of builder far is gone: failed to prepare x as y: open",
        ),
        (f"#9 1.0 {CACHE_GONE}\n{STEP}", BuildError, "connection refused"),
        (STEP, BuildError, "connection refused"),
    ],
)
def test_a_failed_build_says_whose_fault_it_is(
    last: str, kind: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker_that(tmp_path, monkeypatch, f"{ANSWERS}\ncat <<'EOF'\n{last}\nEOF\nexit 1")
    with pytest.raises(kind, match=message):
        bake.run(
            bake.Job(tmp_path, {}),
            Host(jobs=1, builder="far", progress="plain"),
            report=lambda line: None,
        )


def test_a_builder_that_does_not_answer_after_a_failure_was_lost_whatever_the_log_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = 'case "$*" in "buildx inspect"*) echo "Error: no route to host"; exit;; esac'
    docker_that(tmp_path, monkeypatch, f"{gone}\necho 'ERROR: failed to solve: Canceled: killed'; exit 1")
    with pytest.raises(HostError, match="builder far was lost during the build: no route to host"):
        bake.run(
            bake.Job(tmp_path, {}),
            Host(jobs=1, builder="far", progress="plain"),
            report=lambda line: None,
        )
