"""Tested images of cells into a registry: push, attest, give the immutable tags, then the moving ones.

The order is what makes it safe to kill: each step leaves only what the next one needs, a tag is set by one
request, and the moving tags come last. Running it again goes on where it ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild import build, engine, verdict
from ftbuild.attest.inventory import Inventory
from ftbuild.errors import FtbuildError, HostError, PublishError
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import gates, names, noted, promote, push, pushed, release, unsmoked
from ftbuild.publishing.names import Names
from ftbuild.publishing.pushed import Pushed
from ftbuild.publishing.signing import Signer
from ftbuild.publishing.survey import Presence, survey
from ftbuild.registry.client import Repository
from ftbuild.registry.session import Session
from ftbuild.verdict import SMOKE, VERIFY, Gate

if TYPE_CHECKING:
    import docker

RECORD = "published.json"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """Where images go to, and what may be published; `work` holds the records of the gates."""

    names: Names
    work: Path
    allow_unsmoked: bool = False
    signer: Signer | None = None


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


def stage(plans: Sequence[Plan], options: Options, *, report: Say = print) -> None:
    """Push verified images to where they wait for their smoke test; PublishError when one may not."""
    desk = Desk(options)
    for plan in plans:
        images = desk.built(plan)
        gates.require(plan, desk.folder(plan), _only(images), [VERIFY])
        for product, image in images.items():
            staged = desk.push(
                product, image, desk.options.names.staged(plan, product), _saying(plan, report)
            )
            desk.inventory(plan, product, staged, plan.tag(product))
            report(f"[{plan.cell.id}] staged {product} {image[:19]}")


def pull(plans: Sequence[Plan], options: Options, *, report: Say = print) -> None:
    """Bring staged images to this engine under the names that a build gives them, to be tested."""
    desk = Desk(options)
    for plan in plans:
        for product, staged in desk.staged(plan).items():
            name = f"{desk.staging.name}@{staged.whole.descriptor.digest}"
            report(f"[{plan.cell.id}] pulling {product} {name}")
            engine.pull(desk.client, name, PublishError)
            for moving in (False, True):
                engine.tag(desk.client, name, plan.tag(product, moving=moving))


class Desk:
    """The repositories, the engine and the work folder that publishing goes between."""

    def __init__(self, options: Options) -> None:
        session = Session()
        self.options = options
        self.release = Repository(options.names.release, session)
        self.staging = Repository(options.names.staging, session)
        self._client: docker.DockerClient | None = None

    @property
    def client(self) -> docker.DockerClient:
        """The engine, which what is staged or published already does not need."""
        if self._client is None:
            self._client = engine.connect()
        return self._client

    def folder(self, plan: Plan) -> Path:
        """Where the gates put their records."""
        return build.folder(self.options.work, plan)

    def built(self, plan: Plan) -> dict[str, str]:
        """The ids of the images that are built here, by product; PublishError when one is not."""
        return {product: engine.built(self.client, plan.tag(product), PublishError) for product in PRODUCTS}

    def staged(self, plan: Plan) -> dict[str, Pushed]:
        """The images that wait in the staging repository; PublishError when one is missing."""
        found = {
            product: pushed.read(self.staging, self.options.names.staged(plan, product))
            for product in PRODUCTS
        }
        images = {product: image for product, image in found.items() if image}
        if len(images) < len(PRODUCTS):
            raise PublishError(
                f"{plan.cell.id} is neither built here nor staged",
                where=f"{self.staging.name}:{self.options.names.staged(plan, PRODUCTS[0])}",
                hint="invoke build, or invoke stage where it is built, with the options of this cell",
            )
        return images

    def push(self, product: str, image: str, tag: str, say: Say) -> Pushed:
        """A local image under a staged tag, pushed unless it is there."""
        there = pushed.read(self.staging, tag)
        if there and image in there.ids:
            return there
        say(f"pushing {product}")
        return push.push(self.client, image, self.staging, tag, say)

    def inventory(self, plan: Plan, product: str, image: Pushed, local: str) -> Inventory:
        """What lies in an image, as noted in the cell's folder, or else read from the local one."""
        folder = self.folder(plan)
        found = noted.read(folder, product, image.ids)
        return found or noted.take(self.client, folder, product, local, image.ids)


def _saying(plan: Plan, report: Say) -> Say:
    return lambda message: report(f"[{plan.cell.id}] {message}")


def _one(desk: Desk, presence: Presence, report: Say) -> Outcome:
    plan, say = presence.plan, _saying(presence.plan, report)
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
                release.require_gates(desk.release, digest)
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
        gates.require(plan, folder, _only(images))
        return {
            product: desk.push(product, image, desk.options.names.staged(plan, product), say)
            for product, image in images.items()
        }
    return staged


def _only(images: Mapping[str, str]) -> dict[str, tuple[str]]:
    """Local images, which have the one id that their engine gives them."""
    return {product: (image,) for product, image in images.items()}


def _bring_unsmoked(desk: Desk, presence: Presence, say: Say) -> tuple[str, dict[str, Published]]:
    """Publish what no GPU has tested under tags that nobody takes for tested; no moving tag."""
    plan = presence.plan
    if presence.is_unsmoked:
        digests = {product: digest or "" for product, digest in presence.unsmoked.items()}
        return "present", _products(desk, plan, digests, names.UNSMOKED)
    gates.require(plan, desk.folder(plan), _only(desk.built(plan)), [VERIFY])
    say("no GPU has tested these images: published with a label that says so, without a moving tag")
    digests = {}
    for product in PRODUCTS:
        local = f"{plan.tag(product)}{names.UNSMOKED}"
        image = unsmoked.derive(desk.client, plan, product, local)
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
    digest = release.attest(
        desk.staging, plan, product, image, inventory, desk.folder(plan), desk.release.name, tag, passed
    )
    promote.promote(desk.staging, digest, desk.release, tag, say)
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
        promote.promote(desk.release, digest, desk.release, names.tag(plan, product, moving=True), say)


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
    folder.mkdir(parents=True, exist_ok=True)
    record = {product: asdict(published) for product, published in products.items()}
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n")
