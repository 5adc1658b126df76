"""apt with folders of its own: it resolves packages against Debian's signed indexes, and installs nothing.

Neither the sources, keys and settings of this machine nor its installed packages take part; only its proxy
settings do (apt.conf(5)). It often runs as root, and `apt-get install` is what resolves: so the settings, not
only the option of one call, keep it from installing. It stops after downloads (into its own folder), its dpkg
is a program that refuses, and dpkg would start in a root without any program.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote

from ftbuild.architecture import Architecture
from ftbuild.config.debian import DebianPackages, LockedPackage
from ftbuild.errors import HostError, PinError
from ftbuild.host import shell
from ftbuild.host.redaction import redact
from ftbuild.host.shell import CommandFailed
from ftbuild.sources.debian import archive
from ftbuild.text.reporter import Reporter

KEYRING_VARIABLE = "DEBIAN_KEYRING"
KEYRINGS = tuple(Path(f"/usr/share/keyrings/debian-archive-keyring.{kind}") for kind in ("gpg", "pgp"))
_TIMEOUT_SECONDS = 600.0
_FOLDERS = ("etc/apt.conf.d", "etc/preferences.d", "state/lists/partial", "cache/archives/partial")
_URI = re.compile(r"^'(?P<url>\S+)' (?P<file>\S+)_[^_\s]+\.deb (?P<size>\d+) SHA256:(?P<hash>[0-9a-f]{64})$")
_SETTINGS = """\
Dir "{folder}/";
Dir::State "state";
Dir::State::status "{folder}/status";
Dir::Cache "cache";
Dir::Etc "etc";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Install-Recommends "false";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
APT::Get::Download-Only "true";
Dir::Bin::dpkg "/bin/false";
DPkg::Chroot-Directory "{folder}/root";
Acquire::ForceHash "SHA256";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
"""


class Apt:
    """One apt and the indexes that it has read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, program: str, *arguments: str) -> str:
        """Run `apt-get` or `apt-cache`, and return what it prints."""
        environment = {"APT_CONFIG": str(self._folder / "apt.conf"), "LC_ALL": "C.UTF-8"}
        return shell.run([program, *arguments], env=environment, timeout=_TIMEOUT_SECONDS).stdout

    def available(self) -> Iterator[dict[str, str]]:
        """Yield the fields of every package in the indexes that stand on a line of their own."""
        for stanza in self.run("apt-cache", "dumpavail").split("\n\n"):
            fields = dict(line.split(": ", 1) for line in stanza.splitlines() if re.match(r"[\w-]+: ", line))
            if fields:
                yield fields

    def version(self, name: str) -> str:
        """Return the version of a package that apt would install; PinError where the indexes lack it."""
        try:
            shown = self.run("apt-cache", "show", "--no-all-versions", name)
        except CommandFailed as refused:
            raise PinError(f"Debian's indexes have no package {name}") from refused
        return next(line.removeprefix("Version: ") for line in shown.splitlines() if line[:9] == "Version: ")

    def resolve(self, names: Collection[str], installed: str = "") -> dict[str, LockedPackage]:
        """Return the packages that a system gets with `names`, by name.

        It is empty but for `installed`, entries of dpkg's status file. Raises PinError where apt finds no
        solution.
        """
        status = self._folder / "installed"
        status.write_text(installed)
        options = ["-qq", "--no-install-recommends", "--print-uris", "-o", f"Dir::State::status={status}"]
        try:
            listed = self.run("apt-get", *options, "install", *sorted(names))
            found = [_package(line) for line in listed.splitlines() if line.startswith("'")]
        except (CommandFailed, ValueError) as refused:
            raise PinError(f"apt cannot resolve the packages: {refused}") from refused
        return {package.name: package for package in sorted(found, key=lambda package: package.name)}


@contextmanager
def indexes(
    wanted: DebianPackages,
    architecture: Architecture,
    archives: Sequence[str] = tuple(archive.MIRRORS),
    *,
    report: Reporter,
) -> Iterator[Apt]:
    """Yield an apt that has read the current indexes of a suite, verified by Debian's keys.

    Raises HostError where apt or the keys are missing, or a mirror does not answer as it should.
    """
    keyring = _keyring()
    with TemporaryDirectory(prefix="ftbuild-apt-") as scratch:
        folder = Path(scratch)
        for name in (*_FOLDERS, "root"):
            (folder / name).mkdir(parents=True)
        (folder / "status").touch()
        settings = _SETTINGS.format(folder=folder, architecture=architecture)
        (folder / "apt.conf").write_text(settings + "".join(_proxies()))
        lines = list(_sources(wanted, architecture, archives, keyring))
        (folder / "etc/sources.list").write_text("".join(f"{line}\n" for line in lines))
        apt = Apt(folder)
        mirrors = ", ".join(redact(archive.mirror(name)) for name in archives)
        report(f"Debian {wanted.suite}: reading the indexes of {mirrors}")
        try:
            apt.run("apt-get", "-qq", "update")
        except CommandFailed as failed:
            raise HostError(
                f"Debian's package indexes cannot be read: {failed.what}",
                where=mirrors,
                hint="check network and proxy (invoke doctor); DEBIAN_MIRROR and DEBIAN_SECURITY_MIRROR name "
                f"other mirrors, {KEYRING_VARIABLE} the file with their keys",
            ) from failed
        yield apt


def _sources(
    wanted: DebianPackages, architecture: Architecture, archives: Collection[str], keyring: Path
) -> Iterator[str]:
    suites = {
        "debian": (wanted.suite, f"{wanted.suite}-updates"),
        "debian-security": (f"{wanted.suite}-security",),
    }
    for name in archives:
        url = archive.mirror(name)
        # The index of a snapshot has expired by design; its signature still holds.
        options = f"arch={architecture} signed-by={keyring}" + (
            " check-valid-until=no" if archive.dated(url) else ""
        )
        for suite in suites[name]:
            yield f"deb [{options}] {url} {suite} {' '.join(wanted.components)}"


def _keyring() -> Path:
    if shutil.which("apt-get") is None:
        raise HostError(
            "apt-get is not installed, and only apt resolves Debian packages",
            hint="run this command on Debian or Ubuntu, or in a container of Debian with this checkout",
        )
    named = os.environ.get(KEYRING_VARIABLE)
    keyring = next((path for path in ([Path(named)] if named else KEYRINGS) if path.is_file()), None)
    if keyring is None:
        raise HostError(
            "the keys of Debian's archive are not on this machine",
            where=named or str(KEYRINGS[0]),
            hint=f"install debian-archive-keyring (./bootstrap does), or name a file in {KEYRING_VARIABLE}",
        )
    return keyring.resolve()


def _proxies() -> Iterator[str]:
    """Yield this machine's own settings for downloads over HTTP."""
    for line in shell.run(["apt-config", "dump"]).stdout.splitlines(keepends=True):
        if re.match(r"Acquire::https?::", line):
            yield line


def _package(line: str) -> LockedPackage:
    found = _URI.match(line)
    if found is None:
        raise ValueError(f"apt prints a line of unknown form: {line}")
    url = unquote(found["url"])
    name = next((name for name in archive.MIRRORS if url.startswith(f"{archive.mirror(name)}/")), "")
    package, version = unquote(found["file"]).split("_", 1)
    path = url.removeprefix(f"{archive.mirror(name)}/")
    return LockedPackage(
        name=package,
        version=version,
        architecture=path.rpartition("_")[2].removesuffix(".deb"),
        archive=name,
        size=int(found["size"]),
        sha256=found["hash"],
        path=path,
    )
