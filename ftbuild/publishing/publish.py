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
from ftbuild.host import failures, files
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import attestations, gates, names, tagging, untested
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
    """Outcome of publishing a cell: `state` is published, promoted, present, unsmoked or failed."""

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
    try:
        with failures.reported():
            state, products = _publish_cell(session, status, report)
    except FtbuildError as error:
        report(f"failed: {error}")
        return Outcome(plan, "failed", error=error)
    _record(session.folder(plan), products)
    report(f"{state}: {products[PRODUCTS[0]].reference}")
    return Outcome(plan, state, products)


def _publish_cell(
    session: PublishSession, status: PublishStatus, report: Reporter
) -> tuple[str, dict[str, Published]]:
    """Do what is left for a cell; return its state, and its images by kind."""
    plan = status.plan
    if status.is_published:
        digests = {product: digest or "" for product, digest in status.published.items()}
        if not status.is_complete:
            for digest in digests.values():
                attestations.require_gates(session.repository, digest)
            _sign_and_move(session, plan, digests, report)
        return ("present" if status.is_complete else "promoted"), _products(session, plan, digests)
    if session.options.allow_unsmoked and not _is_smoked(session.folder(plan)):
        return _publish_unsmoked(session, status, report)
    tested = _tested(session, plan, report)
    digests = {
        product: _publish_image(
            session,
            Candidate(plan, product, image, plan.tag(product), names.tag(plan, product), gates.ALL),
            report,
        )
        for product, image in tested.items()
    }
    _sign_and_move(session, plan, digests, report)
    return "published", _products(session, plan, digests)


def _is_smoked(folder: Path) -> bool:
    """Return whether the gate has run, with any result: a failed image does not count as untested."""
    return (folder / SMOKE.record).exists()


def _tested(session: PublishSession, plan: Plan, report: Reporter) -> dict[str, RemoteImage]:
    """Return the staged images that the gate records are about; push them first if they are only local."""
    folder = session.folder(plan)
    try:
        staged = session.staged(plan)
        gates.require(plan, folder, {product: image.ids for product, image in staged.items()})
    except PublishError as not_staged:
        try:
            images = session.built(plan)
        except (HostError, PublishError):
            raise not_staged from None
        gates.require(plan, folder, local_ids(images))
        return {
            product: session.push(product, image, session.options.names.staged(plan, product), report)
            for product, image in images.items()
        }
    return staged


def _publish_unsmoked(
    session: PublishSession, status: PublishStatus, report: Reporter
) -> tuple[str, dict[str, Published]]:
    """Publish untested images under tags of their own, without moving tags."""
    plan = status.plan
    if status.is_unsmoked:
        digests = {product: digest or "" for product, digest in status.unsmoked.items()}
        return "present", _products(session, plan, digests, names.UNSMOKED)
    gates.require(plan, session.folder(plan), local_ids(session.built(plan)), [VERIFY])
    report("no GPU has tested these images: they are published with the label unsmoked, without moving tags")
    digests = {}
    for product in PRODUCTS:
        local = f"{plan.tag(product)}{names.UNSMOKED}"
        image = untested.derive(session.client, plan, product, local)
        staged = f"{session.options.names.staged(plan, product)}{names.UNSMOKED}"
        remote = session.push(product, image, staged, report)
        tag = f"{names.tag(plan, product)}{names.UNSMOKED}"
        candidate = Candidate(plan, product, remote, local, tag, [VERIFY])
        digests[product] = _publish_image(session, candidate, report)
    _sign(session, digests, report)
    return "unsmoked", _products(session, plan, digests, names.UNSMOKED)


def _publish_image(session: PublishSession, candidate: Candidate, report: Reporter) -> str:
    """Attest a staged image, set its immutable tag, and return the digest."""
    product = candidate.product
    inventory = session.inventory(candidate.plan, product, candidate.image, candidate.local)
    report(f"attesting {product}: {len(inventory.debian)} Debian and {len(inventory.python)} Python packages")
    digest = attestations.attest(session, candidate, inventory)
    tagging.set_tag(session.staging, digest, session.repository, candidate.tag, report)
    return digest


def _sign(session: PublishSession, digests: Mapping[str, str], report: Reporter) -> None:
    if signer := session.options.signer:
        for product, digest in digests.items():
            report(f"signing {product}")
            signer.sign(f"{session.repository.name}@{digest}", report)


def _sign_and_move(session: PublishSession, plan: Plan, digests: Mapping[str, str], report: Reporter) -> None:
    """Sign, then set the moving tags: their absence shows a run that ended before it had signed."""
    _sign(session, digests, report)
    for product, digest in digests.items():
        tagging.set_tag(
            session.repository, digest, session.repository, names.tag(plan, product, moving=True), report
        )


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
