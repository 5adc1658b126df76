"""NVIDIA's images of later releases: which of them have the CUDA that our libraries need. None is built on.

    python -m tests.unit.docs.later_images     # the table of docs/adding-a-release.md

The version of TRITONBACKEND's API does not separate them (1.10 in core r22.12, 1.19 in r24.10 and r26.06: a
server takes what asks for the same major and a lower minor one). Their CUDA does: its libraries have the
major version in their names.
"""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import Version

from ftbuild import triton
from ftbuild.config import holes, loader
from ftbuild.config.schema import Config


@dataclass(frozen=True)
class NotBuiltHere:
    """A later image. `fits` is whether it has the CUDA of our `libraries`, `critical` counts known holes."""

    image: str
    triton: str
    server: str
    cublas: int
    needed: int
    libraries: str
    fits: bool
    critical: int


def images(config: Config) -> list[NotBuiltHere]:
    """Return the later images of bases.yaml, in its order."""
    described = config.bases.not_built
    if described is None:
        return []
    cuda = config.bases.bases[described.libraries].cuda
    assert cuda is not None
    needed = Version(cuda).major
    return [
        NotBuiltHere(
            described.image.format(release=release),
            release,
            image.server,
            image.cublas,
            needed,
            described.libraries,
            image.cublas == needed,
            _critical(config, image.server),
        )
        for release, image in described.images.items()
    ]


def _critical(config: Config, server: str) -> int:
    known = holes.known(config.holes, {triton.PURL: f"v{server}"}, local=False)
    return sum(hole.critical for hole in known.open())


def table(config: Config) -> str:
    """Return the images in Markdown, with whether our libraries could be layered on them."""
    lines = [
        "| NVIDIA's image | server | its libcublas | critical vulnerabilities | our libraries |",
        "|---|---|---|---|---|",
    ]
    for each in images(config):
        fits = (
            f"CUDA as in `{each.libraries}`; never tried" if each.fits else f"no: they need .so.{each.needed}"
        )
        lines.append(f"| `{each.image}` | {each.server} | .so.{each.cublas} | {each.critical} | {fits} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(loader.load(loader.OWN)), end="")
