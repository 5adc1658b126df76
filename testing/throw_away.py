"""The throw-away containers of a command that a test has started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ftbuild.engine import daemon

if TYPE_CHECKING:
    import docker


def containers_of(client: docker.DockerClient, pid: int, role: str) -> set[str]:
    """Return the names of those that a process has made, or one that it has started."""
    label = f"{daemon.ROLE}={role}"
    found = client.containers.list(all=True, filters={"label": label}, ignore_removed=True)
    owners = {str(each.name): int(each.labels[daemon.OWNER].split("/")[3]) for each in found}
    return {name for name, owner in owners.items() if _descends(owner, pid)}


def _descends(pid: int, ancestor: int) -> bool:
    while pid > 1 and pid != ancestor:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return pid == ancestor
