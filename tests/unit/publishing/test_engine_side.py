"""What publishing asks of an engine, which only answers here: pushes, pulls, inventories, old tags."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound, NotFound

from ftbuild.build.definitions import CACHE_LABEL
from ftbuild.config.schema import Config
from ftbuild.engine import container, daemon
from ftbuild.engine.container import ContainerError
from ftbuild.errors import PublishError
from ftbuild.gates.report import VERIFY
from ftbuild.host import shell
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import (
    compiler_cache,
    inventories,
    outcomes,
    push,
    retry,
    session,
    staging,
    untested,
)
from ftbuild.publishing.names import Names
from ftbuild.publishing.publish import Outcome
from ftbuild.publishing.remote_image import RemoteImage
from ftbuild.publishing.session import Options, PublishSession
from ftbuild.registry.client import Descriptor, Repository, digest_of
from ftbuild.registry.policy import RetryPolicy
from ftbuild.registry.session import Session
from tests.unit.publishing.test_publish import IDS, judge, plan_of
from tests.unit.registry.answering import Answers, serving

REPOSITORY = "r.example/x"


@pytest.fixture
def cell(config: Config) -> Plan:
    return plan_of(config)


@dataclass
class Engine:
    """An engine with images by name; it says what it was asked to tag, pull, push and remove."""

    images: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, ...]] = field(default_factory=list)
    stream: list[dict[str, Any]] = field(default_factory=list)

    @property
    def client(self) -> Any:
        return SimpleNamespace(
            images=SimpleNamespace(get=self.get, remove=self.remove),
            api=SimpleNamespace(push=self.push, pull=self.pull),
        )

    def add(self, name: str, image: str, labels: Mapping[str, str] | None = None, **attrs: Any) -> None:
        def tag(repository: str, label: str) -> None:
            self.asked.append(("tag", image, f"{repository}:{label}"))

        self.images[name] = SimpleNamespace(id=image, tag=tag, attrs=attrs, labels=labels or {})

    def get(self, name: str) -> Any:
        if name not in self.images:
            raise ImageNotFound(name)
        return self.images[name]

    def pull(self, repository: str, tag: str, *, stream: bool, decode: bool) -> Iterator[dict[str, Any]]:
        name = f"{repository}{'@' if ':' in tag else ':'}{tag}"
        self.asked.append(("pull", name))
        assert stream
        assert decode
        if name not in self.images:
            raise NotFound("manifest unknown")
        return iter([{"status": "Downloading"}, {"status": "Extracting"}])

    def remove(self, name: str, *, noprune: bool) -> None:
        self.asked.append(("remove", name, str(noprune)))

    def push(self, name: str, **more: Any) -> list[dict[str, Any]]:
        self.asked.append(("push", f"{name}:{more['tag']}", json.dumps(more["auth_config"])))
        assert (more["stream"], more["decode"]) == (True, True)
        return self.stream


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    """A registry, and a login for it in Docker's configuration."""
    with serving() as found:
        (tmp_path / "config.json").write_text(
            json.dumps({"auths": {found.host: {"auth": "YWRhOmh1bnRlcjI="}}})
        )
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        yield found


# Pushes


def pushed(answers: Answers, engine: Engine, said: list[str]) -> RemoteImage:
    there = Repository(f"{answers.host}/x", Session(patient=False))
    engine.add("sha256:1", "sha256:1")
    return push.push_image(engine.client, "sha256:1", there, "tag", said.append)


def told(digest: str) -> dict[str, Any]:
    """Return the event by which an engine tells what it pushed."""
    return {"progressDetail": {}, "aux": {"Tag": "tag", "Digest": digest, "Size": 1}}


def image_of(config: str) -> dict[str, Any]:
    return {"config": {"mediaType": "a/b", "digest": config, "size": 1}}


def test_an_image_is_tagged_pushed_with_the_login_and_its_tag_removed(
    answers: Answers, engine: Engine
) -> None:
    answers.give(image_of("sha256:" + "1" * 64))
    engine.add("sha256:" + "1" * 64, "sha256:" + "1" * 64)
    engine.stream = [told(digest_of(answers.body))]
    there = Repository(f"{answers.host}/x", Session(patient=False))
    found = push.push_image(engine.client, "sha256:" + "1" * 64, there, "tag", lambda line: None)
    assert "sha256:" + "1" * 64 in found.ids
    name = f"{answers.host}/x:tag"
    login = json.dumps({"username": "ada", "password": "hunter2"})
    assert engine.asked == [
        ("tag", "sha256:" + "1" * 64, name),
        ("push", name, login),
        ("remove", name, "True"),
    ]


