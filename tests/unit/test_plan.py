from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ftbuild.cli import explain
from ftbuild.config import loader
from ftbuild.config.debian import DebianLock
from ftbuild.config.schema import Config, Lock
from ftbuild.errors import ConfigError, PinError
from ftbuild.host import reading
from ftbuild.input_key import input_key
from ftbuild.matrix import select
from ftbuild.plan import PRODUCTS, Plan, Revision
from ftbuild.planning import make_plan, make_plans

REVISION = Revision(commit="a" * 40, time="2026-01-01T00:00:00+00:00", url="https://example.invalid/ftbuild")


def plan_of(config: Config, triton: str = "22.12", sm: str = "80", base: str | None = None) -> Plan:
    (cell,) = select(config, triton=[triton], sms=[sm], bases=[base] if base else [])
    return make_plan(config, cell, REVISION)


def copied(config: Config, folder: Path, file: str, old: str, new: str) -> Config:
    """The configuration with one text replaced in one file; paths still point to the real files."""
    for path in config.folder.glob("*.yaml"):
        text = path.read_text().replace("../", f"{config.folder.parent}/")
        (folder / path.name).write_text(text.replace(old, new) if path.name == file else text)
        assert path.name != file or old in text
    return loader.load(folder)


def test_the_key_is_the_same_for_the_same_inputs_and_in_every_tag(config: Config) -> None:
    one, other = plan_of(config), plan_of(config)
    assert one.key == other.key
    assert re.fullmatch(r"[0-9a-f]{12}", one.key)
    assert one.tag("runtime") == f"triton_with_ft:22.12-sm80-{one.key}"
    assert one.tag("sdk") == f"triton_with_ft:22.12-sm80-{one.key}-sdk"
    assert one.tag("runtime", moving=True) == "triton_with_ft:22.12-sm80"


def test_a_whole_matrix_is_planned_by_reading_each_patch_once(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, read_bytes = Counter[Path](), reading.read_bytes

    def counted(file: Path, **more: Any) -> bytes:
        read[file] += 1
        return read_bytes(file, **more)

    monkeypatch.setattr(reading, "read_bytes", counted)
    cells = select(config)
    made = make_plans(config, cells, REVISION)
    assert [plan.cell for plan in made] == list(cells)
    assert made[-1] == make_plan(config, cells[-1], REVISION)
    patches = [times for file, times in read.items() if file.suffix in {".patch", ".backport"}]
    assert len(patches) > 100
    assert max(patches) == 2  # by the one plan, too


def test_tags_are_valid_for_registries(config: Config) -> None:
    made = plan_of(config, sm="80,86,89,90", base="open")
    for product in ("runtime", "sdk"):
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", made.tag(product).rsplit(":", 1)[1])


def test_cells_differ_in_their_keys(config: Config) -> None:
    keys = {
        plan_of(config, *options).key
        for options in (
            ("22.12", "80"),
            ("22.12", "86"),
            ("22.07", "80"),
            ("22.12", "80,86"),
            ("22.12", "80", "ngc"),
        )
    }
    assert len(keys) == 5


def test_the_state_of_this_repository_is_a_label_but_no_input(config: Config) -> None:
    (cell,) = select(config, triton=["22.12"], sms=["80"])
    other = make_plan(config, cell, replace(REVISION, commit="b" * 40))
    assert other.key == plan_of(config).key
    assert other.labels("runtime")["org.opencontainers.image.revision"] == "b" * 40


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("sources.lock.yaml", "d21dc02bc5f70bc7dc0d18ba5801ae263565e68e", "d" * 40),
        ("bases.yaml", "host_compiler: [gcc-11, g++-11]", "host_compiler: [gcc-9, g++-9]"),
        ("bases.yaml", "-11]\n    wheel_libraries: [cudnn]", "-11]\n    wheel_libraries: [nccl]"),
        ("patches.yaml", '"0010-python3-interpreter.patch": {versions: ">=5.0,<=5.3"}',
         '"0010-python3-interpreter.patch": {versions: "==5.0"}'),
    ],
)  # fmt: skip
def test_whatever_decides_the_image_changes_the_key(
    config: Config, tmp_path: Path, file: str, old: str, new: str
) -> None:
    assert plan_of(copied(config, tmp_path, file, old, new)).key != plan_of(config).key


