"""Tested images of cells into a registry: push, attest, give the immutable tags, then the moving ones.

The order is what makes it safe to kill: each step leaves only what the next one needs, a tag is set by one
request, and the moving tags come last. Running it again goes on where it ended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ftbuild.errors import FtbuildError, HostError, PublishError
from ftbuild.gates import report as verdict
from ftbuild.gates.report import SMOKE, VERIFY, Gate
from ftbuild.host import files
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import attestations, gates, names, set_tag, untested
from ftbuild.publishing.remote_image import RemoteImage
from ftbuild.publishing.session import Options, PublishSession, only, saying
from ftbuild.publishing.status import PublishStatus, survey
from ftbuild.text.reporter import Reporter

RECORD = "published.json"


@dataclass(frozen=True)
class Published:
    """One product in a registry: the tags `reference` and `moving` (empty: none), and what they mean."""

    reference: str
    moving: str
    digest: str


@dataclass(frozen=True)
class Outcome:
    """How publishing a cell ended: `published`, `promoted`, `present`, `unsmoked` or `failed`."""

    plan: Plan
    state: str
    products: Mapping[str, Published] = field(default_factory=dict)
    error: FtbuildError | None = None

    @property
    def exit_code(self) -> int:
        """0 when the images are in the registry."""
        return self.error.exit_code if self.error else 0


def publish(plans: Sequence[Plan], options: Options, *, report: Reporter = print) -> list[Outcome]:
    """Publish every cell that the registry lacks, each even after another failed.

    Raises HostError or PublishError when the registry cannot be asked at all; what befalls one cell is in its
    `Outcome`.
    """
    session = PublishSession(options)
    return [_one(session, presence, report) for presence in survey(plans, session.release)]


def _one(session: PublishSession, presence: PublishStatus, report: Reporter) -> Outcome:
    plan, say = presence.plan, saying(presence.plan, report)
    try:
        state, products = _bring(session, presence, say)
    except FtbuildError as error:
        say(f"failed: {error}")
        return Outcome(plan, "failed", error=error)
    _record(session.folder(plan), products)
    say(f"{state}: {products[PRODUCTS[0]].reference}")
    return Outcome(plan, state, products)


def _bring(
    session: PublishSession, presence: PublishStatus, report: Reporter
) -> tuple[str, dict[str, Published]]:
    """Do what is left for a cell; how it was found or made, and what its tags mean."""
    plan = presence.plan
    if presence.is_published:
        digests = {product: digest or "" for product, digest in presence.published.items()}
        if not presence.is_complete:
            for digest in digests.values():
                attestations.require_gates(session.release, digest)
            _sign_and_move(session, plan, digests, report)
        return ("present" if presence.is_complete else "promoted"), _products(session, plan, digests)
    if session.options.allow_unsmoked and not _is_smoked(session.folder(plan)):
        return _bring_unsmoked(session, presence, report)
    tested = _tested(session, plan, report)
    digests = {
        product: _release(
            session, plan, product, image, plan.tag(product), names.tag(plan, product), gates.ALL, report
        )
        for product, image in tested.items()
    }
    _sign_and_move(session, plan, digests, report)
    return "published", _products(session, plan, digests)


def _is_smoked(folder: Path) -> bool:
    """Whether the gate has been run, with whatever result: an image that failed is not one without a test."""
    return verdict.read(SMOKE, folder) is not None


def _tested(session: PublishSession, plan: Plan, report: Reporter) -> dict[str, RemoteImage]:
    """The staged images of a cell that the records are about; pushed now if they are only here."""
    folder = session.folder(plan)
    try:
        staged = session.staged(plan)
        gates.require(plan, folder, {product: image.ids for product, image in staged.items()})
    except PublishError as nothing_staged:
        try:
            images = session.built(plan)
        except (HostError, PublishError):
            raise nothing_staged from None
        gates.require(plan, folder, only(images))
        return {
            product: session.push(product, image, session.options.names.staged(plan, product), report)
            for product, image in images.items()
        }
    return staged


def _bring_unsmoked(
    session: PublishSession, presence: PublishStatus, report: Reporter
) -> tuple[str, dict[str, Published]]:
    """Publish what no GPU has tested under tags that nobody takes for tested; no moving tag."""
    plan = presence.plan
    if presence.is_unsmoked:
        digests = {product: digest or "" for product, digest in presence.unsmoked.items()}
        return "present", _products(session, plan, digests, names.UNSMOKED)
    gates.require(plan, session.folder(plan), only(session.built(plan)), [VERIFY])
    report("no GPU has tested these images: published with a label that says so, without a moving tag")
    digests = {}
    for product in PRODUCTS:
        local = f"{plan.tag(product)}{names.UNSMOKED}"
        image = untested.derive(session.client, plan, product, local)
        staged = f"{session.options.names.staged(plan, product)}{names.UNSMOKED}"
        there = session.push(product, image, staged, report)
        tag = f"{names.tag(plan, product)}{names.UNSMOKED}"
        digests[product] = _release(session, plan, product, there, local, tag, [VERIFY], report)
    _sign(session, digests, report)
    return "unsmoked", _products(session, plan, digests, names.UNSMOKED)


def _release(
    session: PublishSession,
    plan: Plan,
    product: str,
    image: RemoteImage,
    local: str,
    tag: str,
    passed: Sequence[Gate],
    report: Reporter,
) -> str:
    """The digest of a staged image with its attestations, now under an immutable tag."""
    inventory = session.inventory(plan, product, image, local)
    report(f"attesting {product}: {len(inventory.debian)} Debian and {len(inventory.python)} Python packages")
    digest = attestations.attest(
        session.staging,
        plan,
        product,
        image,
        inventory,
        session.folder(plan),
        session.release.name,
        tag,
        passed,
    )
    set_tag.promote(session.staging, digest, session.release, tag, report)
    return digest


def _sign(session: PublishSession, digests: Mapping[str, str], report: Reporter) -> None:
    if signer := session.options.signer:
        for product, digest in digests.items():
            report(f"signing {product}")
            signer.sign(f"{session.release.name}@{digest}", report)


def _sign_and_move(session: PublishSession, plan: Plan, digests: Mapping[str, str], report: Reporter) -> None:
    """The moving tags come last, so that a run which ended before it had signed is known by them."""
    _sign(session, digests, report)
    for product, digest in digests.items():
        set_tag.promote(
            session.release, digest, session.release, names.tag(plan, product, moving=True), report
        )


def _products(
    session: PublishSession, plan: Plan, digests: Mapping[str, str], suffix: str = ""
) -> dict[str, Published]:
    name = session.release.name
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