@pytest.mark.parametrize("there", [True, False])
def test_another_image_under_the_pushed_tag_is_an_error(
    answers: Answers, engine: Engine, there: bool
) -> None:
    answers.give(image_of("sha256:" + "2" * 64))
    engine.stream = [told(digest_of(answers.body))]
    if not there:
        answers.give(b"", 404)
    with pytest.raises(PublishError, match="has another image than the one that was pushed") as other:
        pushed(answers, engine, [])
    found = digest_of(answers.body) if there else "nothing"
    assert other.value.where == f"pushed sha256:1, found {found}"


def test_an_engine_that_does_not_tell_what_it_pushed_is_not_believed(
    answers: Answers, engine: Engine
) -> None:
    """The tag may have been set by somebody else since, to a manifest that names our configuration."""
    answers.give(image_of("sha256:1".ljust(71, "1")))
    for stream in ([], [told("latest")], [{"status": "tag: digest: none size: 1"}]):
        engine.stream = stream
        with pytest.raises(PublishError, match="the engine does not tell what it pushed"):
            pushed(answers, engine, [])
    engine.images.clear()
    with pytest.raises(PublishError, match="there is no image sha256:1 to be pushed"):
        push.push_image(engine.client, "sha256:1", Repository(f"{answers.host}/x"), "tag", print)


def test_the_pushed_image_is_the_one_that_the_engine_tells_whatever_the_tag_is(
    answers: Answers, engine: Engine
) -> None:
    """By a field of the event, or by its words alone."""
    image = "sha256:" + "1" * 64
    engine.add(image, image)
    ours = json.dumps({**image_of(image), "layers": []}).encode()
    forged = json.dumps({**image_of(image), "layers": [{"digest": image, "size": 9}]}).encode()
    digest = digest_of(ours)
    answers.give(forged)
    answers.where[f"/manifests/{digest}"] = (200, {"Content-Type": "a/b"}, ours)
    for event in (told(digest), {"status": f"tag: digest: {digest} size: 7"}):
        engine.stream = [event]
        there = Repository(f"{answers.host}/x", Session(patient=False))
        found = push.push_image(engine.client, image, there, "tag", lambda line: None)
        assert found.image.descriptor.digest == digest


def test_a_refused_push_says_what_to_do_about_it(answers: Answers, engine: Engine) -> None:
    engine.stream = [{"error": "Denied: not yours"}]
    with pytest.raises(PublishError) as refused:
        pushed(answers, engine, [])
    assert refused.value.what == "the push was refused: Denied: not yours"
    assert refused.value.where == f"{answers.host}/x:tag"
    assert refused.value.hint == f"docker login {answers.host}, with an account that may do this"
    assert engine.asked[-1][0] == "remove"
    engine.stream = [{"error": "manifest invalid"}]
    with pytest.raises(PublishError) as invalid:
        pushed(answers, engine, [])
    assert invalid.value.hint == "see the registry's log, then publish again"


@pytest.mark.parametrize(
    "error", ["unauthorized", "denied", "no basic auth credentials", "authentication required"]
)
def test_registries_deny_in_several_words(answers: Answers, engine: Engine, error: str) -> None:
    engine.stream = [{"error": error}]
    with pytest.raises(PublishError) as refused:
        pushed(answers, engine, [])
    assert refused.value.hint == f"docker login {answers.host}, with an account that may do this"


def test_a_token_that_expired_during_a_push_is_worth_another_try(
    answers: Answers, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "POLICY", RetryPolicy(1, 0.01, 1.0))
    engine.stream = [
        {"status": "Pushing", "progressDetail": {"current": 1, "total": 2}, "id": "a"},
        {"error": "unauthorized: authentication required"},
    ]
    said: list[str] = []
    with pytest.raises(PublishError, match="the token expired on the way: unauthorized"):
        pushed(answers, engine, said)
    assert [asked[0] for asked in engine.asked].count("push") == 2
    assert said[0].startswith("the token expired on the way: unauthorized: authentication required: trying")


# Staged images


