"""The operating system of a local base: an image that debootstrap makes of the locked packages.

The same lock gives the same bytes: times are the snapshot's, and what a machine leaves in the files (its
name, its resolver, logs) is taken out. So the image has one digest, wherever it is made.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import tarfile
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ftbuild.architecture import MACHINES, Architecture
from ftbuild.build import packages
from ftbuild.config.debian import LockedDebian
from ftbuild.engine import daemon, made
from ftbuild.engine.daemon import PullRefused
from ftbuild.errors import BuildError, HostError
from ftbuild.host import shell
from ftbuild.host.shell import CommandFailed
from ftbuild.input_key import digest_of
from ftbuild.plan import LABELS
from ftbuild.sources import downloads
from ftbuild.sources.debian import archive
from ftbuild.text.reporter import Reporter

if TYPE_CHECKING:
    import docker

# Raised by hand when the layer changes, but no package does.
RECIPE = 2
NAME = "ftbuild-os"
_TIMEOUT_SECONDS = 1800
_DAY_SECONDS = 86400
# Emulators by the names that qemu's packages give them (Linux, Documentation/admin-guide/binfmt-misc.rst).
EMULATORS = Path("/proc/sys/fs/binfmt_misc")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Empty, but there: a builder mounts its own over them; without them it makes and removes them in every step.
_MOUNTED = ("etc/hosts", "etc/resolv.conf")
# What a machine, a moment or a download leaves behind.
_LEFT = (
    "debootstrap",
    "etc/hostname",
    "var/cache/apt/*",
    "var/cache/debconf/*-old",
    "var/cache/ldconfig/aux-cache",
    "var/lib/apt/lists/*",
    "var/lib/dpkg/*-old",
    "var/log/*.log",
    "var/log/apt/*",
)


def name(locked: LockedDebian) -> str:
    """Return the name of the image."""
    packages = [package.sha256 for package in locked.packages("os")]
    # The components are in the system's sources.list.
    content = [RECIPE, locked.snapshot, locked.requested.components, packages]
    # dpkg's configuration leaves them out of every later package, too.
    content += [locked.requested.without_files] if locked.requested.without_files else []
    return f"{NAME}:{locked.requested.suite}-{digest_of(content)}"


def ensure(
    client: docker.DockerClient,
    locked: LockedDebian,
    architecture: Architecture,
    given: str | None,
    cache: Path,
    report: Reporter = print,
) -> str:
    """Return the image of the locked system: present, else made by debootstrap, else `given` by digest.

    Its packages must be in the store. Raises HostError where none of these is possible, BuildError where
    debootstrap fails or installs something else.
    """
    tag = name(locked)
    if present := daemon.image(client, tag):
        if made.is_known(cache, tag, str(present.id)):
            return tag
        report(f"{tag} is another image than the one that was made here: it is made again")
    missing = _missing(architecture)
    if not missing:
        report(f"making Debian {locked.requested.suite} of {locked.snapshot} with debootstrap: {tag}")
        with (
            TemporaryDirectory(prefix="ftbuild-os-") as scratch,
            image(locked, architecture, cache, Path(scratch)).open("rb") as file,
        ):
            client.images.load(file)
        made.note(cache, tag, daemon.require_image(client, tag))
        return tag
    hint = (
        "run ./bootstrap as root, docker load the image from a machine that has it, or name an image of it "
    )
    hint += "by digest in bases.yaml (os_image)"
    if given is None:
        raise HostError(f"the operating system {tag} cannot be made here: {missing}", hint=hint)
    if daemon.image(client, given) is None:
        report(f"{missing}: pulling {given}")
        try:
            daemon.pull(client, given)
        except PullRefused as refused:
            raise HostError(f"{missing}, and {refused.what}", where=given, hint=hint) from refused
    return given


def image(locked: LockedDebian, architecture: Architecture, cache: Path, scratch: Path) -> Path:
    """Make the image below `scratch`, as a file that `docker load` reads."""
    layer = _layer(locked, architecture, cache, scratch)
    with layer.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    created = locked.time.isoformat().replace("+00:00", "Z")
    config = json.dumps(
        {
            "architecture": architecture,
            "config": {
                "Cmd": ["bash"],
                "Env": [f"PATH={_PATH}"],
                "Labels": {f"{LABELS}.snapshot": locked.snapshot},
            },
            "created": created,
            "history": [{"created": created, "created_by": f"debootstrap {locked.requested.suite}"}],
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    named = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": named, "RepoTags": [name(locked)], "Layers": [layer.name]}]
    (scratch / named).write_bytes(config)
    (scratch / "manifest.json").write_text(json.dumps(manifest))
    archived = scratch / "image.tar"
    with tarfile.open(archived, "w") as tar:
        for file in ("manifest.json", named, layer.name):
            tar.add(scratch / file, file)
    return archived


def _missing(architecture: Architecture) -> str:
    """Return what this machine lacks to make a system; "" for nothing."""
    if shutil.which("debootstrap") is None:
        return "debootstrap is not installed"
    machine = MACHINES[architecture]
    if machine != platform.machine() and not (EMULATORS / f"qemu-{machine}").exists():
        return f"this machine runs no programs of {architecture}"
    return "" if os.geteuid() == 0 else "debootstrap needs root"


def _layer(locked: LockedDebian, architecture: Architecture, cache: Path, scratch: Path) -> Path:
    """Install the system and return its files as a tar."""
    root, suite = scratch / "root", locked.requested.suite
    mirror = _repository(locked, architecture, cache, scratch / "repository")
    # Nobody needs half of an image after a power cut; dpkg waits for the disk after each file otherwise.
    settings = root / "etc/dpkg/dpkg.cfg.d"
    settings.mkdir(parents=True)
    (settings / "image").write_text("force-unsafe-io\n")
    if patterns := locked.requested.without_files:
        (settings / "without").write_text("".join(f"path-exclude={pattern}\n" for pattern in patterns))
    epoch = int(locked.time.timestamp())
    environment = {"SOURCE_DATE_EPOCH": str(epoch), "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    options = ["--variant=minbase", "--no-check-gpg", f"--arch={architecture}"]
    try:
        shell.run(
            ["debootstrap", *options, suite, str(root), mirror.as_uri()],
            env=environment,
            timeout=_TIMEOUT_SECONDS,
        )
    except CommandFailed as failed:
        raise BuildError(f"debootstrap failed: {failed.what}", where=failed.where) from failed
    _compare(locked, root)
    _leave_out(locked, root)
    _neutral(locked, root)
    layer = scratch / "layer.tar"
    fixed = ["--sort=name", f"--mtime=@{epoch}", "--clamp-mtime", "--numeric-owner", "--format=gnu"]
    without = [f"--exclude=./{folder}/*" for folder in ("dev", "proc", "run", "sys", "tmp")]
    shell.run(["tar", *fixed, *without, "-C", str(root), "-cf", str(layer), "."], timeout=_TIMEOUT_SECONDS)
    shutil.rmtree(root)
    return layer


def _repository(locked: LockedDebian, architecture: Architecture, cache: Path, folder: Path) -> Path:
    """Make a repository of the system's packages for debootstrap, unsigned: their hashes are checked."""
    system = locked.packages("os")
    pool, index = folder / "pool", folder / f"dists/{locked.requested.suite}/main/binary-{architecture}"
    index.mkdir(parents=True)
    downloads.link_into(pool, [archive.download(package, locked) for package in system], cache)
    stanzas = []
    for package in system:
        fields = shell.run(["dpkg-deb", "--field", str(pool / package.file)]).stdout.strip()
        place = f"Filename: pool/{package.file}\nSize: {package.size}\nSHA256: {package.sha256}"
        stanzas.append(f"{fields}\n{place}\n\n")
    content = "".join(stanzas).encode()
    (index / "Packages").write_bytes(content)
    suite = locked.requested.suite
    (folder / f"dists/{suite}/Release").write_text(
        f"Suite: {suite}\nCodename: {suite}\nArchitectures: {architecture}\nComponents: main\nSHA256:\n"
        f" {hashlib.sha256(content).hexdigest()} {len(content)} main/binary-{architecture}/Packages\n"
    )
    return folder


