"""The images that verify checks, and their contents."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache as memoised
from pathlib import Path
from typing import Any

from ftbuild.build import base as bases
from ftbuild.engine import container
from ftbuild.engine.container import ContainerError
from ftbuild.gates.subject import Subject
from ftbuild.gates.verify import elf, filesystem
from ftbuild.gates.verify.sources import Expected

SERVER_FOLDER = "/opt/tritonserver"
BACKEND = f"{SERVER_FOLDER}/backends/fastertransformer"
LIBRARIES = {"runtime": BACKEND, "sdk": "/opt/ftbuild/lib"}

_INSPECTIONS = {
    product: elf.inspection(f"/tmp/{posixpath.basename(folder)}/*.so", folder)
    for product, folder in LIBRARIES.items()
}
_ROOT = "0"
_Copied = Sequence[tuple[str, str]]


class Images:
    """The images of a cell by product, the images that they are compared with, and the contents of all.

    Contents are read at most once. `staged` is the folder of the build's sources, if it still exists, and
    `expected` what they are compared with, if that was prepared.
    """

    def __init__(
        self,
        subject: Subject,
        ids: Mapping[str, str],
        staged: Path | None = None,
        expected: Expected | None = None,
    ) -> None:
        """Raise HostError when the base or its tools (its compiler image has them) cannot be had."""
        self.subject = subject
        self.client = subject.client
        self.plan = subject.plan
        self.ids = ids
        self.staged = staged
        self.expected = expected
        base = self.plan.base
        hint = f"invoke base --base {base.name}" if base.local else "docker load it, or docker pull"
        self.base = container.available(self.client, base.serving, "comparing with the base", hint)
        # Who takes images in place of building them has no use for the compiler image's gigabytes.
        tools = bases.tools(self.client, base)
        self.tools = container.available(self.client, tools, "listing machine code", hint)
        self.contents = memoised(self._contents)
        self.libraries = memoised(self._libraries)
        self._inspected = memoised(self._inspect_both)
        self._known: dict[tuple[str, str], str] = {}

    def attributes(self, image: str) -> dict[str, Any]:
        """Return the engine's description of an image (docker image inspect)."""
        attributes: dict[str, Any] = self.client.images.get(image).attrs
        return attributes

    def labels(self, product: str) -> dict[str, str]:
        """Return the labels of a product's image."""
        return self.attributes(self.ids[product])["Config"].get("Labels") or {}

    def run(self, product: str, script: str) -> str:
        """Return the output of a shell script in a product's image, run by its own user."""
        return self._run(self.ids[product], script)

    def run_together(self, product: str, scripts: Sequence[str]) -> None:
        """Run shell scripts in one container of a product's image, so that `run` starts none for them.

        The tool of `listing` is there.
        """
        self._run_together(self.ids[product], scripts, copied=[(self.tools, self._tool())])

    def listing(self, path: str) -> str:
        """Return the script by which `inspect_in_place` lists a library's machine code."""
        return elf.in_place(self._tool(), path)

    def inspect_in_place(self, product: str, path: str) -> elf.Library:
        """List the machine code of a library where it lies, or of a copy where the tool does not run."""
        image = self.ids[product]
        listed = elf.libraries(self._run(image, self.listing(path), copied=[(self.tools, self._tool())]))
        if not listed:
            folder, name = posixpath.split(path)
            script = elf.inspection(f"/tmp/{name}", folder)
            listed = elf.libraries(self._run(self.tools, script, user=_ROOT, copied=[(image, path)]))
        (library,) = listed
        return library

    def _contents(self, image: str) -> filesystem.Contents:
        return filesystem.parse(container.run(self.client, image, filesystem.LISTING, user=_ROOT))

    def _libraries(self, product: str) -> tuple[elf.Library, ...]:
        """Inspect the libraries of a product's image with the tools of the base."""
        self._inspected()
        copied = [(self.ids[product], LIBRARIES[product])]
        return elf.libraries(self._run(self.tools, _INSPECTIONS[product], user=_ROOT, copied=copied))

    def _tool(self) -> str:
        """Return where the tool of `listing` is."""
        self._inspected()
        return self._run(self.tools, elf.FIND_TOOL, user=_ROOT).strip()

    def _inspect_both(self) -> None:
        folders = [(image, LIBRARIES[product]) for product, image in self.ids.items()]
        scripts = [elf.FIND_TOOL, *(_INSPECTIONS[product] for product in self.ids)]
        self._run_together(self.tools, scripts, user=_ROOT, copied=folders)

    def _run(self, image: str, script: str, *, user: str | None = None, copied: _Copied = ()) -> str:
        """Return the output of a script, which runs alone unless `_run_together` has run it."""
        known = self._known.get((image, script))
        return container.run(self.client, image, script, user=user, copied=copied) if known is None else known

    def _run_together(
        self, image: str, scripts: Sequence[str], *, user: str | None = None, copied: _Copied = ()
    ) -> None:
        """Run scripts in one container. If it fails, each is to run alone, to fail or not by itself."""
        with suppress(ContainerError):
            outputs = container.run_all(self.client, image, scripts, user=user, copied=copied)
            self._known.update(zip(((image, script) for script in scripts), outputs, strict=True))
