"""What publishing goes between: two repositories, the engine, the work folder with the gates' records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild.engine import daemon
from ftbuild.engine.daemon import ImageNotBuilt
from ftbuild.errors import PublishError
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import inventories, push, remote_image
from ftbuild.publishing.attest.inventory import Inventory
from ftbuild.publishing.names import Names
from ftbuild.publishing.remote_image import RemoteImage
from ftbuild.publishing.signing import Signer
from ftbuild.registry.client import Repository
from ftbuild.registry.session import Session
from ftbuild.text.reporter import Reporter, prefixed

if TYPE_CHECKING:
    import docker


@dataclass(frozen=True)
class Options:
    """Where images go to, and what may be published; `work` holds the records of the gates."""

    names: Names
    work: Path
    allow_unsmoked: bool = False
    signer: Signer | None = None


class PublishSession:
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
            self._client = daemon.connect()
        return self._client

    def folder(self, plan: Plan) -> Path:
        """Where the gates put their records."""
        return plan.folder(self.options.work)

    def built(self, plan: Plan) -> dict[str, str]:
        """Return the ids of the images that are built here, by product; PublishError when one is not."""
        try:
            return {product: daemon.require_image(self.client, plan.tag(product)) for product in PRODUCTS}
        except ImageNotBuilt as absent:
            raise absent.converted(PublishError) from absent

    def staged(self, plan: Plan) -> dict[str, RemoteImage]:
        """The images that wait in the staging repository; PublishError when one is missing."""
        found = {
            product: remote_image.read(self.staging, self.options.names.staged(plan, product))
            for product in PRODUCTS
        }
        images = {product: image for product, image in found.items() if image}
        if len(images) < len(PRODUCTS):
            raise PublishError(
                f"{plan.cell.id} is neither built here nor staged",
                where=f"{self.staging.name}:{self.options.names.staged(plan, PRODUCTS[0])}",
                hint="invoke build here, or invoke registry.stage where it is built, for this cell",
            )
        return images

    def push(self, product: str, image: str, tag: str, report: Reporter) -> RemoteImage:
        """A local image under a staged tag, pushed unless it is there."""
        there = remote_image.read(self.staging, tag)
        if there and image in there.ids:
            return there
        report(f"pushing {product}")
        return push.push(self.client, image, self.staging, tag, report)

    def inventory(self, plan: Plan, product: str, image: RemoteImage, local: str) -> Inventory:
        """What lies in an image, as noted in the cell's folder, or else read from the local one."""
        folder = self.folder(plan)
        found = inventories.read(folder, product, image.ids)
        return found or inventories.take(self.client, folder, product, local, image.ids)


def saying(plan: Plan, report: Reporter) -> Reporter:
    """Return a reporter of messages about one cell."""
    return prefixed(report, plan.cell.id)


def only(images: Mapping[str, str]) -> dict[str, tuple[str]]:
    """Local images, which have the one id that their engine gives them."""
    return {product: (image,) for product, image in images.items()}
