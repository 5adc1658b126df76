"""The OpenAI front as a container: its image, `serve --openai`, and the Compose file of both."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
import requests

from ftbuild.build.run import BuildOptions
from ftbuild.config import loader
from ftbuild.errors import ConfigError
from ftbuild.models import repository
from ftbuild.models.repository import RepositoryOptions
from ftbuild.plan import Plan
from ftserve import deployment, front_image, requirements, resolve
from ftserve.deployment import Deployment, Options
from ftserve.front_options import FrontOptions
from ftserve.image_choice import Image, ImageChoice
from ftserve.targets import compose, front_container
from ftserve.targets import docker as launch
from testing import ROOT, bytelevel, needs
from testing.sample import SAMPLE
from testing.serving import KILL, free_ports, inside, open_to_all

if TYPE_CHECKING:
    import docker
    import openai
else:
    openai = needs.package("openai")

KEY = "0123456789abcdef0123456789abcdef"
SECONDS = 120


@pytest.fixture(scope="module")
def front_built(client: docker.DockerClient, built: Plan, users_cache: Path, shared: Path) -> str:
    options = BuildOptions(users_cache, shared / "work", progress="plain")
    return front_image.ensure(client, loader.load(SAMPLE), built, options)


@pytest.fixture(scope="module")
def models(
    client: docker.DockerClient, built: Plan, reference: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A model repository with text, as `invoke model-repo` makes it from a checkpoint that can chat."""
    folder = tmp_path_factory.mktemp("gptneox")
    reference.write(reference.make(), "gptneox", folder)
    bytelevel.write(folder)
    described = {"chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    script = "examples.pytorch.gptneox.utils.huggingface_gptneox_convert"
    arguments = ["-i", str(folder), "-o", str(folder / "weights"), "-i_g", "1", "-m_n", "gptneox"]
    subprocess.run(
        [sys.executable, "-B", "-m", script, *arguments],
        cwd=ROOT / "sample/upstream/FasterTransformer/base",
        check=True,
    )
    found = repository.templates(client, built.tag("sdk"), "gptneox")
    options = RepositoryOptions(
        "gptneox",
        folder / "weights",
        folder / "models",
        dtype="fp32",
        tokenizer=folder,
        streamed=True,
        families=loader.load(SAMPLE).models,
    )
    made = repository.make(found, options).folder
    open_to_all(made)
    return made


@pytest.fixture
def wanted(
    client: docker.DockerClient, built: Plan, front_built: str, models: Path, tmp_path: Path
) -> Iterator[Deployment]:
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n")
    keys.chmod(0o644)
    http, other = free_ports(), free_ports()
    ports = deployment.Ports(http.http, http.grpc, http.metrics, openai=other.http)
    name = f"ftbuild-test-{uuid.uuid4().hex[:8]}"
    options = Options(models, ports=ports, name=name, front=FrontOptions(front_built, "neox", keys))
    image = built.tag("runtime")
    yield resolve.to_write(loader.load(SAMPLE), ImageChoice(image), options)
    for left in client.containers.list(all=True, filters={"name": name}, ignore_removed=True):
        left.remove(force=True)


def greedy(reference: ModuleType, prompt: str, length: int) -> str:
    tokens = reference.greedy(reference.make(), prompt.encode()[-1], length).tokens
    return bytes(token for token in tokens if token < 256).decode(errors="replace")


def expect_answers(wanted: Deployment, reference: ModuleType) -> None:
    """Ask with the key, by OpenAI's client; and see that nothing is answered without it."""
    url = f"http://127.0.0.1:{wanted.ports.openai}"
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as asking:
        found = asking.chat.completions.create(
            model="neox", messages=[{"role": "user", "content": "Hi"}], max_tokens=9, temperature=0
        )
        assert found.choices[0].message.content == greedy(reference, "Hi", 9)
        stream = asking.completions.create(
            model="neox", prompt="Hi", max_tokens=9, temperature=0, stream=True
        )
        assert "".join(part.choices[0].text for part in stream) == greedy(reference, "Hi", 9)
    refused = requests.get(f"{url}/v1/models", timeout=60)
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")


def test_serve_starts_a_server_with_its_front_and_stops_both(
    client: docker.DockerClient, wanted: Deployment, reference: ModuleType
) -> None:
    said: list[str] = []
    image = Image(wanted.image)
    launch.serve(client, wanted, image, said.append, detach=True)
    assert f"openai localhost:{wanted.ports.openai}" in "\n".join(said).replace("127.0.0.1", "localhost")
    expect_answers(wanted, reference)
    front = front_container.find(client, wanted.name)
    assert front is not None
    for path in ("/here", "/opt/here", "/tokenizer/here"):
        assert "Read-only file system" in inside(front, "touch", path)
    assert inside(front, "id", "-u") == "1000\n"
    assert inside(front, "ls", "/").split().count("models") == 0, "it sees the tokenizer alone"
    assert KEY not in json.dumps(front.attrs), "the key is on no command line and in no environment"
    log = launch.logs(front)
    assert "/v1/chat/completions" in log
    assert KEY not in log
    server = launch.find(client, wanted.name)
    published = {binding["HostIp"] for ports in server.ports.values() for binding in ports or ()}
    assert published == {"127.0.0.1"}
    with pytest.raises(ConfigError, match="already a"):
        launch.serve(client, wanted, image, said.append, detach=True)
    launch.stop(server)
    assert not client.containers.list(all=True, filters={"name": wanted.name}, ignore_removed=True)


def test_an_image_that_is_not_here_is_named_before_anything_starts(
    client: docker.DockerClient, wanted: Deployment, models: Path, built: Plan
) -> None:
    options = Options(models, ports=wanted.ports, name=wanted.name, front=FrontOptions("nobody/has:this"))
    missing = resolve.to_write(loader.load(SAMPLE), ImageChoice(built.tag("runtime")), options)
    with pytest.raises(ConfigError, match="the image nobody/has:this is not here") as refused:
        launch.serve(client, missing, Image(missing.image), print)
    assert "invoke serve.front" in str(refused.value)
    assert requirements.read(models).weights[0].exists


def test_the_front_of_a_compose_file_survives_its_server(
    client: docker.DockerClient, wanted: Deployment, reference: ModuleType, tmp_path: Path
) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(compose.render(wanted).replace("interval: 10s", "interval: 1s"))
    program = [*needs.compose(), "--file", str(file)]
    url = f"http://127.0.0.1:{wanted.ports.openai}/health"
    try:
        begin = [*program, "up", "--detach", "--wait", "--wait-timeout", str(SECONDS)]
        done = subprocess.run(begin, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        expect_answers(wanted, reference)
        inside(client.containers.get(f"{wanted.name}-{compose.SERVICE}-1"), "sh", "-c", KILL)
        deadline, seen = time.monotonic() + SECONDS, [200]
        while 503 not in seen or seen[-1] != 200:
            assert time.monotonic() < deadline, seen
            seen.append(requests.get(url, timeout=60).status_code)
            time.sleep(0.05)
        expect_answers(wanted, reference)
    finally:
        subprocess.run([*program, "down", "--timeout", "5"], capture_output=True, check=True)
