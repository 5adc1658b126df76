"""The files that decide an image: Dockerfiles, the programs that their stages run, requirements."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Base64Bytes

from ftbuild.config.bases import BaseConfig
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError, FtbuildError
from ftbuild.host import reading

# The folder beside a Dockerfile with the programs that its stages run.
STEPS = "steps"
_STEP = re.compile(rf"(?<![\w/-]){STEPS}/([\w.-]+)")


@dataclass(frozen=True)
class RecipeFile:
    """A file of ours that enters the build, by role: its content when it was read, and where from."""

    role: str
    path: Path
    content: Base64Bytes = field(repr=False)
    executable: bool = False

    @property
    def sha256(self) -> str:
        """The digest of the content."""
        return hashlib.sha256(self.content).hexdigest()

    def write(self, to: Path) -> None:
        """Write the file; it is one to run if it was."""
        to.write_bytes(self.content)
        to.chmod(0o755 if self.executable else 0o644)


def files(config: Config, base: BaseConfig) -> Iterator[RecipeFile]:
    """Yield Dockerfiles, requirements and steps of a base; ConfigError for one that cannot be read."""
    dockerfiles = {"dockerfile": config.bases.dockerfile}
    if base.local:
        dockerfiles["base"] = base.local.dockerfile
    named = dockerfiles | base.requirements_by_role()
    found = {role: read(config, role, config.path(relative)) for role, relative in named.items()}
    yield from found.values()
    for role in dockerfiles:
        file = found[role]
        for name in _copied_steps(file.content.decode("utf-8", "replace")):
            yield read(config, f"{role}/{name}", file.path.parent / STEPS / name)


def read(config: Config, role: str, path: Path) -> RecipeFile:
    """Return a file as it is now; ConfigError for one that cannot be read."""
    try:
        content = reading.read_bytes(path)
    except FtbuildError as unusable:
        raise ConfigError(
            f"the {role} file is missing or unusable: {unusable.what}",
            where=f"{config.folder}/bases.yaml: {path}",
        ) from unusable
    return RecipeFile(role, path, content, os.access(path, os.X_OK))


def _copied_steps(dockerfile: str) -> Iterator[str]:
    """Yield each program below `steps/` that the text of a Dockerfile names outside of comments."""
    lines = (line for line in dockerfile.splitlines() if not line.lstrip().startswith("#"))
    return iter(dict.fromkeys(_STEP.findall("\n".join(lines))))
