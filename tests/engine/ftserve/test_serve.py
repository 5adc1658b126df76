"""The sample stack served for real: `serve` from start to stop, and what stops it."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import requests
import yaml

from ftbuild.config import loader
from ftbuild.errors import ConfigError, HostError, SmokeError
from ftbuild.host import shell
from ftbuild.plan import Plan
from ftbuild.text import reporter
from ftserve import image_choice
from ftserve.deployment import Deployment
from ftserve.image_choice import Image, ImageChoice
from ftserve.targets import docker as launch
from ftserve.targets import grafana, kubernetes
from testing import ROOT, terminals
from testing.sample import SAMPLE, command
from testing.serving import RIGHT, answer, expect_strict

if TYPE_CHECKING:
    import docker


@pytest.fixture
def serve(client: docker.DockerClient, sample_image: Image) -> Callable[..., list[str]]:
    def run(how: Deployment, **options: object) -> list[str]:
        said: list[str] = []
        launch.serve(client, how, sample_image, said.append, **options)  # type: ignore[arg-type]
        return said

    return run


def names(client: docker.DockerClient) -> set[str]:
    return {str(container.name) for container in client.containers.list(all=True, ignore_removed=True)}


def test_a_detached_server_answers_until_it_is_stopped(
    client: docker.DockerClient,
    wanted: Deployment,
    serve: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reporter, "REPORT_SECONDS", 0.0)
    said = "\n".join(serve(wanted, detach=True))
    assert "still loading after" in said
    rows = [line.split() for line in said.splitlines()]
    assert ["Model", "Version", "Status"] in rows
    assert ["fastertransformer", "1", "READY"] in rows
    assert answer(wanted.ports.http) == RIGHT
    assert answer(wanted.ports.grpc, "grpc") == RIGHT
    metrics = requests.get(f"http://127.0.0.1:{wanted.ports.metrics}/metrics", timeout=60).text
    shown = set(re.findall(r"\bnv_\w+", json.dumps(grafana.PANELS, default=vars)))
    without_gpu = {name for name in shown if not name.startswith("nv_gpu_")}
    assert without_gpu
    assert without_gpu <= set(re.findall(r"^nv_\w+", metrics, re.M))

    running = launch.find(client, wanted.name)
    assert running.attrs["HostConfig"]["ShmSize"] == wanted.shared_memory
    assert "Started HTTPService" in launch.logs(running)
    expect_strict(running, wanted)
    published = [binding["HostIp"] for ports in running.ports.values() for binding in ports or ()]
    assert published == ["127.0.0.1"] * 3

    with pytest.raises(ConfigError, match=f"there is already a server {wanted.name}") as clash:
        serve(wanted, detach=True)
    assert f"--stop --name {wanted.name}" in str(clash.value)
    with pytest.raises(HostError, match=f"port {wanted.ports.http} is in use") as busy:
        serve(replace(wanted, name=f"{wanted.name}-2"), detach=True)
    assert "--http-port" in str(busy.value)
    assert answer(wanted.ports.http) == RIGHT

    launch.stop(running)
    assert wanted.name not in names(client)
    with pytest.raises(ConfigError, match=f"no server is called {wanted.name}"):
        launch.find(client, wanted.name)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_no_client_changes_files_memory_or_models_of_a_server(
    client: docker.DockerClient, wanted: Deployment, serve: Callable[..., list[str]], protocol: str
) -> None:
    serve(wanted, detach=True)
    library = importlib.import_module(f"tritonclient.{protocol}")
    port = wanted.ports.http if protocol == "http" else wanted.ports.grpc
    asked = library.InferenceServerClient(f"127.0.0.1:{port}")
    with pytest.raises(library.InferenceServerException, match=r"polling is enabled|explicit"):
        asked.unload_model("fastertransformer")
    for request in (
        asked.get_system_shared_memory_status,
        lambda: asked.register_system_shared_memory("x", "/x", 8),
        lambda: asked.update_trace_settings(settings={"trace_file": "/tmp/trace"}),
        lambda: asked.update_log_settings({"log_file": "/tmp/log"}),
    ):
        with pytest.raises(library.InferenceServerException, match="restricted, expecting header"):
            request()
    assert answer(port, protocol) == RIGHT  # type: ignore[arg-type]
    launch.stop(launch.find(client, wanted.name))


def test_ctrl_c_ends_a_foreground_server(
    client: docker.DockerClient, wanted: Deployment, sample_image: Image
) -> None:
    ports = [f"--{name}-port={port}" for name, port, _ in wanted.ports.published()]
    options = ["--triton", "22.12", "--sm", "80", f"--name={wanted.name}", *ports]
    process = subprocess.Popen(
        command("serve", "--config", str(SAMPLE), "--model-repo", str(wanted.models), *options),
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Ctrl-C ends it" in line:
                break
        assert answer(wanted.ports.http) == RIGHT
        pressed = time.monotonic()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(60) == 0, rest
        assert time.monotonic() - pressed < terminals.OVER_SECONDS
    assert f"stopping {wanted.name}" in rest
    assert wanted.name not in names(client)


def test_ctrl_c_as_soon_as_it_is_offered_ends_the_server_too(
    client: docker.DockerClient, wanted: Deployment, sample_image: Image
) -> None:
    said: list[str] = []

    def press(line: str) -> None:
        said.append(line)
        if line.startswith("Ctrl-C ends it"):
            raise KeyboardInterrupt

    launch.serve(client, wanted, sample_image, press)
    assert said[-1] == f"stopping {wanted.name}"
    assert wanted.name not in names(client)


def test_ctrl_c_while_loading_leaves_nothing(
    client: docker.DockerClient, wanted: Deployment, sample_image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        launch.serve(client, wanted, sample_image, lambda line: None)
    assert wanted.name not in names(client)


def test_a_server_that_cannot_load_its_model_says_why(
    client: docker.DockerClient, wanted: Deployment, serve: Callable[..., list[str]]
) -> None:
    assert wanted.models is not None
    config = wanted.models / "fastertransformer/config.pbtxt"
    config.write_text(config.read_text().replace('"GPT"', '"GPT-9"'))
    with pytest.raises(SmokeError, match="ended before it was ready") as caught:
        serve(wanted)
    assert "GPT-9" in str(caught.value)
    assert wanted.name not in names(client)


def test_a_server_that_dies_while_it_is_followed_is_an_error(
    client: docker.DockerClient,
    wanted: Deployment,
    serve: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    follow = launch.follow

    def kill_and_follow(container: object) -> Iterator[str]:
        client.containers.get(wanted.name).kill()
        return follow(container)  # type: ignore[arg-type]

    monkeypatch.setattr(launch, "follow", kill_and_follow)
    with pytest.raises(SmokeError, match=r"the server ended by itself \(code 137\)"):
        serve(wanted)
    assert wanted.name not in names(client)


def test_a_server_that_takes_too_long_is_removed(
    client: docker.DockerClient, wanted: Deployment, serve: Callable[..., list[str]]
) -> None:
    # A server that has 0.01 s may be asked after it is ready, where its container took long to start.
    with pytest.raises(SmokeError, match=r"not ready within 0 s"):
        serve(wanted, seconds=0)
    assert wanted.name not in names(client)


def test_a_repository_that_the_server_may_not_read_is_refused(
    client: docker.DockerClient, wanted: Deployment, serve: Callable[..., list[str]]
) -> None:
    assert wanted.models is not None
    (wanted.models / "fastertransformer").chmod(0o700)
    with pytest.raises(HostError, match=r"user \(1000\) cannot read") as caught:
        serve(wanted)
    assert "chmod -R a+rX" in str(caught.value)
    assert wanted.name not in names(client)


def test_a_container_of_somebody_else_is_not_touched(
    client: docker.DockerClient, wanted: Deployment, sample_image: Image, serve: Callable[..., list[str]]
) -> None:
    other = client.containers.create(sample_image.name, ["true"], name=wanted.name)
    with pytest.raises(ConfigError, match="that invoke serve did not make"):
        serve(wanted)
    with pytest.raises(ConfigError, match="no server is called"):
        launch.find(client, wanted.name)
    other.reload()


def test_an_image_that_does_not_exist_is_refused_and_leaves_nothing(
    client: docker.DockerClient, wanted: Deployment
) -> None:
    with pytest.raises(HostError, match="the engine cannot start the server"):
        launch.start(client, replace(wanted, image="ftbuild-nobody-has:this"))
    assert wanted.name not in names(client)


def test_a_named_image_is_taken_as_it_is_or_said_to_be_absent(
    client: docker.DockerClient, sample_image: Image
) -> None:
    config = loader.load(SAMPLE)
    assert image_choice.find(client, config, ImageChoice(image=sample_image.name), None) == (
        sample_image,
        None,
    )
    with pytest.raises(HostError, match="serving needs the image localhost:1/nobody:x"):
        image_choice.find(client, config, ImageChoice(image="localhost:1/nobody:x"), None)
    absent, _ = image_choice.find(client, config, ImageChoice(image="localhost:1/nobody:x"), None, here=False)
    assert absent == Image("localhost:1/nobody:x")


def test_options_that_no_built_image_matches_are_named(client: docker.DockerClient, built: Plan) -> None:
    with pytest.raises(ConfigError, match=r"matches --triton 20\.01 --sm 80"):
        image_choice.find(client, loader.load(SAMPLE), ImageChoice(triton="20.01", sm="80"), None)


def test_the_docker_run_line_serves_as_well_and_as_strictly_as_a_pod(
    client: docker.DockerClient, wanted: Deployment
) -> None:
    """The pod's user, and what kubernetes.py asks for."""
    pod = next(yaml.safe_load_all(kubernetes.render(wanted)))["spec"]["template"]["spec"]
    user = f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
    line = launch.command_line(wanted).replace("docker run", f"docker run --user={user}", 1)
    shell.run(["sh", "-c", line])
    running = launch.find(client, wanted.name)
    launch.wait(client, running, wanted, print, seconds=120)
    assert answer(wanted.ports.http) == RIGHT
    rules = pod["containers"][0]["securityContext"]
    assert (rules["readOnlyRootFilesystem"], rules["allowPrivilegeEscalation"]) == (True, False)
    expect_strict(running, wanted)


