"""The lock of Debian packages, with a real apt and a small archive."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ftbuild.audit import debian as audit
from ftbuild.config.debian import DebianLock, DebianPackages, LockedDebian, LockedPackage
from ftbuild.config.loader import load
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError, HostError, PinError
from ftbuild.host import shell
from ftbuild.host.shell import CommandFailed
from ftbuild.sources import downloads
from ftbuild.sources.debian import apt, archive, left_out, lock, pinned
from testing import ROOT, debian
from testing import web as server
from testing.debian import Archive

LIBRARY = LockedPackage(
    name="library", version="1.0-1", architecture="all", archive="debian",
    path="pool/main/l/library/library_1.0-1_all.deb", size=8, sha256="ab" * 32,
)  # fmt: skip
WANTED = DebianPackages(suite=debian.SUITE, packages={"serving": ("server",), "devel": ("compiler",)})
LOCKED = LockedDebian(snapshot="20260228T230000Z", requested=WANTED, sets={"os": (str(LIBRARY),)})


def quiet(_: str) -> None:
    pass


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Archive]:
    """An archive with a system of three packages, a server and a compiler; the library has an update."""
    if lacking := debian.missing():
        pytest.skip(f"needs {', '.join(lacking)}")
    with server.serving() as web, debian.archive(web) as made:
        made.add("libc", "1:2.0-1", "Priority: optional")
        made.add("shell", "1.0", "Priority: required", "Essential: yes", "Depends: libc")
        made.add("apt", "2.0", "Priority: important", "Depends: libc")
        made.add("library", "1.0-1", "Depends: libc")
        made.add("library", "1.0-1+deb12u1", "Depends: libc", archive="debian-security")
        made.add("server", "3.0", "Depends: library", "Recommends: editor")
        made.add("compiler", "11.0", "Depends: library, libc")
        made.add("editor", "9.0")
        made.publish()
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
def folder(config_folder: Path) -> Path:
    """A configuration whose open base asks for WANTED, without a lock."""
    (config_folder / "debian.lock.yaml").unlink()
    return config_folder


def configured(folder: Path, wanted: DebianPackages = WANTED) -> Config:
    config = load(folder)
    base = config.bases.bases["open"]
    assert base.local is not None
    base = base.model_copy(update={"local": base.local.model_copy(update={"debian": wanted})})
    return replace(config, bases=config.bases.model_copy(update={"bases": {"open": base}}))


def versions(locked: LockedDebian) -> dict[str, dict[str, str]]:
    return {name: {p.name: p.version for p in locked.packages(name)} for name in locked.sets}


def test_each_set_is_what_apt_adds_to_the_one_below_with_security_updates(
    mirror: Archive, folder: Path
) -> None:
    config = configured(folder)
    lock.write(config, report=quiet)
    locked = pinned.locked(configured(folder), "open")
    assert versions(locked) == {
        "os": {"apt": "2.0", "libc": "1:2.0-1", "shell": "1.0"},
        "serving": {"library": "1.0-1+deb12u1", "server": "3.0"},
        "devel": {"compiler": "11.0"},
    }
    (library,) = (p for p in locked.packages("serving") if p.name == "library")
    assert (library.archive, library.architecture) == ("debian-security", "amd64")
    assert library.path == "pool/updates/main/library_1.0-1+deb12u1_amd64.deb"
    assert [p.name for p in locked.installed("devel")] == [
        "apt", "libc", "shell", "library", "server", "compiler",
    ]  # fmt: skip
    assert datetime.now(UTC) - locked.time < timedelta(minutes=5)


def test_images_do_without_packages_and_what_only_those_need(mirror: Archive, folder: Path) -> None:
    mirror.add("viewer", "2:5.0-1", "Depends: toolkit")
    mirror.add("toolkit", "6.0", "Depends: libc")
    mirror.add("server", "4.0", "Depends: library, viewer (>= 2:5)")
    mirror.add("compiler", "12.0", "Depends: server (= 4.0), libc")
    mirror.publish()
    reported: list[str] = []
    wanted = WANTED.model_copy(update={"without": ("viewer", "editor")})
    lock.write(configured(folder, wanted), report=reported.append)
    locked = pinned.locked(configured(folder, wanted), "open")
    assert versions(locked) == {
        "os": {"apt": "2.0", "libc": "1:2.0-1", "shell": "1.0"},
        "serving": {"library": "1.0-1+deb12u1", "server": "4.0"},
        "devel": {"compiler": "12.0"},
    }
    assert locked.without == {"viewer": "2:5.0-1"}
    assert any("nothing in the image depends on editor" in line for line in reported)
    with pytest.raises(PinError, match=r"locked for other Debian packages than bases\.yaml names"):
        pinned.locked(configured(folder), "open")


def test_dpkg_takes_the_package_that_stands_for_those_left_out(tmp_path: Path) -> None:
    if lacking := debian.missing():
        pytest.skip(f"needs {', '.join(lacking)}")
    control = tmp_path / "without/DEBIAN/control"
    control.parent.mkdir(parents=True)
    control.write_text(left_out.control({"viewer": "2:5.0-1", "editor": "9.0"}))
    shell.run(["dpkg-deb", "--build", str(tmp_path / "without"), str(tmp_path / "without.deb")])
    provides = shell.run(["dpkg-deb", "--field", str(tmp_path / "without.deb"), "Provides"]).stdout
    assert provides == "editor (= 9.0), viewer (= 2:5.0-1)\n"
    assert left_out.status({}) == ""


# Compressed, in bytes. What is larger is named in bases.yaml, or one of these.
LARGE = 2_500_000
LARGE_DEPENDENCIES = {"coreutils", "libc6", "libgrpc29t64", "libssl3t64"}


@pytest.mark.parametrize("name", sorted(load(ROOT / "buildcfg").debian_lock.bases))
def test_no_large_package_comes_into_an_image_without_being_asked_for(name: str) -> None:
    locked = load(ROOT / "buildcfg").debian_lock.bases[name]
    large = {package.name for package in locked.installed("serving") if package.size > LARGE}
    assert large <= {*locked.requested.packages["serving"], *LARGE_DEPENDENCIES}
    assert {*locked.without} == {*locked.requested.without}


GUARDS = ("APT::Get::Download-Only", "Dir::Bin::dpkg", "DPkg::Chroot-Directory")


@pytest.mark.parametrize("alone", [None, *GUARDS])
def test_apt_installs_nothing_on_this_machine_even_without_its_option(
    mirror: Archive, alone: str | None
) -> None:
    """Each of the guards holds alone, too; the package is empty, and no distribution has its name."""
    name = "ftbuild-tests-package-without-files"
    mirror.add(name, "1.0")
    mirror.publish()
    with apt.indexes(WANTED, "amd64", report=quiet) as opened:
        file = Path(opened.run("apt-config", "dump", "--format", "%v%n", "Dir").split("\n")[0], "apt.conf")
        settings = file.read_text()
        assert all(guard in settings for guard in GUARDS)
        if alone:
            kept = [line for line in settings.splitlines() if line.split(" ")[0] not in {*GUARDS} - {alone}]
            file.write_text("\n".join(kept) + "\n")
        if alone in (None, "APT::Get::Download-Only"):
            opened.run("apt-get", "-qq", "install", name)
        else:
            with pytest.raises(CommandFailed):
                opened.run("apt-get", "-qq", "install", name)
    status = shell.run(["dpkg-query", "--show", name], check=False)
    assert status.code, status.stdout


def test_the_lock_follows_the_architecture_of_the_base(mirror: Archive, folder: Path) -> None:
    lock.write(configured(folder), report=quiet)
    config = configured(folder)
    base = config.bases.bases["open"].model_copy(update={"architecture": "arm64"})
    moved = replace(config, bases=config.bases.model_copy(update={"bases": {"open": base}}))
    with pytest.raises(PinError, match=r"base open is locked for amd64, which bases\.yaml does not name"):
        pinned.locked(moved, "open")

    mirror.architecture, mirror.packages = "arm64", {name: [] for name in mirror.packages}
    for name in ("libc", "shell", "apt", "library", "server", "compiler"):
        mirror.add(name, "1.0", *(["Priority: required"] if name == "shell" else []))
    mirror.publish()
    lock.write(moved, report=quiet)
    made = load(folder).debian_lock.bases["open"]
    assert made.architectures == {"arm64"}
    assert pinned.locked(replace(moved, debian_lock=load(folder).debian_lock), "open") == made


def test_a_system_has_usr_is_merged_only_where_its_packages_ask_for_a_merged_usr(
    mirror: Archive, folder: Path
) -> None:
    """debootstrap does not install it in the releases after bookworm, where no package asks."""
    mirror.add("usr-is-merged", "35")
    mirror.publish()
    lock.write(configured(folder), report=quiet)
    assert "usr-is-merged" not in versions(pinned.locked(configured(folder), "open"))["os"]
    mirror.add("init", "1.0", "Priority: required", "Depends: usrmerge | usr-is-merged")
    mirror.publish()
    lock.write(configured(folder), upgrade=True, report=quiet)
    assert "usr-is-merged" in versions(pinned.locked(configured(folder), "open"))["os"]


def test_a_year_later_the_lock_and_what_is_downloaded_are_the_same(
    mirror: Archive, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock.write(configured(folder), report=quiet)
    file, locked = folder / "debian.lock.yaml", pinned.locked(configured(folder), "open")
    before = file.read_text()
    kept = {path: content for path, content in mirror.web.contents.items() if path.endswith(".deb")}
    mirror.drop("library")
    mirror.add("library", "1.0-1+deb12u9", "Depends: libc", archive="debian-security")
    mirror.add("server", "4.0", "Depends: library")
    mirror.publish()
    monkeypatch.setattr(archive, "now", lambda: "20271122T000000Z")

    lock.write(configured(folder), report=quiet)
    assert file.read_text() == before
    assert pinned.locked(configured(folder), "open") == locked

    # Mirrors drop old versions; the snapshots keep them.
    for name in ("debian", "debian-security"):
        root = f"/snapshots/{name}/{locked.snapshot}"
        for path, content in kept.items():
            mirror.web.add(root + path[path.index("/pool") :], content)
    monkeypatch.setattr(archive, "SNAPSHOTS", f"{mirror.web.url}/snapshots")
    monkeypatch.setattr(
        archive, "MIRRORS", {name: (variable, "") for name, (variable, _) in archive.MIRRORS.items()}
    )
    found = downloads.fetch_all(archive.downloads(locked), tmp_path / "cache", quiet)
    assert found.keys() == {p.sha256 for p in locked.every()}

    lock.write(configured(folder), upgrade=True, report=quiet)
    newer = pinned.locked(configured(folder), "open")
    assert newer.snapshot == "20271122T000000Z"
    assert versions(newer)["serving"] == {"library": "1.0-1+deb12u9", "server": "4.0"}


def test_moving_forward_says_what_has_changed(mirror: Archive, folder: Path) -> None:
    lock.write(configured(folder), report=quiet)
    mirror.add("server", "4.0", "Depends: library, helper")
    mirror.add("helper", "1")
    mirror.publish()
    said: list[str] = []
    lock.write(configured(folder), upgrade=True, report=said.append)
    assert said[-2:] == ["base open: helper none -> 1", "base open: server 3.0 -> 4.0"]


def test_a_base_that_asks_for_more_is_resolved_again(mirror: Archive, folder: Path) -> None:
    lock.write(configured(folder), report=quiet)
    more = WANTED.model_copy(update={"packages": {**WANTED.packages, "unpack": ("editor",)}})
    with pytest.raises(PinError, match="base open is locked for other Debian packages") as refused:
        pinned.locked(configured(folder, more), "open")
    assert refused.value.hint == "invoke lock"
    lock.write(configured(folder, more), report=quiet)
    assert versions(pinned.locked(configured(folder, more), "open"))["unpack"] == {"editor": "9.0"}


def test_a_lock_keeps_bases_of_others_only_where_a_link_shares_it(
    mirror: Archive, folder: Path, tmp_path: Path
) -> None:
    file, shared = folder / "debian.lock.yaml", tmp_path / "shared.lock.yaml"
    shared.write_text(lock.text(DebianLock(bases={"other": LOCKED})))
    file.symlink_to(shared)
    lock.write(configured(folder), report=quiet)
    made = load(folder).debian_lock.bases
    assert (set(made), made["other"]) == ({"open", "other"}, LOCKED)
    file.unlink()
    shared.rename(file)
    lock.write(configured(folder), report=quiet)
    assert set(load(folder).debian_lock.bases) == {"open"}


def test_an_index_without_a_signature_of_the_keys_is_refused(mirror: Archive, folder: Path) -> None:
    mirror.publish(signed=False)
    with pytest.raises(HostError, match="package indexes cannot be read") as refused:
        lock.write(configured(folder), report=quiet)
    assert "is not signed" in str(refused.value)
    assert not (folder / "debian.lock.yaml").exists()


def test_an_index_that_has_expired_is_refused_unless_it_is_of_a_snapshot(
    mirror: Archive, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror, or whoever is on the way to it, could hold security updates back for ever."""
    mirror.publish(expired=True)
    with pytest.raises(HostError, match="indexes cannot be read") as refused:
        lock.write(configured(folder), report=quiet)
    assert "expired" in str(refused.value)
    snapshot = "/snapshot/20251105T000000Z"
    for path, content in list(mirror.web.contents.items()):
        mirror.web.add(snapshot + path, content)
    for name, value in mirror.environment.items():
        if name != "DEBIAN_KEYRING":
            monkeypatch.setenv(name, value.replace(mirror.web.url, mirror.web.url + snapshot))
    lock.write(configured(folder), report=quiet)
    assert pinned.locked(configured(folder), "open").snapshot == "20251105T000000Z"


