"""What is built here (cells, bases, the OpenAI front, unit tests): its one shape, and the one way to build.

A folder holds all inputs of a build beside its log. Its name has the key of what is built, so that a folder
is never reused for other inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from ftbuild.build import bake
from ftbuild.build.machine import Host
from ftbuild.host import locks
from ftbuild.text.reporter import Reporter


class Buildable(Protocol):
    """Images that one run of bake makes from one folder."""

    @property
    def name(self) -> str:
        """What messages call it: `this cell`, `base open`."""

    @property
    def folder(self) -> Path:
        """The folder of its inputs, named by their key."""

    @property
    def prefix(self) -> str:
        """What separates its files from those of other runs in the same folder."""

    def is_made(self) -> bool:
        """Return whether its images are there, of these inputs."""

    def prepare(self) -> None:
        """Make what it stands on; HostError without the space that it takes."""

    def stage(self) -> Mapping[str, object]:
        """Write all inputs into the folder; return the bake file."""


def ensure(
    wanted: Buildable, host: Host, *, rebuild: bool = False, report: Reporter = print
) -> bake.Job | None:
    """Build images unless they are there or, with `rebuild`, anyway; return the run, None where none was.

    Another command that works in the folder is waited for; it may have made them. Errors as those of
    `prepare`, `stage` and `bake.run`; HostError if the other command takes too long.
    """
    if not rebuild and wanted.is_made():
        return None
    wanted.prepare()
    with locks.cell(wanted.folder, report, wanted.name) as waited:
        if waited and not rebuild and wanted.is_made():
            report("the other command has built it")
            return None
        job = bake.Job(wanted.folder, wanted.stage(), wanted.prefix)
        bake.write(job, host)
        report(f"building with {host.jobs} compile jobs, log: {job.log}")
        bake.run(job, host, report=report)
    return job
