"""Small image pairs in place of built ones, their gate records, and the publishing commands.

An image holds a shell and a few random bytes, which is all that publishing needs, so that a push is quick.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftbuild.cli.selection import Selection, plans
from ftbuild.config import loader
from ftbuild.gates.report import SMOKE, VERIFY, Gate, GateReport
from ftbuild.host import archives, shell
from ftbuild.plan import LABELS, PRODUCTS, Plan
from ftbuild.publishing import remote_image
from ftbuild.publishing.remote_image import RemoteImage
from ftbuild.registry.client import Repository
from ftbuild.text.results import State
from testing import ROOT, forked, gate_records
from testing.registries import Registry
from testing.sample import SAMPLE, command, environment

if TYPE_CHECKING:
    import docker

CELL = ("--triton", "22.12", "--sm", "86")
GATES = (VERIFY, SMOKE)
MARK = "ftbuild-tests"  # the label of images that tests have made
Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Bench:
    """An engine, a configuration with an image name of its own, and a work folder."""

    client: docker.DockerClient
    config: Path
    work: Path
    image: str

    def plan(self, *cell: str) -> Plan:
        """Return the plan of the cell that a command's options select."""
        options = dict(zip(cell[::2], cell[1::2], strict=True))
        chosen = Selection(self.config, [options["--triton"]], [options["--sm"]])
        (plan,) = plans(loader.load(self.config), chosen)
        return plan

    def folder(self, plan: Plan) -> Path:
        """Return the folder with a cell's gate records."""
        return plan.folder(self.work)

    def build(self, plan: Plan, size: int = 1000, **labels: str) -> dict[str, str]:
        """Build and tag a new pair of images; return their ids by kind. `size` is the runtime's, in bytes.

        `labels` are further ones of ftbuild's, with underscores for dashes.
        """
        sizes = dict(zip(PRODUCTS, (size, 1000), strict=True))
        named = {f"{LABELS}.{name.replace('_', '-')}": value for name, value in labels.items()}
        return {product: self._build(plan, product, sizes[product], named) for product in PRODUCTS}

    def change(self) -> None:
        """Pin another commit, so that every cell has a new input key."""
        lock = self.config / "sources.lock.yaml"
        commit = self.plan(*CELL).source("ft").commit
        lock.write_text(lock.read_text().replace(commit, commit[::-1]))

    def judge(
        self, plan: Plan, images: Mapping[str, str], *gates: Gate, state: State = State.OK, key: str = ""
    ) -> None:
        """Write the records of complete runs of gates, whose first check ended in the given state."""
        for gate in gates:
            found = gate_records.results(gate, plan, state)
            GateReport(gate, plan, images, found).write(self.folder(plan))
            if key:
                file = self.folder(plan) / gate.record
                file.write_text(file.read_text().replace(plan.key, key))

    def tested(self, *cell: str, size: int = 1000) -> tuple[Plan, dict[str, str]]:
        """Return the plan and the ids of a new pair that has passed both gates."""
        plan = self.plan(*(cell or CELL))
        images = self.build(plan, size)
        self.judge(plan, images, *GATES)
        return plan, images

    def start(self, registry: Registry, task: str, *options: str, **extra: str) -> subprocess.Popen[str]:
        """Start `invoke` with its output in pipes, as a program that can be killed and measured."""
        return subprocess.Popen(
            command(*self._command(task, *options)),
            cwd=ROOT,
            env=environment(self.work, **registry.environment, **extra),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, registry: Registry, task: str, *options: str, **extra: str) -> Done:
        """Run `invoke`; return its output and exit code."""
        command = self._command(task, *options)
        return forked.invoke(*command, env=environment(self.work, **registry.environment, **extra))

    def publish(self, registry: Registry, *options: str, cell: tuple[str, ...] = CELL, **extra: str) -> Done:
        """Run `invoke publish` for a cell below the registry's path."""
        return self.run(registry, "publish", "--registry", registry.prefix, *cell, *options, **extra)

    def repository(self, registry: Registry, stage: str = "") -> Repository:
        """Return the repository to which `publish` pushes."""
        return Repository("/".join([registry.prefix, *([stage] if stage else []), self.image]))

    def forget(self) -> None:
        """Remove all images of this bench from the engine, and containers that killed runs left."""
        from docker.errors import ImageNotFound

        ours: dict[str, str | list[str] | bool] = {"label": f"{MARK}={self.image}"}
        for left in self.client.containers.list(all=True, filters=ours):
            left.remove(force=True)
        for found in self.client.images.list(filters=ours):
            for name in [*found.tags, *(found.attrs["RepoDigests"] or [])]:
                with suppress(ImageNotFound):
                    self.client.images.remove(name, force=True)
        for overwritten in self.client.images.list(filters=ours):
            overwritten.remove(force=True)

    def _command(self, task: str, *options: str) -> tuple[str, ...]:
        """Return the arguments of a command, which also publishes from a checkout with changes."""
        allowed = ("--allow-dirty",) if task == "publish" else ()
        return (task, "--config", str(self.config), *allowed, *options)

    def _build(self, plan: Plan, product: str, size: int, labels: Mapping[str, str]) -> str:
        name, _, tag = plan.tag(product).rpartition(":")
        with _container(self.client, f"{self.image}:shell") as container:
            self.client.api.put_archive(container, "/", tar({"payload": os.urandom(size)}))
            config = {"Labels": {**plan.labels(product), **labels, MARK: self.image}}
            return str(self.client.api.commit(container, repository=name, tag=tag, conf=config)["Id"])


