"""Names of model repositories in registries, and which folders are none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ftbuild.errors import ConfigError
from ftbuild.publishing import model_artifact
from ftbuild.publishing.model_artifact import Place
from tests.unit.publishing.shelf import Shelf

DIGEST = f"sha256:{'a' * 64}"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("oci://registry.example.com/team/gptj:1", Place("registry.example.com/team/gptj", "1")),
        ("oci://127.0.0.1:5000/gptj", Place("127.0.0.1:5000/gptj")),
        (f"oci://127.0.0.1:5000/gptj@{DIGEST}", Place("127.0.0.1:5000/gptj", "", DIGEST)),
        (f"oci://registry.example.com/gptj:1@{DIGEST}", Place("registry.example.com/gptj", "1", DIGEST)),
    ],
)
def test_a_place_is_read_as_images_are_named(text: str, place: Place) -> None:
    assert Place.parse(text) == place


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gptj",
        "registry.example.com/gptj",
        "s3://models/gptj",
        "oci://gptj",
        "oci://registry.example.com/",
        "oci://registry.example.com/gptj:",
        "oci://registry.example.com/gptj:a b",
        "oci://registry.example.com/gptj@sha256:abc",
        "oci://registry.example.com/gptj@",
    ],
)
def test_what_names_no_place_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no place in a registry"):
        Place.parse(text)


def test_only_a_digest_is_pulled(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no digest"):
        model_artifact.pull(Place.parse("oci://127.0.0.1:1/gptj:1"), tmp_path / "out", None, print)


def push(folder: Path) -> None:
    # Nothing listens there: what is wrong with a folder is said before anything is asked.
    model_artifact.push(folder, Place.parse("oci://127.0.0.1:1/gptj:1"), None, print)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    (folder / "gpt" / "1").mkdir(parents=True)
    (folder / "gpt" / "config.pbtxt").touch()
    return folder


def test_a_folder_without_models_is_none(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "config.pbtxt.txt").touch()
    (tmp_path / "gpt" / "config.pbtxt").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ConfigError, match="no model repository"):
            push(folder)


def test_the_configuration_of_a_model_is_in_the_model_s_own_folder(tmp_path: Path) -> None:
    (tmp_path / "team" / "gpt").mkdir(parents=True)
    (tmp_path / "team" / "gpt" / "config.pbtxt").touch()
    with pytest.raises(ConfigError, match="no model repository"):
        push(tmp_path)


def test_links_to_folders_and_out_of_it_are_refused(models: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    link = models / "gpt" / "1" / "weights"
    for target in (tmp_path / "secret", models / "gpt"):
        link.symlink_to(target)
        with pytest.raises(ConfigError, match="a link to a folder, or out of"):
            push(models)
        link.unlink()


def test_what_is_no_file_is_refused(models: Path) -> None:
    os.mkfifo(models / "gpt" / "1" / "pipe")
    with pytest.raises(ConfigError, match="neither a file nor a folder"):
        push(models)


def test_a_file_that_cannot_be_read_is_named(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", gone)  # root may read everything
    with pytest.raises(ConfigError, match=r"cannot be read, or changes meanwhile: .*Permission denied"):
        push(models)


def test_what_is_pushed_has_its_digest_from_its_content(models: Path) -> None:
    with pytest.raises(ConfigError, match="from its content"):
        model_artifact.push(models, Place.parse(f"oci://127.0.0.1:1/gptj@{DIGEST}"), None, print)


def test_an_artifact_is_of_the_form_of_an_image_and_comes_back_as_it_was(
    models: Path, shelf: Shelf, tmp_path: Path
) -> None:
    """Kubernetes mounts it as an image volume: what containerd asks of a configuration is there."""
    (models / "gpt" / "1" / "weights").write_bytes(b"weights")
    name = f"{model_artifact.SCHEME}{shelf.names.repository}"
    place = Place.parse(model_artifact.push(models, Place.parse(f"{name}:1"), None, shelf.said.append))
    found = shelf.repository.manifest("1")
    assert found
    assert found.descriptor.digest == place.digest
    manifest = json.loads(found.raw)
    config = json.loads(shelf.repository.part(found.content.config))  # type: ignore[arg-type]
    digests = [layer["digest"] for layer in manifest["layers"]]
    assert config == {
        "architecture": "amd64",
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": digests},
    }
    model_artifact.pull(place, tmp_path / "out", None, shelf.said.append)
    assert (tmp_path / "out" / "gpt" / "1" / "weights").read_bytes() == b"weights"


def test_a_public_key_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    key = model_artifact.PublicKey(str(tmp_path / "cosign.pub"))
    with pytest.raises(ConfigError, match="the public key cannot be read"), key.verifying():
        pass