def test_a_package_that_no_archive_has_is_named(mirror: Archive, folder: Path) -> None:
    wanted = DebianPackages(suite=debian.SUITE, packages={"serving": ("sevrer",)})
    with pytest.raises(PinError, match="Unable to locate package sevrer"):
        lock.write(configured(folder, wanted), report=quiet)


def test_missing_keys_are_named_with_their_package(
    mirror: Archive, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEBIAN_KEYRING", str(folder / "none.gpg"))
    with pytest.raises(HostError, match="the keys of Debian's archive") as refused:
        lock.write(configured(folder), report=quiet)
    assert "debian-archive-keyring" in str(refused.value)


def test_a_machine_without_apt_says_where_it_works(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="apt-get is not installed") as refused:
        lock.write(configured(folder), report=quiet)
    assert "in a container of Debian" in str(refused.value)


def test_the_audit_names_the_security_updates_that_the_lock_lacks(mirror: Archive, folder: Path) -> None:
    lock.write(configured(folder), report=quiet)
    config = configured(folder)

    def audited() -> dict[str, tuple[str, str]]:
        return {found.check: (found.state, found.detail) for found in audit.ask(config, quiet)()}

    assert audited()["debian open: security updates"] == ("ok", "the lock has them all")
    mirror.add("library", "1.0-1+deb12u10", archive="debian-security")
    mirror.add("library", "1.0-1+deb12u9", archive="debian-security")
    mirror.add("editor", "10.0", archive="debian-security")
    mirror.add("shell", "0.9", archive="debian-security")
    mirror.publish()
    state, detail = audited()["debian open: security updates"]
    assert state == "warn"
    assert "lacks 1: library 1.0-1+deb12u1 -> 1.0-1+deb12u10; invoke lock --upgrade" in detail
    assert audited()["debian open: age of the lock"][0] == "ok"
    mirror.publish(signed=False)
    state, detail = audited()["debian open: security updates"]
    assert (state, detail.partition(": ")[0]) == ("warn", "cannot be looked up")
    assert "next: " not in detail, "the hint is for who locks, not for the audit"
    assert audited()["debian open: age of the lock"][0] == "ok"


@pytest.mark.parametrize(("days", "state"), [(0, "ok"), (89, "ok"), (90, "warn"), (400, "warn")])
def test_the_audit_warns_of_an_old_lock(config: Config, days: int, state: str) -> None:
    locked = pinned.locked(config, "open")
    found = audit.age("open", locked, locked.time + timedelta(days=days, hours=1))
    assert found.state == state
    assert found.detail.startswith(f"{days} days: the archive of {locked.time:%Y-%m-%d}")
    assert found.detail.endswith(f"{locked.time:%Y-%m-%d}") is (state == "ok")


def test_the_audit_fails_where_the_lock_has_no_packages(folder: Path) -> None:
    (found,) = audit.ask(configured(folder), quiet)()
    assert (found.check, found.state) == ("debian open", "fail")
    assert "invoke lock" in found.detail


def test_a_file_is_asked_for_at_the_mirror_and_then_at_the_snapshots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = replace(LIBRARY, archive="debian-security")
    monkeypatch.delenv("DEBIAN_SECURITY_MIRROR", raising=False)
    snapshots = [
        f"http://snapshot.debian.org/archive/debian-security/{time}/{package.path}"
        for time in ("20260228T230000Z", "20260301T230000Z")
    ]
    usual = f"http://security.debian.org/debian-security/{package.path}"
    assert list(archive.urls(package, LOCKED)) == [usual, *snapshots]
    monkeypatch.setenv("DEBIAN_SECURITY_MIRROR", "https://mirror.example/security/")
    first = f"https://mirror.example/security/{package.path}"
    assert list(archive.urls(package, LOCKED)) == [first, usual, *snapshots]


def test_a_snapshot_as_mirror_dates_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEBIAN_MIRROR", "http://snapshot.example/archive/debian/20260101T000000Z/")
    monkeypatch.setenv("DEBIAN_SECURITY_MIRROR", "http://snapshot.example/archive/x/20260102T000000Z")
    assert archive.now() == "20260102T000000Z"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("library 1.0", "../library 1.0"),
        ("library 1.0", "library 1/0"),
        ("library 1.0", "library"),
        (" pool/main", " pool/../main"),
        (" pool/main", " /pool/main"),
        (" abab", " aba"),
        (" 8 ", " 0 "),
        (" debian ", " ubuntu "),
        (" all ", " riscv64 "),
    ],
)
def test_a_lock_that_names_no_file_of_the_archive_is_refused(config_folder: Path, old: str, new: str) -> None:
    file = config_folder / "debian.lock.yaml"
    text = lock.text(DebianLock(bases={"open": LOCKED}))
    assert old in text
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError, match=r"debian\.lock\.yaml:\d+: bases\.open\.sets\.os\.0"):
        load(config_folder)


def test_the_lock_in_the_repository_is_as_it_is_written(config: Config) -> None:
    assert lock.text(config.debian_lock) == config.debian_lock_file.read_text()
    assert json.dumps(config.debian_lock.model_dump(mode="json"))


def test_both_configurations_share_the_lock_and_the_packages_of_the_samples_bases(config: Config) -> None:
    sample = load(config.folder / "sample")
    assert sample.debian_lock_file == config.debian_lock_file
    assert pinned.requested(sample).items() <= pinned.requested(config).items()
    pinned.check(sample)
