"""A publishing session: both repositories, the Docker client, the work folder with the gate records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild.engine import daemon
from ftbuild.engine.daemon import ImageNotBuilt
from ftbuild.errors import PublishError
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import compression, inventories, push, pushed, remote_image, tagging
from ftbuild.publishing.attest.inventory import Inventory
from ftbuild.publishing.names import Names
from ftbuild.publishing.remote_image import RemoteImage
from ftbuild.publishing.signing import Signer
from ftbuild.publishing.verifying import Verifier
from ftbuild.registry import reference
from ftbuild.registry.client import Repository
from ftbuild.registry.session import Session
from ftbuild.text.reporter import Reporter

if TYPE_CHECKING:
    import docker


@dataclass(frozen=True)
class Options:
    """Destination of images and rules for publishing; `work` holds the gate records.

    With `force`, a moving tag may go back to an older build; with `objects`, what was compiled is published,
    too. `trusted` are those whose objects may be in images, besides the signer. With `attest`, each statement
    is signed, too.
    """

    names: Names
    work: Path
    allow_unsmoked: bool = False
    signer: Signer | None = None
    force: bool = False
    allow_shared_cache: bool = False
    allow_dirty: bool = False
    objects: bool = False
    trusted: Sequence[Verifier] = ()
    attest: bool = False


class PublishSession:
    """The repositories, the Docker client and the work folder of one publishing command."""

    def __init__(self, options: Options) -> None:
        self._registries = Session()
        self.options = options
        self.repository = Repository(options.names.repository, self._registries)
        self.staging = Repository(options.names.staging, self._registries)
        self._client: docker.DockerClient | None = None
        self._compressor = compression.Compressor(options.work)

    @property
    def client(self) -> docker.DockerClient:
        """Return the Docker client, connected on first use: staged or published images need no engine."""
        if self._client is None:
            self._client = daemon.connect()
        return self._client

    @property
    def trusted(self) -> tuple[Verifier, ...]:
        """Return whose signatures count: those that were named, and our own."""
        own = self.options.signer
        return (*self.options.trusted, *((own,) if own else ()))

    def require_reachable(self) -> None:
        """Raise HostError unless the staging registry answers: before work that ends there."""
        self._registries.answers(reference.parse(self.staging.name).host)

    def folder(self, plan: Plan) -> Path:
        """Return the folder with a cell's gate records."""
        return plan.folder(self.options.work)

    def built(self, plan: Plan) -> dict[str, str]:
        """Return the ids of the local images by kind; PublishError if one is not built."""
        return {product: self.local(plan.tag(product)) for product in PRODUCTS}

    def local(self, name: str) -> str:
        """Return the id of a local image; PublishError if it is not built."""
        try:
            return daemon.require_image(self.client, name)
        except ImageNotBuilt as absent:
            raise absent.converted(PublishError) from absent

    def local_labels(self, image: str) -> Mapping[str, str]:
        """Return the labels of a local image by its id; PublishError if it has gone."""
        found = daemon.image(self.client, image)
        if found is None:
            raise PublishError(f"the image {image} has gone from the engine", hint="invoke build")
        return found.labels

    def staged(self, plan: Plan) -> dict[str, RemoteImage]:
        """Return the images in the staging repository by kind; PublishError if one is missing.

        Those that were pushed from here are found by their digest, whatever their tags have become.
        """
        found = {product: self.staged_image(plan, product) for product in PRODUCTS}
        images = {product: image for product, image in found.items() if image}
        if len(images) < len(PRODUCTS):
            raise PublishError(
                f"{plan.cell.id} is neither built here nor staged",
                where=f"{self.staging.name}:{self.options.names.staged(plan, PRODUCTS[0])}",
                hint="invoke build here, or invoke registry.stage where it is built, for this cell",
            )
        return images

    def staged_image(self, plan: Plan, product: str) -> RemoteImage | None:
        """Return one image of a cell in the staging repository, or None; see `staged`."""
        tag = self.options.names.staged(plan, product)
        ours = pushed.digest(self.folder(plan), self.staging.name, tag)
        return remote_image.read(self.staging, ours or tag)

    def push(self, product: str, image: str, tag: str, report: Reporter) -> RemoteImage:
        """Push a local image under a staged tag, and return the remote one; see `push.push_image`."""
        remote_image.read(self.staging, tag)  # raises for what has no business there: it is not overwritten
        report(f"pushing {product}")
        return push.push_image(self.client, image, self.staging, tag, report)

    def stage(self, plan: Plan, product: str, image: str, tag: str, report: Reporter) -> RemoteImage:
        """Push a cell's local image, compressed as its plan says, and store its digest."""
        there = self._staged_before(plan, image, tag)
        return self.staged_as(plan, there or self.push(product, image, tag, report), tag, report)

    def _staged_before(self, plan: Plan, image: str, tag: str) -> RemoteImage | None:
        """Return what was pushed from here for a tag, if it is this image, compressed as the plan says."""
        ours = pushed.digest(self.folder(plan), self.staging.name, tag)
        there = remote_image.read(self.staging, ours) if ours else None
        known = there is not None and image in there.ids and compression.has(there, plan.compression)
        return there if known else None

    def staged_as(self, plan: Plan, image: RemoteImage, tag: str, report: Reporter) -> RemoteImage:
        """Set a staged tag to a pushed image, compressed as its plan says, and store its digest."""
        remote = self.compressed(plan, self.staging, image, report)
        digest = remote.tagged.descriptor.digest
        present = remote_image.read(self.staging, tag)  # raises for what has no business there
        if present is None or present.tagged.descriptor.digest != digest:
            tagging.set_tag(self.staging, digest, self.staging, tag, report)
        self.note(plan, self.staging, tag, digest)
        return remote

    def as_planned(self, plan: Plan, product: str, there: RemoteImage, report: Reporter) -> RemoteImage:
        """Return a staged image, compressed as planned: a killed command leaves what the engine pushed."""
        made = self.compressed(plan, self.staging, there, report)
        if made is there:
            return there
        return self.staged_as(plan, made, self.options.names.staged(plan, product), report)

    def compressed(
        self, plan: Plan, repository: Repository, image: RemoteImage, report: Reporter
    ) -> RemoteImage:
        """Return a pushed image, compressed as a plan says; raises what `Compressor.compressed` does."""
        if plan.compression != compression.ZSTD:
            return image
        return self._compressor.compressed(repository, image, report)

    def note(self, plan: Plan, repository: Repository, tag: str, digest: str) -> None:
        """Store in a cell's folder what was pushed for a tag."""
        pushed.note(self.folder(plan), repository.name, tag, digest)

    def has_pushed(self, plan: Plan, repository: Repository, digest: str) -> bool:
        """Return whether the cell's folder says that this digest came from here."""
        return pushed.holds(self.folder(plan), repository.name, digest)

    def inventory(self, plan: Plan, product: str, image: RemoteImage, local: str) -> Inventory:
        """Return the inventory of an image from the cell's folder, or else take it from the local image."""
        folder = self.folder(plan)
        found = inventories.read(folder, product, image.ids)
        return found or inventories.take(self.client, folder, product, local, image.ids)


def local_ids(images: Mapping[str, str]) -> dict[str, tuple[str]]:
    """Return the ids of local images, one each, in the form that `gates.require` takes."""
    return {product: (image,) for product, image in images.items()}
