"""Libraries that wheels bring along: auditwheel puts them beside the package, under names with a hash.

Neither dpkg nor pip lists them, yet they are OpenSSL, curl and others with holes of their own. The name of
a file has the version of its interface, not its release (libcurl.so.4.7.0 is curl 7.81.0). So a release is
stated only where the library itself tells it, or where its project is known to number both alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

# `libcurl-17fa0db4.so.4.7.0`, `libldap-2-d0d387bd.5.so.0.1.9`: a stem, 8 digits of the file's sha256, and
# the rest of the old name (auditwheel, repair.py, `copylib`).
_NAME = re.compile(
    r"(?P<stem>.+?)-[0-9a-f]{8}(?P<more>(?:\.[0-9A-Za-z]+)*)\.so(?P<version>(?:\.[0-9A-Za-z]+)*)"
)
_GLOB = f"*-{'[0-9a-f]' * 8}*.so*"
# Project by the stem of its library. Of others the stem is the name.
_PROJECTS = {
    "libbrotlicommon": "brotli",
    "libbrotlidec": "brotli",
    "libbrotlienc": "brotli",
    "libbz2": "bzip2",
    "libcrypto": "openssl",
    "libcurl": "curl",
    "libgssapi_krb5": "krb5",
    "libhogweed": "nettle",
    "libicudata": "icu",
    "libicuuc": "icu",
    "libk5crypto": "krb5",
    "libkeyutils": "keyutils",
    "libkrb5": "krb5",
    "libkrb5support": "krb5",
    "liblber-2.4": "openldap",
    "liblber-2.5": "openldap",
    "libldap-2.4": "openldap",
    "libldap-2.5": "openldap",
    "liblz4": "lz4",
    "liblzma": "xz",
    "libnettle": "nettle",
    "libnghttp2": "nghttp2",
    "libre2": "re2",
    "libsasl2": "cyrus-sasl",
    "libssl": "openssl",
    "libz": "zlib",
    "libzstd": "zstd",
}
# How a library tells its release, by its stem: seen in the libraries of the wheel nvidia-pytriton 0.3.1.
_TOLD: Mapping[str, str] = {
    "libarchive": r"libarchive (\d+\.\d+\.\d+)",
    "libbz2": r"(\d+\.\d+\.\d+), \d+-\w+-\d{4}",
    "libcrypto": r"OpenSSL (\d+\.\d+\.\d+[a-z]*) +\d+ \w+ \d{4}",
    "libcurl": r"CLIENT libcurl (\d+\.\d+\.\d+)",
    "libgmp": r"\0(\d+\.\d+\.\d+)\0",
    "libkeyutils": r"keyutils-(\d+(?:\.\d+)+)\0",
    "libnghttp2": r"\0(\d+\.\d+\.\d+)\0",
    "libpsl": r"\0(\d+\.\d+\.\d+) \(",
    "libsasl2": r"\0(\d+\.\d+\.\d+)\0",
    "libssh": r"SSH-2\.0-libssh_(\d+\.\d+\.\d+)",
    "libtasn1": r"\0(\d+\.\d+(?:\.\d+)?)\0",
    "libz": r"deflate (\d+\.\d+(?:\.\d+)*) Copyright",
}
# Their interface has the number of the release, once it has so many parts.
_NUMBERED_ALIKE: Mapping[str, int] = {
    "libcudart": 3,
    "libdcgm": 3,
    "libicudata": 2,
    "libicuuc": 2,
    "liblz4": 3,
    "liblzma": 3,
    "libxml2": 3,
    "libz": 3,
    "libzstd": 3,
}

# Python of an inventory's script: a line `bundled`, tab, JSON for each file. Expects `json` and `subprocess`.
SCRIPT = f"""\
import hashlib, os, re
told = {json.dumps(_TOLD)}
find = ["find", "/", "-xdev", "-type", "f", "-name", {_GLOB!r}, "-print0"]
found = subprocess.run(find, stdout=subprocess.PIPE).stdout
for path in sorted(found.decode("utf-8", "replace").split("\\0")[:-1]):
    name = re.fullmatch({_NAME.pattern!r}, os.path.basename(path))
    if name:
        with open(path, "rb") as file:
            content = file.read()
        pattern = told.get(name["stem"])
        texts = set(re.findall(pattern.encode(), content)) if pattern else ()
        fields = {{"path": path, "sha256": hashlib.sha256(content).hexdigest()}}
        fields["told"] = sorted(text.decode() for text in texts)
        print("bundled", json.dumps(fields), sep="\\t")
"""


@dataclass(frozen=True)
class BundledLibrary:
    """A library of a wheel. `version` is that of the project's release; empty where it cannot be told."""

    project: str
    version: str
    path: str
    sha256: str

    @property
    def folder(self) -> str:
        """The folder that holds it."""
        return str(PurePosixPath(self.path).parent)


def parse(rows: Sequence[str]) -> Iterator[BundledLibrary]:
    """Yield the libraries of SCRIPT's lines, each without its first word."""
    for row in rows:
        fields = json.loads(row)
        name = _NAME.fullmatch(PurePosixPath(fields["path"]).name)
        if name:
            stem = name["stem"] + name["more"]
            project = _PROJECTS.get(stem, stem)
            yield BundledLibrary(
                project, _release(stem, name["version"], fields["told"]), fields["path"], fields["sha256"]
            )


def _release(stem: str, interface: str, told: Sequence[str]) -> str:
    """Return the release, if the library tells exactly one, or its interface has the same number."""
    if len(told) == 1:
        return told[0]
    if interface.count(".") == _NUMBERED_ALIKE.get(stem):
        return interface.removeprefix(".")
    return ""
