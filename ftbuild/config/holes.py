"""Schema of holes.yaml: known holes of what images bring along, and what each means for a version of it.

Only what no public database covers by package and version: these databases know Debian and PyPI, but not the
servers of Triton, whose holes NVIDIA announces in bulletins.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from packageurl import PackageURL
from packaging.version import Version
from pydantic import Field

from ftbuild.config.types import Day, Model, Name, Shape, Text, VersionText

FILE = "holes.yaml"
CRITICAL = 9.0  # CVSS v3.1, 5: the qualitative scale
Status = Literal["affected", "not_affected", "fixed"]
# OpenVEX v0.2.0, "Status Justifications".
Justification = Literal[
    "component_not_present",
    "vulnerable_code_not_present",
    "vulnerable_code_not_in_execute_path",
    "vulnerable_code_cannot_be_controlled_by_adversary",
    "inline_mitigations_already_exist",
]
Bases = Literal["local", "registry", "any"]


def _purl(text: str) -> None:
    if PackageURL.from_string(text).version:
        raise ValueError(f"must be a package URL without a version, not {text!r}")


HoleId = Annotated[str, Shape(r"[A-Z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)+", "an id such as CVE-2025-23310", 60)]
PatchPath = Annotated[
    str, Shape(r"[a-z-]+/[0-9]{4}-[A-Za-z0-9.-]+", "a patch such as server/0120-body-limit.patch", 200)
]
Purl = Annotated[str, Shape(r"pkg:\S+", "a package URL such as pkg:pypi/numpy", check=_purl)]


class Bulletin(Model):
    """Where holes were announced, or closed without a word about a hole, or found by us."""

    name: Text = Field(description="its title")
    date: Day = Field(description="of the revision that was read")
    url: Text = Field(description="where it can be read")


class Component(Model):
    """Something in images that has holes, found in them by its package URL."""

    name: Text = Field(description="for messages and tables")
    purl: Purl = Field(description="package URL without a version")
    versions: Mapping[VersionText, VersionText] = Field(
        default={}, description="version as the bulletins write it -> its own; empty: they write its own"
    )
    source: Text = Field(description="where `versions` stand")
    advice: Text = Field(description="what to do about a hole while there is no fix")


class Exemption(Model):
    """Bases on which a hole does not exist, and why."""

    bases: Bases = Field(description="local: built here; registry: somebody's image")
    justification: Justification = Field(description="of VEX (OpenVEX 0.2.0)")
    reason: Text = Field(description="why, for readers")


class Hole(Model):
    """One hole of one component, in versions from `introduced` up to, but not with, `fixed`."""

    component: Name = Field(description="key of `components`: what has it")
    bulletin: Name = Field(description="key of `bulletins`: what tells of it")
    score: float = Field(
        ge=0, le=10, description="CVSS v3 base score, from the bulletin; ours, whose vector `checked` has"
    )
    what: Text = Field(description="in our own words")
    introduced: VersionText | None = Field(default=None, description="null: in all earlier versions")
    fixed: VersionText | None = Field(default=None, description="null: in no version")
    cured_by: tuple[PatchPath, ...] = Field(
        default=(), description="patches, as component/file; an image with one of them does not have the hole"
    )
    not_affected: tuple[Exemption, ...] = Field(default=(), description="bases whose images do not have it")
    advice: Text | None = Field(default=None, description="null: the component's")
    checked: Text | None = Field(
        default=None,
        description="what we found in the code ourselves; null: versions are the bulletin's word alone",
    )


class HolesConfig(Model):
    """holes.yaml: known holes, and the day up to which bulletins were read."""

    known: Day = Field(default="1970-01-01", description="the newest bulletins that were looked for")
    bulletins: Mapping[Name, Bulletin] = Field(default={}, description="what was read")
    components: Mapping[Name, Component] = Field(default={}, description="what can have holes")
    holes: Mapping[HoleId, Hole] = Field(default={}, description="by CVE or our own FTBUILD number")


@dataclass(frozen=True)
class Statement:
    """What a hole means for a version of a component in an image; `purl` names both.

    `text` is the reason of `not_affected` or `fixed`, and what to do about `affected`.
    """

    id: str
    purl: str
    status: Status
    justification: Justification | None
    text: str
    notes: str
    score: float
    what: str
    url: str
    fixed: str

    @property
    def critical(self) -> bool:
        """Whether its base score is in the highest class."""
        return self.score >= CRITICAL


@dataclass(frozen=True)
class Known:
    """The statements about an image, the worst holes first, and the day up to which bulletins were read."""

    day: str = "1970-01-01"
    statements: tuple[Statement, ...] = ()

    def open(self) -> tuple[Statement, ...]:
        """Return the holes that the image has."""
        return tuple(each for each in self.statements if each.status == "affected")


def known(
    config: HolesConfig, contents: Mapping[str, str], *, local: bool, patches: Collection[str] = ()
) -> Known:
    """Return what is known of an image.

    `contents` are package URLs without a version -> version, `local` is whether its base is built here,
    `patches` are those that it was compiled with, as `component/file`. A version that is none (PEP 440)
    counts as affected, since nothing speaks for the opposite.
    """
    found = sorted(_statements(config, contents, local, patches), key=lambda each: (-each.score, each.id))
    return Known(config.known, tuple(found))


def _statements(
    config: HolesConfig, contents: Mapping[str, str], local: bool, patches: Collection[str]
) -> Iterator[Statement]:
    for name, hole in config.holes.items():
        component, bulletin = config.components[hole.component], config.bulletins[hole.bulletin]
        if version := contents.get(component.purl):
            status, justification, text = _status(hole, component, version, local, patches)
            read = hole.checked or "not looked for in the code"
            yield Statement(
                name,
                _purl_at(component.purl, version),
                status,
                justification,
                text,
                f"{bulletin.name} of {bulletin.date}; {read}",
                hole.score,
                hole.what,
                bulletin.url,
                _own(component, hole.fixed),
            )


def _status(
    hole: Hole, component: Component, version: str, local: bool, patches: Collection[str]
) -> tuple[Status, Justification | None, str]:
    fixed, introduced = _own(component, hole.fixed), _own(component, hole.introduced)
    if fixed and _reaches(version, fixed):
        return "fixed", None, f"{component.name} {hole.fixed} ({fixed}) has the fix"
    if introduced and _reaches(version, introduced) is False:
        reason = f"it came with {component.name} {hole.introduced} ({introduced})"
        return "not_affected", "vulnerable_code_not_present", reason
    if cures := [patch for patch in hole.cured_by if patch in patches]:
        return "fixed", None, f"compiled with {' and '.join(cures)}"
    for exemption in hole.not_affected:
        if exemption.bases in ("any", "local" if local else "registry"):
            return "not_affected", exemption.justification, exemption.reason
    cure = f"{component.name} {hole.fixed} ({fixed}) has the fix" if fixed else "no version has a fix"
    return "affected", None, f"{hole.advice or component.advice}; {cure}"


def _own(component: Component, written: str | None) -> str:
    return component.versions.get(written, written) if written else ""


@functools.cache
def _purl_at(purl: str, version: str) -> str:
    return PackageURL.from_string(purl)._replace(version=version).to_string()


@functools.cache
def _reaches(version: str, bound: str) -> bool | None:
    """Return whether `version` is at least `bound`; None where it cannot be told."""
    try:
        return Version(version) >= Version(bound)
    except ValueError:
        return None