@dataclass
class Staging:
    """A session whose repositories only note what is pushed."""

    plan: Plan
    work: Path
    engine: Engine
    noted: list[tuple[str, ...]] = field(default_factory=list)

    def session(self, options: Options) -> PublishSession:
        made = PublishSession(options)
        made._client = self.engine.client
        made.stage = self.stage  # type: ignore[method-assign]
        made.inventory = self.inventory  # type: ignore[method-assign]
        made.staged = self.staged  # type: ignore[method-assign]
        return made

    def stage(self, plan: Plan, product: str, image: str, tag: str, report: Any) -> Any:
        self.noted.append(("push", product, image, tag))
        return image

    def inventory(self, plan: Plan, product: str, image: Any, local: str) -> Any:
        self.noted.append(("inventory", product, image, local))

    def staged(self, plan: Plan) -> Any:
        descriptor = Descriptor("a/b", IDS["sdk"], 1)
        return {"sdk": SimpleNamespace(tagged=SimpleNamespace(descriptor=descriptor))}


@pytest.fixture
def shelf(cell: Plan, tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Staging:
    made = Staging(cell, tmp_path, engine)
    monkeypatch.setattr(staging, "PublishSession", made.session)
    for product in PRODUCTS:
        engine.add(cell.tag(product), IDS[product])
    return made


def test_verified_images_are_staged_with_their_inventories(
    cell: Plan, tmp_path: Path, shelf: Staging
) -> None:
    judge(cell.folder(tmp_path), cell, VERIFY)
    said: list[str] = []
    staging.stage([cell], Options(Names(REPOSITORY, REPOSITORY), tmp_path), report=said.append)
    assert shelf.noted == [
        noted
        for product, suffix in (("runtime", ""), ("sdk", "-sdk"))
        for noted in (
            ("push", product, IDS[product], f"staging-22.12-sm86-{cell.key}{suffix}"),
            ("inventory", product, IDS[product], cell.tag(product)),
        )
    ]
    assert said == [
        f"[22.12-sm86] staged runtime {IDS['runtime'][:19]}",
        f"[22.12-sm86] staged sdk {IDS['sdk'][:19]}",
    ]


def test_an_image_that_is_not_verified_or_built_is_not_staged(
    cell: Plan, tmp_path: Path, shelf: Staging, engine: Engine
) -> None:
    options = Options(Names(REPOSITORY, REPOSITORY), tmp_path)
    with pytest.raises(PublishError, match="there is no record of verify"):
        staging.stage([cell], options)
    del engine.images[cell.tag("sdk")]
    with pytest.raises(PublishError, match=f"there is no image {cell.tag('sdk')}"):
        staging.stage([cell], options)
    assert shelf.noted == []


def test_a_pulled_image_gets_the_names_that_a_build_gives(
    cell: Plan, tmp_path: Path, shelf: Staging, engine: Engine
) -> None:
    name, said = f"{REPOSITORY}@{IDS['sdk']}", list[str]()
    engine.add(name, IDS["sdk"])
    options = Options(Names(REPOSITORY, REPOSITORY), tmp_path)
    staging.pull([cell], options, report=said.append)
    assert engine.asked == [
        ("pull", name),
        ("tag", IDS["sdk"], cell.tag("sdk")),
        ("tag", IDS["sdk"], cell.tag("sdk", moving=True)),
        ("remove", name, "True"),  # it would keep the image when the tags are removed
    ]
    assert said == [f"[22.12-sm86] pulling sdk {name}"]
    del engine.images[name]
    with pytest.raises(PublishError, match="cannot pull"):
        staging.pull([cell], options, report=said.append)


def test_an_image_is_pushed_by_the_engine_even_if_its_staged_tag_is_set(
    cell: Plan, tmp_path: Path, answers: Answers, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the engine knows which manifest is of its image: it sends no layer that is there."""
    monkeypatch.setattr(daemon, "connect", lambda: engine.client)
    image = "sha256:" + "1" * 64
    answers.give(image_of(image))
    engine.add(image, image)
    engine.stream = [told(digest_of(answers.body))]
    name = f"{answers.host}/x"
    made = PublishSession(Options(Names(name, name), tmp_path))
    said: list[str] = []
    digest = made.stage(cell, "sdk", image, "tag", said.append).tagged.descriptor.digest
    assert said == ["pushing sdk"]
    assert [asked[0] for asked in engine.asked] == ["tag", "push", "remove"]
    assert made.has_pushed(cell, made.staging, digest)
    assert not made.has_pushed(cell, Repository(f"{name}2"), digest)
    assert not made.has_pushed(cell, made.staging, image)
    assert session.local_ids({"sdk": "sha256:2"}) == {"sdk": ("sha256:2",)}


# Inventories


def test_an_inventory_is_taken_from_the_staged_image_only(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = "os\tid\tdebian\nhas\tdpkg\nhas\tpython3\n"
    ran: list[tuple[str, str]] = []

    def run(client: object, image: str, script: str, *, user: str) -> str:
        ran.append((image, user))
        return listed

    monkeypatch.setattr(container, "run", run)
    engine.add("x:1", "sha256:1")
    folder = tmp_path / "new"
    taken = inventories.take(engine.client, folder, "sdk", "x:1", ["sha256:1"])
    assert (taken.system, taken.missing, ran) == ("debian", (), [("sha256:1", "0")])
    assert inventories.read(folder, "sdk", ["sha256:1"]) == taken
    with pytest.raises(PublishError, match="the local image is not the staged one") as other:
        inventories.take(engine.client, folder, "sdk", "x:1", ["sha256:2"])
    assert other.value.where == str(folder / "inventory-sdk.json")
    with pytest.raises(PublishError, match="there is no image x:2"):
        inventories.take(engine.client, folder, "sdk", "x:2", ["sha256:2"])

    def fail(*_: object, **__: object) -> str:
        raise ContainerError("no shell")

    monkeypatch.setattr(container, "run", fail)
    with pytest.raises(PublishError, match="no shell"):
        inventories.take(engine.client, folder, "sdk", "x:1", ["sha256:1"])


# Images without a smoke test, and compiled elsewhere


def test_an_untested_image_differs_by_one_label(
    cell: Plan, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[tuple[list[str], str]] = []
    monkeypatch.setattr(shell, "run", lambda argv, *, stdin, timeout: commands.append((argv, stdin)))
    engine.add(cell.tag("sdk"), "sha256:1", RootFS={"Layers": ["a"]})
    engine.add("new", "sha256:2", RootFS={"Layers": ["a"]})
    assert untested.derive(engine.client, cell, "sdk", "new") == "sha256:2"
    ((argv, stdin),) = commands
    assert stdin == f"FROM {cell.tag('sdk')}\n"
    assert argv == [
        *("docker", "buildx", "build", "--tag", "new", "--label", "io.ftbuild.unsmoked=true"),
        *("--build-arg", f"SOURCE_DATE_EPOCH={cell.revision.epoch}", "--provenance=false", "-"),
    ]
    engine.add("new", "sha256:2", RootFS={"Layers": ["b"]})
    with pytest.raises(PublishError, match="changed its layers"):
        untested.derive(engine.client, cell, "sdk", "new")


@pytest.mark.parametrize(
    ("used", "allowed", "refused"), [("remote", False, True), ("remote", True, False), ("", False, False)]
)
def test_objects_of_other_machines_are_published_only_if_that_is_allowed(
    cell: Plan, used: str, allowed: bool, refused: bool
) -> None:
    labels = {CACHE_LABEL: used} if used else {}
    if not refused:
        compiler_cache.require(cell, "sdk", labels, allowed=allowed)
        return
    with pytest.raises(PublishError, match="was compiled with a remote compiler cache") as found:
        compiler_cache.require(cell, "sdk", labels, allowed=allowed)
    assert found.value.where == f"label {CACHE_LABEL} of the sdk image"


# Files


def test_digests_and_index_are_written_once(
    config: Config, cell: Plan, tmp_path: Path, answers: Answers
) -> None:
    answers.give({"tags": []})
    repository, said = f"{answers.host}/x", list[str]()
    outcomes.write(config, repository, [Outcome(cell, "present")], tmp_path, report=said.append)
    folder = tmp_path / "published" / repository.replace(":", "_")
    assert {file.name for file in folder.iterdir()} == {"digests.json", "index.json", "INDEX.md"}
    assert json.loads((folder / "digests.json").read_text())[0]["state"] == "present"
    gpus = json.loads((folder / "index.json").read_text())["gpus"]
    assert len(gpus) == len(config.matrix.sms)
    assert (folder / "INDEX.md").read_text().startswith("# Images\n")
    assert said == [f"{folder}: digests.json, index.json, INDEX.md"]
    outcomes.write(config, repository, [Outcome(cell, "present")], tmp_path, report=said.append)
    assert len(said) == 1, "nothing has changed"
    outcomes.write(config, repository, [Outcome(cell, "published")], tmp_path, report=said.append)
    assert len(said) == 2
