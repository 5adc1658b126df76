"""The build of an image, as SLSA provenance v1 (slsa.dev/spec/v1.0/provenance).

docs/attestations.md describes our build type, and what of it can be relied on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ftbuild import __version__
from ftbuild.build.objects import Taken
from ftbuild.input_key import RECIPE
from ftbuild.plan import Plan
from ftbuild.publishing.attest import materials, purl
from ftbuild.publishing.attest.materials import Base, Commit
from ftbuild.sources.inputs import PlannedPatch, PlannedSource
from ftbuild.text import bounded_json

PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = f"{materials.NAMES}/recipe/v{RECIPE}"
BUILDER = f"{materials.NAMES}/builder"
# What BuildKit writes unless it is asked for v1 (moby/buildkit docs/attestations/slsa-provenance.md).
_BUILDKIT_PREDICATE = "https://slsa.dev/provenance/v0.2"
Resource = dict[str, Any]  # in-toto's ResourceDescriptor


@dataclass(frozen=True)
class Run:
    """The run that built an image, as far as it is known beyond its plan.

    `versions` are those of the tools (docker, buildx), `records` the files that the gates wrote, by name;
    `compiler_cache` is "remote" if objects may come from other machines, `substituted` the published one
    that was taken in place of a build, `objects` what it took of compiled ones. Times are RFC 3339 in UTC,
    and left out when unknown. `builder` is a URI, for example of a CI system's runner.
    """

    versions: Mapping[str, str] = field(default_factory=dict)
    records: Mapping[str, bytes] = field(default_factory=dict)
    compiler_cache: str = ""
    substituted: str = ""
    objects: Taken | None = None
    started: str = ""
    finished: str = ""
    builder: str = BUILDER


def predicate(plan: Plan, product: str, run: Run) -> dict[str, Any]:
    """Return the predicate for one product, a pure function of plan, run and the recipe's files."""
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": _external(plan, product),
            "internalParameters": _internal(plan)
            | _filled({"compilerCache": run.compiler_cache, "substitutedFrom": run.substituted}),
            "resolvedDependencies": [*_dependencies(plan), *_objects(run.objects)],
        },
        "runDetails": {
            "builder": {"id": run.builder, "version": {"ftbuild": __version__, **run.versions}},
            "metadata": _filled(
                {"invocationId": plan.key, "startedOn": run.started, "finishedOn": run.finished}
            ),
            "byproducts": [
                {"name": name, "mediaType": "application/json", "digest": {"sha256": _sha256(content)}}
                for name, content in sorted(run.records.items())
            ],
        },
    }


def from_buildkit(metadata: Any, target: str) -> tuple[str, dict[str, Any]] | None:
    """Return type and predicate that BuildKit wrote for a target into bake's metadata file, or None.

    buildx does since 0.14, for builders that keep provenance (docker/buildx docs/reference/buildx_bake.md,
    `--metadata-file`).
    """
    built = metadata.get(target) if isinstance(metadata, dict) else None
    written = built.get("buildx.build.provenance") if isinstance(built, dict) else None
    if not isinstance(written, dict):
        return None
    return (PREDICATE if "buildDefinition" in written else _BUILDKIT_PREDICATE), written


def records(predicate: Mapping[str, Any]) -> dict[str, str]:
    """Return the sha256 of the records that a provenance of ours names, by file name."""
    try:
        return {each["name"]: each["digest"]["sha256"] for each in predicate["runDetails"]["byproducts"]}
    except (LookupError, TypeError):
        return {}


def is_about(statement: bytes, digest: str) -> bool:
    """Return whether an in-toto statement is the provenance of the manifest `digest`, and of nothing else."""
    algorithm, _, value = digest.partition(":")
    try:
        said = bounded_json.loads(statement)
        subjects = said["subject"]
        return (
            said["predicateType"] in (PREDICATE, _BUILDKIT_PREDICATE)
            and bool(subjects)
            and all(subject["digest"] == {algorithm: value} for subject in subjects)
        )
    except (ValueError, LookupError, TypeError):
        return False


