"""Model repositories in a real registry: pushed, signed, pulled by digest; refused when changed.

With an engine: tests/engine/test_model_artifact.py.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from ftbuild.errors import ConfigError, HostError, PublishError
from ftbuild.host import disk
from ftbuild.publishing import model_artifact
from ftbuild.publishing.model_artifact import Place, PublicKey
from ftbuild.publishing.signing import KeySigner
from ftbuild.registry.client import Repository, digest_of
from ftbuild.text.units import size
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


def names_in(archive: bytes) -> list[str]:
    return [entry.name for entry in entries_in(archive)]


def entries_in(archive: bytes) -> list[tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return opened.getmembers()


def silent(message: str) -> None:
    del message


def test_what_is_pushed_is_pulled_by_its_digest(
    models: Path, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_artifact, "LAYER_BYTES", 1_000_000)
    said: list[str] = []
    name = model_artifact.push(models, place, None, said.append)
    assert name == model_artifact.push(models, place, None, silent), "the same files give the same digest"
    there = Repository(place.repository)
    found = there.manifest(place.tag)
    assert found
    layers = found.content.layers or []
    sizes = [size(layer.size) for layer in layers]
    assert said == [f"models-00{number}.tar: {each}, {number + 1} of 3" for number, each in enumerate(sizes)]
    folders = ["models", "models/fastertransformer"]
    weights = [*folders, "models/fastertransformer/1", "models/fastertransformer/1/1-gpu"]
    assert [names_in(there.part(layer)) for layer in layers] == [
        [*weights, "models/fastertransformer/1/1-gpu/config.ini"],
        [*weights, "models/fastertransformer/1/1-gpu/model.wte.bin"],
        [*folders, "models/fastertransformer/config.pbtxt"],
    ]
    said.clear()
    model_artifact.pull(Place.parse(name), tmp_path / "there" / "models", None, said.append)
    assert said == [f"layer {number} of 3: {each}" for number, each in enumerate(sizes, start=1)]
    assert contents(tmp_path / "there" / "models") == contents(models)
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["models"]


def test_a_layer_is_as_full_as_it_may_be(models: Path, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte more, and the file is in the next one."""
    for number, count in enumerate((5, 5, 5, 5, 6)):
        (models / "fastertransformer" / f"{number}.bin").write_bytes(b"x" * count)
    (models / "fastertransformer" / "1" / "1-gpu" / "model.wte.bin").unlink()
    (models / "fastertransformer" / "1" / "1-gpu" / "config.ini").unlink()
    (models / "fastertransformer" / "config.pbtxt").write_bytes(b"")
    monkeypatch.setattr(model_artifact, "LAYER_BYTES", 10)
    model_artifact.push(models, place, None, silent)
    there = Repository(place.repository)
    found = there.manifest(place.tag)
    assert found
    files = [
        [PurePosixPath(entry.name).name for entry in entries_in(there.part(layer)) if entry.isfile()]
        for layer in found.content.layers or []
    ]
    assert files == [["0.bin", "1.bin"], ["2.bin", "3.bin"], ["4.bin", "config.pbtxt"]]


def test_what_an_artifact_holds_may_be_read_by_every_user_of_a_container(models: Path, place: Place) -> None:
    """A runtime mounts it as it is: the server is not root, and nobody writes there but root."""
    (models / "fastertransformer" / "1").chmod(0o700)
    model_artifact.push(models, place, None, silent)
    there = Repository(place.repository)
    found = there.manifest(place.tag)
    assert found
    (layer,) = found.content.layers or []
    entries = entries_in(there.part(layer))
    assert {(entry.isdir(), oct(entry.mode)) for entry in entries} == {(True, "0o755"), (False, "0o644")}
    assert {(entry.uid, entry.gid, entry.uname, entry.mtime) for entry in entries} == {(0, 0, "", 0)}
    assert entries[0].name == "models"


