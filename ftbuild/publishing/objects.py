"""Compiled objects in a registry: an artifact of each key, signed, pinned by digest in the lock.

`objects-22.12-sm80-<key>` is what a build of these inputs used, and never changes; `objects-22.12-sm80` is
the newest, whose digest `invoke lock --objects-from` writes. Tags only find: a build goes by that digest.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ftbuild.build import bake, build_log, definitions, display, machine, objects
from ftbuild.errors import BuildError, PublishError
from ftbuild.host import shell
from ftbuild.input_key import KEY_DIGITS
from ftbuild.plan import LABELS, Plan
from ftbuild.publishing import names, substituted, verifying
from ftbuild.publishing.attest import manifests
from ftbuild.publishing.session import PublishSession
from ftbuild.publishing.verifying import Verifier
from ftbuild.registry.answers import Part
from ftbuild.registry.client import Repository, digest_of
from ftbuild.registry.malformed import Malformed
from ftbuild.text.reporter import Reporter
from ftbuild.text.units import size

KIND = "application/vnd.ftbuild.objects.v1"
LAYER = f"{KIND}.tar"
# image-spec v1.1, manifest.md, "Guidance for an Empty Descriptor".
EMPTY = manifests.Blob("application/vnd.oci.empty.v1+json", b"{}")
PREFIX = "objects-"
# A cell's id, to which no key is added.
_MOVING = re.compile(rf"{PREFIX}(?!.*-[0-9a-f]{{{KEY_DIGITS}}}$)[0-9]{{2}}\.[0-9]{{2}}-sm[a-z0-9_-]+")
# Of the step that collects them.
LOG = "objects.log"


def tag(plan: Plan, *, moving: bool = False) -> str:
    """Return the tag of a cell's objects: that of its key, or the moving one."""
    return f"{PREFIX}{names.tag(plan, 'runtime', moving=moving)}"


def publish(session: PublishSession, plan: Plan, report: Reporter) -> str:
    """Push what the build of a cell used of ccache, sign it, and set its tags; return its digest.

    Of images that were taken from a registry there are no objects, and so no digest. What is there under the
    key stays, if it is ours: by its signature, or as it was pushed from here. Raises BuildError if the build
    has left no objects, PublishError if it was not made here, if the registry refuses, or for objects of
    somebody else under the tag.
    """
    repository, signer = session.repository, session.options.signer
    there = repository.head(tag(plan))
    if there is None and substituted.read(session.folder(plan)):
        report("nothing was compiled here, so there are no objects to be published")
        return ""
    digest = there.digest if there else _push(session, plan, report)
    name = f"{repository.name}@{digest}"
    is_signed = signer is not None and signer.has_signed(name, report)
    if not is_signed and not session.has_pushed(plan, repository, digest):
        raise PublishError(
            f"the registry has objects under {tag(plan)} that nothing here proves to be ours",
            where=name,
            hint="find out who set the tag; delete it in the registry, then publish again",
        )
    if signer and not is_signed:
        report("signing objects")
        signer.sign(name, report)
    moving = repository.head(tag(plan, moving=True))
    if moving is None or moving.digest != digest:
        found = repository.manifest(digest)
        if found is None:
            raise PublishError("the objects vanished from the registry", where=name)
        repository.put_manifest(tag(plan, moving=True), found.raw, found.descriptor.media_type)
    report(f"objects: {name}")
    return digest


