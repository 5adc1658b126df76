"""Images that are built again: what is read of a published one, and how two are compared."""

from __future__ import annotations

import io
import json
import re
import tarfile
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound

from ftbuild import __version__
from ftbuild.build import bake, base, definitions
from ftbuild.build.machine import Host
from ftbuild.build.run import BuildOptions
from ftbuild.config.schema import Config
from ftbuild.engine import daemon
from ftbuild.errors import ConfigError, HostError, PublishError
from ftbuild.features import LeftOut
from ftbuild.host import disk
from ftbuild.matrix import select
from ftbuild.plan import PRODUCTS, Plan, Revision
from ftbuild.planning import make_plan
from ftbuild.publishing import differences, rebuild, remote_image
from ftbuild.publishing.attest import manifests, provenance
from ftbuild.publishing.attest.provenance import Run
from ftbuild.publishing.attest.upload import upload
from ftbuild.publishing.differences import Compared, Difference
from ftbuild.publishing.rebuild import Published, Rebuilt
from ftbuild.registry.client import Descriptor, digest_of
from ftbuild.registry.malformed import Malformed
from tests.unit.build.test_bake import docker_that
from tests.unit.publishing.shelf import CONFIG, LAYER, MANIFEST, Shelf
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


def test_a_cell_with_another_base_that_leaves_something_out_is_planned_as_it_was(
    shelf: Shelf, cell: Plan, config: Config
) -> None:
    left_out = LeftOut(("beams",), (64, 128))
    (chosen,) = select(config, triton=["22.12"], sms=["80,86"], bases=["ngc"], left_out=left_out)
    planned = replace(make_plan(config, chosen, cell.revision), image="their_name")
    index = stored(shelf, planned, provenance.predicate(planned, "runtime", Run()), b"layer")
    assert rebuild.plan(config, read(shelf, index)) == planned


def test_an_image_without_labels_is_of_the_revision_that_its_provenance_says(
    shelf: Shelf, cell: Plan, config: Config
) -> None:
    index = stored(shelf, cell, provenance.predicate(cell, "sdk", Run()), b"layer", Labels={})
    assert rebuild.plan(config, read(shelf, index)).revision == Revision(cell.revision.commit, "", "")


def test_an_image_is_of_the_revision_that_its_labels_say(shelf: Shelf, cell: Plan, config: Config) -> None:
    """The provenance has no time; what was built from changed files has the word for them in its label."""
    time, prefix = "2026-02-03T04:05:06+00:00", "org.opencontainers.image"
    labels = {"revision": f"{'c' * 40}-dirty", "created": time, "source": "https://example.invalid/theirs"}
    set_ = {f"{prefix}.{name}": value for name, value in labels.items()}
    index = stored(shelf, cell, provenance.predicate(cell, "sdk", Run()), b"layer", Labels=set_)
    assert rebuild.plan(config, read(shelf, index)).revision == Revision(
        f"{'c' * 40}-dirty", time, "https://example.invalid/theirs"
    )


def test_another_checkout_is_told_which_revision_it_takes(shelf: Shelf, cell: Plan, config: Config) -> None:
    other = replace(cell, key=cell.key[::-1], revision=replace(cell.revision, commit="0123abcd" * 5))
    found = published(shelf, other)
    with pytest.raises(ConfigError) as refused:
        rebuild.plan(config, found)
    assert str(refused.value).splitlines() == [
        f"this checkout makes 22.12-sm86-{cell.key} of that cell, and the image is {other.key}",
        f"  where: {found.name}",
        f"  next:  git checkout {other.revision.commit}, the revision that it was built from, and try again",
    ]


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


def stored(
    shelf: Shelf, plan: Plan, predicate: Any, *layers: bytes, product: str = "runtime", **config: Any
) -> Descriptor:
    """Put an image with these layers, in an index with a provenance of this predicate; return the index."""
    image = shelf.image_of(layers, product, config={"Labels": plan.labels(product), **config}).manifest
    text = manifests.statement("x", image.digest, provenance.PREDICATE, predicate)
    return upload(shelf.repository, image, HERE, [text], {})


def read(shelf: Shelf, index: Descriptor) -> Published:
    return rebuild.read(f"{shelf.repository.name}@{index.digest}")


def said(kind: str = "https://ftbuild.invalid/recipe/v2", **external: Any) -> dict[str, Any]:
    """Return a predicate with no more than is read of it."""
    least = {"triton": "22.12", "sms": [80], "base": "open", "product": "runtime", "image": "x"}
    return {
        "buildDefinition": {
            "buildType": kind,
            "externalParameters": {**least, **external},
            "internalParameters": {"key": "0"},
        }
    }


