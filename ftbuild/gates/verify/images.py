"""The images that verify checks, and their contents."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache as memoised
from pathlib import Path
from typing import Any

from ftbuild.engine import container
from ftbuild.gates.subject import Subject
from ftbuild.gates.verify import elf, filesystem

SERVER_FOLDER = "/opt/tritonserver"
BACKEND = f"{SERVER_FOLDER}/backends/fastertransformer"
LIBRARIES = {"runtime": BACKEND, "sdk": "/opt/ftbuild/lib"}


class Images:
    """The images of a cell by product, the images that they are compared with, and the contents of all.

    Contents are read at most once. `staged` is the folder of the build's sources, if it still exists.
    """

    def __init__(self, subject: Subject, ids: Mapping[str, str], staged: Path | None = None) -> None:
        """Raise HostError when the base or its compiler image cannot be had."""
        self.subject = subject
        self.client = subject.client
        self.plan = subject.plan
        self.ids = ids
        self.staged = staged
        base = self.plan.base
        hint = f"invoke base --base {base.name}" if base.local else "docker load it, or docker pull"
        self.base = container.available(self.client, base.serving, "comparing with the base", hint)
        self.devel = container.available(self.client, base.devel, "listing machine code", hint)
        self.contents = memoised(self._contents)
        self.libraries = memoised(self._libraries)

    def attributes(self, image: str) -> dict[str, Any]:
        """Return the engine's description of an image (docker image inspect)."""
        attributes: dict[str, Any] = self.client.images.get(image).attrs
        return attributes

    def labels(self, product: str) -> dict[str, str]:
        """Return the labels of a product's image."""
        return self.attributes(self.ids[product])["Config"].get("Labels") or {}

    def run(self, product: str, script: str) -> str:
        """Return the output of a shell script in a product's image."""
        return container.run(self.client, self.ids[product], script)

    def inspect(self, product: str, path: str, files: str, folder: str) -> tuple[elf.Library, ...]:
        """Inspect libraries of a product's image with the tools of the compiler image.

        `path` is a file or folder to copy, `files` a glob for the libraries in the copy, and `folder` where
        the image has them.
        """
        script, copied = elf.inspection(files, folder), (self.ids[product], path)
        return elf.libraries(container.run(self.client, self.devel, script, user="0", copied=copied))

    def _contents(self, image: str) -> filesystem.Contents:
        return filesystem.parse(container.run(self.client, image, filesystem.LISTING, user="0"))

    def _libraries(self, product: str) -> tuple[elf.Library, ...]:
        folder = LIBRARIES[product]
        return self.inspect(product, folder, f"/tmp/{Path(folder).name}/*.so", folder)