def _push(session: PublishSession, plan: Plan, report: Reporter) -> str:
    repository = session.repository
    archive = manifests.Blob(LAYER, objects.pack(_exported(plan, session.folder(plan), report)))
    report(f"pushing {size(len(archive.data))} of objects")
    content = {
        "schemaVersion": 2,
        "mediaType": manifests.MANIFEST,
        "artifactType": KIND,
        "config": EMPTY.descriptor.as_dict(),
        "layers": [archive.descriptor.as_dict()],
        "annotations": {
            f"{LABELS}.cell": plan.cell.id,
            f"{LABELS}.key": plan.key,
            f"{LABELS}.base": plan.base.devel,
            "org.opencontainers.image.title": f"objects of {plan.image} {plan.cell.id}",
            "org.opencontainers.image.created": plan.revision.time,
            "org.opencontainers.image.revision": plan.revision.commit,
        },
    }
    for blob in (EMPTY, archive):
        repository.put_blob(blob.data, blob.media_type)
    raw = manifests.canonical(content)
    session.note(plan, repository, tag(plan), digest_of(raw))
    return repository.put_manifest(tag(plan), raw, manifests.MANIFEST).digest


def _exported(plan: Plan, folder: Path, report: Reporter) -> Path:
    """Return the folder with the objects: what the engine's cache of layers has lost is compiled again."""
    file = folder / "docker-bake.json"
    made = folder / definitions.USED_OBJECTS
    if not file.is_file():
        raise PublishError(
            f"{plan.cell.id} was not built here, so its objects are not here",
            where=str(file),
            hint="invoke build --rebuild; objects that were compiled before are found in the compiler cache",
        )
    shutil.rmtree(made, ignore_errors=True)
    log = folder / LOG
    target = definitions.target_name(plan, definitions.USED_OBJECTS)
    argv = ["docker", "buildx", "bake", "--file", file.name, "--progress", "plain", target]

    def attempt(options: Sequence[str]) -> int:
        log.unlink(missing_ok=True)
        with display.shown(plan.cell.id, (), report) as read:
            return shell.stream(
                [*argv, *options], log=log, cwd=folder, env={machine.SETTINGS: ""}, on_line=read
            )

    report(f"collecting the objects of the build, log: {log}")
    code = bake.repeated(attempt, log, report)
    if code:
        lines = build_log.failing_lines(log.read_text(encoding="utf-8", errors="replace"))
        why = lines[0] if lines else f"docker buildx bake ended with code {code}"
        raise BuildError(f"the objects cannot be exported: {why}", where=str(log))
    return made


def bring(plan: Plan, trusted: Sequence[Verifier], folder: Path, report: Reporter) -> Verifier:
    """Put the objects that the lock has of a cell into `folder`, which must not exist; return who signed.

    Raises PublishError if nobody has who is trusted, or for what is no such artifact; HostError if the
    registry does not answer.
    """
    name, _, digest = plan.objects.partition("@")
    signer = verifying.signer_of(plan.objects, trusted, report)
    if signer is None:
        raise PublishError(
            f"they are signed by nobody who is trusted here ({', '.join(map(str, trusted))})",
            where=plan.objects,
        )
    repository = Repository(name)
    layer = _layer(repository, digest)
    report(f"fetching {size(layer.size)} of objects: {plan.objects}")
    with tempfile.TemporaryFile() as archive:
        for piece in repository.pieces(layer):
            archive.write(piece)
        archive.seek(0)
        objects.unpack(archive, folder)
    return signer


def _layer(repository: Repository, digest: str) -> Part:
    """Return the one layer of an artifact with objects; Malformed for any other manifest."""
    found, where = repository.manifest(digest), f"{repository.name}@{digest}"
    if found is None:
        raise PublishError("the registry does not have them any more", where=where)
    layers = found.content.layers or []
    if len(layers) != 1 or layers[0].media_type != LAYER or layers[0].size > objects.MAX_BYTES:
        raise Malformed("what is under their digest are no objects", where=where)
    return layers[0]


def locked(repository: Repository) -> dict[str, str]:
    """Return the digest of the newest objects of every cell that a registry has, by the cell's id."""
    tags = [tag for tag in repository.tags() if _MOVING.fullmatch(tag)]
    heads = repository.heads(tags)
    return {
        tag.removeprefix(PREFIX): f"{repository.name}@{head.digest}"
        for tag, head in sorted(heads.items())
        if head
    }