def test_what_is_pulled_lies_beside_its_place_until_it_is_complete(
    models: Path, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the disk that has the room: the default folder for temporary files is memory on many systems."""
    pushed = Place.parse(model_artifact.push(models, place, None, silent))
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    out, beside = tmp_path / "deep" / "below" / "pulled", list[str]()
    model_artifact.pull(
        pushed, out, None, lambda _: beside.extend(each.name for each in out.parent.iterdir())
    )
    (name,) = beside
    assert re.fullmatch(r"\.ftbuild-pull-[a-z0-9_]{8}", name)
    assert [each.name for each in out.parent.iterdir()] == ["pulled"]


def test_a_registry_shows_what_was_pushed(models: Path, place: Place) -> None:
    """By its tag and its digest, with its models and files that tools for artifacts name."""
    for name in ("ensemble", "tokenizer"):
        (models / name).mkdir()
        (models / name / "config.pbtxt").write_text(f'name: "{name}"\n')
    said: list[str] = []
    pushed = model_artifact.push(models, place, None, said.append)
    found = Repository(place.repository).manifest(place.tag)
    assert found
    assert pushed == f"oci://{place.repository}@{found.descriptor.digest}"
    content = json.loads(found.raw)
    assert content["artifactType"] == "application/vnd.ftbuild.model-repository.v1"
    assert content["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    assert content["annotations"] == {
        "org.opencontainers.image.title": "models",
        "io.ftbuild.models": "ensemble,fastertransformer,tokenizer",
    }
    titles = [layer["annotations"]["org.opencontainers.image.title"] for layer in content["layers"]]
    assert titles == ["models-000.tar"]
    assert said == [f"models-000.tar: {size(content['layers'][0]['size'])}, 1 of 1"]


def test_what_has_no_tag_is_found_by_its_digest(models: Path, place: Place, tmp_path: Path) -> None:
    pushed = model_artifact.push(models, Place(place.repository), None, silent)
    assert Repository(place.repository).tags() == []
    said: list[str] = []
    model_artifact.pull(Place.parse(pushed), tmp_path / "pulled", None, said.append)
    assert contents(tmp_path / "pulled") == contents(models)
    assert len(said) == 1
    assert said[0].startswith("layer 1 of 1: ")


def test_folders_and_links_come_with_what_they_hold(models: Path, place: Place, tmp_path: Path) -> None:
    """Triton finds the versions of a model by their folders; modes and times of this machine stay here."""
    (models / "ensemble" / "1").mkdir(parents=True)
    (models / "ensemble" / "config.pbtxt").symlink_to(models / "fastertransformer" / "config.pbtxt")
    (models / "fastertransformer" / "config.pbtxt").chmod(0o600)
    pushed = model_artifact.push(models, place, None, silent)
    os.utime(models / "fastertransformer" / "config.pbtxt", (0, 0))
    (models / "fastertransformer" / "config.pbtxt").chmod(0o640)
    assert model_artifact.push(models, place, None, silent) == pushed
    pulled = tmp_path / "pulled"
    model_artifact.pull(Place.parse(pushed), pulled, None, silent)
    assert (pulled / "ensemble" / "1").is_dir()
    assert (pulled / "ensemble" / "config.pbtxt").read_text() == 'name: "fastertransformer"\n'
    assert not (pulled / "ensemble" / "config.pbtxt").is_symlink()
    assert (pulled / "fastertransformer" / "config.pbtxt").stat().st_mode & 0o777 == 0o644


def test_a_folder_that_is_there_is_left_alone(models: Path, place: Place, tmp_path: Path) -> None:
    pushed = model_artifact.push(models, place, None, silent)
    (tmp_path / "pulled").mkdir()
    with pytest.raises(ConfigError, match="the folder to write exists already") as refused:
        model_artifact.pull(Place.parse(pushed), tmp_path / "pulled", None, silent)
    assert (refused.value.where, refused.value.hint) == (str(tmp_path / "pulled"), "another --out")
    assert not list((tmp_path / "pulled").iterdir())


def test_what_the_registry_does_not_have_is_said(place: Place, tmp_path: Path) -> None:
    gone = Place(place.repository, "", f"sha256:{'a' * 64}")
    with pytest.raises(PublishError, match="the registry has no such model repository") as refused:
        model_artifact.pull(gone, tmp_path / "pulled", None, silent)
    assert refused.value.where == f"{place.repository}@sha256:{'a' * 64}"


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


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../outside", "a layer cannot be unpacked: .*outside"),
        ("models/../../outside", "a layer cannot be unpacked: .*outside"),
        ("/tmp/ftbuild-outside", "there are no models in it"),
    ],
)
def test_a_layer_that_leaves_the_folder_is_refused(name: str, why: str, place: Place, tmp_path: Path) -> None:
    """The root of a path is the folder, as for every archive."""
    with pytest.raises(PublishError, match=why):
        model_artifact.pull(stored(place, name), tmp_path / "deep" / "pulled", None, silent)
    assert not list(tmp_path.rglob("outside"))
    assert not Path("/tmp/ftbuild-outside").exists()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == []


def stored(place: Place, name: str) -> Place:
    """Store an artifact whose one layer has an empty file of this name."""
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
    repository.put_manifest("odd", raw, model_artifact.MANIFEST)
    return Place(place.repository, "", digest_of(raw))


def test_an_artifact_without_the_folder_of_models_is_refused(place: Place, tmp_path: Path) -> None:
    odd = stored(place, "other/config.pbtxt")
    with pytest.raises(PublishError, match="there are no models in it") as refused:
        model_artifact.pull(odd, tmp_path / "pulled", None, silent)
    assert refused.value.where == odd.pinned
    assert not (tmp_path / "pulled").exists()


def test_a_pull_asks_for_room_for_the_layers_and_for_what_they_hold(
    models: Path, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed = Place.parse(model_artifact.push(models, place, None, silent))
    monkeypatch.setattr(disk, "free_bytes", lambda folder: 6_000_000)  # one layer of 3 MB and its headers
    with pytest.raises(HostError, match=f"^pulling {pushed.pinned} needs") as refused:
        model_artifact.pull(pushed, tmp_path / "pulled", None, silent)
    assert refused.value.where == str(tmp_path)
    monkeypatch.setattr(disk, "free_bytes", lambda folder: 6_100_000)
    model_artifact.pull(pushed, tmp_path / "pulled", None, silent)


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