def _external(plan: Plan, product: str) -> dict[str, Any]:
    """Return what the caller of a build chooses; with the configuration's revision it decides the rest."""
    return {
        "cell": plan.cell.id,
        "triton": plan.cell.triton,
        "sms": list(plan.cell.sms),
        "base": plan.cell.base,
        "product": product,
        "image": plan.image,
        "config": _filled({"uri": plan.revision.url, "revision": plan.revision.commit}),
    }


def _internal(plan: Plan) -> dict[str, Any]:
    local = plan.base.local
    return {
        "server": plan.server,
        "cuda": plan.cuda,
        "key": plan.key,
        "trees": {
            tree.name: {
                "source": tree.source,
                "options": {option.name: option.value for option in tree.options},
                "targets": list(tree.targets),
            }
            for tree in plan.trees
        },
        "environment": dict(plan.toolchain.environment()),
        "arguments": plan.arguments(),
        "base": {
            "system": f"Debian {local.debian.suite}",
            "snapshot": plan.base.snapshot,
            "arguments": dict(local.arguments),
        }
        if local
        else {},
    }


def _dependencies(plan: Plan) -> Iterator[Resource]:
    yield from (_source(source) for source in plan.sources)
    yield from (_patch(patch) for patch in plan.patches)
    yield _base("base", materials.serving_base(plan), plan.base.origin)
    yield from (_base("toolchain base", base, plan.base.origin) for base in materials.devel_bases(plan))
    yield from ({"name": f"recipe/{file.role}", "digest": {"sha256": file.sha256}} for file in plan.files)
    for package in materials.debian(plan):
        uri = materials.debian_purl(plan, package)
        yield {"name": f"debian/{package.name}", "uri": uri, "digest": {"sha256": package.sha256}}
    for wheel in plan.wheels:
        yield {
            "name": f"{wheel.role}/{wheel.name}",
            "uri": purl.python(wheel.name, wheel.version),
            "digest": {"sha256": wheel.sha256},
        }


def _objects(taken: Taken | None) -> Iterator[Resource]:
    """Yield the objects that were compiled elsewhere: the artifact, and of which sources it had any."""
    if taken:
        name, _, digest = taken.name.partition("@")
        algorithm, _, value = digest.partition(":")
        yield {
            "name": "objects",
            "uri": purl.image(name, digest, ""),
            "digest": {algorithm: value},
            "annotations": {"signer": taken.signer, "found": taken.found, "compiled": taken.compiled},
        }


def _source(planned: PlannedSource) -> Resource:
    commit = materials.source(planned)
    return _commit(f"source/{planned.repository}", commit, planned.tree) | {
        "annotations": _filled({"ref": planned.ref, "version": planned.version or ""})
    }


def _patch(patch: PlannedPatch) -> Resource:
    """Return a patch: a backport by its upstream commit, one of ours by the digest of its diff."""
    name = f"patch/{patch.component}/{patch.file}"
    about = {"origin": patch.origin, "fingerprint": patch.fingerprint}
    upstream = materials.backport(patch)
    if upstream:
        return _commit(name, upstream) | {"annotations": about}
    return {"name": name, "digest": {"sha256": patch.fingerprint}, "annotations": about}


def _commit(name: str, commit: Commit, tree: str = "") -> Resource:
    """Return a commit (in-toto's digest_set.md: gitCommit, gitTree)."""
    digest = _filled({"gitCommit": commit.commit, "gitTree": tree})
    return _filled({"name": name, "uri": commit.uri, "digest": digest})


def _base(name: str, base: Base, origin: str) -> Resource:
    algorithm, _, value = base.digest.partition(":")
    digest = {algorithm: value} if value else {}
    return _filled({"name": name, "uri": base.purl, "digest": digest, "annotations": {"origin": origin}})


def _filled(fields: Resource) -> Resource:
    return {key: value for key, value in fields.items() if value}


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
