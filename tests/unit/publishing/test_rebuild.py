"""Images that are built again: what is read of a published one, and how two are compared."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftbuild import __version__
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError, PublishError
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import differences, rebuild, remote_image
from ftbuild.publishing.attest.upload import upload
from ftbuild.publishing.differences import Compared, Difference
from ftbuild.publishing.rebuild import Published
from ftbuild.registry.client import Descriptor
from tests.unit.publishing.shelf import Shelf
from tests.unit.publishing.test_publish import plan_of

HERE = {"architecture": "amd64", "os": "linux"}


@pytest.fixture
def cell(config: Config) -> Plan:
    return plan_of(config)


def published(shelf: Shelf, plan: Plan, product: str = "runtime") -> Published:
    shelf.tested(plan)
    shelf.publish(plan)
    return rebuild.read(f"{shelf.repository.name}@{shelf.immutable(plan)[product]}")


@pytest.mark.parametrize("product", PRODUCTS)
def test_the_provenance_of_a_published_image_gives_the_plan_that_made_it(
    shelf: Shelf, cell: Plan, config: Config, product: str
) -> None:
    found = published(shelf, cell, product)
    assert found.said.externalParameters.product == product
    again = rebuild.plan(config, found)
    assert (again.key, again.cell, again.image) == (cell.key, cell.cell, cell.image)
    assert again.labels(product) == cell.labels(product)


def test_another_checkout_is_told_which_revision_it_takes(shelf: Shelf, cell: Plan, config: Config) -> None:
    other = replace(cell, key=cell.key[::-1], revision=replace(cell.revision, commit="0123abcd" * 5))
    with pytest.raises(ConfigError, match=f"this checkout makes 22.12-sm86-{cell.key}") as refused:
        rebuild.plan(config, published(shelf, other))
    assert "git checkout 0123abcd" in str(refused.value)


@pytest.mark.parametrize(
    "name", ["", "image", "host/image:tag", "host/image:tag@sha256:" + "0" * 64, "@sha256:0"]
)
def test_an_image_is_named_by_its_digest_alone(name: str) -> None:
    with pytest.raises(ConfigError, match="by its digest"):
        rebuild.read(name)


def test_what_is_no_published_image_is_refused(shelf: Shelf, cell: Plan) -> None:
    alone = shelf.image(cell, "runtime", "alone")
    with pytest.raises(PublishError, match="no provenance of ftbuild"):
        rebuild.read(f"{shelf.repository.name}@{alone.manifest.digest}")
    with pytest.raises(PublishError, match="no such image"):
        rebuild.read(f"{shelf.repository.name}@sha256:{'0' * 64}")


@pytest.mark.parametrize(
    "predicate",
    [
        {},
        [],
        {"buildDefinition": {}},
        {"buildDefinition": {"buildType": "https://ftbuild.invalid/recipe/v2", "externalParameters": {}}},
        {
            "buildDefinition": {
                "buildType": "https://example.com/other",
                "externalParameters": {
                    "triton": "22.12",
                    "sms": [80],
                    "base": "open",
                    "product": "runtime",
                    "image": "x",
                },
                "internalParameters": {"key": "0"},
            }
        },
        {
            "buildDefinition": {
                "buildType": "https://ftbuild.invalid/recipe/v2",
                "externalParameters": {
                    "triton": "22.12",
                    "sms": [80],
                    "base": "open",
                    "product": "../x",
                    "image": "x",
                },
                "internalParameters": {"key": "0"},
            }
        },
    ],
)
def test_a_provenance_of_another_form_is_none(shelf: Shelf, cell: Plan, predicate: Any) -> None:
    image = shelf.image(cell, "runtime").manifest
    text = json.dumps(
        {
            "_type": "https://in-toto.io/Statement/v1",
            "predicateType": "https://slsa.dev/provenance/v1",
            "subject": [{"name": "x", "digest": {"sha256": image.digest.partition(":")[2]}}],
            "predicate": predicate,
        }
    ).encode()
    index: Descriptor = upload(shelf.repository, image, HERE, [text], {})
    with pytest.raises(PublishError, match="no provenance of ftbuild"):
        rebuild.read(f"{shelf.repository.name}@{index.digest}")


def test_the_statement_says_what_was_compared_by_whom_and_how(shelf: Shelf, cell: Plan) -> None:
    there = published(shelf, cell)
    engine = SimpleNamespace(version=lambda: {"Version": "26.1.5", "Os": "linux", "Arch": "amd64"})
    found = Compared((True, False), (Difference(1, "opt/lib.so", ("size", "content")),), ("label x",))
    said = rebuild._predicate(there, cell, found, engine, cached=True)  # type: ignore[arg-type]
    finished = said.pop("finishedOn")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", finished)
    algorithm, _, value = there.provenance.partition(":")
    assert said == {
        "verdict": "different",
        "image": {"name": there.name, "manifest": there.image.image.descriptor.digest},
        "provenance": {"digest": {algorithm: value}},
        "cell": cell.cell.id,
        "key": cell.key,
        "revision": cell.revision.commit,
        "layers": [{"equal": True}, {"equal": False}],
        "files": [{"layer": 1, "path": "opt/lib.so", "differs": ("size", "content")}],
        "configuration": ["label x"],
        "rebuilder": {"ftbuild": __version__, "engine": "26.1.5, linux/amd64", "usedCaches": True},
    }
    same = rebuild._predicate(there, cell, Compared((True,)), engine, cached=False)  # type: ignore[arg-type]
    assert (same["verdict"], same["rebuilder"]["usedCaches"]) == ("equal", False)


# The comparison


class Engine:
    """An engine with one image, whose layers it gives out as a tar."""

    def __init__(self, *layers: bytes) -> None:
        digests = [f"sha256:{hashlib.sha256(each).hexdigest()}" for each in layers]
        self.attrs = {"RootFS": {"Layers": digests}, "Config": {}, "Created": None}
        self.layers, self.images = layers, self

    def get(self, name: str) -> Engine:
        assert name == "image"
        return self

    def save(self) -> list[bytes]:
        out = io.BytesIO()
        names = [f"{number}/layer.tar" for number in range(len(self.layers))]
        with tarfile.open(fileobj=out, mode="w") as archive:
            files = {
                "manifest.json": json.dumps([{"Layers": names}]).encode(),
                **dict(zip(names, self.layers, strict=True)),
            }
            for name, content in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        return [out.getvalue()]


def test_the_layers_of_both_are_compared_and_the_files_of_those_that_differ(
    shelf: Shelf, tmp_path: Path
) -> None:
    one, two, three = (archive(each) for each in (b"one", b"two", b"longer"))
    shelf.image_of([one, two], "stored")
    there = remote_image.read(shelf.repository, "stored")
    assert there

    def compared(*layers: bytes) -> Compared:
        scratch = tmp_path / str(len(list(tmp_path.iterdir())))
        scratch.mkdir()
        return differences.compare(shelf.repository, there, Engine(*layers), "image", scratch)  # type: ignore[arg-type]

    assert compared(one, two) == Compared((True, True))
    different = compared(one, three)
    assert different.layers == (True, False)
    assert list(map(str, different.files)) == ["layer 1: opt/lib.so: size, content"]
    assert compared(one) == Compared((False, False), (), ("number of layers",))


def layer(content: bytes, **changed: Any) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(archive(content, **changed)))


def archive(content: bytes, **changed: Any) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for name in ("opt/lib.so", changed.pop("path", "opt/other")):
            entry = tarfile.TarInfo(name)
            body = content if name == "opt/lib.so" else b"same"
            entry.size = len(body)
            for field, value in changed.items():
                setattr(entry, field, value)
            made.addfile(entry, io.BytesIO(body))
    return out.getvalue()


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (layer(b"onf"), ["layer 3: opt/lib.so: content"]),
        (layer(b"longer"), ["layer 3: opt/lib.so: size, content"]),
        (layer(b"one", mode=0o600), ["layer 3: opt/lib.so: mode", "layer 3: opt/other: mode"]),
        (layer(b"one", uid=7), ["layer 3: opt/lib.so: owner", "layer 3: opt/other: owner"]),
        (layer(b"one", mtime=7), ["layer 3: opt/lib.so: time", "layer 3: opt/other: time"]),
        (
            layer(b"one", path="opt/new"),
            ["layer 3: opt/new: only here", "layer 3: opt/other: only published"],
        ),
        (layer(b"one"), []),
    ],
)
def test_a_file_that_differs_is_named_with_what_differs(other: tarfile.TarFile, named: list[str]) -> None:
    one, two = (differences._entries(each) for each in (layer(b"one"), other))
    assert [str(each) for each in differences._differences(3, one, two)] == named


def test_the_outcome_is_told_in_lines_and_of_many_files_the_first() -> None:
    files = tuple(Difference(1, f"opt/{number}", ("content",)) for number in range(30))
    found = Compared((True, False), files, ("label x",))
    lines = differences.sentences(found)
    assert lines[0] == "1 of 2 layers are equal"
    assert lines[-2:] == ["and 10 more files", "configuration: label x"]
    assert not found.is_equal
    assert Compared((True, True)).is_equal


def test_labels_are_compared_one_by_one() -> None:
    theirs = {"config": {"Labels": {"a": "1", "b": "2"}, "Cmd": ["x"]}, "created": "2026-01-01T00:00:00Z"}
    ours = {"Config": {"Labels": {"a": "1", "c": "3"}, "Cmd": ["y"]}, "Created": "2026-01-01T00:00:00.0Z"}
    assert list(differences._settings(theirs, ours)) == ["Cmd", "label b", "label c"]


@pytest.mark.parametrize(
    ("setting", "theirs", "ours"),
    [
        ("User", "triton", ""),
        ("Env", ["A=1"], ["A=2"]),
        ("Entrypoint", ["/a"], None),
        ("Cmd", ["x"], ["y"]),
        ("WorkingDir", "/a", "/b"),
        ("ExposedPorts", {"8000/tcp": {}}, {}),
        ("Volumes", {"/data": {}}, None),
        ("StopSignal", "SIGINT", "SIGTERM"),
    ],
)
def test_whatever_a_container_does_otherwise_is_a_difference(setting: str, theirs: Any, ours: Any) -> None:
    published, here = {"config": {setting: theirs}}, {"Config": {setting: ours}}
    assert list(differences._settings(published, here)) == [setting]
    assert list(differences._settings(published, {"Config": {setting: theirs}})) == []


def test_a_time_is_compared_to_the_second() -> None:
    def differ(theirs: str, ours: str) -> bool:
        return bool(list(differences._settings({"created": theirs}, {"Created": ours})))

    assert differ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z")
    assert not differ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.9Z")


def test_what_an_engine_writes_for_nothing_is_no_difference() -> None:
    """An empty list, text or table is no setting; a time is compared in whole seconds."""
    published = {"config": {"Cmd": None, "User": ""}, "created": "2026-01-01T00:00:00Z"}
    here = {"Config": {"Cmd": [], "Env": None, "Labels": {}}, "Created": "2026-01-01T00:00:00.123Z"}
    assert list(differences._settings(published, here)) == []
    assert list(differences._settings({}, {"Created": "2026-01-01T00:00:01Z"})) == ["created"]
