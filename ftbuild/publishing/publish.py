"""Publishing of cells: push, attest, set the immutable tags, then the moving ones.

The order makes it safe to kill: each step leaves only what the next one needs, a tag is set by one request,
and the moving tags come last. A repeated run continues where the last one ended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ftbuild.errors import FtbuildError, HostError, PublishError
from ftbuild.gates.report import SMOKE, VERIFY
from ftbuild.host import failures, files, locks
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import (
    attestations,
    bases,
    committed,
    compiler_cache,
    gates,
    layers,
    names,
    objects,
    pinned,
    signed_statements,
    tagging,
    trust,
    trusted_objects,
    untested,
)
from ftbuild.publishing.attestations import Candidate
from ftbuild.publishing.remote_image import RemoteImage
from ftbuild.publishing.session import Options, PublishSession, local_ids
from ftbuild.publishing.status import PublishStatus, query
from ftbuild.text import reporter
from ftbuild.text.reporter import Reporter

RECORD = "published.json"


@dataclass(frozen=True)
class Published:
    """One image in a registry: the tags `reference` and `moving` (empty: none), and their digest."""

    reference: str
    moving: str
    digest: str


@dataclass(frozen=True)
class Outcome:
    """Outcome of publishing a cell: `state` is published, promoted, signed, present, unsmoked or failed.

    Promoted: only the moving tags were missing; signed: only the signature.
    """

    plan: Plan
    state: str
    products: Mapping[str, Published] = field(default_factory=dict)
    error: FtbuildError | None = None

    @property
    def exit_code(self) -> int:
        """Return 0 if the images are in the registry, else the error's code."""
        return self.error.exit_code if self.error else 0


def publish_cells(plans: Sequence[Plan], options: Options, *, report: Reporter = print) -> list[Outcome]:
    """Publish every cell that the registry lacks, each even after another failed.

    Raises HostError or PublishError if the registry cannot be queried at all; the failure of a cell is in
    its `Outcome`.
    """
    session = PublishSession(options)
    return [_outcome(session, status, report) for status in query(plans, session.repository)]


def _outcome(session: PublishSession, status: PublishStatus, report: Reporter) -> Outcome:
    plan, report = status.plan, reporter.prefixed(report, status.plan.cell.id)
    folder = session.folder(plan)
    try:
        with failures.reported(), locks.cell(folder, report):
            state, products = _publish_cell(session, status, report)
            if session.options.objects:
                objects.publish(session, plan, report)
                bases.publish(session, plan, report)
            _record(folder, products)
    except FtbuildError as error:
        report(f"failed: {error}")
        return Outcome(plan, "failed", error=error)
    report(f"{state}: {products[PRODUCTS[0]].reference}")
    return Outcome(plan, state, products)


def _publish_cell(
    session: PublishSession, status: PublishStatus, report: Reporter
) -> tuple[str, dict[str, Published]]:
    """Do what is left for a cell; return its state, and its images by kind."""
    plan = status.plan
    if not status.is_complete:
        pinned.require(plan)
    there = {product: digest for product, digest in status.published.items() if digest}
    if status.is_published:
        return _finish(session, status, there, report)
    if session.options.allow_unsmoked and not is_smoked(session.folder(plan)):
        return _publish_unsmoked(session, status, report)
    # One of the pair may be there already: the other one is published beside it only if both are tested.
    trust.require(session, plan, there)
    tested = _tested(session, plan, report)
    digests = {
        product: _publish_image(
            session,
            Candidate(plan, product, image, plan.tag(product), names.tag(plan, product), gates.ALL),
            report,
        )
        for product, image in tested.items()
    }
    _sign(session, digests, report)
    _move(session, plan, digests, report)
    return "published", _products(session, plan, digests)


