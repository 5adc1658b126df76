"""Digests of base images, asked of a real registry on loopback."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ftbuild import base, registry
from ftbuild import config as configuration
from ftbuild.errors import HostError

from .sample import ROOT

if TYPE_CHECKING:
    import docker

CONFIG = """\
version: 0.1
storage: {{filesystem: {{rootdirectory: {storage}}}}}
http: {{addr: "127.0.0.1:{port}"}}
log: {{level: error}}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("needs docker-registry (Debian's package of that name; ./bootstrap installs it)")
    folder, port = tmp_path_factory.mktemp("registry"), free_port()
    file = folder / "config.yml"
    file.write_text(CONFIG.format(storage=folder / "storage", port=port))
    server = subprocess.Popen(
        [program, "serve", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(10)


@pytest.fixture(scope="module")
def pushed(
    client: docker.DockerClient, host: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str]:
    """An image in the registry, and the digest that the engine saw when it pushed it."""
    empty = tmp_path_factory.mktemp("image") / "empty.tar"
    subprocess.run(["tar", "-cf", str(empty), "-T", "/dev/null"], check=True)
    client.api.import_image_from_file(str(empty), repository=f"{host}/base/empty", tag="22.12-py3")
    digest = ""
    for line in client.images.push(f"{host}/base/empty", tag="22.12-py3", stream=True, decode=True):
        assert "error" not in line, line
        digest = line.get("aux", {}).get("Digest", digest)
    client.images.remove(f"{host}/base/empty:22.12-py3")
    return f"{host}/base/empty:22.12-py3", digest


def test_a_tag_is_resolved_to_the_digest_that_was_pushed(pushed: tuple[str, str]) -> None:
    image, digest = pushed
    assert digest.startswith("sha256:")
    assert registry.digest(image) == digest


def test_a_missing_tag_is_told_apart_from_a_missing_registry(host: str) -> None:
    with pytest.raises(HostError, match="HTTP 404"):
        registry.digest(f"{host}/base/none:1")
    with pytest.raises(HostError, match="cannot be reached"):
        registry.digest(f"127.0.0.1:{free_port()}/base/none:1")


def test_the_lock_takes_digests_and_keeps_what_it_cannot_ask_for(pushed: tuple[str, str]) -> None:
    image, digest = pushed
    config = configuration.load(ROOT / "buildcfg")
    ngc = config.bases.bases["ngc"].model_copy(
        update={"image": image.replace("22.12", "{release}"), "releases": ("22.07", "22.12")}
    )
    kept = "sha256:" + "7" * 64
    config = replace(
        config,
        bases=config.bases.model_copy(update={"bases": {"ngc": ngc}}),
        lock=config.lock.model_copy(update={"bases": {"ngc": {"22.07": kept}}}),
    )
    said: list[str] = []
    assert base.digests(config, said.append) == {"ngc": {"22.07": kept, "22.12": digest}}
    assert [line for line in said if "22.07" in line and kept in line]
