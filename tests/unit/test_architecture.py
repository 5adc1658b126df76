"""Bases for another processor than x86-64: what their plans pin, and what keeps them apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.utils import parse_wheel_filename

from ftbuild import architecture
from ftbuild.build import base, definitions
from ftbuild.build.machine import Host
from ftbuild.cli.selection import Selection, plans
from ftbuild.config.bases import BaseConfig
from ftbuild.config.schema import Config
from ftbuild.errors import HostError
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.sources import requirements
from ftbuild.sources.debian import pinned
from tests.unit.build.test_bake import docker_that

ARM = "open-trixie-arm64"


@pytest.fixture
def arm(config: Config) -> Plan:
    return plans(config, Selection(config.folder, ["26.06"], ["90"], base=[ARM]))[0]


@pytest.fixture
def amd(config: Config) -> Plan:
    return plans(config, Selection(config.folder, ["26.06"], ["90"], base=["open-trixie"]))[0]


def locked_wheels(config: Config, described: BaseConfig) -> dict[str, requirements.Requirement]:
    files = described.all_requirements()
    return {
        f"{Path(file).stem.rpartition('-')[2]}/{one.name}": one
        for file in files
        for one in requirements.read(config.path(file)).locked()
    }


def test_what_is_locked_for_a_base_runs_on_its_processors(config: Config) -> None:
    for name, described in config.bases.bases.items():
        machine = architecture.MACHINES[described.architecture]
        for wheel in locked_wheels(config, described).values():
            platforms = {tag.platform for tag in parse_wheel_filename(wheel.wheel)[3]}
            assert all(one == "any" or one.endswith(f"_{machine}") for one in platforms), (name, wheel.wheel)
        if described.local:
            assert pinned.locked(config, name).architectures == {described.architecture}


def test_a_base_for_arm64_has_the_versions_of_its_twin(config: Config) -> None:
    one, other = (config.bases.bases[name] for name in ("open-trixie", ARM))
    versions = [{key: w.version for key, w in locked_wheels(config, each).items()} for each in (one, other)]
    assert versions[0] == versions[1]
    assert len(versions[0]) > 100


def test_plans_name_their_platform_to_buildkit(arm: Plan, amd: Plan) -> None:
    for plan, platform in ((arm, "linux/arm64"), (amd, "linux/amd64")):
        host = Host(jobs=1)
        for definition in (definitions.cell(plan, host), definitions.local_base(plan, "os", host)):
            found: Any = definition["target"]
            assert [target["platforms"] for target in found.values()] == [[platform]] * len(found)


def test_only_images_for_other_processors_have_a_label_for_it(arm: Plan, amd: Plan) -> None:
    for product in PRODUCTS:
        assert arm.labels(product)["io.ftbuild.architecture"] == "arm64"
        assert arm.labels(product)["io.ftbuild.tried"] == "built, never run"
        assert "io.ftbuild.architecture" not in amd.labels(product)
    assert arm.tag("sdk", moving=True) == "triton_with_ft:26.06-sm90-open-trixie-arm64-sdk"


def test_wheels_are_asked_for_by_the_machine(arm: Plan, amd: Plan) -> None:
    assert {"manylinux_2_41_aarch64", "manylinux2014_aarch64", "linux_aarch64"} <= {*arm.wheel_options}
    assert not [word for word in arm.wheel_options if "x86_64" in word]
    assert not [word for word in amd.wheel_options if "aarch64" in word]


def test_an_image_of_a_registry_has_a_key_for_each_processor(config: Config) -> None:
    """One digest may name an image for each."""
    ngc = config.bases.bases["ngc"].model_copy(update={"architecture": "arm64"})
    moved = replace(config, bases=config.bases.model_copy(update={"bases": {"ngc": ngc}}))
    keys = {
        made.key
        for each in (config, moved)
        for made in [plan_on_ngc(each)]
        if made.base.digest is None and made.base.serving.startswith("nvcr.io/")
    }
    assert len(keys) == 2


def plan_on_ngc(config: Config) -> Plan:
    from ftbuild import matrix
    from ftbuild.plan import Revision
    from ftbuild.planning import make_plan

    (cell,) = matrix.select(config, triton=["22.12"], sms=["80"], bases=["ngc"])
    return make_plan(config, cell, Revision("0" * 40, "2026-01-01T00:00:00+00:00"))


@pytest.mark.parametrize(
    ("builder", "said"),
    [(None, "the engine runs no programs of linux/arm64"), ("far", "builder far runs no programs of")],
)
def test_a_build_for_another_processor_is_refused_before_anything_is_fetched(
    builder: str | None,
    said: str,
    arm: Plan,
    config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also by an engine that could, for a builder that cannot."""
    near = "linux/amd64, linux/arm64" if builder else "linux/amd64"
    answer = f'case "$*" in *far) echo "Platforms: linux/amd64";; *) echo "Platforms: {near}";; esac'
    docker_that(tmp_path, monkeypatch, answer)
    host = Host(jobs=1, builder=builder)
    untouched: Any = SimpleNamespace()
    with pytest.raises(HostError, match=said):
        base.ensure(untouched, arm, host, tmp_path / "work", tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("machine", "expected"), [("x86_64", "amd64"), ("aarch64", "arm64"), ("arm64", "amd64"), ("", "amd64")]
)
def test_a_machine_that_no_image_is_for_counts_as_the_default(machine: str, expected: str) -> None:
    assert architecture.of_machine(machine) == expected