def _finish(
    session: PublishSession, status: PublishStatus, digests: Mapping[str, str], report: Reporter
) -> tuple[str, dict[str, Published]]:
    """Sign and move the tags of a pair that is there, as far as that is missing."""
    plan, signer = status.plan, session.options.signer
    products = _products(session, plan, digests)
    have = signed(session, digests, report)
    unsigned = {product: digest for product, digest in digests.items() if product not in have}
    if status.is_complete and not (signer and unsigned):
        return "present", products
    trust.require(session, plan, digests, have)
    _sign(session, unsigned, report)
    if status.is_complete:
        return "signed", products
    _move(session, plan, digests, report)
    return "promoted", products


def signed(session: PublishSession, digests: Mapping[str, str], report: Reporter) -> dict[str, str]:
    """Return those of some indexes, by product, that carry our signature; none without a key."""
    signer, name = session.options.signer, session.repository.name
    return {
        product: digest
        for product, digest in digests.items()
        if signer and signer.has_signed(f"{name}@{digest}", report)
    }


def is_smoked(folder: Path) -> bool:
    """Return whether the gate has run, with any result: a failed image does not count as untested."""
    return (folder / SMOKE.record).exists()


def _tested(session: PublishSession, plan: Plan, report: Reporter) -> dict[str, RemoteImage]:
    """Return the staged images that the gate records are about; push them first if they are only local."""
    staged, local = ready(session, plan)
    for product, there in staged.items():
        if not session.has_pushed(plan, session.staging, there.tagged.descriptor.digest):
            report(f"reading the layers of the staged {product} image, which was pushed elsewhere")
            layers.require(session.staging, there)
    require_built(session, plan, local, report)
    return {
        product: session.as_planned(plan, product, there, report) for product, there in staged.items()
    } or {
        product: session.stage(plan, product, image, session.options.names.staged(plan, product), report)
        for product, image in local.items()
    }


def require_built(session: PublishSession, plan: Plan, images: Mapping[str, str], report: Reporter) -> None:
    """Raise PublishError if one of a cell's local images is not published, before any of them is pushed."""
    for product, image in images.items():
        require_publishable(session, plan, product, session.local_labels(image), report)


def require_publishable(
    session: PublishSession, plan: Plan, product: str, labels: Mapping[str, str], report: Reporter
) -> None:
    """Raise PublishError for an image that, by its labels, is not published with the session's options."""
    options = session.options
    compiler_cache.require(plan, product, labels, allowed=options.allow_shared_cache)
    committed.require(plan, product, labels, allowed=options.allow_dirty)
    trusted_objects.require(plan, product, labels, session.folder(plan), session.trusted, report)


def ready(session: PublishSession, plan: Plan) -> tuple[dict[str, RemoteImage], dict[str, str]]:
    """Return the images that the gate records are about: those that are staged, else the ids of local ones.

    Raises PublishError if there are none, or if the records are about others.
    """
    folder = session.folder(plan)
    try:
        staged = session.staged(plan)
        gates.require(plan, folder, {product: image.ids for product, image in staged.items()})
    except PublishError as not_staged:
        images = _built(session, plan, not_staged)
        gates.require(plan, folder, local_ids(images))
        return {}, images
    return staged, {}


def _built(session: PublishSession, plan: Plan, not_staged: PublishError) -> dict[str, str]:
    """Return the ids of the local images; if there are none, raise what is wrong with the staged ones."""
    try:
        return session.built(plan)
    except PublishError:
        raise not_staged from None
    except HostError as silent:  # perhaps they are here, and the engine is busy or not running
        raise PublishError(
            f"{silent.what}, so what is built here is unknown; in the registry: {not_staged.what}",
            where="; ".join(where for where in (silent.where, not_staged.where) if where),
            hint=silent.hint,
        ) from silent


def complete_unsmoked(session: PublishSession, status: PublishStatus, report: Reporter) -> dict[str, str]:
    """Return the digests of untested images that need nothing more, by product; none if any does.

    Raises PublishError where the registry has something else under a tag.
    """
    there = {product: digest for product, digest in status.unsmoked.items() if digest}
    keyless = session.options.signer is None
    if not status.is_unsmoked or not (keyless or len(signed(session, there, report)) == len(there)):
        return {}
    for product, digest in there.items():
        trust.require_form(session.repository, digest, status.plan, product, [VERIFY])
    return there


