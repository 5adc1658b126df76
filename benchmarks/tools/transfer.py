"""Transfer of a staged folder to BuildKit, as at the start of a build."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.workspace import timed
from ftbuild.errors import BuildError

# A bind mount requests the whole context; COPY would only request the files it names.
_DOCKERFILE = "FROM base\nRUN --mount=type=bind,from=sources,target=/src true\n"
_UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_DONE = re.compile(r"transferring sources: ([\d.]+)(B|kB|MB|GB) (?:([\d.]+)s )?done")


@dataclass(frozen=True)
class Transfer:
    """Bytes and seconds reported by BuildKit: files that it had already are compared, not sent."""

    size: float
    seconds: float


def send(base: str, sources: Path, recipe: Path) -> Transfer:
    """Transfer `sources` to a step in the image `base`; BuildError if BuildKit reports no transfer.

    `recipe` is a new folder for the build. BuildKit finds an earlier transfer by this name, so a new name
    makes a first transfer.
    """
    recipe.mkdir(exist_ok=True)
    (recipe / "Dockerfile").write_text(_DOCKERFILE)
    contexts = {"base": f"docker-image://{base}", "sources": str(sources)}
    words = [word for name, place in contexts.items() for word in ("--build-context", f"{name}={place}")]
    command = ["docker", "buildx", "build", "--progress", "plain", "--output", "type=cacheonly"]
    output = timed([*command, *words, str(recipe)]).done.stderr
    figures = parsed(output)
    if figures is None:
        raise BuildError("BuildKit's output has no transferred bytes", where=output[-500:])
    return figures


def parsed(output: str) -> Transfer | None:
    """Return the last transfer in the output; earlier ones are that of .dockerignore."""
    lines = _DONE.findall(output)
    if not lines:
        return None
    size, unit, seconds = lines[-1]
    return Transfer(float(size) * _UNITS[unit], float(seconds or 0))
