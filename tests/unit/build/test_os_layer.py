"""The operating system of a local base, made by a debootstrap that leaves what the real one leaves."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ftbuild.build import os_layer, packages
from ftbuild.config.debian import DebianPackages, LockedDebian, LockedPackage
from ftbuild.errors import BuildError, HostError
from ftbuild.host import archives
from ftbuild.sources import downloads
from testing import debian

# 1 March 2026 is day 20513.
SNAPSHOT = "20260301T120000Z"
DEBOOTSTRAP = r"""#!/bin/sh
set -eu
eval "mirror=\$$#; root=\$$(($# - 1)); suite=\$$(($# - 2))"
grep -q "^Codename: $suite" "${mirror#file://}/dists/$suite/Release"
mkdir -p "$root/var/lib/dpkg" "$root/var/log" "$root/etc/apt" "$root/debootstrap" "$root/dev"
for deb in "${mirror#file://}"/pool/*.deb; do
    dpkg-deb --extract "$deb" "$root"
    { dpkg-deb --field "$deb"; printf 'Status: install ok installed\n\n'; } >> "$root/var/lib/dpkg/status"
done
cat "$(dirname "$0")/more" >> "$root/var/lib/dpkg/status"
hostname > "$root/etc/hostname"
date +%N | tee "$root/etc/resolv.conf" "$root/var/log/bootstrap.log" "$root/debootstrap/log"
date > "$root/dev/null"
echo "root:*:$(date +1%N):0:99999:7:::" > "$root/etc/shadow"
echo "deb $mirror $suite main" > "$root/etc/apt/sources.list"
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store of downloads; the fake debootstrap comes first in PATH."""
    if lacking := [name for name in ("dpkg-deb", "dpkg-query") if shutil.which(name) is None]:
        pytest.skip(f"needs {', '.join(lacking)}")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "debootstrap").write_text(DEBOOTSTRAP)
    (programs / "debootstrap").chmod(0o755)
    (programs / "more").touch()
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    return tmp_path / "cache"


@pytest.fixture
def locked(cache: Path, tmp_path: Path) -> LockedDebian:
    """A lock of two packages that are in the store."""
    system = []
    for name, version in (("bash", "5.2-1"), ("libc", "1:2.36-9+deb12u1")):
        content, _ = debian.build(tmp_path, name, version, files={f"usr/share/{name}": name})
        file, sha256 = tmp_path / f"{name}.deb", hashlib.sha256(content).hexdigest()
        file.write_bytes(content)
        downloads.adopt(file, sha256, cache)
        path = f"pool/main/{name}_{version.rpartition(':')[2]}_amd64.deb"
        system.append(
            LockedPackage(
                name=name,
                version=version,
                architecture="amd64",
                archive="debian",
                path=path,
                size=len(content),
                sha256=sha256,
            )
        )
    requested = DebianPackages(suite="bookworm", packages={})
    return LockedDebian(snapshot=SNAPSHOT, requested=requested, sets={"os": tuple(map(str, system))})


def made(
    locked: LockedDebian, cache: Path, folder: Path
) -> tuple[dict[str, Any], dict[str, tarfile.TarInfo]]:
    """Make the image; return its manifest and the entries of its layer."""
    folder.mkdir()
    with os_layer.image(locked, "amd64", cache, folder).open("rb") as image:
        archives.unpack(image, folder)
    (manifest,) = json.loads((folder / "manifest.json").read_text())
    with tarfile.open(folder / "layer.tar") as layer:
        return manifest, {entry.name: entry for entry in layer}


def test_the_same_lock_gives_the_same_image(locked: LockedDebian, cache: Path, tmp_path: Path) -> None:
    one, entries = made(locked, cache, tmp_path / "one")
    other, _ = made(locked, cache, tmp_path / "other")
    assert one == other
    config = json.loads((tmp_path / "one" / one["Config"]).read_text())
    layer = hashlib.sha256((tmp_path / "one/layer.tar").read_bytes()).hexdigest()
    assert config["rootfs"]["diff_ids"] == [f"sha256:{layer}"]
    assert config["created"] == "2026-03-01T12:00:00Z"
    assert config["config"]["Labels"] == {"io.ftbuild.snapshot": SNAPSHOT}
    assert {entry.mtime <= locked.time.timestamp() for entry in entries.values()} == {True}
    assert entries.keys() & {"./etc/hostname", "./dev/null", "./debootstrap"} == set()
    # BuildKit mounts its own over them; without them it would change /etc in every step.
    assert [entries[file].size for file in ("./etc/hosts", "./etc/resolv.conf")] == [0, 0]
    assert "./usr/share/bash" in entries


def test_the_image_names_the_archive_and_no_day_of_its_own(
    locked: LockedDebian, cache: Path, tmp_path: Path
) -> None:
    made(locked, cache, tmp_path / "image")
    with tarfile.open(tmp_path / "image/layer.tar") as layer:
        shadow, sources = (
            stream.read().decode()
            for name in ("./etc/shadow", "./etc/apt/sources.list")
            if (stream := layer.extractfile(name))
        )
    assert shadow == "root:*:20513:0:99999:7:::\n"
    assert sources.splitlines() == [
        "deb http://deb.debian.org/debian bookworm main",
        "deb http://deb.debian.org/debian bookworm-updates main",
        "deb http://security.debian.org/debian-security bookworm-security main",
    ]


def test_files_that_images_do_without_are_in_no_layer(
    locked: LockedDebian, cache: Path, tmp_path: Path
) -> None:
    requested = locked.requested.model_copy(update={"without_files": ("/usr/*/bash", "/nowhere/*")})
    less = locked.model_copy(update={"requested": requested})
    made(less, cache, tmp_path / "image")
    with tarfile.open(tmp_path / "image/layer.tar") as layer:
        names = layer.getnames()
        settings = layer.extractfile("./etc/dpkg/dpkg.cfg.d/without")
        assert settings is not None
        assert settings.read().decode() == "path-exclude=/usr/*/bash\npath-exclude=/nowhere/*\n"
    assert "./usr/share/bash" not in names
    assert "./usr/share/libc" in names
    assert os_layer.name(less) != os_layer.name(locked)


def test_another_package_than_the_locked_ones_is_refused(
    locked: LockedDebian, cache: Path, tmp_path: Path
) -> None:
    more = "Package: usrmerge\nVersion: 35\nArchitecture: all\nMaintainer: X <x@example.invalid>\n"
    (tmp_path / "bin/more").write_text(f"{more}Description: x\nStatus: install ok installed\n\n")
    with pytest.raises(BuildError, match="in addition: usrmerge 35 all"):
        made(locked, cache, tmp_path / "image")


def test_the_name_of_the_image_follows_from_its_packages_and_where_it_finds_more(
    locked: LockedDebian,
) -> None:
    less = locked.model_copy(update={"sets": {"os": locked.sets["os"][:1]}})
    later = locked.model_copy(update={"snapshot": "20270301T120000Z"})
    requested = locked.requested.model_copy(update={"components": ("main", "contrib")})
    elsewhere = locked.model_copy(update={"requested": requested})
    assert len({os_layer.name(lock) for lock in (locked, less, later, elsewhere)}) == 4
    serving = locked.model_copy(update={"sets": {**locked.sets, "serving": locked.sets["os"][:1]}})
    assert os_layer.name(serving) == os_layer.name(locked)


def test_a_machine_that_cannot_make_it_says_what_else_would_do(
    locked: LockedDebian, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from docker.errors import ImageNotFound

    def none(_: str) -> None:
        raise ImageNotFound("none")

    monkeypatch.setenv("PATH", str(tmp_path))
    empty: Any = SimpleNamespace(images=SimpleNamespace(get=none))
    with pytest.raises(HostError, match="cannot be made here: debootstrap is not installed") as refused:
        os_layer.ensure(empty, locked, "amd64", None, cache)
    assert "by digest in bases.yaml" in str(refused.value)


@pytest.mark.parametrize(("emulated", "said"), [(False, "runs no programs of arm64"), (True, "needs root")])
def test_the_system_of_another_processor_needs_an_emulator(
    emulated: bool,
    said: str,
    locked: LockedDebian,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from docker.errors import ImageNotFound

    def none(_: str) -> None:
        raise ImageNotFound("none")

    program = tmp_path / "debootstrap"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(os_layer, "EMULATORS", tmp_path)
    if emulated:
        (tmp_path / "qemu-aarch64").touch()
    empty: Any = SimpleNamespace(images=SimpleNamespace(get=none))
    with pytest.raises(HostError, match=said):
        os_layer.ensure(empty, locked, "arm64", None, cache)


def test_the_context_has_the_files_of_each_set_and_what_is_installed_afterwards(
    locked: LockedDebian, cache: Path, tmp_path: Path
) -> None:
    bash, libc = locked.sets["os"]
    split = locked.model_copy(update={"sets": {"os": (libc,), "serving": (bash,)}})
    packages.stage(split, cache, tmp_path / "debian")
    assert sorted(p.relative_to(tmp_path).as_posix() for p in (tmp_path / "debian").rglob("*.*")) == [
        "debian/compile/installed.txt",
        "debian/devel/installed.txt",
        "debian/serving/bash_5.2-1_amd64.deb",
        "debian/serving/installed.txt",
        "debian/unpack/installed.txt",
    ]
    both = "bash 5.2-1 amd64\nlibc 1:2.36-9+deb12u1 amd64\n"
    assert (tmp_path / "debian/devel/installed.txt").read_text() == both
    assert (tmp_path / "debian/unpack/installed.txt").read_text() == "libc 1:2.36-9+deb12u1 amd64\n"


def test_the_context_stands_for_what_images_do_without_and_what_is_made_on_them(
    locked: LockedDebian, cache: Path, tmp_path: Path
) -> None:
    bash, libc = locked.sets["os"]
    update = {"sets": {"os": (libc,), "serving": (bash,)}, "without": {"viewer": "2:5.0-1"}}
    packages.stage(locked.model_copy(update=update), cache, tmp_path / "debian")
    (control,) = (tmp_path / "debian").glob("*/*.control")
    assert control == tmp_path / "debian/serving/without.control"
    assert "Provides: viewer (= 2:5.0-1)" in control.read_text().splitlines()
    lists = {file.parent.name: file.read_text() for file in (tmp_path / "debian").glob("*/installed.txt")}
    having = {name for name, text in lists.items() if "ftbuild-without 1 all\n" in text}
    assert having == {"serving", "devel"}
    # A run that found nothing to do without leaves none of an earlier one.
    packages.stage(locked.model_copy(update={"sets": {"os": (libc,)}}), cache, tmp_path / "debian")
    assert not list((tmp_path / "debian").glob("*/*.control"))
