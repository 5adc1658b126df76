"""Sources with the real git, from repositories that the tests make; neither Docker nor a network is used."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from filelock import FileLock

from ftbuild.build import context
from ftbuild.config import loader
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError, HostError, PatchError, PinError
from ftbuild.host.garbage import Garbage
from ftbuild.sm import Sm
from ftbuild.sources import fetch, garbage, lock, planned, taking
from ftbuild.sources.bundle import read_bundle, write_bundle
from ftbuild.sources.objects import Snapshot
from ftbuild.sources.patches import series
from ftbuild.sources.repositories import store_of
from ftbuild.sources.store import Store
from testing import ROOT
from testing.sample import sample_plan
from testing.waiting import until

from .programs import fetch as fetch_program

MATRIX = """\
image: test
sms: {80: {cuda: "11.0", name: Ampere, source: test}}
releases:
  "22.12":
    server: "2.29.0"
    cuda: "11.8"
    driver: "520"
    source: test
    base: none
    default_sms: [80]
    sms: {builds: [80], source: test}
"""
BASES = """\
dockerfile: Dockerfile
bases:
  none:
    image: example.invalid/none
    releases: ["22.12"]
    host_compiler: [gcc, g++]
    requirements: {toolchain: a, pyt: b, runtime: c, sdk: d}
    source: test
"""
BACKPORT = "Description: test\nOrigin: backport, https://example.invalid/ft/commit/{commit}\n{extra}"


class Upstream:
    """A git repository that a test commits to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=self.folder, check=True, capture_output=True, text=True
        ).stdout.strip()

    def commit(self, **files: str) -> str:
        for name, text in files.items():
            self.write(name.replace("__", "/"), text.encode())
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message=change")
        return self.git("rev-parse", "HEAD")

    def write(self, name: str, content: bytes) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return file


@dataclass
class World:
    """A configuration folder, its upstreams and a cache."""

    root: Path
    ft: Upstream
    cutlass: Upstream

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def config(self) -> Config:
        return loader.load(self.root / "buildcfg")

    def configure(self, *, mirrors: tuple[str, ...] = (), ref: str = "refs/tags/v1", url: str = "") -> None:
        folder = self.root / "buildcfg"
        for made in (folder, self.root / "patches"):
            made.mkdir(exist_ok=True)
        (folder / "matrix.yaml").write_text(MATRIX)
        (folder / "bases.yaml").write_text(BASES)
        (folder / "models.yaml").write_text("device: cpu\nreference: none.py\nfamilies: {}\n")
        repositories = {
            "ft": {"url": url or self.ft.folder.as_uri(), "mirrors": list(mirrors), "path": "ft"},
            "cutlass": {
                "url": self.cutlass.folder.as_uri(),
                "path": "ft/3rdparty/cutlass",
                "sparse": ["include", "tools/util/include"],
            },
        }
        releases = {"22.12": {"ft": {"ref": ref, "version": "5.3"}, "cutlass": {"ref": "refs/heads/main"}}}
        text = yaml.safe_dump({"repositories": repositories, "releases": releases}, sort_keys=False)
        (folder / "sources.yaml").write_text(text)
        if not (folder / "patches.yaml").exists():
            (folder / "patches.yaml").write_text("directory: ../patches\nranges: {}\n")

    def backport(self, commit: str, extra: str = "") -> None:
        series = self.root / "patches" / "ft"
        series.mkdir(parents=True, exist_ok=True)
        (series / "series").write_text("0001-fix.backport\n")
        (series / "0001-fix.backport").write_text(BACKPORT.format(commit=commit, extra=extra))
        (self.root / "buildcfg" / "patches.yaml").write_text(
            'directory: ../patches\nranges: {ft: {"0001-fix.backport": {versions: ">=5"}}}\n'
        )

    def lock(self) -> None:
        lock.write_lock(self.config, self.cache, report=quiet)

    def fetch(self) -> None:
        fetch.fetch_release(self.config, "22.12", self.cache, report=quiet)

    def export(self, repository: str = "ft", *sms: int) -> Path:
        folder = self.root / "out" / repository
        shutil.rmtree(folder, ignore_errors=True)
        fetch.export(
            self.config, "22.12", repository, self.cache, folder, sms=tuple(map(Sm, sms)), report=quiet
        )
        return folder

    def describe(self, repository: str, **facts: Any) -> None:
        """Say more of a repository in sources.yaml, or something else."""
        file = self.root / "buildcfg" / "sources.yaml"
        described = yaml.safe_load(file.read_text())
        described["repositories"][repository].update(facts)
        file.write_text(yaml.safe_dump(described, sort_keys=False))

    def vanish(self) -> None:
        """Make every upstream unreachable."""
        for upstream in (self.ft, self.cutlass):
            upstream.folder.rename(upstream.folder.with_name(upstream.folder.name + ".gone"))

    def edit_lock(self, old: str, new: str) -> None:
        file = self.config.lock_file
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))