# What may change without another image: where inputs come from, and what other fields decide.
NOT_IN_THE_KEY = {
    "image": "stands beside the key in every tag",
    "families": "decides what the smoke test compares",
    "revision": "describes the checkout",
    "tried": "tells of other images",
    "support_end": "tells how long there are fixes",
    "max_bytes": "decides what verify refuses",
    "objects": "give what compiling gives",
    "compression": "decides how a registry has what an image unpacks to",
    "toolchain.cuda": "is that of the plan",
    "holes": "what is learnt of an image does not change it",
    "key": "is the key",
    "base.local": "is in the name of the base's images",
    "base.debian": "is in the name of the base's images",
    "base.cell_gib": "says what a machine must have",
    "base.base_gib": "says what a machine must have",
    "base.origin": "says where the base comes from",
    "sources.url": "the commit decides",
    "sources.ref": "the commit decides",
    "sources.urls": "the commit decides",
    "patches.urls": "the commit or the diff decides",
    "patches.change.tree": "the commit decides",
    "patches.change.diff": "the commit decides",
    "files.executable": "a program that cannot run ends the build",
    "trees.options.source": "cites upstream",
    "files.path": "the content decides",
    "wheels": "the content of the requirements files decides",
    "wheel_options": "find wheels whose hashes are decided",
}