@pytest.mark.parametrize(
    "predicate",
    [
        {},
        [],
        {"buildDefinition": {}},
        {"buildDefinition": {"buildType": "https://ftbuild.invalid/recipe/v2", "externalParameters": {}}},
        said("https://example.com/other"),
        said("https://ftbuild.invalid/recipes"),
        said(product="../x"),
        said(sms=[]),
        said(sms=[80] * 101),
        said(triton="22.12 "),
        said(image=""),
        said(image="x" * 301),
        said(config={"uri": "https://host/\n"}),
        said(config={"uri": "x" * 1001}),
    ],
)
def test_a_provenance_of_another_form_is_none(shelf: Shelf, cell: Plan, predicate: Any) -> None:
    index = stored(shelf, cell, predicate, b"layer")
    with pytest.raises(PublishError) as refused:
        read(shelf, index)
    assert refused.value.what == "the image has no provenance of ftbuild"
    assert refused.value.where == f"{shelf.repository.name}@{index.digest}"
    assert refused.value.hint == "name the index that was published, by digest"


@pytest.mark.parametrize("more", [{}, {"sms": [80] * 100, "image": "x" * 300, "config": {"uri": "x" * 1000}}])
def test_a_provenance_is_read_whatever_else_it_lacks(shelf: Shelf, cell: Plan, more: Any) -> None:
    found = read(shelf, stored(shelf, cell, said(**more), b"layer"))
    assert found.name == f"{shelf.repository.name}@{found.digest}"
    external = found.said.externalParameters
    least = {"cell": "", "sms": [80], "image": "x"}
    assert external.model_dump(mode="json") == {
        **said(**{**least, **more})["buildDefinition"]["externalParameters"],
        "config": {"revision": "", "uri": "", **more.get("config", {})},
    }
    assert found.said.internalParameters.model_dump() == {
        "key": "0",
        "compilerCache": "",
        "substitutedFrom": "",
    }
    (text,) = remote_image.statements(shelf.repository, found.image)
    assert found.provenance == digest_of(text)


def test_the_statement_says_what_was_compared_by_whom_and_how(shelf: Shelf, cell: Plan) -> None:
    there, engine = published(shelf, cell), Engine()
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
    engine.told = {"Version": "4.3.1"}
    silent = rebuild._predicate(there, cell, found, engine, cached=True)  # type: ignore[arg-type]
    assert silent["rebuilder"]["engine"] == "4.3.1, /"
    engine.told = {"Os": "linux", "Arch": "arm64"}
    silent = rebuild._predicate(there, cell, found, engine, cached=True)  # type: ignore[arg-type]
    assert silent["rebuilder"]["engine"] == ", linux/arm64"
    many = Compared((False,), tuple(Difference(0, str(number), ("mode",)) for number in range(1001)))
    said = rebuild._predicate(there, cell, many, engine, cached=False)  # type: ignore[arg-type]
    assert [each["path"] for each in said["files"]] == [str(number) for number in range(1000)]


# The second build


