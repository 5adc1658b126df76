"""How long BuildKit takes to get a staged folder from its client, as a build hands it over."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.stage import timed
from ftbuild.errors import BuildError

# A bind mount asks for the whole context; COPY would only get what it names.
_DOCKERFILE = "FROM base\nRUN --mount=type=bind,from=sources,target=/src true\n"
_UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_DONE = re.compile(r"transferring sources: ([\d.]+)(B|kB|MB|GB) (?:([\d.]+)s )?done")


@dataclass(frozen=True)
class Transfer:
    """Bytes and seconds as BuildKit tells them: what it had already is compared, not sent."""

    size: float
    seconds: float


def send(base: str, sources: Path, recipe: Path) -> Transfer:
    """One transfer of `sources`, to a step in the image `base`; BuildError when BuildKit does not tell of it.

    `recipe` is the build's own folder, to be made. BuildKit looks for an earlier transfer by its name, so a
    new name is a first transfer.
    """
    recipe.mkdir(exist_ok=True)
    (recipe / "Dockerfile").write_text(_DOCKERFILE)
    contexts = {"base": f"docker-image://{base}", "sources": str(sources)}
    words = [word for name, place in contexts.items() for word in ("--build-context", f"{name}={place}")]
    command = ["docker", "buildx", "build", "--progress", "plain", "--output", "type=cacheonly"]
    said = timed([*command, *words, str(recipe)]).done.stderr
    found = parsed(said)
    if found is None:
        raise BuildError("BuildKit does not tell how much it was sent", where=said[-500:])
    return found


def parsed(said: str) -> Transfer | None:
    """The last line about the context: the ones before it are about its .dockerignore."""
    lines = _DONE.findall(said)
    if not lines:
        return None
    size, unit, seconds = lines[-1]
    return Transfer(float(size) * _UNITS[unit], float(seconds or 0))
