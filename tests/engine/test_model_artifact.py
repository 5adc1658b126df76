"""Model repositories in a real registry: pushed, signed, pulled by digest, served; refused when changed."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from ftbuild.cli import demo
from ftbuild.client import server_container
from ftbuild.errors import PublishError
from ftbuild.publishing import model_artifact
from ftbuild.publishing.model_artifact import Place, PublicKey
from ftbuild.publishing.signing import KeySigner
from ftbuild.registry.client import Repository, digest_of
from ftserve.image_choice import Image
from testing import needs
from testing.registries import plain


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    weights = folder / "fastertransformer" / "1" / "1-gpu"
    weights.mkdir(parents=True)
    (folder / "fastertransformer" / "config.pbtxt").write_text('name: "fastertransformer"\n')
    (weights / "model.wte.bin").write_bytes(os.urandom(3_000_000))
    (weights / "config.ini").write_text("[gpt]\nhead_num = 2\n")
    return folder


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """One that keeps its blobs as files, of which a test can change a byte."""
    with plain(tmp_path / "registry", on_disk=True) as registry:
        yield Place.parse(f"oci://{registry.prefix}/gpt:1")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def silent(message: str) -> None:
    del message


def test_what_is_pushed_is_pulled_by_its_digest(
    models: Path, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_artifact, "LAYER_BYTES", 1_000_000)
    name = model_artifact.push(models, place, None, silent)
    assert name == model_artifact.push(models, place, None, silent), "the same files give the same digest"
    model_artifact.pull(Place.parse(name), tmp_path / "there" / "models", None, silent)
    assert contents(tmp_path / "there" / "models") == contents(models)


def test_a_changed_byte_is_refused_and_leaves_nothing(models: Path, place: Place, tmp_path: Path) -> None:
    name = model_artifact.push(models, place, None, silent)
    blobs = [path for path in tmp_path.rglob("data") if path.stat().st_size > 3_000_000]
    assert len(blobs) == 1
    content = bytearray(blobs[0].read_bytes())
    content[1_500_000] ^= 1
    blobs[0].write_bytes(content)
    with pytest.raises(PublishError, match=r"digest|changed"):
        model_artifact.pull(Place.parse(name), tmp_path / "pulled", None, silent)
    assert not (tmp_path / "pulled").exists()
    assert not list(tmp_path.glob(".ftbuild-pull-*"))


@pytest.mark.parametrize("name", ["../outside", "/tmp/ftbuild-outside", "models/../../outside"])
def test_a_layer_that_leaves_the_folder_is_refused(name: str, place: Place, tmp_path: Path) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    repository = Repository(place.repository)
    layer = repository.put_blob(content.getvalue(), model_artifact.LAYER)
    config = repository.put_blob(b"{}", model_artifact.CONFIG)
    raw = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": model_artifact.MANIFEST,
            "artifactType": model_artifact.ARTIFACT,
            "config": config.as_dict(),
            "layers": [layer.as_dict()],
        }
    ).encode()
    repository.put_manifest("evil", raw, model_artifact.MANIFEST)
    with pytest.raises(PublishError):
        model_artifact.pull(
            Place(place.repository, "", digest_of(raw)), tmp_path / "deep" / "pulled", None, silent
        )
    assert not list(tmp_path.rglob("outside"))
    assert not Path("/tmp/ftbuild-outside").exists()


def test_an_image_of_another_kind_is_refused(place: Place, tmp_path: Path) -> None:
    repository = Repository(place.repository)
    config = repository.put_blob(b"{}", model_artifact.CONFIG)
    content = {"schemaVersion": 2, "mediaType": model_artifact.MANIFEST, "config": config.as_dict()}
    raw = json.dumps({**content, "layers": []}).encode()
    repository.put_manifest("other", raw, model_artifact.MANIFEST)
    with pytest.raises(PublishError, match="no model repository"):
        model_artifact.pull(Place(place.repository, "", digest_of(raw)), tmp_path / "pulled", None, silent)


def test_a_signature_is_asked_for(
    models: Path, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs.program("cosign")
    monkeypatch.setenv("COSIGN_PASSWORD", "")
    for name in ("ours", "others"):
        argv = ["cosign", "generate-key-pair", "--output-key-prefix", str(tmp_path / name)]
        subprocess.run(argv, check=True, capture_output=True, cwd=tmp_path)
    pushed = model_artifact.push(
        models, place, KeySigner(str(tmp_path / "ours.key"), public_log=False), silent
    )
    ours, others = (PublicKey(str(tmp_path / f"{name}.pub"), public_log=False) for name in ("ours", "others"))
    model_artifact.pull(Place.parse(pushed), tmp_path / "pulled", ours, silent)
    assert contents(tmp_path / "pulled") == contents(models)
    with pytest.raises(PublishError, match="not signed by this key"):
        model_artifact.pull(Place.parse(pushed), tmp_path / "again", others, silent)


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