def cli(*arguments: str, models: Path | None = None) -> subprocess.CompletedProcess[str]:
    repository = ["--model-repo", str(models)] if models else []
    argv = command(*arguments, *repository)
    environment = {**os.environ, "FTBUILD_CONFIG": str(SAMPLE)}
    return subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_the_commands_serve_log_and_stop(client: docker.DockerClient, wanted: Deployment) -> None:
    ports = [f"--{name}-port={port}" for name, port, _ in wanted.ports.published()]
    named = f"--name={wanted.name}"
    started = cli("serve", "--detach", "--triton", "22.12", named, *ports, models=wanted.models)
    assert started.returncode == 0, started.stderr
    assert "READY" in started.stdout
    assert answer(wanted.ports.http) == RIGHT
    assert "Started HTTPService" in cli("serve", "--logs", named).stdout
    again = cli("serve", "--detach", named, *ports, models=wanted.models)
    assert (again.returncode, "there is already a server" in again.stderr) == (2, True)
    assert cli("serve", "--stop", named).returncode == 0
    assert wanted.name not in names(client)
    assert cli("serve", "--stop", named).returncode == 2


def test_a_dry_run_prints_the_docker_run_line(wanted: Deployment) -> None:
    ports = [f"--{name}-port={port}" for name, port, _ in wanted.ports.published()]
    options = ["--dry-run", "--triton", "22.12", "--sm", "80", f"--name={wanted.name}", *ports]
    assert cli("serve", *options, models=wanted.models).stdout.strip() == launch.command_line(wanted)


@pytest.mark.parametrize(
    "command",
    [
        ["serve", "--dry-run"],
        ["serve.compose"],
        ["serve.k8s"],
        ["serve.kserve", "--storage-uri", "pvc://models"],
        ["serve.sif", "--out", "x"],
    ],
)
def test_every_command_refuses_what_is_no_repository(command: list[str]) -> None:
    done = cli(*command, "--image=x:1", models=Path("/nowhere"))
    assert (done.returncode, "the model repository does not exist" in done.stderr) == (2, True)


def test_files_are_printed_or_written(tmp_path: Path, wanted: Deployment, sample_image: Image) -> None:
    out = tmp_path / "file.yaml"
    for task in ("serve.compose", "serve.k8s"):
        printed = cli(task, "--image", sample_image.name, models=wanted.models).stdout
        assert sample_image.name in printed
        assert (
            cli(task, "--image", sample_image.name, "--out", str(out), models=wanted.models).returncode == 0
        )
        assert out.read_text() == printed
    claimed = cli("serve.k8s", "--image", sample_image.name, "--pvc", "gptj", "--replicas", "2").stdout
    assert next(yaml.safe_load_all(claimed))["spec"]["replicas"] == 2
