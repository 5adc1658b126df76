"""A container of a deployment with no more rights than it needs, started or as a `docker run` command.

Its root file system and its mounts are read-only, it has no capabilities, and its processes are counted.
"""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftbuild.errors import HostError
from ftbuild.text.units import MIB
from ftserve.deployment import TMP, TMP_SIZE

if TYPE_CHECKING:
    import docker
    from docker.models.containers import Container

_TMP_OPTIONS = f"size={TMP_SIZE // MIB}m"


@dataclass(frozen=True)
class Confined:
    """What every container of a deployment states; `what` names it in messages.

    `mounts` holds folders and files of this machine by their place in the container. `memory` is in MiB, None
    for no limit.
    """

    what: str
    name: str
    image: str
    command: Sequence[str]
    labels: Mapping[str, str]
    mounts: Mapping[str, str]
    processes: int
    memory: int | None

    def command_line(self, *own: str) -> str:
        """Return what `start` does as a `docker run` to paste into a shell; `own` are options of this one."""
        argv = ["docker", "run", "--detach", f"--name={self.name}"]
        argv += [f"--label={name}={value}" for name, value in self.labels.items()]
        argv += ["--read-only", f"--tmpfs={TMP}:{_TMP_OPTIONS}"]
        argv += ["--cap-drop=ALL", "--security-opt=no-new-privileges", f"--pids-limit={self.processes}"]
        if self.memory is not None:
            argv.append(f"--memory={self.memory}m")
        argv += [_mount(source, target) for target, source in self.mounts.items()]
        return shlex.join([*argv, *own, self.image, *self.command])

    def start(self, client: docker.DockerClient, **own: Any) -> Container:
        """Start the container; HostError when the engine refuses, and then nothing is left of it."""
        from docker.errors import APIError
        from docker.types import Mount

        container = None
        try:
            container = client.containers.create(
                self.image,
                list(self.command),
                name=self.name,
                labels=dict(self.labels),
                mounts=[
                    Mount(target, source, type="bind", read_only=True)
                    for target, source in self.mounts.items()
                ],
                read_only=True,
                tmpfs={TMP: _TMP_OPTIONS},
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                pids_limit=self.processes,
                mem_limit=None if self.memory is None else self.memory * MIB,
                **own,
            )
            container.start()
        except BaseException as failed:
            if container is not None:
                container.remove(force=True, v=True)
            if isinstance(failed, APIError):
                raise HostError(
                    f"the engine cannot start {self.what}: {failed.explanation or failed}",
                    where=self.image,
                    hint="`invoke serve --dry-run` prints the docker run command to try by hand",
                ) from failed
            raise
        return container


def _mount(source: str, target: str) -> str:
    """Return the option of a mount: a line of CSV, so that a path may hold a comma."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(("type=bind", f"source={source}", f"target={target}"))
    return f"--mount={line.getvalue()},readonly"