@dataclass
class Machine:
    """This machine, where a run of bake gives an image these layers."""

    engine: Engine
    options: BuildOptions
    layers: tuple[bytes, ...] = ()
    did: list[tuple[Any, ...]] = field(default_factory=list)

    def base(self, client: Any, plan: Plan, host: Host, work: Path, cache: Path, *, report: Any) -> None:
        self.did.append(("base", plan, work, cache))

    def stage(self, plan: Plan, options: BuildOptions, folder: Path, report: Any) -> None:
        self.did.append(("stage", plan, options, folder))

    def bake(self, job: bake.Job, host: Host, *, report: Any) -> None:
        definition = json.loads(job.file.read_text())
        self.did.append(("bake", job.folder, definition, host.recompile))
        (target,) = definition["target"].values()
        for tag in target["tags"]:
            self.engine.add(tag, Local(*self.layers, Labels=target["labels"]))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(Engine(), BuildOptions(tmp_path / "cache", tmp_path / "work"))
    docker_that(tmp_path, monkeypatch, "echo github.com/docker/buildx v0.10.0 0123abcd")
    monkeypatch.setattr(daemon, "connect", lambda: made.engine)
    monkeypatch.setattr(base, "ensure", made.base)
    monkeypatch.setattr(rebuild, "stage", made.stage)
    monkeypatch.setattr(bake, "run", made.bake)
    monkeypatch.setattr(disk, "free_bytes", lambda folder: 2**50)
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")  # it may be memory, and an image is large
    return made


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize(
    ("chosen", "content", "compared"),
    [
        ({}, b"one", Compared((True,))),
        ({"cached": True}, b"onf", Compared((False,), (Difference(0, "opt/lib.so", ("content",)),))),
    ],
)
def test_an_image_is_built_again_under_a_name_of_its_own_and_compared(
    shelf: Shelf,
    cell: Plan,
    machine: Machine,
    product: str,
    chosen: dict[str, bool],
    content: bytes,
    compared: Compared,
) -> None:
    index = stored(shelf, cell, provenance.predicate(cell, product, Run()), archive(b"one"), product=product)
    there, cached = read(shelf, index), bool(chosen)
    name = f"triton_with_ft:rebuilt-22.12-sm86-{cell.key}{'' if product == 'runtime' else '-sdk'}"
    before, machine.layers = Local(b"of an earlier rebuild"), (archive(content),)
    machine.engine.add(name, before)

    made = rebuild.rebuild(cell, there, machine.options, report=shelf.said.append, **chosen)

    folder = machine.options.work / "rebuilds" / "22.12-sm86" / cell.key
    target = {**definitions.image(cell, product, Host(1)), "tags": [name]}
    baked = definitions.bake_file(
        {definitions.target_name(cell, product): {**target, **({} if cached else {"no-cache": True})}}
    )
    assert machine.did == [
        ("base", cell, machine.options.work, machine.options.cache),
        ("stage", cell, machine.options, folder),
        ("bake", folder, baked, not cached),
    ]
    assert made == Rebuilt(cell, product, compared, made.predicate, folder / f"{product}-rebuild.json")
    assert made.predicate["image"]["name"] == there.name
    assert made.predicate["rebuilder"]["usedCaches"] is cached
    assert made.record.read_text() == json.dumps(made.predicate, indent=2) + "\n"
    assert shelf.said == [f"building with 1 compile jobs, log: {folder / bake.LOG}", "comparing"]
    assert (name in machine.engine.there) is not compared.is_equal, "one that differs can be looked into"
    assert before.id not in machine.engine.there
    assert [path.name for path in folder.iterdir() if path.is_dir()] == []


@pytest.mark.parametrize(
    ("version", "free", "why", "did"),
    [
        ("v0.9.1", 2**50, "docker buildx v0.9.1 is too old", []),
        ("v0.10.0", 2**30, "building 22.12-sm86 again needs", ["base"]),
    ],
)
def test_what_a_second_build_lacks_is_said_before_it_begins(
    shelf: Shelf,
    cell: Plan,
    machine: Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    free: int,
    why: str,
    did: list[str],
) -> None:
    docker_that(tmp_path, monkeypatch, f"echo {version}")
    monkeypatch.setattr(disk, "free_bytes", lambda folder: free)
    there = read(shelf, stored(shelf, cell, provenance.predicate(cell, "sdk", Run()), b"layer"))
    with pytest.raises(HostError, match=why):
        rebuild.rebuild(cell, there, machine.options, report=shelf.said.append)
    assert [name for name, *_ in machine.did] == did


def test_the_statement_is_signed_and_attached_to_the_published_index(
    shelf: Shelf, cell: Plan, tmp_path: Path
) -> None:
    there = read(shelf, stored(shelf, cell, said(), b"layer"))
    signed: list[tuple[Any, ...]] = []
    signer = SimpleNamespace(attest=lambda *given: signed.append(given))
    made = Rebuilt(cell, "runtime", Compared((True,)), {}, tmp_path / "runtime-rebuild.json")
    rebuild.attach(made, there, signer, shelf.said.append)  # type: ignore[arg-type]
    assert signed == [(there.name, "https://ftbuild.invalid/rebuild/v1", made.record, shelf.said.append)]
    assert shelf.said == [f"signing and attaching the statement to {there.name}"]


# The comparison


class Local:
    """An image of an engine, whose layers it gives out as a tar."""

    def __init__(self, *layers: bytes, **config: Any) -> None:
        digests = [digest_of(each) for each in layers]
        self.layers, self.id = layers, digest_of("".join(digests).encode())
        self.attrs = {"RootFS": {"Layers": digests}, "Config": config, "Created": None}

    def save(self) -> list[bytes]:
        names = [f"{number}/layer.tar" for number in range(len(self.layers))]
        manifest = json.dumps([{"Layers": names}]).encode()
        whole = tar(
            ("manifest.json", manifest, {}), *((n, c, {}) for n, c in zip(names, self.layers, strict=True))
        )
        return [whole[:100], whole[100:]]