def quiet(message: str) -> None:
    pass


@pytest.fixture(autouse=True)
def git_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's git configuration, and what the machine that serves the upstreams allows."""
    file = tmp_path / "gitconfig"
    file.write_text(
        "[user]\n name = Test\n email = test@example.invalid\n[uploadpack]\n allowFilter = true\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(file))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return file


@pytest.fixture
def world(tmp_path: Path, git_config: Path) -> World:
    ft = Upstream(tmp_path / "upstream" / "ft")
    ft.commit(**{"src__a.cc": "one\ntwo\nthree\n"})
    script = ft.write("run.sh", b"#!/bin/sh\n")
    script.chmod(0o755)
    ft.commit()
    ft.git("tag", "--annotate", "--message=first", "v1")
    cutlass = Upstream(tmp_path / "upstream" / "cutlass")
    cutlass.write("media/big.png", os.urandom(5000))
    cutlass.commit(**{"include__c.h": "c\n", "tools__util__include__u.h": "u\n"})
    made = World(tmp_path, ft, cutlass)
    made.configure()
    return made


def test_the_lock_holds_commit_and_tree_of_what_an_annotated_tag_names(world: World) -> None:
    world.lock()
    locked = world.config.lock.sources["22.12"]["ft"]
    assert locked.commit == world.ft.git("rev-parse", "v1^{commit}")
    assert locked.tree == world.ft.git("rev-parse", "v1^{tree}")
    lock.check_lock(world.config, world.cache, report=quiet)


def test_locking_twice_writes_the_same_file_and_keeps_what_it_does_not_decide(world: World) -> None:
    world.lock()
    file = world.config.lock_file
    file.write_text(
        file.read_text().replace("bases: {}", f'bases: {{ngc: {{"22.12": "sha256:{"a" * 64}"}}}}')
    )
    world.lock()
    first = file.read_text()
    world.lock()
    assert file.read_text() == first
    assert first.startswith("# Written by `invoke lock`")
    assert world.config.lock.bases["ngc"]["22.12"] == f"sha256:{'a' * 64}"


def test_check_lists_every_difference_at_once(world: World) -> None:
    world.lock()
    moved = world.cutlass.commit(include__c="changed\n")
    locked = world.config.lock.sources["22.12"]["ft"]
    world.edit_lock(locked.tree, "f" * 40)
    with pytest.raises(PinError) as refused:
        lock.check_lock(world.config, world.cache, report=quiet)
    assert (
        f"22.12 cutlass commit: the lock has {world.config.lock.sources['22.12']['cutlass'].commit}"
        in str(refused.value)
    )
    assert moved in str(refused.value)
    assert f"22.12 ft tree: the lock has {'f' * 40}, upstream {locked.tree}" in str(refused.value)


def test_a_ref_that_is_not_upstream_is_named(world: World) -> None:
    world.configure(ref="refs/tags/v9")
    with pytest.raises(PinError, match="lacks refs/tags/v9"):
        world.lock()


def test_a_short_ref_is_a_configuration_error(world: World) -> None:
    world.configure(ref="v1")
    with pytest.raises(ConfigError, match="must be a full ref"):
        world.lock()


def test_a_repository_may_lie_beside_the_configuration(world: World) -> None:
    world.configure(url="../upstream/ft")
    world.lock()
    assert (world.export() / "src" / "a.cc").read_text() == "one\ntwo\nthree\n"


def test_a_tree_is_not_written_over_the_files_of_another_one(world: World) -> None:
    world.lock()
    taken = world.export() / "src"
    before = {file.name: file.read_bytes() for file in taken.iterdir()}
    with pytest.raises(ConfigError, match="would be written over files of another repository") as refused:
        fetch.export(world.config, "22.12", "cutlass", world.cache, taken, report=quiet)
    assert refused.value.where == "sources.yaml: repositories.cutlass.path"
    assert {file.name: file.read_bytes() for file in taken.iterdir()} == before


def export_all(world: World, trees: dict[str, Path]) -> None:
    sources = [planned.source(world.config, "22.12", name) for name in trees]
    taking.export_all(sources, trees, world.cache, report=quiet)


def test_a_submodule_is_written_into_the_tree_that_holds_it(world: World, tmp_path: Path) -> None:
    """Named before it, and written side by side with others."""
    world.lock()
    trees = {"cutlass": tmp_path / "written/ft/3rdparty/cutlass", "ft": tmp_path / "written/ft"}
    export_all(world, trees)
    assert (trees["ft"] / "src" / "a.cc").is_file()
    assert any(trees["cutlass"].iterdir())


def test_of_trees_side_by_side_none_is_written_over_files(world: World, tmp_path: Path) -> None:
    world.lock()
    taken = tmp_path / "written/cutlass"
    taken.mkdir(parents=True)
    (taken / "mine").touch()
    trees = {"cutlass": taken, "ft": tmp_path / "written/ft"}
    with pytest.raises(ConfigError, match="would be written over files of another repository"):
        export_all(world, trees)
    assert [file.name for file in taken.iterdir()] == ["mine"]


def test_the_users_umask_does_not_decide_the_modes_of_a_tree(world: World) -> None:
    world.lock()
    before = os.umask(0o077)
    try:
        tree = world.export()
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in (tree, *tree.rglob("*")) if not path.is_symlink()}
    assert modes <= {0o755, 0o644}


