"""Bases and systems are images of this machine, whatever has their names meanwhile."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftbuild.build import bake, base, context, definitions, os_layer, packages
from ftbuild.build.machine import Host
from ftbuild.config.schema import Config
from ftbuild.engine import builders, daemon, made
from ftbuild.errors import ConfigError, HostError
from ftbuild.host import disk
from ftbuild.sources import downloads
from ftbuild.sources.debian import pinned
from tests.unit.publishing.test_publish import plan_of


def test_a_name_keeps_the_ids_that_it_was_made_or_first_seen_with(tmp_path: Path) -> None:
    assert made.is_known(tmp_path, "x:1", "sha256:a")
    assert made.is_known(tmp_path, "x:1", "sha256:a")
    assert not made.is_known(tmp_path, "x:1", "sha256:b")
    assert made.is_known(tmp_path, "y:1", "sha256:b")
    made.note(tmp_path, "x:1", "sha256:b")
    assert made.is_known(tmp_path, "x:1", "sha256:a")
    assert made.is_known(tmp_path, "x:1", "sha256:b")
    for letter in "cdef":
        made.note(tmp_path, "x:1", f"sha256:{letter}")
    assert not made.is_known(tmp_path, "x:1", "sha256:a")


@pytest.mark.parametrize("content", ["", "[]", '{"x:1": 7}', '{"x:1": [7]}', "[" * 100_000])
def test_a_damaged_list_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / made.FILE.name).write_text(content)
    with pytest.raises(ConfigError, match="ids of bases are damaged") as refused:
        made.is_known(tmp_path, "x:1", "sha256:a")
    assert str(tmp_path / made.FILE.name) in str(refused.value)


class Engine:
    """An engine with images by name."""

    def __init__(self, **ids: str) -> None:
        self.ids = ids
        self.images = SimpleNamespace(load=lambda file: None)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    found = Engine()

    def image(_: object, name: str) -> Any:
        return SimpleNamespace(id=found.ids[name]) if name in found.ids else None

    monkeypatch.setattr(daemon, "image", image)
    monkeypatch.setattr(builders, "require_platform", lambda *_: None)
    return found


def test_a_base_with_another_id_is_built_again(
    config: Config, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(config, base="open")
    engine.ids = {plan.base.serving: "sha256:a", plan.base.devel: "sha256:b"}
    ours, built, said = dict(engine.ids), list[str](), list[str]()

    def build(*_: object, **__: object) -> None:
        built.append("")
        engine.ids = dict(ours)

    for room, name in (
        (downloads, "fetch_all"), (packages, "stage"), (context, "sources"), (context, "wheels"),
        (context, "dockerfile"), (bake, "write"), (definitions, "local_base"),
    ):  # fmt: skip
        monkeypatch.setattr(room, name, lambda *_, **__: {})
    monkeypatch.setattr(os_layer, "ensure", lambda *_: "os")
    monkeypatch.setattr(disk, "require", lambda *_: None)
    monkeypatch.setattr(bake, "run", build)
    host = Host(1)

    def ensure() -> None:
        base.ensure(engine, plan, host, tmp_path / "w", tmp_path / "c", report=said.append)  # type: ignore[arg-type]

    ensure()
    ensure()
    assert built == []
    engine.ids[plan.base.devel] = "sha256:evil"
    ensure()
    assert len(built) == 1
    assert f"{plan.base.devel} is another image than the one that was made here" in "".join(said)
    ensure()
    assert len(built) == 1


def test_a_system_with_another_id_is_made_again(
    config: Config, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, said = pinned.locked(config, "open"), list[str]()
    tag = os_layer.name(locked)
    engine.ids = {tag: "sha256:a"}
    client: Any = engine
    monkeypatch.setattr(os_layer, "_missing", lambda architecture: "debootstrap is not here")
    assert os_layer.ensure(client, locked, "amd64", None, tmp_path, said.append) == tag
    engine.ids[tag] = "sha256:evil"
    with pytest.raises(HostError, match="cannot be made here"):
        os_layer.ensure(client, locked, "amd64", None, tmp_path, said.append)
    assert f"{tag} is another image than the one that was made here" in "".join(said)