class Engine:
    """An engine with images, by name and by id."""

    def __init__(self, **images: Local) -> None:
        self.images, self.there = self, dict[str, Local]()
        self.told = {"Version": "26.1.5", "Os": "linux", "Arch": "amd64"}
        for name, image in images.items():
            self.add(name, image)

    def add(self, name: str, image: Local) -> None:
        self.there |= {name: image, image.id: image}

    def get(self, name: str) -> Local:
        if name not in self.there:
            raise ImageNotFound(name)
        return self.there[name]

    def remove(self, name: str) -> None:
        del self.there[name]

    def info(self) -> dict[str, Any]:
        return {"NCPU": 1, "MemTotal": 2**40, "ID": "x"}

    def version(self) -> dict[str, Any]:
        return self.told


def test_the_layers_of_both_are_compared_and_the_files_of_those_that_differ(
    shelf: Shelf, tmp_path: Path
) -> None:
    one, two, three = (archive(each) for each in (b"one", b"two", b"longer"))
    shelf.image_of([one, two], "stored")
    there = remote_image.read(shelf.repository, "stored")
    assert there

    def compared(*layers: bytes, **config: Any) -> Compared:
        scratch = tmp_path / str(len(list(tmp_path.iterdir())))
        scratch.mkdir()
        engine: Any = Engine(image=Local(*layers, **config))
        return differences.compare(shelf.repository, there, engine, "image", scratch)

    assert compared(one, two) == Compared((True, True))
    different = compared(one, three)
    assert different.layers == (True, False)
    assert list(map(str, different.files)) == ["layer 1: opt/lib.so: size, content"]
    left = [path.name for path in tmp_path.glob("*/*") if path.is_file()]
    assert left == ["manifest.json"], "the archive is as large as the image"
    assert compared(one) == Compared((False, False), (), ("number of layers",))
    assert compared(one, Env=["A=1"]) == Compared((False, False), (), ("Env", "number of layers"))
    assert compared(one, two, three) == Compared((False,) * 3, (), ("number of layers",))


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({}, "a layer cannot be read: "),
        ({"rootfs": {"type": "layers"}}, "an image has 1 layers, and its configuration names 0"),
        ({"rootfs": []}, "the registry did not send JSON of the expected form"),
    ],
)
def test_a_published_image_that_cannot_be_read_is_named(
    shelf: Shelf, tmp_path: Path, config: dict[str, Any], why: str
) -> None:
    """Whoever may push can put anything there: it is no fault of this program."""
    layer = shelf.repository.put_blob(b"no archive", LAYER)
    whole = {**HERE, "rootfs": {"type": "layers", "diff_ids": [layer.digest]}, **config}
    stored = shelf.repository.put_blob(json.dumps(whole).encode(), CONFIG)
    content = {"schemaVersion": 2, "config": stored.as_dict(), "layers": [layer.as_dict()]}
    shelf.repository.put_manifest("odd", json.dumps({**content, "mediaType": MANIFEST}).encode(), MANIFEST)
    there = remote_image.read(shelf.repository, "odd")
    assert there
    engine: Any = Engine(image=Local(archive(b"one")))
    with pytest.raises(Malformed, match=f"^{why}") as refused:
        differences.compare(shelf.repository, there, engine, "image", tmp_path)
    if not config:
        assert refused.value.where == f"{shelf.repository.name}@{layer.digest}"


def layer(content: bytes, **changed: Any) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(archive(content, **changed)))


def archive(content: bytes, *, path: str = "opt/other", **changed: Any) -> bytes:
    return tar(("opt/lib.so", content, changed), (path, b"same", changed))


def tar(*entries: tuple[str, bytes, dict[str, Any]]) -> bytes:
    """Return an archive of entries: name, content, and what else is set of each."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for name, content, changed in entries:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            for key, value in changed.items():
                setattr(entry, key, value)
            made.addfile(entry, io.BytesIO(content))
    return out.getvalue()


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (layer(b"onf"), ["layer 3: opt/lib.so: content"]),
        (layer(b"longer"), ["layer 3: opt/lib.so: size, content"]),
        (layer(b"one", mode=0o600), ["layer 3: opt/lib.so: mode", "layer 3: opt/other: mode"]),
        (layer(b"one", gid=7), ["layer 3: opt/lib.so: owner", "layer 3: opt/other: owner"]),
        (
            layer(b"one", type=tarfile.SYMTYPE, linkname="x", size=0),
            [f"layer 3: opt/{name}: kind, size, link, content" for name in ("lib.so", "other")],
        ),
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
    assert lines[1:-2] == [f"layer 1: opt/{number}: content" for number in range(20)]
    assert lines[-2:] == ["and 10 more files", "configuration: label x"]
    assert len(differences.sentences(replace(found, files=files[:20]))) == 22
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