def test_what_is_in_the_cache_needs_no_upstream(world: World) -> None:
    world.lock()
    world.fetch()
    world.vanish()
    world.fetch()
    assert (world.export() / "src" / "a.cc").exists()


def test_without_a_pin_nothing_is_fetched(world: World) -> None:
    with pytest.raises(PinError, match=r"ft of release 22\.12 is not in the lock") as refused:
        world.fetch()
    assert refused.value.hint == "invoke lock"


def test_a_lock_made_for_another_ref_is_refused(world: World) -> None:
    world.lock()
    world.configure(ref="refs/heads/main")
    with pytest.raises(PinError, match=r"locked for refs/tags/v1, sources\.yaml has refs/heads/main"):
        world.fetch()


def test_a_tree_that_is_not_the_locked_one_is_refused_with_both_ids(world: World) -> None:
    world.lock()
    tree = world.config.lock.sources["22.12"]["ft"].tree
    world.edit_lock(tree, "f" * 40)
    with pytest.raises(PinError) as refused:
        world.fetch()
    assert tree in str(refused.value)
    assert "f" * 40 in str(refused.value)


def test_a_commit_that_upstream_has_but_the_lock_does_not_mean_is_refused(world: World) -> None:
    world.lock()
    locked = world.config.lock.sources["22.12"]["ft"]
    world.edit_lock(locked.commit, world.ft.git("rev-parse", "v1~1"))
    with pytest.raises(PinError, match=f"the lock has {locked.tree}"):
        world.fetch()


def test_a_commit_that_upstream_does_not_have_is_named(world: World) -> None:
    world.lock()
    world.edit_lock(world.config.lock.sources["22.12"]["ft"].commit, "d" * 40)
    with pytest.raises(PinError, match=f"commit {'d' * 40} of ft cannot be fetched") as refused:
        world.fetch()
    assert "upstream dropped or moved it" in (refused.value.hint or "")
    assert refused.value.exit_code == 5


def test_an_unreachable_upstream_names_the_url_and_what_can_be_done(world: World) -> None:
    world.lock()
    shutil.rmtree(world.cache)
    world.vanish()
    with pytest.raises(PinError) as refused:
        world.fetch()
    assert world.ft.folder.as_uri() in str(refused.value)
    for remedy in ("does not exist", "mirror", "--sources"):
        assert remedy in (refused.value.hint or "")
    with pytest.raises(PinError, match="the refs of ft cannot be resolved"):
        world.lock()


