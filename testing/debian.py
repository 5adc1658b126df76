"""A small Debian archive on a web server: main and security, signed with a key of its own."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from testing.web import Web

SUITE = "bookworm"
PROGRAMS = ("apt-get", "dpkg-deb", "gpg", "gpgv")
_ROOTS = {"debian": "/debian", "debian-security": "/security"}
_SUITES = {
    "debian": (SUITE, f"{SUITE}-updates"),
    "debian-security": (f"{SUITE}-security",),
}
_HOLDS = {SUITE: "debian", f"{SUITE}-security": "debian-security"}


def missing() -> list[str]:
    """Return which of the programs that the archive needs are not on this machine."""
    return [program for program in PROGRAMS if shutil.which(program) is None]


def build(
    folder: Path,
    name: str,
    version: str,
    *fields: str,
    files: Mapping[str, str] | None = None,
    architecture: str = "amd64",
) -> tuple[bytes, str]:
    """Return a package built below `folder`, with further control fields and files, and its control."""
    root, deb = folder / "package", folder / "package.deb"
    shutil.rmtree(root, ignore_errors=True)
    (root / "DEBIAN").mkdir(parents=True)
    lines = [
        f"Package: {name}",
        f"Version: {version}",
        f"Architecture: {architecture}",
        "Maintainer: Nobody <nobody@example.invalid>",
        *fields,
        "Description: made by a test",
    ]
    control = "\n".join(lines) + "\n"
    (root / "DEBIAN/control").write_text(control)
    for path, content in (files or {}).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    command = ["dpkg-deb", "-Znone", "--root-owner-group", "--build", str(root), str(deb)]
    subprocess.run(command, check=True, capture_output=True)
    return deb.read_bytes(), control


@dataclass
class Archive:
    """Packages by archive, published again after each change."""

    web: Web
    folder: Path
    architecture: str = "amd64"
    packages: dict[str, list[tuple[str, bytes]]] = field(
        default_factory=lambda: {name: [] for name in _ROOTS}
    )

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the variables that lead to it."""
        return {
            "DEBIAN_MIRROR": f"{self.web.url}{_ROOTS['debian']}",
            "DEBIAN_SECURITY_MIRROR": f"{self.web.url}{_ROOTS['debian-security']}",
            "DEBIAN_KEYRING": str(self.folder / "archive.gpg"),
        }

    def add(
        self,
        name: str,
        version: str,
        *fields: str,
        archive: str = "debian",
        files: Mapping[str, str] | None = None,
    ) -> None:
        """Build a package, with further control fields and with files."""
        content_of, control = build(
            self.folder, name, version, *fields, files=files, architecture=self.architecture
        )
        updates = "updates/" if archive != "debian" else ""
        path = f"pool/{updates}main/{name}_{version.split(':')[-1]}_{self.architecture}.deb"
        self.web.add(f"{_ROOTS[archive]}/{path}", content_of)
        place = f"Filename: {path}\nSize: {len(content_of)}\nSHA256: {hashlib.sha256(content_of).hexdigest()}"
        stanza = f"{control}{place}\n\n"
        self.packages[archive].append((name, stanza.encode()))

    def drop(self, name: str) -> None:
        """Take all versions of a package out, as a point release does with older ones."""
        for archive, found in self.packages.items():
            self.packages[archive] = [entry for entry in found if entry[0] != name]
        for path in [path for path in self.web.contents if f"/{name}_" in path]:
            del self.web.contents[path]

    def publish(self, *, signed: bool = True, expired: bool = False) -> None:
        """Write the indexes of all suites, and sign them; expired ones are as a mirror has them that lags."""
        for archive, suites in _SUITES.items():
            for suite in suites:
                held = self.packages[archive] if _HOLDS.get(suite) == archive else []
                self._suite(_ROOTS[archive], suite, [stanza for _, stanza in held], signed, expired)

    def _suite(self, root: str, suite: str, stanzas: Sequence[bytes], signed: bool, expired: bool) -> None:
        content = b"".join(stanzas)
        index = f"main/binary-{self.architecture}/Packages"
        release = (
            f"Origin: Debian\nSuite: {suite}\nCodename: {suite}\n"
            f"Architectures: {self.architecture}\nComponents: main\n"
            "Date: Sat, 01 Nov 2025 00:00:00 UTC\n"
            f"{'Valid-Until: Sat, 08 Nov 2025 00:00:00 UTC' + chr(10) if expired else ''}"
            f"SHA256:\n {hashlib.sha256(content).hexdigest()} {len(content)} {index}\n"
        )
        self.web.add(f"{root}/dists/{suite}/{index}", content)
        for name in ("InRelease", "Release"):
            self.web.contents.pop(f"{root}/dists/{suite}/{name}", None)
        if signed:
            self.web.add(f"{root}/dists/{suite}/InRelease", self._gpg("--clearsign", stdin=release))
        else:
            self.web.add(f"{root}/dists/{suite}/Release", release.encode())

    def _gpg(self, *arguments: str, stdin: str = "") -> bytes:
        home = ["--homedir", str(self.folder / "gpg"), "--batch", "--quiet"]
        return subprocess.run(
            ["gpg", *home, *arguments], input=stdin.encode(), capture_output=True, check=True
        ).stdout

    def make_key(self) -> None:
        """Make the key and export it."""
        (self.folder / "gpg").mkdir(mode=0o700)
        self._gpg("--passphrase", "", "--quick-generate-key", "archive@example.invalid", "ed25519", "sign")
        (self.folder / "archive.gpg").write_bytes(self._gpg("--export"))


@contextmanager
def archive(web: Web) -> Iterator[Archive]:
    """Yield an empty archive. Its folder has a short name: gpg's agent listens on a socket in it."""
    with TemporaryDirectory(prefix="ftb", ignore_cleanup_errors=True) as scratch:
        made = Archive(web, Path(scratch))
        made.make_key()
        try:
            yield made
        finally:
            home = ["--homedir", str(made.folder / "gpg")]
            subprocess.run(["gpgconf", *home, "--kill", "gpg-agent"], check=False, capture_output=True)