def _compare(locked: LockedDebian, root: Path) -> None:
    """Raise BuildError unless exactly the locked packages are installed."""
    options = [f"--admindir={root}/var/lib/dpkg", "--show", f"--showformat={packages.FORMAT}"]
    found = set(shell.run(["dpkg-query", *options]).stdout.splitlines())
    wanted = set(packages.listing(locked.packages("os")).splitlines())
    if found != wanted:
        raise BuildError(
            "debootstrap has installed other packages than debian.lock.yaml has: "
            + _difference(sorted(wanted - found), sorted(found - wanted)),
            hint="invoke lock --upgrade",
        )


def _difference(lacking: Sequence[str], more: Sequence[str]) -> str:
    parts = [("lacking", lacking), ("in addition", more)]
    return "; ".join(f"{what}: {', '.join(lines)}" for what, lines in parts if lines)


def _leave_out(locked: LockedDebian, root: Path) -> None:
    """Remove the files that the system does without: debootstrap unpacks packages before dpkg runs.

    The `*` of a pattern matches `/` as well, as in dpkg (fnmatch(3) without flags).
    """
    for path in root.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            continue
        if any(fnmatchcase(f"/{path.relative_to(root)}", each) for each in locked.requested.without_files):
            path.unlink()


def _neutral(locked: LockedDebian, root: Path) -> None:
    """Take this machine and this moment out of the files, and name the archive in apt's sources."""
    for pattern in _LEFT:
        for path in root.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    for mounted in _MOUNTED:
        (root / mounted).unlink(missing_ok=True)
        (root / mounted).touch()
    day = str(int(locked.time.timestamp()) // _DAY_SECONDS)
    for file in (root / "etc/shadow", root / "etc/shadow-"):
        if file.exists():  # the third field is the day of the last change
            rows = [line.split(":") for line in file.read_text().splitlines()]
            file.write_text("".join(":".join([*row[:2], day, *row[3:]]) + "\n" for row in rows))
    suite, components = locked.requested.suite, " ".join(locked.requested.components)
    (root / "etc/apt/sources.list").write_text(
        "".join(
            f"deb {archive.MIRRORS[place][1]} {name} {components}\n"
            for place, name in (
                ("debian", suite),
                ("debian", f"{suite}-updates"),
                ("debian-security", f"{suite}-security"),
            )
        )
    )