def test_a_mirror_answers_when_upstream_does_not(world: World) -> None:
    mirror = world.root / "mirror"
    shutil.copytree(world.ft.folder, mirror)
    world.configure(mirrors=(mirror.as_uri(),))
    world.lock()
    shutil.rmtree(world.cache)
    shutil.rmtree(world.ft.folder)
    world.fetch()
    world.lock()
    assert (world.export() / "run.sh").exists()


def test_instead_of_in_the_users_git_configuration_counts(world: World, git_config: Path) -> None:
    world.configure(url="https://example.invalid/ft.git")
    with git_config.open("a") as file:
        file.write(f'[url "{world.ft.folder.as_uri()}"]\n insteadOf = https://example.invalid/ft.git\n')
    world.lock()
    assert (world.export() / "run.sh").exists()


def test_a_server_that_serves_no_ids_is_asked_for_the_ref(world: World, git_config: Path) -> None:
    with git_config.open("a") as file:  # version 0 refuses every commit that is not the tip of a ref
        file.write("[protocol]\n version = 0\n")
    fix = world.ft.commit(src__a="fixed\n")
    world.ft.commit(src__a="more\n")
    world.configure(ref=world.ft.git("rev-parse", "v1^{commit}"))
    world.backport(fix)
    world.ft.git("tag", "--delete", "v1")
    world.lock()
    assert (world.export() / "run.sh").exists()


def test_an_exported_tree_is_what_was_committed_whatever_attributes_and_settings_say(
    world: World, git_config: Path
) -> None:
    content = b"$Id$\nunix\nline ends\n"
    world.ft.write(".gitattributes", b"* text eol=crlf ident\nsecret export-ignore\n*.bin filter=none\n")
    world.ft.write("text", content)
    world.ft.write("secret", b"kept\n")
    (world.ft.folder / "link").symlink_to("text")
    world.ft.git("-c", "core.autocrlf=false", "add", "--all")
    world.ft.git("update-index", "--add", "--cacheinfo", f"160000,{'a' * 40},3rdparty/module")
    world.ft.git("commit", "--quiet", "--message=attributes")
    world.configure(ref="refs/heads/main")
    with git_config.open("a") as file:
        file.write("[core]\n autocrlf = true\n eol = crlf\n")
    world.lock()
    out = world.export()
    assert (out / "text").read_bytes() == content
    assert (out / "secret").read_bytes() == b"kept\n"
    assert (out / "link").readlink() == Path("text")
    assert os.access(out / "run.sh", os.X_OK)
    assert not os.access(out / "src" / "a.cc", os.X_OK)
    assert list((out / "3rdparty" / "module").iterdir()) == []
    assert not list(out.glob(".git"))


def test_temporary_files_may_lie_on_another_disk_than_the_cache(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Path("/dev/shm")
    if not os.access(other, os.W_OK) or other.stat().st_dev == world.cache.parent.stat().st_dev:
        pytest.skip("/dev/shm is no other disk")
    world.lock()
    monkeypatch.setattr(tempfile, "tempdir", str(other))
    assert (world.export() / "src" / "a.cc").is_file()


def test_an_export_does_not_depend_on_the_umask(world: World) -> None:
    world.lock()
    old = os.umask(0o077)
    try:
        out = world.export()
    finally:
        os.umask(old)
    assert (out / "src" / "a.cc").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("filters", [True, False])
def test_of_a_sparse_source_only_the_folders_are_exported(
    world: World, git_config: Path, filters: bool
) -> None:
    git_config.write_text(git_config.read_text().replace("true", str(filters).lower()))
    world.lock()
    out = world.export("cutlass")
    assert sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()) == [
        "include/c.h",
        "tools/util/include/u.h",
    ]
    size = sum(f.stat().st_size for f in world.cache.rglob("*.pack"))
    assert filters == (size < 5000)


