"""The contents of an image: the script that lists them, its parser, and rules for a serving image.

An image is judged by what it adds to a base from a registry, which cannot be fixed here; on a base of our own
it is judged as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ftbuild.errors import VerifyError

# `-xdev` leaves out /proc, /sys and /dev, which the engine mounts. A key or password shows only in a file's
# text, whatever its name is: small texts are read, as binaries hold the words of formats that they read;
# grep's code 1 (no line found) is not a failure. find does not know capabilities, Python or getcap does.
LISTING = """\
find / -xdev -printf 'file %y %m %U %G %p\\n'
sed 's/^/user /' /etc/passwd
sed 's/^/group /' /etc/group
{
  find / -xdev -type f '(' \
    '(' -name '*.pem' -o -name '*.key' ')' -exec grep -ls -e 'PRIVATE KEY-----' {} + , \
    -size -128k -exec grep -lsIE -e '^-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY( BLOCK)?-----' {} + , \
    '(' -name pip.conf -o -name .pypirc -o -name auth.conf ')' \
    -exec grep -lsiE -e '://[^/@[:space:]]+:[^/@[:space:]]+@|password' {} + ')' || true
  find /etc /root /home /opt /usr/local/etc -xdev -type f -size -128k \
    -exec grep -lsIE -e '://[^/@:[:space:]]+:[^/@[:space:]]+@' {} + 2> /dev/null || true
} | sort -u | sed 's/^/secret /'
if command -v python3 > /dev/null; then
  find / -xdev -type f -print0 | python3 -I -c '
import os, sys
for path in sys.stdin.buffer.read().split(b"\\0")[:-1]:
    try:
        if "security.capability" in os.listxattr(path, follow_symlinks=False):
            sys.stdout.buffer.write(b"capable " + path + b"\\n")
    except OSError:
        pass
'
elif command -v getcap > /dev/null; then
  getcap -r / 2> /dev/null | sed 's/ =\\{0,1\\} *[a-z_,]*[=+].*$//; s/^/capable /'
