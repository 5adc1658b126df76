"""Model repositories in a real registry, served and taken by an engine.

How they are pushed and pulled is in tests/unit/publishing/test_stored_models.py.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import docker

from ftbuild.cli import demo
from ftbuild.client import server_container
from ftbuild.publishing import model_artifact
from ftbuild.publishing.model_artifact import Place
from ftserve.image_choice import Image
from tests.unit.publishing import test_stored_models
from tests.unit.publishing.test_stored_models import contents, silent

# Fixtures.
models = test_stored_models.models
place = test_stored_models.place


def test_a_pulled_repository_is_served(place: Place, tmp_path: Path, sample_image: Image) -> None:
    made = demo.model_repository(tmp_path / "made")
    name = model_artifact.push(made, place, None, silent)
    model_artifact.pull(Place.parse(name), tmp_path / "pulled", None, silent)
    with server_container.serve(sample_image.name, tmp_path / "pulled") as running:
        assert demo.ask(running) == [*demo.PROMPT, *demo.ANSWER]


def test_an_engine_takes_it_as_an_image(
    models: Path, place: Place, tmp_path: Path, client: docker.DockerClient
) -> None:
    name = Place.parse(model_artifact.push(models, place, None, silent)).pinned
    client.images.pull(name)
    container = client.containers.create(name, command=["none"])
    try:
        stream, _ = container.get_archive(f"/{model_artifact.FOLDER}")
        archive = tmp_path / "models.tar"
        archive.write_bytes(b"".join(stream))
    finally:
        container.remove()
        client.images.remove(name, force=True)
    (tmp_path / "copied").mkdir()
    subprocess.run(["tar", "xf", archive, "-C", tmp_path / "copied"], check=True)
    assert contents(tmp_path / "copied" / model_artifact.FOLDER) == contents(models)