def test_a_sparse_source_needs_nothing_of_what_it_leaves_out(world: World) -> None:
    blob = world.cutlass.git("rev-parse", "HEAD:media/big.png")
    (world.cutlass.folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    world.lock()
    assert (world.export("cutlass") / "include" / "c.h").exists()


def test_files_that_no_build_reads_are_neither_fetched_nor_exported(world: World) -> None:
    world.describe("cutlass", sparse=[], without=["media/*"])
    blob = world.cutlass.git("rev-parse", "HEAD:media/big.png")
    (world.cutlass.folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    world.lock()
    out = world.export("cutlass")
    assert (out / "include" / "c.h").exists()
    assert not (out / "media").exists()


def test_an_image_gets_the_files_of_its_sms(world: World) -> None:
    files = {70: ["include/*"], 80: ["tools/*"], 86: ["tools/*", "media/*"]}
    world.describe("cutlass", sparse=[], by_sm=files)
    world.lock()

    def folders(*sms: int) -> set[str]:
        return {file.name for file in world.export("cutlass", *sms).iterdir()}

    assert folders(90) == set()
    assert folders(86, 90) == folders(86) == folders(80) == {"tools", "media"}
    assert folders(60) == folders(70) == folders() == {"tools", "media", "include"}


def test_a_sparse_folder_that_the_commit_lacks_is_named(world: World) -> None:
    file = world.root / "buildcfg" / "sources.yaml"
    file.write_text(file.read_text().replace("- include", "- includes"))
    with pytest.raises(PinError, match=r"lacks [0-9a-f]{40} includes"):
        world.lock()


def test_widening_a_sparse_source_fetches_the_rest(world: World) -> None:
    world.lock()
    file = world.root / "buildcfg" / "sources.yaml"
    file.write_text(file.read_text().replace("- include\n", "- include\n    - media\n"))
    assert (world.export("cutlass") / "media" / "big.png").stat().st_size == 5000


def test_what_got_lost_in_the_cache_is_fetched_again(world: World) -> None:
    world.lock()
    for pack in world.cache.rglob("objects/pack/*"):
        pack.unlink()
    assert (world.export() / "run.sh").exists()


def loose(store: Path) -> None:
    """Turn the packs of a store into one file for each object."""
    for pack in list(store.glob("objects/pack/*.pack")):
        content = pack.read_bytes()
        for file in pack.parent.glob(f"{pack.stem}.*"):
            file.unlink()
        command = ["git", "--git-dir", str(store), "unpack-objects", "-q"]
        subprocess.run(command, input=content, check=True)


@pytest.mark.parametrize("name", ["v1:src/a.cc", "v1:src", "v1^{tree}", "v1^{commit}"])
def test_an_object_that_is_not_what_its_name_says_is_refused(world: World, name: str) -> None:
    """Git reads it without complaint."""
    other = world.ft.commit(**{"src__a.cc": "one\nother\nthree\n"})
    world.lock()
    world.ft.git("tag", "--force", "v2", other)
    (store,) = (world.cache / "git").glob("ft-*.git")
    world.configure(ref="refs/heads/main")
    world.lock()
    world.configure()
    world.lock()
    loose(store)

    def file(revision: str) -> Path:
        found = world.ft.git("rev-parse", revision)
        return store / "objects" / found[:2] / found[2:]

    file(name).chmod(0o644)
    file(name).write_bytes(file(name.replace("v1", "v2")).read_bytes())
    with pytest.raises(PinError) as refused:
        world.export()
    assert "is damaged" in str(refused.value) or "does not match the lock" in str(refused.value)
    assert refused.value.exit_code == 5


def test_sources_that_changed_after_they_were_staged_are_staged_anew(
    sample_repositories: Path, tmp_path: Path
) -> None:
    said: list[str] = []

    def stage() -> Path:
        folder, plan = tmp_path / "work", sample_plan()
        folder.mkdir(exist_ok=True)
        context.stage(plan, tmp_path / "cache", folder, report=said.append)
        return folder / "sources" / "ft" / "CMakeLists.txt"

    original = stage().read_text()
    stage().write_text("")
    assert stage().read_text() == original
    assert [line for line in said if "is not as it was staged (ft/CMakeLists.txt)" in line]
    said.clear()
    stage()
    assert said == []


def unused(world: World) -> list[Garbage]:
    """What no pin of ft needs; of a sparse source, trees beside the chosen ones are of no use either."""
    return [found for found in garbage.objects(world.config, world.cache) if "/ft-" in found.name]


def test_objects_that_no_pin_needs_are_removed_and_the_others_stay(world: World) -> None:
    world.lock()
    old = world.ft.git("rev-parse", "v1^{commit}")
    blob = world.ft.git("hash-object", "-w", str(world.ft.write("big", os.urandom(5000))))
    world.ft.commit()
    world.configure(ref="refs/heads/main")
    world.lock()
    world.fetch()
    world.configure()
    world.lock()  # the pin goes back
    (found,) = unused(world)
    assert 5000 < found.size < 10000
    for each in garbage.objects(world.config, world.cache):
        assert each.remove() is None
    assert unused(world) == []
    world.vanish()
    assert (world.export() / "run.sh").exists()
    assert (world.export("cutlass") / "include" / "c.h").exists()
    store = store_of(world.config, "ft", world.cache)
    assert old in store.sizes()
    assert blob not in store.sizes()


def test_a_store_that_another_command_uses_is_left_alone(world: World) -> None:
    world.lock()
    world.ft.commit(**{"src__b.cc": "more"})
    world.configure(ref="refs/heads/main")
    world.lock()
    world.configure()
    world.lock()
    (found,) = unused(world)
    (lock,) = (world.cache / "git").glob("ft-*.lock")
    with FileLock(lock):
        assert found.remove() == "in use"
    assert unused(world) == [found]


def fetching(world: World) -> subprocess.Popen[str]:
    """A process that fetches, so that it can be killed or run twice."""
    return subprocess.Popen(
        [sys.executable, "-m", fetch_program.__name__, str(world.root / "buildcfg"), str(world.cache)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture
def held(world: World) -> Path:
    """A file; while it is there, `slow` transfers do not end."""
    return world.root / "held"


@pytest.fixture
def slow(world: World, held: Path, git_config: Path) -> Path:
    """Makes every transfer take half a second and note itself in the returned file."""
    log = world.root / "transfers"
    hook = world.root / "hook"
    wait = f"while [ -e {held} ]; do sleep 0.1; done; sleep 0.5"
    hook.write_text(f'#!/bin/sh\necho transfer >> {log}\n{wait}\nexec "$@"\n')
    hook.chmod(0o755)
    with git_config.open("a") as file:
        file.write(f"[uploadpack]\n packObjectsHook = {hook}\n")
    return log


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT])
def test_a_fetch_that_was_ended_half_way_is_taken_up(
    world: World, slow: Path, held: Path, sign: signal.Signals
) -> None:
    world.lock()
    shutil.rmtree(world.cache)
    slow.unlink()
    held.touch()  # else a busy machine may end the transfer before the program has the signal
    with fetching(world) as child:
        started = until(lambda: child.poll() is not None or slow.exists())
        child.send_signal(sign)
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=60)
        held.unlink()
        said, _ = child.communicate(timeout=100)
    assert started, said
    assert child.returncode == -sign, said
    store = next((world.cache / "git").glob("ft-*.git"))
    (store / "config.lock").write_text("")  # of an end at an even worse moment
    world.fetch()
    assert (world.export() / "run.sh").exists()
    assert not list(store.glob("incoming-*"))
    assert not list(store.glob("*.lock"))


def test_two_builds_at_once_fetch_once(world: World, slow: Path) -> None:
    world.lock()
    transfers = slow.read_text()  # locking transfers what a build does
    shutil.rmtree(world.cache)
    slow.unlink()
    children = [fetching(world) for _ in range(2)]
    outputs = [child.communicate(timeout=100)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0], outputs
    assert slow.read_text() == transfers
    assert any("waiting for another build" in output for output in outputs)


def test_a_source_and_its_backport_come_in_two_transfers(world: World, slow: Path) -> None:
    world.describe("ft", without=["docs/*"])
    backport_world(world)
    shutil.rmtree(world.cache)
    slow.unlink()
    messages: list[str] = []
    store = store_of(world.config, "ft", world.cache)
    wanted = list(fetch.wanted_objects(world.config, "ft", ["22.12"]))
    store.obtain(wanted, messages.append)
    assert [line.split(" from ")[0] for line in messages] == ["ft: fetching 2 commits"]
    assert slow.read_text().splitlines() == ["transfer"] * 2
    store.obtain(wanted, messages.append)
    assert len(messages) == 1


def test_repositories_are_fetched_side_by_side(world: World, git_config: Path, tmp_path: Path) -> None:
    world.lock()
    shutil.rmtree(world.cache)
    begun = tmp_path / "begun"
    begun.mkdir()
    hook = tmp_path / "hook"
    hook.write_text(
        f"#!/bin/bash\ntouch {begun}/$$\nfor _ in {{1..200}}; do\n"
        f'  if (($(ls {begun} | wc -l) > 1)); then exec "$@"; fi\n  sleep 0.1\ndone\nexit 1\n'
    )
    hook.chmod(0o755)
    with git_config.open("a") as file:
        file.write(f"[uploadpack]\n packObjectsHook = {hook}\n")
    world.fetch()


def test_commits_that_upstream_dropped_are_named_and_no_other(world: World) -> None:
    fix = backport_world(world)
    world.edit_lock(fix, "e" * 40)
    (world.root / "patches/ft/0001-fix.backport").write_text(BACKPORT.format(commit="e" * 40, extra=""))
    shutil.rmtree(world.cache)
    with pytest.raises(PinError, match=f"commit {'e' * 40} of ft cannot be fetched"):
        world.fetch()
    assert (world.export() / "run.sh").exists()


def backport_world(world: World, extra: str = "") -> str:
    fix = world.ft.commit(**{"src__a.cc": "one\nTWO\nthree\n", "docs__a.md": "text\n", "bin": "\0\1\2"})
    world.backport(fix, extra)
    world.lock()
    return fix


def backport_diff(world: World) -> bytes:
    (entry,) = series.read_series(world.config)["ft"]
    return fetch.entry_diff(world.config, entry, world.cache, report=quiet)


def test_a_backports_diff_does_not_depend_on_the_users_settings(world: World, git_config: Path) -> None:
    backport_world(world)
    before = backport_diff(world)
    assert b"--- a/src/a.cc\n+++ b/src/a.cc\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n" in before
    assert b"GIT binary patch" in before
    with git_config.open("a") as file:
        file.write("[diff]\n noprefix = true\n external = false\n context = 9\n algorithm = patience\n")
        file.write("[color]\n ui = always\n")
    assert backport_diff(world) == before


def test_a_backport_takes_only_the_paths_it_names(world: World) -> None:
    backport_world(world, "X-Ftbuild-Paths: src/*.cc\n")
    diff = backport_diff(world)
    assert b"src/a.cc" in diff
    assert b"docs/a.md" not in diff


def test_a_path_of_a_backport_that_matches_nothing_is_refused(world: World) -> None:
    backport_world(world, "X-Ftbuild-Paths: src/*.cc scr/*.cc\n")
    with pytest.raises(PatchError, match=r"scr/\*\.cc matches no file"):
        backport_diff(world)


def test_a_backport_whose_diff_is_not_the_locked_one_is_refused(world: World) -> None:
    fix = backport_world(world)
    locked = world.config.lock.backports["ft"][fix].diff
    world.edit_lock(locked, f"sha256:{'0' * 64}")
    with pytest.raises(PinError, match="does not match the lock"):
        world.fetch()


def test_a_backport_that_was_never_locked_is_refused(world: World) -> None:
    world.lock()
    world.backport(world.ft.commit(new="file\n"))
    with pytest.raises(PinError, match=r"0001-fix\.backport is not in the lock"):
        world.fetch()


def test_the_first_commit_of_a_history_can_be_a_backport(world: World) -> None:
    world.backport(world.ft.git("rev-list", "--max-parents=0", "HEAD"))
    world.lock()
    assert b"new file mode" in backport_diff(world)


def test_a_bundle_replaces_the_network(world: World) -> None:
    backport_world(world)
    file = world.root / "sources.tar"
    write_bundle(world.config, file, world.cache, report=quiet)
    diff = backport_diff(world)
    shutil.rmtree(world.cache)
    world.vanish()
    read_bundle(world.config, file, world.cache, report=quiet)
    world.fetch()
    assert (world.export() / "src" / "a.cc").exists()
    assert (world.export("cutlass") / "include" / "c.h").exists()
    assert backport_diff(world) == diff
    read_bundle(world.config, file, world.cache, report=quiet)
    again = world.root / "again.tar"
    write_bundle(world.config, again, world.cache, report=quiet)  # also out of a cache made from a bundle
    assert again.stat().st_size > 0


def test_a_bundle_and_the_network_share_a_cache(world: World) -> None:
    world.lock()
    file = world.root / "sources.tar"
    write_bundle(world.config, file, world.cache, report=quiet)
    shutil.rmtree(world.cache)
    read_bundle(world.config, file, world.cache, report=quiet)
    backport_world(world)
    world.configure(ref="refs/heads/main")
    world.lock()
    assert (world.export() / "docs" / "a.md").exists()


@pytest.mark.parametrize("damage", ["cut", "foreign", "empty", "absent"])
def test_a_damaged_or_foreign_bundle_is_refused(world: World, damage: str) -> None:
    world.lock()
    file = world.root / "sources.tar"
    write_bundle(world.config, file, world.cache, report=quiet)
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:1500])
    elif damage == "absent":
        file.unlink()
    else:
        file.write_bytes(b"" if damage == "empty" else b"PK" * 4000)
    with pytest.raises(PinError, match=r"not a bundle of sources|does not exist") as refused:
        read_bundle(world.config, file, world.root / "other", report=quiet)
    assert str(file) in str(refused.value)