fi
"""
_HINT = (
    "run the listing in the image by hand (LISTING, ftbuild/gates/verify/filesystem.py): a name with a line "
    "break must go, and find, sed and grep must be there"
)
SETUID = 0o6000
WORLD_WRITABLE = 0o002
STICKY = 0o1000
NOBODY = 65534
# Programs of Debian 12's packages login, passwd, mount, libpam-modules-bin and openssh-client.
DEBIAN_SETUID: Mapping[str, int] = {
    "/usr/bin/chage": 0o2755,
    "/usr/bin/chfn": 0o4755,
    "/usr/bin/chsh": 0o4755,
    "/usr/bin/expiry": 0o2755,
    "/usr/bin/gpasswd": 0o4755,
    "/usr/bin/mount": 0o4755,
    "/usr/bin/newgrp": 0o4755,
    "/usr/bin/passwd": 0o4755,
    "/usr/bin/ssh-agent": 0o2755,
    "/usr/bin/su": 0o4755,
    "/usr/bin/umount": 0o4755,
    "/usr/sbin/unix_chkpwd": 0o2755,
}
_ENTRY = re.compile(r"file ([a-zA-Z]) ([0-7]+) (\d+) (\d+) (/.*)", re.ASCII)
# passwd(5), group(5)
_NAME = re.compile(r"(user|group) ([^:]+):[^:]*:(\d+):.*", re.ASCII)
_SECRET = re.compile(r"secret (/.+)")
_CAPABLE = re.compile(r"capable (/.+)")
# `pip` installs what requirements name by version; test keys of such a package are not our credentials.
_PACKAGES = re.compile(r".*/(?:dist|site)-packages/")


@dataclass(frozen=True)
class File:
    """One entry of the file system. `kind` as in find(1): f file, d folder, l link; `mode` are its bits."""

    path: str
    kind: str
    mode: int
    uid: int
    gid: int


@dataclass(frozen=True)
class Contents:
    """All files of an image by path, ids of users and groups by name.

    `secrets` are files that hold a key or password, `capable` those with capabilities (capabilities(7)).
    """

    files: Mapping[str, File]
    users: Mapping[str, int]
    groups: Mapping[str, int]
    secrets: tuple[str, ...] = ()
    capable: tuple[str, ...] = ()

    def is_folder(self, path: str) -> bool:
        """Return whether the path is a folder, or a link, which may lead to one."""
        return path in self.files and self.files[path].kind in "dl"


@dataclass(frozen=True)
class Leftover:
    """Something that a serving image must not hold: a pattern on whole paths."""

    what: str
    path: re.Pattern[str]


_TOOLS = r"gcc|g\+\+|cc|c\+\+|clang|clang\+\+|nvcc|cicc|ptxas|cmake|ninja|ccache|make|as|ld(?:\.bfd|\.gold)?"
LEFTOVERS = tuple(
    Leftover(what, re.compile(pattern))
    for what, pattern in (
        ("compiler or build tool", rf".*/s?bin/(?:[\w.-]+-)?(?:{_TOOLS})(?:-[\d.]+)?"),
        ("compiler or build tool", r".*/(?:cc1|cc1plus|collect2|lto1)"),
        ("ssh server", r".*/s?bin/sshd"),
        ("package list or archive", r"/var/lib/apt/lists/.*(?:Packages|Sources|Release)[^/]*"),
        ("package list or archive", r"/var/cache/apt/.*\.(?:deb|bin)"),
        ("cache", r".*/\.(?:cache|ccache)/.+|/(?:ccache|pip|apt)/.+"),
        ("build tree", r"/(?:src|build|out|steps|recipe)/.+"),
        ("credential", r".*/\.(?:netrc|git-credentials|npmrc|docker/config\.json|aws/credentials)"),
        ("credential", r".*/(?:\.ssh/.+|id_(?:rsa|dsa|ecdsa|ed25519)|host\.env)"),
        ("build secret", r"/run/secrets/.+"),
        ("certificate", r"/usr/local/share/ca-certificates/.+|/etc/(?:ssl/certs|pki)/.+"),
    )
)


def parse(text: str) -> Contents:
    """Parse the output of LISTING.

    Raises VerifyError for a line that it does not understand and for a listing without files, users or
    groups: what cannot be read may hide anything.
    """
    files: dict[str, File] = {}
    names: dict[str, dict[str, int]] = {"user": {}, "group": {}}
    secrets, capable = [], []
    for line in text.removesuffix("\n").split("\n"):
        if match := _ENTRY.fullmatch(line):
            files[match[5]] = File(match[5], match[1], int(match[2], 8), int(match[3]), int(match[4]))
        elif match := _NAME.fullmatch(line):
            names[match[1]][match[2]] = int(match[3])
        elif match := _SECRET.fullmatch(line):
            secrets.append(match[1])
        elif match := _CAPABLE.fullmatch(line):
            capable.append(match[1])
        else:
            raise VerifyError(f"a line of the image's listing is not understood: {line[:200]!r}", hint=_HINT)
    if "/" not in files or not all(names.values()):
        raise VerifyError("the image's listing lacks files, users or groups", hint=_HINT)
    return Contents(files, names["user"], names["group"], tuple(secrets), tuple(capable))


def leftovers(image: Contents, base: Contents) -> Iterator[str]:
    """Yield what the image must not hold and its base does not hold, as `what: path`."""
    for path, file in image.files.items():
        if path not in base.files and file.kind != "d":
            yield from (f"{rule.what}: {path}" for rule in LEFTOVERS if rule.path.fullmatch(path))
    for path in image.secrets:
        if path not in base.secrets and not _PACKAGES.match(path):
            yield f"key or password: {path}"


def brought_by_base(base: Contents) -> list[str]:
    """Return the kinds of left-overs that the base itself holds, for the record."""
    return sorted({rule.what for rule in LEFTOVERS for path in base.files if rule.path.fullmatch(path)})


def unknown_owners(image: Contents, base: Contents) -> Iterator[str]:
    """Yield files whose owner or group is `nobody` or unknown to the image, unless the base has them so."""
    for file in _changed(image, base):
        unknown = file.uid not in image.users.values() or file.gid not in image.groups.values()
        if unknown or NOBODY in (file.uid, file.gid):
            yield f"{file.path} (owner {file.uid}:{file.gid})"


def setuid(
    image: Contents, base: Contents, *, known: Mapping[str, int] = MappingProxyType({})
) -> Iterator[str]:
    """Return programs that run with their owner's or group's rights, unless the base has them so.

    `known` are modes by path that are right on any base.
    """
    for file in _changed(image, base):
        if file.kind == "f" and file.mode & SETUID and known.get(file.path) != file.mode:
            yield f"{file.path} (mode {file.mode:o})"


def capable(image: Contents, base: Contents) -> list[str]:
    """Return programs that get rights of root's by capabilities, unless the base has them so."""
    return [path for path in image.capable if path not in base.capable]


def open_to_all(files: Iterable[File]) -> Iterator[str]:
    """Yield world-writable files and folders, except sticky folders such as /tmp."""
    for file in files:
        if file.kind in "fd" and file.mode & WORLD_WRITABLE and not file.mode & STICKY:
            yield f"{file.path} (mode {file.mode:o})"


def world_writable(image: Contents, base: Contents) -> Iterator[str]:
    """Return world-writable files and folders, unless the base has them so."""
    return open_to_all(_changed(image, base))


def _changed(image: Contents, base: Contents) -> Iterator[File]:
    """Return every file that the base does not have with the same kind, mode and owner."""
    return (file for path, file in image.files.items() if base.files.get(path) != file)