def alterations(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every change of one thing in a value: the dotted name of the field, and the changed value."""
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            inside = f"{path}.{field.name}".removeprefix(".")
            for name, new in (
                [(inside, object())]
                if inside in NOT_IN_THE_KEY
                else alterations(getattr(value, field.name), inside)
            ):
                yield name, replace(value, **{field.name: new})
    elif isinstance(value, tuple):
        for number, entry in enumerate(value):
            before, after = value[:number], value[number + 1 :]
            yield path, (*before, *after)
            yield from ((name, (*before, new, *after)) for name, new in alterations(entry, path))
        if len(value) > 1:
            yield path, value[::-1]
        if not value or isinstance(value[-1], str):
            yield path, (*value, "more")
    elif isinstance(value, bool):
        yield path, not value
    elif isinstance(value, bytes):
        yield path, value + b"x"
    else:
        yield path, value + 1 if isinstance(value, int) else f"{value}x"


@pytest.mark.parametrize("base", ["ngc", "open"])
def test_a_change_of_any_field_of_a_plan_changes_the_key(config: Config, base: str) -> None:
    plan = plan_of(config, base=base, sm="80,90")
    partly = replace(plan.sources[0], sparse=("one", "two"), without=("three",))
    plan = replace(plan, sources=(partly, *plan.sources[1:]))
    before, seen = input_key(plan), set()
    for path, changed in alterations(plan):
        seen.add(path)
        assert (input_key(changed) == before) is (path in NOT_IN_THE_KEY), path
    assert seen >= NOT_IN_THE_KEY.keys()


@pytest.fixture
def recipes(config: Config, tmp_path: Path) -> tuple[Config, Path]:
    """A configuration on a copy of dockerfiles/, and that copy."""
    folder = tmp_path / "dockerfiles"
    shutil.copytree(config.folder.parent / "dockerfiles", folder)
    configured = tmp_path / "buildcfg"
    configured.mkdir()
    return copied(
        config, configured, "bases.yaml", f"{config.folder.parent}/dockerfiles", str(folder)
    ), folder


def test_a_raised_number_of_the_recipe_changes_the_key(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People raise it for a change that no file of the key shows."""
    before = plan_of(config).key
    monkeypatch.setattr("ftbuild.input_key.RECIPE", "another")
    assert plan_of(config).key != before


@pytest.mark.parametrize("step", ["compile.sh", "slot.py", "pip-install.sh"])
def test_a_changed_step_changes_the_key(recipes: tuple[Config, Path], step: str) -> None:
    config, folder = recipes
    before = plan_of(config, base="open")
    with (folder / "steps" / step).open("a") as file:
        file.write("# changed\n")
    after = plan_of(config, base="open")
    assert after.key != before.key
    assert after.base == before.base


@pytest.mark.parametrize("step", ["apt-install.sh", "unpack-server.sh"])
def test_a_changed_step_of_a_local_base_is_another_base(recipes: tuple[Config, Path], step: str) -> None:
    config, folder = recipes
    before = plan_of(config, base="open")
    with (folder / "steps" / step).open("a") as file:
        file.write("# changed\n")
    after = plan_of(config, base="open")
    assert after.base.serving != before.base.serving
    assert after.key != before.key


def test_another_server_is_another_base(recipes: tuple[Config, Path]) -> None:
    config, folder = recipes
    before = plan_of(config, base="open")
    with (folder / "requirements" / "open-server.txt").open("a") as file:
        file.write("# changed\n")
    after = plan_of(config, base="open")
    assert after.base.serving != before.base.serving


@pytest.mark.parametrize(
    ("file", "old", "new", "of_the_server"),
    [
        ("sources.lock.yaml", "690f9dd2c16901f1b63d43e73d29f2a623d64c55", "b" * 40, True),
        ("patches.yaml", '"0120-body-limit.patch": {versions: "==26.06"}',
         '"0120-body-limit.patch": {versions: "==1.0"}', True),
        ("sources.lock.yaml", "d21dc02bc5f70bc7dc0d18ba5801ae263565e68e", "d" * 40, False),
        ("patches.yaml", '"0550-in-flight-token-ranges.patch": {versions: "==5.3"}',
         '"0550-in-flight-token-ranges.patch": {versions: "==5.0"}', False),
    ],
)  # fmt: skip
def test_a_base_that_compiles_a_server_is_another_one_for_other_sources_or_patches_of_it(
    config: Config, tmp_path: Path, file: str, old: str, new: str, of_the_server: bool
) -> None:
    before = plan_of(config, "26.06", "90")
    after = plan_of(copied(config, tmp_path, file, old, new), "26.06", "90")
    assert after.key != before.key
    assert (after.base.serving != before.base.serving) == of_the_server


def test_another_argument_of_a_local_base_is_another_base(config: Config, tmp_path: Path) -> None:
    """It is a build argument of the base's Dockerfile."""
    before = plan_of(config, base="open")
    given = copied(
        config, tmp_path, "bases.yaml", "    local:\n", "    local:\n      arguments: {ASKED: '1'}\n"
    )
    after = plan_of(given, base="open")
    assert after.base.serving != before.base.serving
    assert after.key != before.key


def test_what_compiles_a_server_is_part_of_its_base(recipes: tuple[Config, Path]) -> None:
    """Where a base compiles none, the same tools compile the cell alone."""
    config, folder = recipes
    before = [plan_of(config, "26.06", "90"), plan_of(config, base="open")]
    for name in ("open-cuda13-toolchain.txt", "toolchain.txt"):
        with (folder / "requirements" / name).open("a") as file:
            file.write("# changed\n")
    after = [plan_of(config, "26.06", "90"), plan_of(config, base="open")]
    assert [a.base.serving != b.base.serving for a, b in zip(after, before, strict=True)] == [True, False]
    assert [a.key != b.key for a, b in zip(after, before, strict=True)] == [True, True]


def test_a_file_that_no_dockerfile_copies_is_not_an_input(recipes: tuple[Config, Path]) -> None:
    config, folder = recipes
    before = plan_of(config).key
    (folder / "steps" / "unused.sh").write_text("#!/bin/sh\n")
    assert plan_of(config).key == before


def test_a_missing_step_is_named(recipes: tuple[Config, Path]) -> None:
    config, folder = recipes
    (folder / "steps" / "slot.py").unlink()
    with pytest.raises(ConfigError, match=r"dockerfile/slot\.py file is missing or unusable"):
        plan_of(config)


def test_other_debian_packages_are_another_base(config: Config) -> None:
    locked = config.debian_lock.bases["open"]
    first, *rest = locked.sets["os"]
    keys, bases = set(), set()
    for change in (
        {},
        {"snapshot": "20200101T000000Z"},
        {"sets": {**locked.sets, "os": (f"{first}.deb", *rest)}},
        {"sets": {**locked.sets, "devel": locked.sets["devel"][1:]}},
    ):
        debian = DebianLock(bases={"open": locked.model_copy(update=change)})
        plan = plan_of(replace(config, debian_lock=debian), base="open")
        keys.add(plan.key)
        bases.add(plan.base.serving)
        assert plan_of(replace(config, debian_lock=debian), base="ngc").key == plan_of(config, base="ngc").key
    assert (len(keys), len(bases)) == (4, 4)


def test_a_local_base_without_locked_packages_fails_the_plan(config: Config) -> None:
    with pytest.raises(PinError, match="Debian packages of base open are not in the lock") as refused:
        plan_of(replace(config, debian_lock=DebianLock()), base="open")
    assert "invoke lock" in str(refused.value)


def test_a_label_tells_the_state_of_debians_archive(config: Config) -> None:
    plan = plan_of(config, base="open")
    assert plan.base.debian is not None
    assert plan.labels("sdk")["io.ftbuild.snapshot"] == plan.base.debian.snapshot
    assert plan.as_dict()["base"]["debian"] == plan.base.debian.snapshot  # type: ignore[index]


def test_a_release_without_a_pin_fails_the_plan(config: Config, tmp_path: Path) -> None:
    unlocked = replace(config, lock=Lock())
    with pytest.raises(PinError, match="invoke lock"):
        plan_of(unlocked)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '    backend: {ref: refs/tags/release/v1.4_tag, version: "1.4"}\n',
            "",
            "release 22.12 lacks a repository: backend",
        ),
        ("    common: {ref: refs/heads/r22.12}\n", "", "release 22.12 lacks a repository: one at common"),
        ("path: repo-core-src", "path: core", "lacks a repository: one at repo-core-src"),
    ],
)
def test_a_release_has_every_repository_that_a_build_refers_to(
    config: Config, tmp_path: Path, old: str, new: str, message: str
) -> None:
    without = copied(config, tmp_path, "sources.yaml", old, new)
    with pytest.raises(ConfigError, match=message) as refused:
        plan_of(without)
    assert re.search(r"sources\.yaml:\d+", refused.value.where or "")