@contextmanager
def bench(client: docker.DockerClient, folder: Path) -> Iterator[Bench]:
    """Yield a bench below `folder`; remove its images from the engine at the end."""
    image, config = f"tested-{uuid.uuid4().hex[:8]}", folder / "buildcfg"
    config.mkdir(parents=True)
    for file in SAMPLE.glob("*.yaml"):
        text = file.read_text().replace("../../", f"{ROOT}/")
        # As real images are published, which these some megabytes stand for.
        text = text.replace("compression: gzip", "compression: zstd")
        (config / file.name).write_text(re.sub(r"(?m)^image: .*$", f"image: {image}", text))
    made = Bench(client, config, folder / "work", image)
    client.api.import_image_from_data(
        tar(_shell()), repository=image, tag="shell", changes=[f"LABEL {MARK}={image}"]
    )
    try:
        yield made
    finally:
        made.forget()


def tar(files: Mapping[str, bytes]) -> bytes:
    """Return an archive of executable files, as the engine takes it."""
    return archives.packed(files, 0o755)


def inspected(name: str, template: str, registry: Registry) -> Any:
    """Return the output of Docker's own tool about an image in a registry."""
    argv = ["docker", "buildx", "imagetools", "inspect", name, "--format", template]
    return json.loads(shell.run(argv, env=registry.environment, timeout=60).stdout)


def complete_ids(repository: Repository, reference: str) -> frozenset[str]:
    """Return the ids of the image behind a published tag, none if there is no such tag.

    Fails if any part of it is missing: manifests, attestation, layers.
    """
    index = repository.manifest(reference)
    if index is None:
        return frozenset()
    image, attestation = (repository.manifest(part.digest) for part in remote_image.parts(index))
    assert image, f"{reference} has no image"
    assert attestation, f"{reference} has no attestation"
    for manifest in (image, attestation):
        assert manifest.content.config
        for part in (manifest.content.config, *(manifest.content.layers or ())):
            assert len(repository.blob(part.digest, part.size)) == part.size
    return RemoteImage(index, image).ids


def moving(plan: Plan) -> dict[str, str]:
    """Return the moving tags of a cell, by image kind."""
    return {product: plan.tag(product, moving=True).rpartition(":")[2] for product in PRODUCTS}


def immutable(plan: Plan) -> dict[str, str]:
    """Return the immutable tags of a cell, by image kind."""
    return {product: plan.tag(product).rpartition(":")[2] for product in PRODUCTS}


@contextmanager
def _container(client: docker.DockerClient, image: str) -> Iterator[str]:
    container = client.api.create_container(image, command=["/bin/sh"])["Id"]
    try:
        yield container
    finally:
        client.api.remove_container(container)


def _shell() -> dict[str, bytes]:
    """Return this machine's /bin/sh and the libraries that it is linked with, under the loader's names."""
    linked = re.findall(r"(/\S+) \(0x", shell.run(["ldd", "/bin/sh"]).stdout)
    return {path.lstrip("/"): Path(path).read_bytes() for path in ("/bin/sh", *linked)}