def test_a_bundle_of_other_pins_is_refused(world: World) -> None:
    world.lock()
    file = world.root / "sources.tar"
    write_bundle(world.config, file, world.cache, report=quiet)
    world.ft.commit(other="file\n")
    world.configure(ref="refs/heads/main")
    world.lock()
    with pytest.raises(PinError, match="no release as this lock pins it"):
        read_bundle(world.config, file, world.root / "other", report=quiet)


def test_a_full_disk_is_named_with_the_space_left(world: World) -> None:
    world.ft.write("large", os.urandom(3_000_000))
    world.ft.commit()
    world.configure(ref="refs/heads/main")
    world.lock()
    small = world.root / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(small)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"needs the right to mount a small disk: {mounted.stderr.decode().strip()}")
    actions: tuple[Callable[[], object], ...] = (
        lambda: fetch.fetch_release(world.config, "22.12", small / "cache", report=quiet),
        lambda: fetch.export(world.config, "22.12", "ft", world.cache, small / "out", report=quiet),
        lambda: write_bundle(world.config, small / "sources.tar", world.cache, report=quiet),
    )
    try:
        for action in actions:
            with pytest.raises(HostError, match="the disk is full") as refused:
                action()
            assert str(small) in str(refused.value)
            for left in small.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_snapshot_is_asked_for_completeness_before_use(world: World) -> None:
    world.lock()
    locked = world.config.lock.sources["22.12"]["cutlass"]
    store = Store(world.cache, "cutlass", [world.cutlass.folder.as_uri()])
    assert store.holds(Snapshot(locked.commit, ("include",)))
    assert not store.holds(Snapshot(locked.commit))


def test_an_optional_source_is_locked_but_only_fetched_when_it_is_asked_for(world: World) -> None:
    file = world.root / "buildcfg" / "sources.yaml"
    described = yaml.safe_load(file.read_text())
    described["releases"]["22.12"]["cutlass"]["optional"] = True
    file.write_text(yaml.safe_dump(described, sort_keys=False))
    world.lock()
    assert "cutlass" in world.config.lock.sources["22.12"]
    shutil.rmtree(world.cache)
    bundle = world.root / "bundle.write_bundle"
    gone = world.cutlass.folder.rename(world.root / "gone")
    world.fetch()
    write_bundle(world.config, bundle, world.cache, report=quiet)
    read_bundle(world.config, bundle, world.root / "other", report=quiet)
    with pytest.raises(PinError, match="cutlass"):
        world.export("cutlass")
    gone.rename(world.cutlass.folder)
    assert (world.export("cutlass") / "include" / "c.h").exists()
