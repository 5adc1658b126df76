"""What a plan writes down for people and programs: labels, build arguments, the record, its files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from packageurl import PackageURL
from packaging.utils import canonicalize_name

from ftbuild import input_key, triton
from ftbuild.config.schema import Config, SourceRef
from ftbuild.errors import ConfigError, PinError
from ftbuild.input_key import digest_of
from ftbuild.plan import Plan, Revision
from tests.unit.config.test_holes import described
from tests.unit.test_plan import REVISION, plan_of

OCI = "org.opencontainers.image"


@pytest.fixture(scope="module")
def ngc(config: Config) -> Plan:
    return plan_of(config, base="ngc")


@pytest.fixture(scope="module")
def debian(config: Config) -> Plan:
    return plan_of(config, sm="80,86", base="open")


def test_the_labels_of_an_image_tell_where_it_is_from(config: Config, debian: Plan) -> None:
    labels = debian.labels("sdk")
    patches, origins = labels.pop("io.ftbuild.patches"), labels.pop("io.ftbuild.patch-origins")
    assert patches.split() == [f"{patch.component}/{patch.file}" for patch in debian.patches]
    assert list(json.loads(origins).values()) == [patch.origin for patch in debian.patches]
    holes = labels.pop("io.ftbuild.holes").split()
    assert holes == [hole.id for hole in debian.holes.statements if hole.status == "affected"]
    assert "CVE-2025-23310" in holes
    url = "https://example.invalid/ftbuild"
    assert labels == {
        f"{OCI}.title": "triton_with_ft 22.12-sm80_86-sdk",
        f"{OCI}.description": (
            "Triton Inference Server 2.51.0 with FasterTransformer backend 1.4, SM 80,86 (sdk)"
        ),
        f"{OCI}.version": f"22.12-{debian.key}",
        f"{OCI}.revision": "a" * 40,
        f"{OCI}.created": "2026-01-01T00:00:00+00:00",
        f"{OCI}.source": url,
        f"{OCI}.url": url,
        f"{OCI}.documentation": url,
        f"{OCI}.vendor": "ftbuild",
        f"{OCI}.authors": "ftbuild",
        f"{OCI}.licenses": "Apache-2.0 AND BSD-3-Clause",
        f"{OCI}.ref.name": f"22.12-sm80_86-{debian.key}-sdk",
        f"{OCI}.base.name": debian.base.serving,
        f"{OCI}.base.digest": "",
        "io.ftbuild.cell": "22.12-sm80_86",
        "io.ftbuild.key": debian.key,
        "io.ftbuild.product": "sdk",
        "io.ftbuild.base": "open",
        "io.ftbuild.snapshot": config.debian_lock.bases["open"].snapshot,
        "io.ftbuild.triton": "22.12",
        "io.ftbuild.server": "2.51.0",
        "io.ftbuild.cuda": "11.8",
        "io.ftbuild.driver": "525",
        "io.ftbuild.tried": "built, never run",
        "io.ftbuild.sm": "80,86",
        "io.ftbuild.sass": "sm_80,sm_86",
        "io.ftbuild.ptx": "compute_80,compute_86",
        "io.ftbuild.ft": debian.source("ft").commit,
        "io.ftbuild.backend": debian.source("backend").commit,
        "io.ftbuild.holes-known": config.holes.known,
        "io.ftbuild.support-end": "2028-06-30",
        "io.ftbuild.upstream": "FasterTransformer and its backend are unmaintained since October 2023",
    }


def test_the_image_for_use_has_a_title_without_a_product(ngc: Plan) -> None:
    labels = ngc.labels("runtime")
    assert labels[f"{OCI}.title"] == "triton_with_ft 22.12-sm80-ngc"
    assert labels[f"{OCI}.ref.name"] == f"22.12-sm80-ngc-{ngc.key}"
    assert labels["io.ftbuild.snapshot"] == ""
    # It would inherit another's, and nobody here renews what NVIDIA's image brings along.
    assert labels["io.ftbuild.support-end"] == ""


def test_the_end_of_support_is_told_and_changes_no_image(config: Config, debian: Plan, ngc: Plan) -> None:
    release = config.matrix.releases["22.12"].model_copy(update={"support_end": "2027-01-31"})
    matrix = config.matrix.model_copy(update={"releases": {**config.matrix.releases, "22.12": release}})
    other = plan_of(replace(config, matrix=matrix), sm="80,86", base="open")
    assert other.key == debian.key
    assert other.labels("runtime")["io.ftbuild.support-end"] == "2027-01-31"
    assert other.about().endswith(", driver 525 or later; fixes until 2027-01-31")
    assert other.as_dict()["support_end"] == "2027-01-31"
    assert ngc.about().endswith("driver 520 or later")


def test_a_base_with_a_locked_digest_is_taken_by_it(config: Config) -> None:
    digest = f"sha256:{'1' * 64}"
    locked = config.lock.model_copy(update={"bases": {"ngc": {"22.12": digest}}})
    plan = plan_of(replace(config, lock=locked), base="ngc")
    image = f"nvcr.io/nvidia/tritonserver:22.12-py3@{digest}"
    assert (plan.base.serving, plan.base.devel, plan.base.digest) == (image, image, digest)
    assert plan.base.origin == "bases.yaml, digest from the lock"
    assert plan.labels("runtime")[f"{OCI}.base.name"] == image
    assert plan.labels("runtime")[f"{OCI}.base.digest"] == digest
    assert plan.base.local is None


def test_a_base_that_is_built_here_has_an_image_to_serve_from_and_one_to_compile_in(debian: Plan) -> None:
    found = re.fullmatch(r"(ftbuild-base-open:[0-9a-f]{12})", debian.base.serving)
    assert found
    assert debian.base.devel == f"{found[1]}-devel"
    assert debian.base.digest is None
    assert debian.base.local is not None
    assert debian.base.origin == (f"built here by invoke base, Debian bookworm of {debian.base.snapshot}")


def test_a_build_gets_compiler_packages_targets_and_libraries(ngc: Plan, debian: Plan) -> None:
    assert ngc.arguments() == {
        "ABOUT": (
            "22.12-sm80-ngc: Triton Inference Server 2.29.0 with the FasterTransformer backend 1.4, for GPUs "
            "of SM 80, CUDA 11.8, driver 520 or later"
        ),
        "HOST_CC": "gcc",
        "HOST_CXX": "g++",
        "TOOLCHAIN_APT": "ccache python3-dev python3-pip rapidjson-dev",
        "BACKEND_TARGETS": "transformer-shared triton-fastertransformer-backend",
        "PYT_TARGETS": "th_transformer",
        "PYT_WHEEL_LIBS": "cudnn",
        "SDK_WITHOUT": "",
    }
    assert "/usr/local/bin/perf_client" in debian.arguments()["SDK_WITHOUT"].split()
    several = replace(debian, wheel_libraries=("cudnn", "nccl")).arguments()
    assert (several["HOST_CC"], several["HOST_CXX"]) == ("gcc-11", "g++-11")
    assert several["PYT_WHEEL_LIBS"] == "cudnn nccl"


def test_the_record_holds_the_whole_plan(config: Config, debian: Plan) -> None:
    record = json.loads(json.dumps(debian.as_dict()))
    tag = f"22.12-sm80_86-{debian.key}"
    assert record.pop("tags") == {
        "runtime": [f"triton_with_ft:{tag}", "triton_with_ft:22.12-sm80_86"],
        "sdk": [f"triton_with_ft:{tag}-sdk", "triton_with_ft:22.12-sm80_86-sdk"],
    }
    assert record.pop("labels") == {product: debian.labels(product) for product in ("runtime", "sdk")}
    assert record.pop("arguments") == debian.arguments()
    assert record.pop("base") == {
        "name": "open",
        "serving": debian.base.serving,
        "devel": debian.base.devel,
        "digest": None,
        "local": None,
        "origin": debian.base.origin,
        "debian": config.debian_lock.bases["open"].snapshot,
        "architecture": "amd64",
        "cell_gib": 12,
        "base_gib": 16,
    }
    assert record.pop("environment") == {"CC": "gcc-11", "CXX": "g++-11", "CUDAHOSTCXX": "g++-11"}
    ft = next(source for source in record.pop("sources") if source["repository"] == "ft")
    assert (ft["ref"], ft["path"], ft["version"]) == ("refs/tags/release/v5.3_tag", "ft", "5.3")
    sm_89 = next(patch for patch in record.pop("patches") if patch["file"] == "0040-sm-89.patch")
    assert (sm_89["component"], sm_89["origin"]) == ("ft", "by ftbuild")
    backend, pyt = record.pop("trees")
    assert (backend["name"], pyt["name"]) == ("backend", "pyt")
    files = record.pop("files")
    assert files["base/put.sh"]["path"].endswith("dockerfiles/steps/put.sh")
    assert len(files["base/put.sh"]["sha256"]) == 64
    torch = next(w for w in record.pop("wheels") if (w["role"], w["name"]) == ("pyt", "torch"))
    assert torch["file"].startswith(f"torch-{torch['version']}-cp311-")
    assert record == {
        "cell": "22.12-sm80_86",
        "key": debian.key,
        "triton": "22.12",
        "server": "2.51.0",
        "cuda": "11.8",
        "driver": "525",
        "support_end": "2028-06-30",
        "tried": "built, never run",
        "max_bytes": {},
        "sms": [80, 86],
        "families": [
            "gpt",
            "opt",
            "bloom",
            "mpt",
            "gptj",
            "codegen",
            "gptneox",
            "t5",
            "llama",
            "bert",
            "t5-encoder",
        ],
    }


def test_a_base_from_a_registry_is_of_no_state_of_debian(ngc: Plan) -> None:
    base = ngc.as_dict()["base"]
    assert isinstance(base, dict)
    assert (base["debian"], base["local"]) == (None, None)


def test_a_cell_has_a_folder_for_each_key(ngc: Plan, tmp_path: Path) -> None:
    assert ngc.folder(tmp_path) == tmp_path / "22.12-sm80-ngc" / ngc.key


def test_the_files_of_a_recipe_are_found_by_their_role(ngc: Plan, debian: Plan) -> None:
    assert debian.file("base").path.name == "open-base.Dockerfile"
    assert debian.file("dockerfile").path.name == "triton-ft.Dockerfile"
    assert [step.path.name for step in debian.steps("base")] == [
        "apt-install.sh",
        "fixed-times.sh",
        "put.sh",
        "unpack-cuda.sh",
        "unpack-server.sh",
    ]
    assert {"compile.sh", "slot.py"} <= {step.path.name for step in ngc.steps("dockerfile")}
    assert ngc.steps("base") == ()
    assert ngc.source("triton-backend").repository == "triton-backend"


def test_wheels_are_those_of_every_requirements_file(ngc: Plan, debian: Plan) -> None:
    assert {wheel.role for wheel in ngc.wheels} == {"toolchain", "pyt", "runtime", "sdk"}
    assert {wheel.role for wheel in debian.wheels} == {"toolchain", "pyt", "runtime", "sdk", "server"}
    for wheel in debian.wheels:
        assert wheel.file.endswith(".whl")
        assert re.fullmatch(r"[0-9a-f]{64}", wheel.sha256)


def test_the_time_of_a_revision_is_also_told_in_seconds() -> None:
    assert REVISION.epoch == 1767225600
    assert Revision("a", "2026-01-01T02:00:00+02:00").epoch == 1767225600
    assert Revision("a", "2026-01-01T00:00:00+00:00").url == ""


def test_a_digest_is_that_of_canonical_json() -> None:
    """As in `printf '{"a":"x","b":[1,2]}' | sha256sum`: what was built keeps its key."""
    assert digest_of({"b": [1, 2], "a": "x"}) == "721ef82f2d6c"


def test_the_key_covers_a_number_that_is_raised_by_hand(
    config: Config, ngc: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_key, "RECIPE", input_key.RECIPE + 1)
    assert plan_of(config, base="ngc").key != ngc.key


@pytest.mark.parametrize("place", ["ft", "backend", "repo-core-src", "common", "triton-backend"])
def test_each_place_that_a_build_refers_to_needs_a_repository(config: Config, place: str) -> None:
    moved = {
        name: repository.model_copy(update={"path": "else"}) if repository.path == place else repository
        for name, repository in config.sources.repositories.items()
    }
    sources = config.sources.model_copy(update={"repositories": moved})
    with pytest.raises(ConfigError) as refused:
        plan_of(replace(config, sources=sources))
    assert refused.value.what == f"release 22.12 lacks a repository: one at {place}"
    assert "docs/adding-a-release.md" in (refused.value.hint or "")


def test_a_missing_component_is_named_once(config: Config) -> None:
    release = {name: ref for name, ref in config.sources.releases["22.12"].items() if name != "backend"}
    with pytest.raises(ConfigError) as refused:
        plan_of(with_release(config, release))
    assert refused.value.what == "release 22.12 lacks a repository: backend"


@pytest.mark.parametrize("name", ["ft", "backend"])
def test_a_component_needs_the_version_that_cmake_options_depend_on(config: Config, name: str) -> None:
    release = config.sources.releases["22.12"]
    versionless = release[name].model_copy(update={"version": None})
    with pytest.raises(ConfigError) as refused:
        plan_of(with_release(config, {**release, name: versionless}))
    assert refused.value.what == f"{name} of release 22.12 has no version"
    assert re.search(r"sources\.yaml:\d+", refused.value.where or "")


def with_release(config: Config, release: Mapping[str, SourceRef]) -> Config:
    """The configuration with other sources of release 22.12."""
    releases = {**config.sources.releases, "22.12": release}
    return replace(config, sources=config.sources.model_copy(update={"releases": releases}))


def test_a_backport_without_a_pin_fails_the_plan(config: Config) -> None:
    lock = config.lock.model_copy(update={"backports": {}})
    with pytest.raises(PinError, match=r"0100-custom-ar-threshold\.backport"):
        plan_of(replace(config, lock=lock))


def test_only_a_cell_of_one_sm_has_limits_of_size(config: Config) -> None:
    one, two = (plan_of(config, base="open", sm=sm).max_bytes for sm in ("90", "80,90"))
    limits = config.bases.bases["open"].max_megabytes["22.12"]
    assert one == {"runtime": limits["runtime"] * 10**6, "sdk": limits["sdk"] * 10**6}
    assert two == {}


def test_a_server_that_a_base_compiles_has_sources_of_its_own(config: Config, debian: Plan) -> None:
    plan = plan_of(config, "26.06", "90")
    names = [[source.repository for source in some] for some in (plan.own_sources, plan.server_sources)]
    assert names[0] == [source.repository for source in debian.own_sources]
    assert names[1] == [name for name, about in config.sources.repositories.items() if about.server]
    assert sorted([*names[0], *names[1]]) == sorted(source.repository for source in plan.sources)
    assert debian.own_sources == debian.sources
    assert debian.server_sources == ()


def test_the_holes_of_an_image_are_those_of_what_it_contains(config: Config, debian: Plan) -> None:
    """Of its server, packages and wheels, but not of those that only compile it."""

    def known(purl: str) -> list[str]:
        plan = plan_of(replace(config, holes=described({}, purl=purl)), base="open")
        return [statement.purl for statement in plan.holes.statements]

    assert debian.base.debian
    package = next(each for each in debian.base.debian.installed("serving") if each.name == "libgomp1")
    (found,) = known(f"pkg:deb/debian/{package.name}")
    assert PackageURL.from_string(found).version == package.version
    assert known(triton.PURL) == [f"{triton.PURL}@v{debian.server}"]
    contained = {wheel.name for wheel in debian.wheels if wheel.role in ("server", "runtime", "sdk")}
    wheels = {
        (wheel.role, wheel.name in contained): (canonicalize_name(wheel.name), wheel.version)
        for wheel in debian.wheels
    }
    assert {("server", True), ("runtime", True), ("sdk", True), ("toolchain", False)} <= set(wheels)
    for (_, is_contained), (name, version) in wheels.items():
        assert known(f"pkg:pypi/{name}") == ([f"pkg:pypi/{name}@{version}"] if is_contained else [])
