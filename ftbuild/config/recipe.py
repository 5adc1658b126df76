"""The files that decide an image: Dockerfiles, the programs that their stages run, requirements."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ftbuild.config.schema import BaseConfig, Config
from ftbuild.errors import ConfigError, FtbuildError
from ftbuild.host import reading

# The folder beside a Dockerfile with the programs that its stages run.
STEPS = "steps"
_STEP = re.compile(rf"(?<![\w/-]){STEPS}/([\w.-]+)")


@dataclass(frozen=True)
class RecipeFile:
    """A file of ours that enters the build, by role."""

    role: str
    path: Path
    sha256: str


def files(config: Config, base: BaseConfig) -> Iterator[RecipeFile]:
    """Yield Dockerfiles, requirements and steps of a base; ConfigError for one that cannot be read."""
    dockerfiles = {"dockerfile": config.bases.dockerfile}
    if base.local:
        dockerfiles["base"] = base.local.dockerfile
    named = dockerfiles | base.requirements_by_role()
    read = {role: _file(config, role, config.path(relative)) for role, relative in named.items()}
    yield from (file for file, _ in read.values())
    for role in dockerfiles:
        file, content = read[role]
        for name in _copied_steps(content.decode("utf-8", "replace")):
            yield _file(config, f"{role}/{name}", file.path.parent / STEPS / name)[0]


def _file(config: Config, role: str, path: Path) -> tuple[RecipeFile, bytes]:
    try:
        content = reading.read_bytes(path)
    except FtbuildError as unusable:
        raise ConfigError(
            f"the {role} file is missing or unusable: {unusable.what}",
            where=f"{config.folder}/bases.yaml: {path}",
        ) from unusable
    return RecipeFile(role, path, hashlib.sha256(content).hexdigest()), content


def _copied_steps(dockerfile: str) -> Iterator[str]:
    """Yield each program below `steps/` that the text of a Dockerfile names outside of comments."""
    lines = (line for line in dockerfile.splitlines() if not line.lstrip().startswith("#"))
    return iter(dict.fromkeys(_STEP.findall("\n".join(lines))))
