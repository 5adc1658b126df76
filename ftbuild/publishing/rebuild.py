"""A published image built again: from its provenance, here, without anything of before, and compared.

Whoever gets an image can believe its publisher, or do this. What comes out is a statement (in-toto) about the
index of the image, which is attached to it beside the others, signed by who has built it again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field

from ftbuild import __version__, features, matrix
from ftbuild.build import base, buildable, definitions
from ftbuild.build.machine import Host
from ftbuild.build.run import BuildOptions, host_settings, require_room, stage
from ftbuild.config.schema import Config
from ftbuild.engine import buildx, daemon
from ftbuild.errors import ConfigError, PublishError
from ftbuild.host import files
from ftbuild.plan import PRODUCTS, Plan, Revision
from ftbuild.planning import make_plan
from ftbuild.publishing import differences, remote_image
from ftbuild.publishing.attest import materials, provenance
from ftbuild.publishing.differences import Compared
from ftbuild.publishing.remote_image import RemoteImage
from ftbuild.publishing.signing import Signer
from ftbuild.registry import answers
from ftbuild.registry.client import Repository, digest_of
from ftbuild.text import bounded_json
from ftbuild.text.reporter import Reporter

if TYPE_CHECKING:
    import docker

PREDICATE = f"{materials.NAMES}/rebuild/v1"
RECORD = "rebuild.json"
FOLDER = "rebuilds"
Word = Annotated[str, Field(pattern=r"^[!-~]{1,300}$")]


class _Revision(BaseModel):
    revision: Word = ""
    uri: Annotated[str, Field(pattern=r"^[ -~]{0,1000}$")] = ""


class _External(BaseModel):
    cell: Word = ""
    triton: Word
    sms: Annotated[tuple[int, ...], Field(min_length=1, max_length=100)]
    base: Word
    product: Literal["runtime", "sdk"]
    image: Word
    config: _Revision = _Revision()


class _Internal(BaseModel):
    key: Word
    compilerCache: str = ""  # noqa: N815
    substitutedFrom: str = ""  # noqa: N815


class _Definition(BaseModel):
    buildType: Word  # noqa: N815
    externalParameters: _External  # noqa: N815
    internalParameters: _Internal  # noqa: N815


class _Predicate(BaseModel):
    buildDefinition: _Definition  # noqa: N815


@dataclass(frozen=True)
class Published:
    """A published image and what its provenance says of its build."""

    repository: Repository
    digest: str
    image: RemoteImage
    said: _Definition
    provenance: str

    @property
    def name(self) -> str:
        """`repository@digest`."""
        return f"{self.repository.name}@{self.digest}"


@dataclass(frozen=True)
class Rebuilt:
    """The outcome: what was compared, and the predicate of the statement about it."""

    plan: Plan
    product: str
    compared: Compared
    predicate: Mapping[str, Any]
    record: Path


def read(name: str) -> Published:
    """Return a published image of the name `repository@digest`, with its provenance.

    Raises ConfigError for another name, PublishError for what ftbuild has not published, or if the registry
    refuses.
    """
    place, _, digest = name.partition("@")
    if not place or ":" in place.rpartition("/")[2] or not answers.DIGEST.fullmatch(digest):
        raise ConfigError(
            f"an image is named by its digest, not {name}",
            hint="NAME@sha256:..., without a tag; invoke which and INDEX.md have the digests",
        )
    repository = Repository(place)
    found = remote_image.read(repository, digest)
    if found is None:
        raise PublishError("the registry has no such image", where=name)
    for text in remote_image.statements(repository, found):
        if provenance.is_about(text, found.image.descriptor.digest):
            said = _definition(text)
            if said and said.buildType.startswith(f"{materials.NAMES}/recipe/"):
                return Published(repository, digest, found, said, digest_of(text))
    raise PublishError(
        "the image has no provenance of ftbuild",
        where=name,
        hint="name the index that was published, by digest",
    )


def _definition(text: bytes) -> _Definition | None:
    try:
        predicate = json.dumps(bounded_json.loads(text)["predicate"]).encode()
        return bounded_json.model(_Predicate, predicate).buildDefinition
    except (bounded_json.Unfit, ValueError, LookupError, TypeError):
        return None


def plan(config: Config, published: Published) -> Plan:
    """Return the plan of this checkout that gives the published image.

    Raises ConfigError if this checkout makes another one of that cell.
    """
    said = published.said.externalParameters
    labels = published.repository.config(published.image.image).labels
    chosen = matrix.select(
        config,
        triton=[said.triton],
        sms=[",".join(map(str, said.sms))],
        bases=[said.base],
        left_out=features.split_id(said.cell)[1],
    )
    prefix = "org.opencontainers.image"
    revision = Revision(
        labels.get(f"{prefix}.revision") or said.config.revision,
        labels.get(f"{prefix}.created", ""),
        labels.get(f"{prefix}.source", ""),
    )
    made = replace(make_plan(config, chosen[0], revision), image=said.image)
    wanted = published.said.internalParameters.key
    if made.key != wanted:
        raise ConfigError(
            f"this checkout makes {made.cell.id}-{made.key} of that cell, and the image is {wanted}",
            where=published.name,
            hint=f"git checkout {revision.commit}, the revision that it was built from, and try again",
        )
    return made


@dataclass(frozen=True)
class Again:
    """The second build of one image: a name of its own, and nothing that was built or compiled before.

    With `cached`, the engine's layers and objects may be used.
    """

    plan: Plan
    product: str
    client: docker.DockerClient
    host: Host
    options: BuildOptions
    cached: bool
    report: Reporter
    name: str = "this rebuild"
    prefix: str = ""

    @property
    def folder(self) -> Path:
        """Return the folder of the second build."""
        return self.plan.folder(self.options.work / FOLDER)

    @property
    def tag(self) -> str:
        """Return the local name of the image."""
        name, _, tag = self.plan.tag(self.product).rpartition(":")
        return f"{name}:rebuilt-{tag}"

    def is_made(self) -> bool:
        """Return False: what is there was not built by this command."""
        return False

    def prepare(self) -> None:
        """Make the base."""
        options = self.options
        base.ensure(self.client, self.plan, self.host, options.work, options.cache, report=self.report)
        require_room(self.plan, options, f"building {self.plan.cell.id} again")

    def stage(self) -> Mapping[str, object]:
        """Stage the inputs of the cell; return the bake file of the one image."""
        stage(self.plan, self.options, self.folder, self.report)
        target = {**definitions.image(self.plan, self.product, self.host), "tags": [self.tag]}
        if not self.cached:
            target["no-cache"] = True
        return definitions.bake_file({definitions.target_name(self.plan, self.product): target})


def rebuild(
    made: Plan, published: Published, options: BuildOptions, *, cached: bool = False, report: Reporter = print
) -> Rebuilt:
    """Build a published image again, compare, and write the predicate into the folder of the second build.

    Errors as those of a build, and PublishError if the registry refuses.
    """
    product = published.said.externalParameters.product
    assert product in PRODUCTS
    client = daemon.connect()
    buildx.version()
    host = replace(host_settings(client, options), recompile=not cached)
    again = Again(made, product, client, host, options, cached, report)
    with daemon.replacing(client, again.tag):
        buildable.ensure(again, host, report=report)
    report("comparing")
    with TemporaryDirectory(prefix="compare-", dir=again.folder) as scratch:
        found = differences.compare(published.repository, published.image, client, again.tag, Path(scratch))
    predicate = _predicate(published, made, found, client, cached=cached)
    record = again.folder / f"{product}-{RECORD}"
    files.write_atomic(record, json.dumps(predicate, indent=2) + "\n")
    if found.is_equal:  # another one is left for who wants to look into it
        client.images.remove(again.tag)
    return Rebuilt(made, product, found, predicate, record)


def attach(rebuilt: Rebuilt, published: Published, signer: Signer, report: Reporter) -> None:
    """Sign a statement about the published index, and attach it to that; PublishError if cosign cannot."""
    report(f"signing and attaching the statement to {published.name}")
    signer.attest(published.name, PREDICATE, rebuilt.record, report)


def _predicate(
    published: Published, made: Plan, found: Compared, client: docker.DockerClient, *, cached: bool
) -> dict[str, Any]:
    version = client.version()
    return {
        "verdict": "equal" if found.is_equal else "different",
        "image": {"name": published.name, "manifest": published.image.image.descriptor.digest},
        "provenance": {"digest": dict([published.provenance.split(":", 1)])},
        "cell": made.cell.id,
        "key": made.key,
        "revision": made.revision.commit,
        "layers": [{"equal": equal} for equal in found.layers],
        "files": [
            {"layer": each.layer, "path": each.path, "differs": each.what} for each in found.files[:1000]
        ],
        "configuration": list(found.settings),
        "rebuilder": {
            "ftbuild": __version__,
            "engine": f"{version.get('Version', '')}, {version.get('Os', '')}/{version.get('Arch', '')}",
            "usedCaches": cached,
        },
        "finishedOn": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    }
