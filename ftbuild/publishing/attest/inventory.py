"""The Debian and Python packages of an image, and libraries of wheels: the script that lists them.

The script runs in the image itself, as its own dpkg and Python know their packages better than a scanner that
guesses from file names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from ftbuild.engine import container
from ftbuild.publishing.attest import bundled
from ftbuild.publishing.attest.bundled import BundledLibrary

if TYPE_CHECKING:
    import docker

_LONGEST_LICENCE = 200
_FEW = Field(max_length=50_000, fail_fast=True)

# Only folders of these names are looked at, wherever they lie, since sys.path leaves out those of another
# Python and PYTHONPATH adds our sources.
_PYTHON = """\
import importlib.metadata, json, subprocess
named = ["-name", "site-packages", "-o", "-name", "dist-packages"]
find = ["find", "/", "-xdev", "-type", "d", "(", *named, ")", "-print0"]
found = subprocess.run(find, stdout=subprocess.PIPE).stdout
for folder in sorted(found.decode().split("\\0")[:-1]):
    for distribution in importlib.metadata.distributions(path=[folder]):
        about = distribution.metadata
        fields = {
            "name": about.get("Name"),
            "version": about.get("Version"),
            "licence": about.get("License-Expression") or about.get("License") or "",
            "classifiers": [c for c in about.get_all("Classifier") or [] if c.startswith("License ::")],
            "folder": folder,
        }
        print("python", json.dumps(fields), sep="\\t")
"""
# One line for each fact: kind, tab, then JSON or fields with tabs between them.
SCRIPT = f"""\
sed -n 's/^ID=/os\\tid\\t/p; s/^VERSION_ID=/os\\tversion\\t/p' /etc/os-release 2> /dev/null || true
if command -v dpkg-query > /dev/null; then
    printf 'has\\tdpkg\\n'
    dpkg-query --show --showformat='debian\\t${{db:Status-Abbrev}}\\t${{Package}}\\t${{Version}}\\t\
${{Architecture}}\\t${{source:Package}}\\t${{source:Version}}\\n'
    grep -as '^License: ' /usr/share/doc/*/copyright | sed 's/^/licence\\t/' || true
fi
if command -v python3 > /dev/null; then
    printf 'has\\tpython3\\n'
    python3 -I - <<'EOF'
{_PYTHON}{bundled.SCRIPT}EOF
fi
"""
Rows = dict[str, list[str]]  # by kind: what follows it
_LICENCE = re.compile(r"/usr/share/doc/([^/]+)/copyright:License: (.+)")


@dataclass(frozen=True)
class DebianPackage:
    """An installed package of dpkg, and its source package."""

    name: str
    version: str
    architecture: str
    source: str
    source_version: str
    licences: Annotated[tuple[str, ...], _FEW]


@dataclass(frozen=True)
class PythonPackage:
    """An installed distribution (packaging.python.org, core metadata), and the folder that holds it."""

    name: str
    version: str
    licence: str
    folder: str


@dataclass(frozen=True)
class Inventory:
    """All packages of an image; `missing` are the tools that it lacks, whose packages are not listed."""

    system: str
    system_version: str
    debian: Annotated[tuple[DebianPackage, ...], _FEW]
    python: Annotated[tuple[PythonPackage, ...], _FEW]
    bundled: Annotated[tuple[BundledLibrary, ...], _FEW]
    missing: Annotated[tuple[str, ...], _FEW] = ()


def read(client: docker.DockerClient, image: str) -> Inventory:
    """Read the inventory of an image in one container; ContainerError when the script fails there."""
    return parse(container.run(client, image, SCRIPT, user="0"))


def parse(text: str) -> Inventory:
    """Parse the output of SCRIPT; packages are sorted, so that the same image gives the same inventory."""
    rows: Rows = {}
    for line in text.splitlines():
        kind, _, rest = line.partition("\t")
        rows.setdefault(kind, []).append(rest)
    system = {field: value.strip("\"'") for field, value in (row.split("\t") for row in rows.get("os", []))}
    return Inventory(
        system=system.get("id", ""),
        system_version=system.get("version", ""),
        debian=tuple(sorted(_debian(rows), key=lambda p: (p.name, p.architecture))),
        python=tuple(sorted(set(_python(rows)), key=lambda p: (p.name.lower(), p.version, p.folder))),
        bundled=tuple(sorted(bundled.parse(rows.get("bundled", [])), key=lambda library: library.path)),
        missing=tuple(tool for tool in ("dpkg", "python3") if tool not in rows.get("has", [])),
    )


def _debian(rows: Rows) -> Iterator[DebianPackage]:
    """Yield installed packages; of removed ones dpkg still lists the configuration files."""
    licences: dict[str, set[str]] = {}
    for row in rows.get("licence", []):
        if match := _LICENCE.fullmatch(row):
            licences.setdefault(match[1], set()).add(match[2].strip())
    for row in rows.get("debian", []):
        status, name, version, architecture, source, source_version = row.split("\t")
        if status.startswith("ii"):
            stated = tuple(sorted(licences.get(name, ())))
            yield DebianPackage(name, version, architecture, source, source_version, stated)


def _python(rows: Rows) -> Iterator[PythonPackage]:
    """Yield distributions with a name and a version, which half-removed ones lack."""
    for row in rows.get("python", []):
        fields = json.loads(row)
        if fields["name"] and fields["version"]:
            yield PythonPackage(fields["name"], fields["version"], _licence(fields), fields["folder"])


def _licence(fields: dict[str, object]) -> str:
    """Return a distribution's licence; some put the whole text there, of which the first line is taken."""
    stated = str(fields["licence"]).strip().removeprefix("UNKNOWN")  # what old setuptools wrote for nothing
    classifiers = fields["classifiers"]
    assert isinstance(classifiers, list)
    text = stated.splitlines()[0] if stated else "; ".join(str(c).rpartition(":: ")[2] for c in classifiers)
    return text.strip()[:_LONGEST_LICENCE]
