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
from ftbuild.publishing.remote_image import Pushed
from ftbuild.publishing.retry import Say
from ftbuild.publishing.session import Desk, Options, only, saying
from ftbuild.publishing.status import Presence, survey

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


def publish(plans: Sequence[Plan], options: Options, *, report: Say = print) -> list[Outcome]:
    """Publish every cell that the registry lacks, each even after another failed.

    Raises HostError or PublishError when the registry cannot be asked at all; what befalls one cell is in its
    `Outcome`.
    """
    desk = Desk(options)
    return [_one(desk, presence, report) for presence in survey(plans, desk.release)]


def _one(desk: Desk, presence: Presence, report: Say) -> Outcome:
    plan, say = presence.plan, saying(presence.plan, report)
    try:
        state, products = _bring(desk, presence, say)
    except FtbuildError as error:
        say(f"failed: {error}")
        return Outcome(plan, "failed", error=error)
    _record(desk.folder(plan), products)
    say(f"{state}: {products[PRODUCTS[0]].reference}")
    return Outcome(plan, state, products)


def _bring(desk: Desk, presence: Presence, say: Say) -> tuple[str, dict[str, Published]]:
    """Do what is left for a cell; how it was found or made, and what its tags mean."""
    plan = presence.plan
    if presence.is_published:
        digests = {product: digest or "" for product, digest in presence.published.items()}
        if not presence.is_complete:
            for digest in digests.values():
                attestations.require_gates(desk.release, digest)
            _sign_and_move(desk, plan, digests, say)
        return ("present" if presence.is_complete else "promoted"), _products(desk, plan, digests)
    if desk.options.allow_unsmoked and not _is_smoked(desk.folder(plan)):
        return _bring_unsmoked(desk, presence, say)
    tested = _tested(desk, plan, say)
    digests = {
        product: _release(
            desk, plan, product, image, plan.tag(product), names.tag(plan, product), gates.ALL, say
        )
        for product, image in tested.items()
    }
    _sign_and_move(desk, plan, digests, say)
    return "published", _products(desk, plan, digests)


def _is_smoked(folder: Path) -> bool:
    """Whether the gate has been run, with whatever result: an image that failed is not one without a test."""
    return verdict.read(SMOKE, folder) is not None


def _tested(desk: Desk, plan: Plan, say: Say) -> dict[str, Pushed]:
    """The staged images of a cell that the records are about; pushed now if they are only here."""
    folder = desk.folder(plan)
    try:
        staged = desk.staged(plan)
        gates.require(plan, folder, {product: image.ids for product, image in staged.items()})
    except PublishError as nothing_staged:
        try:
            images = desk.built(plan)
        except (HostError, PublishError):
            raise nothing_staged from None
        gates.require(plan, folder, only(images))
        return {
            product: desk.push(product, image, desk.options.names.staged(plan, product), say)
            for product, image in images.items()
        }
    return staged


def _bring_unsmoked(desk: Desk, presence: Presence, say: Say) -> tuple[str, dict[str, Published]]:
    """Publish what no GPU has tested under tags that nobody takes for tested; no moving tag."""
    plan = presence.plan
    if presence.is_unsmoked:
        digests = {product: digest or "" for product, digest in presence.unsmoked.items()}
        return "present", _products(desk, plan, digests, names.UNSMOKED)
    gates.require(plan, desk.folder(plan), only(desk.built(plan)), [VERIFY])
    say("no GPU has tested these images: published with a label that says so, without a moving tag")
    digests = {}
    for product in PRODUCTS:
        local = f"{plan.tag(product)}{names.UNSMOKED}"
        image = untested.derive(desk.client, plan, product, local)
        staged = f"{desk.options.names.staged(plan, product)}{names.UNSMOKED}"
        there = desk.push(product, image, staged, say)
        tag = f"{names.tag(plan, product)}{names.UNSMOKED}"
        digests[product] = _release(desk, plan, product, there, local, tag, [VERIFY], say)
    _sign(desk, digests, say)
    return "unsmoked", _products(desk, plan, digests, names.UNSMOKED)


def _release(
    desk: Desk,
    plan: Plan,
    product: str,
    image: Pushed,
    local: str,
    tag: str,
    passed: Sequence[Gate],
    say: Say,
) -> str:
    """The digest of a staged image with its attestations, now under an immutable tag."""
    inventory = desk.inventory(plan, product, image, local)
    say(f"attesting {product}: {len(inventory.debian)} Debian and {len(inventory.python)} Python packages")
    digest = attestations.attest(
        desk.staging, plan, product, image, inventory, desk.folder(plan), desk.release.name, tag, passed
    )
    set_tag.promote(desk.staging, digest, desk.release, tag, say)
    return digest


def _sign(desk: Desk, digests: Mapping[str, str], say: Say) -> None:
    if signer := desk.options.signer:
        for product, digest in digests.items():
            say(f"signing {product}")
            signer.sign(f"{desk.release.name}@{digest}", say)


def _sign_and_move(desk: Desk, plan: Plan, digests: Mapping[str, str], say: Say) -> None:
    """The moving tags come last, so that a run which ended before it had signed is known by them."""
    _sign(desk, digests, say)
    for product, digest in digests.items():
        set_tag.promote(desk.release, digest, desk.release, names.tag(plan, product, moving=True), say)


def _products(desk: Desk, plan: Plan, digests: Mapping[str, str], suffix: str = "") -> dict[str, Published]:
    name = desk.release.name
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
    files.write(folder / RECORD, json.dumps(record, indent=2) + "\n")