def _publish_unsmoked(
    session: PublishSession, status: PublishStatus, report: Reporter
) -> tuple[str, dict[str, Published]]:
    """Publish untested images under tags of their own, without moving tags.

    Those that are there need nothing but a signature, if there is a key, and get it by the same comparison.
    """
    plan = status.plan
    if there := complete_unsmoked(session, status, report):
        return "present", _products(session, plan, there, names.UNSMOKED)
    built = session.built(plan)
    gates.require(plan, session.folder(plan), local_ids(built), [VERIFY])
    require_built(session, plan, built, report)
    report("no GPU has tested these images: they are published with the label unsmoked, without moving tags")
    digests = {}
    for product in PRODUCTS:
        local = f"{plan.tag(product)}{names.UNSMOKED}"
        image = untested.derive(session.client, plan, product, local)
        staged = f"{session.options.names.staged(plan, product)}{names.UNSMOKED}"
        remote = session.stage(plan, product, image, staged, report)
        tag = f"{names.tag(plan, product)}{names.UNSMOKED}"
        candidate = Candidate(plan, product, remote, local, tag, [VERIFY])
        digests[product] = _publish_image(session, candidate, report)
    _sign(session, digests, report)
    return "signed" if status.is_unsmoked else "unsmoked", _products(session, plan, digests, names.UNSMOKED)


def _publish_image(session: PublishSession, candidate: Candidate, report: Reporter) -> str:
    """Attest a staged image, set its immutable tag, and return the digest; a tag that is set stays."""
    product = candidate.product
    labels = session.staging.config(candidate.image.image).labels
    require_publishable(session, candidate.plan, product, labels, report)
    if there := session.repository.head(candidate.tag):
        trust.require_same(session, there.digest, candidate)
        return there.digest
    inventory = session.inventory(candidate.plan, product, candidate.image, candidate.local)
    report(f"attesting {product}: {len(inventory.debian)} Debian and {len(inventory.python)} Python packages")
    digest = attestations.attest(session, candidate, inventory)
    tagging.set_tag(session.staging, digest, session.repository, candidate.tag, report)
    return digest


def _sign(session: PublishSession, digests: Mapping[str, str], report: Reporter) -> None:
    """Sign before the moving tags are set: their absence shows a run that ended before it had signed."""
    if signer := session.options.signer:
        for product, digest in digests.items():
            if session.options.attest:
                report(f"signing the statements about {product}")
                signed_statements.attach(session, digest, signer, report)
            report(f"signing {product}")
            signer.sign(f"{session.repository.name}@{digest}", report)


def _move(session: PublishSession, plan: Plan, digests: Mapping[str, str], report: Reporter) -> None:
    """Set the moving tags, or none of them if one would go back."""
    repository = session.repository
    tags = {names.tag(plan, product, moving=True): digest for product, digest in digests.items()}
    if not session.options.force:
        for tag, digest in tags.items():
            tagging.require_newer(repository, digest, tag)
    for tag, digest in tags.items():
        tagging.set_tag(repository, digest, repository, tag, report)


def _products(
    session: PublishSession, plan: Plan, digests: Mapping[str, str], suffix: str = ""
) -> dict[str, Published]:
    name = session.repository.name
    return {
        product: Published(
            f"{name}:{names.tag(plan, product)}{suffix}",
            "" if suffix else f"{name}:{names.tag(plan, product, moving=True)}",
            digest,
        )
        for product, digest in digests.items()
    }


def _record(folder: Path, products: Mapping[str, Published]) -> None:
    record = {product: asdict(published) for product, published in products.items()}
    files.write_atomic(folder / RECORD, json.dumps(record, indent=2) + "\n")
