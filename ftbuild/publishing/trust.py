"""Trust in an index that a registry has already, before it gets a signature or a moving tag.

Whoever may push can set a tag, and write any annotation and any statement. So such an index counts only if it
carries our own signature, or if the gate records of this machine are about its image and its statements are
those made here: noted in the cell's folder, or the same as `attestations` makes now. And only if it is of the
form that `attestations` makes, about this cell and product, since a signed index may have been moved to
another tag.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ftbuild.errors import PublishError
from ftbuild.gates.report import Gate
from ftbuild.plan import LABELS, Plan
from ftbuild.publishing import attestations, gates, names, remote_image
from ftbuild.publishing.attest import manifests, vex
from ftbuild.publishing.attestations import Candidate
from ftbuild.publishing.remote_image import RemoteImage
from ftbuild.publishing.session import PublishSession
from ftbuild.registry.answers import ImageConfig, Part
from ftbuild.registry.client import Repository
from ftbuild.text import bounded_json

# An SBOM of ours has some 20,000.
MAX_VALUES = 500_000
_HINT = (
    "an immutable tag never changes: find out who set it; if an interrupted run or somebody else did, delete "
    "both tags of the pair in the registry, then publish again"
)


def require(
    session: PublishSession, plan: Plan, digests: Mapping[str, str], signed: Collection[str] = ()
) -> None:
    """Raise PublishError unless these indexes, by product, are ours: signed, or named by the gate records.

    The products in `signed` carry our signature.
    """
    images = {
        product: require_form(session.repository, digest, plan, product, gates.ALL)
        for product, digest in digests.items()
    }
    unsigned = {
        product: _as_staged(session, plan, product, image)
        for product, image in images.items()
        if product not in signed
    }
    if not unsigned:
        return
    try:
        gates.require(plan, session.folder(plan), {product: image.ids for product, image in unsigned.items()})
    except PublishError as unproven:
        place = ", ".join(f"{session.repository.name}@{digests[product]}" for product in unsigned)
        what = unproven.what.removeprefix(f"{plan.cell.id} is not published: ")
        raise PublishError(
            f"the registry has {plan.cell.id}-{plan.key}, and nothing here proves that it was tested: {what}",
            where=place,
            hint=_HINT,
        ) from unproven
    for product, image in unsigned.items():
        tag = names.tag(plan, product)
        candidate = Candidate(plan, product, image, plan.tag(product), tag, gates.ALL)
        require_statements(session, digests[product], candidate)


def require_same(session: PublishSession, digest: str, candidate: Candidate) -> None:
    """Raise PublishError unless an immutable tag has the image that would get this tag, as we attest it."""
    repository = session.repository
    found = require_form(repository, digest, candidate.plan, candidate.product, candidate.passed)
    if found.image.descriptor.digest != candidate.digest:
        raise PublishError(
            f"the registry has another image under the immutable tag {candidate.tag}",
            where=f"{repository.name}@{digest}, not {candidate.digest}",
            hint=_HINT,
        )
    require_statements(session, digest, candidate)


def require_statements(session: PublishSession, digest: str, candidate: Candidate) -> None:
    """Raise PublishError unless the statements in an index about our image are ours.

    They are if the cell's folder has the index's digest, or if they are what would be attested now, to the
    byte: the latter needs the inventory of the image, or the image itself.
    """
    if session.has_pushed(candidate.plan, session.repository, digest):
        return
    inventory = session.inventory(candidate.plan, candidate.product, candidate.image, candidate.local)
    if attestations.make(session, candidate, inventory).digest != digest:
        raise PublishError(
            f"the statements under the immutable tag {candidate.tag} are not those that ftbuild makes of it",
            where=f"{session.repository.name}@{digest}",
            hint=_HINT,
        )


def _as_staged(session: PublishSession, plan: Plan, product: str, found: RemoteImage) -> RemoteImage:
    """Return the staged image with the same manifest, or else the published one.

    Records of an engine with containerd's store name the index that it pushed, with its builder's statements.
    """
    try:
        staged = session.staged_image(plan, product)
    except PublishError:
        return found
    return staged if staged and staged.image.descriptor.digest == found.image.descriptor.digest else found


def require_form(
    repository: Repository, digest: str, plan: Plan, product: str, passed: Collection[Gate]
) -> RemoteImage:
    """Return the image in an index; PublishError unless the index is of the form that `attest` makes.

    It has one image and the attestations about it, and its annotations do not contradict the image's labels.
    """
    image = remote_image.present(repository, digest)
    problem = _problem(repository, image, plan, product, ",".join(gate.name for gate in passed))
    if problem:
        raise PublishError(
            f"the image under an immutable tag is not as ftbuild publishes it: {problem}",
            where=f"{repository.name}@{digest}",
            hint=_HINT,
        )
    return image


def _problem(repository: Repository, found: RemoteImage, plan: Plan, product: str, passed: str) -> str | None:
    annotations = found.tagged.content.annotations or {}
    config = repository.config(found.image)
    if annotations.get(attestations.GATES) != passed:
        return f"it has not passed {passed}, but {annotations.get(attestations.GATES) or 'nothing'}"
    about = {f"{LABELS}.key": plan.key, f"{LABELS}.cell": plan.cell.id, f"{LABELS}.product": product}
    if any(annotations.get(key) != value for key, value in about.items()):
        return f"it is not the {product} image of {plan.cell.id}-{plan.key}"
    if others := [key for key, value in annotations.items() if config.labels.get(key, value) != value]:
        return f"its annotation {others[0]!a} is not the image's label"
    if not _is_pair(remote_image.parts(found.tagged), found.image.descriptor.digest, config):
        return "its index holds something else than one image and its attestations"
    # SBOM and provenance, which come first, and known holes; what BuildKit wrote may follow.
    own = list(remote_image.statements(repository, found))
    own = [text for number, text in enumerate(own) if number < 2 or _type(text) == vex.PREDICATE]
    if len(own) < 2 or not all(_is_about(text, found.image.descriptor.digest) for text in own):
        return "its attestations are about another image"
    return None


def _is_pair(parts: Sequence[Part], image: str, config: ImageConfig) -> bool:
    """Return whether an index has the image, for its own platform, and one entry that no engine pulls."""
    if len(parts) != 2:
        return False
    first, second = parts
    return (
        first.digest == image
        and first.platform == {"architecture": config.architecture, "os": config.os}
        and not remote_image.is_attestation(first)
        and second.digest != image
        and second.platform == manifests.NO_PLATFORM
        and (second.annotations or {}).get(remote_image.OF) == image
    )


def _type(statement: bytes) -> object:
    try:
        return bounded_json.loads(statement, MAX_VALUES)["predicateType"]
    except (ValueError, LookupError, TypeError):
        return None


def _is_about(statement: bytes, digest: str) -> bool:
    """Return whether every subject of an in-toto statement is the manifest of this digest."""
    algorithm, _, value = digest.partition(":")
    try:
        subjects = bounded_json.loads(statement, MAX_VALUES)["subject"]
        return bool(subjects) and all(subject["digest"] == {algorithm: value} for subject in subjects)
    except (ValueError, LookupError, TypeError):
        return False