def test_a_password_in_a_url_is_not_in_the_plan(config: Config, tmp_path: Path) -> None:
    secret = copied(config, tmp_path, "sources.yaml", "https://github.com", "https://user:secret@github.com")
    plan = plan_of(secret)
    assert "secret" not in explain.plan(plan) + json.dumps(plan.as_dict())
    assert plan.key == plan_of(config).key


def test_a_pipe_as_a_file_of_the_recipe_is_not_waited_for(recipes: tuple[Config, Path]) -> None:
    config, folder = recipes
    (folder / "steps" / "slot.py").unlink()
    os.mkfifo(folder / "steps" / "slot.py")
    with pytest.raises(ConfigError, match="it is not a file"):
        plan_of(config)


def test_only_a_lean_cell_gets_the_patches_that_leave_features_out(config: Config) -> None:
    (lean_cell,) = select(config, cells=["22.12-sm90-without-beams"])
    whole, lean = (
        {(patch.component, patch.file) for patch in made.patches}
        for made in (plan_of(config, sm="90"), make_plan(config, lean_cell, REVISION))
    )
    assert whole < lean
    assert {file for _, file in lean - whole if "left-out" not in file} == set()


@pytest.mark.parametrize("base", ["ngc", "open"])
def test_what_publishing_and_a_build_ask_of_a_plan_is_that_of_the_configuration(
    config: Config, tmp_path: Path, base: str
) -> None:
    assert plan_of(config, base=base).compression == "zstd"
    gzip = copied(config, tmp_path, "matrix.yaml", "releases:", "compression: gzip\nreleases:")
    assert plan_of(gzip, base=base).compression == "gzip"
    assert plan_of(config, base=base).base.cell_gib == config.bases.bases[base].cell_gib > 0


def test_objects_of_the_lock_are_in_the_plan_of_their_cell_and_not_in_its_key(config: Config) -> None:
    bare = plan_of(config)
    name = f"registry.example.com/x@sha256:{'0' * 64}"
    lock = config.lock.model_copy(update={"objects": {"22.12-sm80": name}})
    pinned, other = (plan_of(replace(config, lock=lock), sm=sm) for sm in ("80", "90"))
    assert (pinned.objects, other.objects, bare.objects) == (name, "", "")
    assert pinned.as_dict() == {**bare.as_dict(), "objects": name}
    assert "objects" not in other.as_dict()


def test_a_base_has_the_platform_of_its_images(config: Config) -> None:
    assert plan_of(config, base="open").base.platform == "linux/amd64"


