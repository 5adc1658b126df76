"""Image pairs in a real registry, as `invoke registry.stage` leaves them, without an engine."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ftbuild.gates.report import SMOKE, VERIFY, Gate, GateReport
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import names, preview, publish
from ftbuild.publishing.attest.inventory import Inventory
from ftbuild.publishing.inventories import StoredInventory
from ftbuild.publishing.preview import Planned
from ftbuild.publishing.publish import Outcome
from ftbuild.publishing.session import Options
from ftbuild.publishing.signing import Signer
from ftbuild.registry.client import Descriptor, Repository
from testing import gate_records

CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
GATES = (VERIFY, SMOKE)


class Recorder:
    """A signer that notes what it signs, in its order: `image` or the kind of a statement, and its name."""

    is_logged = False

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []

    def has_signed(self, name: str, report: object) -> bool:
        return ("image", name) in self.done

    def sign(self, name: str, report: object) -> None:
        self.done.append(("image", name))

    def attest(self, name: str, kind: str, predicate: object, report: object) -> None:
        self.done.append((kind.rpartition("gate/")[2].removesuffix("/v1"), name))


@dataclass(frozen=True)
class Image:
    """An image in the registry: its manifest, and the id that an engine would give it."""

    manifest: Descriptor
    id: str


@dataclass(frozen=True)
class Shelf:
    """A repository, and the work folder with the records about its images."""

    names: names.Names
    work: Path
    said: list[str]

    @cached_property  # A new one asks anew how the registry is reached.
    def repository(self) -> Repository:
        return Repository(self.names.repository)

    def image(self, plan: Plan, product: str, *tags: str, **labels: str) -> Image:
        """Put a new image with the labels that a build sets, and `tags`; it has a random layer."""
        settings = {"Labels": {**plan.labels(product), **labels}}
        return self.image_of([os.urandom(100)], *tags or ("some",), config=settings)

    def image_of(self, layers: Sequence[bytes], *tags: str, **more: Any) -> Image:
        """Put an image with these layers and `tags`; `more` are further keys of its configuration."""
        put = [self.repository.put_blob(each, LAYER) for each in layers]
        config = {"architecture": "amd64", "os": "linux", **more}
        config |= {"rootfs": {"type": "layers", "diff_ids": [each.digest for each in put]}}
        stored = self.repository.put_blob(json.dumps(config).encode(), CONFIG)
        content = {"schemaVersion": 2, "config": stored.as_dict(), "layers": [each.as_dict() for each in put]}
        raw = json.dumps({**content, "mediaType": MANIFEST}).encode()
        for tag in tags:
            manifest = self.repository.put_manifest(tag, raw, MANIFEST)
        return Image(manifest, stored.digest)

    def stage(self, plan: Plan, **labels: str) -> dict[str, str]:
        """Stage a new pair of images, with further labels, and their inventories; return their ids."""
        found = {}
        for product in PRODUCTS:
            image = self.image(plan, product, self.names.staged(plan, product), **labels)
            listed = StoredInventory(image.id, Inventory("debian", "12", (), (), ()))
            file = plan.folder(self.work) / f"inventory-{product}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(TypeAdapter(StoredInventory).dump_json(listed))
            found[product] = image.id
        return found

    def judge(self, plan: Plan, images: Mapping[str, str], gates: Sequence[Gate] = GATES) -> None:
        """Write the records of gates that the images passed."""
        for gate in gates:
            found = gate_records.results(gate, plan)
            GateReport(gate, plan, images, found).write(plan.folder(self.work))

    def tested(self, plan: Plan, **labels: str) -> dict[str, str]:
        """Stage a new pair that passed both gates, and return the ids."""
        images = self.stage(plan, **labels)
        self.judge(plan, images)
        return images

    def publish(self, *plans: Plan, signer: Signer | None = None, **allowed: Any) -> list[Outcome]:
        """Publish cells in this process; `allowed` are options such as `force`."""
        options = Options(self.names, self.work, signer=signer, **allowed)
        return publish.publish_cells(plans, options, report=self.said.append)

    def foresee(self, *plans: Plan, signer: Signer | None = None, **allowed: Any) -> list[Planned]:
        """Return what the dry run says of cells."""
        options = Options(self.names, self.work, signer=signer, **allowed)
        return preview.preview(plans, options, report=self.said.append)

    def elsewhere(self, work: Path) -> Shelf:
        """Return the same repository with another work folder."""
        return replace(self, work=work)

    def immutable(self, plan: Plan) -> dict[str, str]:
        """Return the digests behind the immutable tags that are set."""
        return self._digests(plan, moving=False)

    def moving(self, plan: Plan) -> dict[str, str]:
        """Return the digests behind the moving tags that are set."""
        return self._digests(plan, moving=True)

    def _digests(self, plan: Plan, *, moving: bool) -> dict[str, str]:
        heads = {p: self.repository.head(names.tag(plan, p, moving=moving)) for p in PRODUCTS}
        return {product: head.digest for product, head in heads.items() if head}

    def index(self, plan: Plan, product: str) -> dict[str, Any]:
        """Return the index under an immutable tag, to be changed and put back by `replace_index`."""
        found = self.repository.manifest(names.tag(plan, product))
        assert found
        content: dict[str, Any] = json.loads(found.raw)
        return content

    def replace_index(self, plan: Plan, product: str, content: Mapping[str, Any]) -> str:
        """Put an index under an immutable tag, as anybody may who can push."""
        tag = names.tag(plan, product)
        return self.repository.put_manifest(tag, json.dumps(content).encode(), INDEX).digest
