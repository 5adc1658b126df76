"""A base that compiles the server: its sources decide the base, and no cell compiles them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ftbuild.build import definitions
from ftbuild.build.machine import Host
from ftbuild.config import loader
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.matrix import select
from ftbuild.plan import Plan, Revision
from ftbuild.planning import make_plan
from ftbuild.sources import patched

RELEASE, BASE = "26.06", "open-trixie"
SERVER = ("server", "server-core", "server-common", "server-backend", "python-backend", "third-party")
HOST = Host(jobs=2)


def plan_of(config: Config, release: str = RELEASE, base: str = BASE) -> Plan:
    (cell,) = select(config, triton=[release], sms=["90"], bases=[base])
    return make_plan(config, cell, Revision("a" * 40, "2026-01-01T00:00:00+00:00"))


def with_commit(config: Config, repository: str, commit: str) -> Config:
    """The configuration with another commit of a repository in the lock."""
    pins = dict(config.lock.sources[RELEASE])
    pins[repository] = pins[repository].model_copy(update={"commit": commit})
    sources = {**config.lock.sources, RELEASE: pins}
    return replace(config, lock=config.lock.model_copy(update={"sources": sources}))


def without_patch(config: Config, component: str, file: str) -> Config:
    """The configuration with an entry that fits no version."""
    ranges = {name: dict(entries) for name, entries in config.patches.ranges.items()}
    ranges[component][file] = ranges[component][file].model_copy(update={"versions": "==1.0"})
    return replace(config, patches=config.patches.model_copy(update={"ranges": ranges}))


def test_the_servers_sources_are_the_bases_and_all_others_the_cells(config: Config) -> None:
    plan = plan_of(config)
    assert {source.repository for source in plan.server_sources} == set(SERVER)
    assert {source.repository for source in plan.own_sources} == {
        "ft", "cutlass", "backend", "core", "common", "triton-backend",
    }  # fmt: skip


@pytest.mark.parametrize("repository", SERVER)
def test_another_commit_of_the_server_is_another_base_and_another_cell(
    config: Config, repository: str
) -> None:
    before, after = plan_of(config), plan_of(with_commit(config, repository, "c" * 40))
    assert (after.base.serving, after.base.devel) != (before.base.serving, before.base.devel)
    assert after.key != before.key


def test_another_patch_of_the_server_is_another_base(config: Config) -> None:
    changed = without_patch(config, "third-party", "0010-libevhtp-chunk-count.patch")
    assert plan_of(changed).base.serving != plan_of(config).base.serving


def test_sources_of_the_backend_leave_the_base_as_it_is(config: Config) -> None:
    before, after = plan_of(config), plan_of(with_commit(config, "backend", "c" * 40))
    assert after.base.serving == before.base.serving
    assert after.key != before.key


def test_a_base_with_a_server_from_a_wheel_has_no_sources_of_one(config: Config) -> None:
    plan = plan_of(config, "24.10", "open-cuda13")
    assert plan.server_sources == ()
    assert not {patch.component for patch in plan.patches} & set(SERVER)


def test_only_a_base_that_compiles_gets_sources(config: Config) -> None:
    for release, base, names in (
        (RELEASE, BASE, {"debian", "wheels", "sources"}),
        ("24.10", "open-cuda13", {"debian", "wheels"}),
    ):
        made = definitions.local_base(plan_of(config, release, base), "system", HOST)["target"]
        assert isinstance(made, dict)
        assert {frozenset(target["contexts"]) for target in made.values()} == {frozenset(names)}


def test_a_base_that_compiles_a_server_without_sources_is_refused(config_folder: Path) -> None:
    bases = config_folder / "bases.yaml"
    bases.write_text(bases.read_text().replace('releases: ["26.06"]', 'releases: ["26.06", "24.10"]'))
    with pytest.raises(ConfigError, match=r"base open-trixie compiles the server of release 24\.10, which"):
        loader.load(config_folder)


def test_no_component_without_a_tree_is_patched(config: Config, tmp_path: Path) -> None:
    """A cell has no trees of the server, and its base no others."""
    said: list[str] = []
    patched.apply(config, RELEASE, {}, tmp_path, said.append)
    assert said == []