def test_labels_and_record_say_what_sets_an_image_apart(config: Config) -> None:
    (lean_cell,) = select(config, cells=["22.12-sm90-without-beams-heads-64"])
    whole, lean = plan_of(config, sm="90"), make_plan(config, lean_cell, REVISION)
    apart = {"io.ftbuild.without": "beams", "io.ftbuild.head-sizes": "64"}
    assert apart.items() <= lean.labels("runtime").items()
    assert not apart.keys() & whole.labels("runtime").keys()
    assert (lean.as_dict()["without"], lean.as_dict()["head_sizes"]) == (["beams"], [64])
    assert "io.ftbuild.architecture" not in whole.labels("sdk")
    arm = plan_of(config, "26.06", "90", base="open-trixie-arm64")
    assert arm.labels("sdk")["io.ftbuild.architecture"] == "arm64"
    assert arm.base.platform == "linux/arm64"


def test_a_plan_knows_which_patches_it_takes(config: Config) -> None:
    plan = plan_of(config)
    first = plan.patches[0]
    assert plan.takes(first.component, first.file)
    assert not plan.takes("backend" if first.component == "ft" else "ft", first.file)
    assert not plan.takes(first.component, "9999-nothing.patch")


def test_labels_hold_every_standard_key_and_the_origins_of_patches(config: Config) -> None:
    labels = plan_of(config).labels("runtime")
    standard = ["title", "description", "version", "revision", "created", "source", "url", "documentation"]
    standard += ["vendor", "authors", "licenses", "ref.name", "base.name", "base.digest"]
    assert {f"org.opencontainers.image.{name}" for name in standard} <= set(labels)
    assert labels["io.ftbuild.sm"] == "80"
    assert labels["io.ftbuild.ft"] == "d21dc02bc5f70bc7dc0d18ba5801ae263565e68e"
    origins = json.loads(labels["io.ftbuild.patch-origins"])
    assert list(origins) == labels["io.ftbuild.patches"].split()
    assert "ft/0040-sm-89.patch" in origins
    assert any("github.com/NVIDIA/FasterTransformer/commit/" in origin for origin in origins.values())


def test_the_open_base_never_poses_as_the_release(config: Config) -> None:
    labels = plan_of(config, base="open").labels("runtime")
    assert (labels["io.ftbuild.triton"], labels["io.ftbuild.server"]) == ("22.12", "2.51.0")
    assert plan_of(config, base="ngc").labels("runtime")["io.ftbuild.server"] == "2.29.0"


def test_the_plan_for_people_says_where_each_value_comes_from(config: Config) -> None:
    text = explain.plan(plan_of(config, base="ngc"))
    assert re.search(r"SM +80 +FT v5\.3 CMakeLists\.txt:138-190", text)
    assert re.search(
        r"ft +d21dc02bc5f70bc7dc0d18ba5801ae263565e68e +https://github.com/NVIDIA/FasterTransformer", text
    )
    assert "sources.lock.yaml" in text
    assert "the tag decides" in text


def test_a_long_label_does_not_widen_the_plan_for_people(config: Config) -> None:
    lines = explain.plan(plan_of(config)).splitlines()
    patches = next(line for line in lines if line.startswith("io.ftbuild.patches "))
    assert re.search(r" ft/0010-\S+ ft/\S+ .*\.\.\. +plan$", patches)
    assert max(map(len, lines)) < 250


@pytest.mark.parametrize(
    ("release", "base"),
    [("22.03", "open"), ("22.12", "ngc"), ("24.10", "open-cuda13"), ("26.06", "open-trixie")],
)
def test_the_plan_of_a_cell_is_one_screen(config: Config, release: str, base: str) -> None:
    plan = plan_of(config, triton=release, base=base)
    lines = explain.cell(config, plan).splitlines()
    assert len(lines) <= 22
    assert any(re.fullmatch(f"input key +{plan.key}", line) for line in lines)
    assert all(plan.tag(product) in "\n".join(lines) for product in PRODUCTS)
    assert all(len(line) <= 80 for line in lines if not line.startswith(("base", "known")))


def test_several_plans_have_a_line_each(config: Config) -> None:
    planned = [plan_of(config, sm=sm) for sm in ("80", "90")]
    assert len(explain.cells(planned).splitlines()) == 2 + len(planned)


def test_the_plan_for_programs_is_json(config: Config) -> None:
    data = json.loads(json.dumps(plan_of(config).as_dict()))
    assert data["cell"] == "22.12-sm80"
    assert data["tags"]["sdk"][1] == "triton_with_ft:22.12-sm80-sdk"
    assert {tree["name"] for tree in data["trees"]} == {"backend", "pyt"}
