"""A run of `docker buildx bake`, with its file and a script that can be read and run by hand."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ftbuild.build import build_log, display, lost, machine, stages
from ftbuild.build.machine import Host
from ftbuild.engine import builders
from ftbuild.errors import BuildError, ConfigError, HostError, PublishError
from ftbuild.host import shell
from ftbuild.text.reporter import Reporter

LOG, METADATA, SCRIPT = "build.log", "metadata.json", "build.sh"
PROGRESS = ("auto", "tty", "plain")
TRIES = 3
# docker's exit code when a signal has ended its plugin, buildx: Go's -1 for that (seen with 26.1).
PLUGIN_KILLED = 255

_SCRIPT = """\
#!/bin/sh
# Repeats this build with Docker alone. Taken from the environment: {variables}.
cd "$(dirname "$0")" || exit
export {name}={settings}"$(env | grep -E '^({pattern})=')"
{command} "$@"
"""


@dataclass(frozen=True)
class Job:
    """One bake run: a folder with all inputs, and the bake file.

    `prefix` separates the files of several runs in one folder.
    """

    folder: Path
    definition: Mapping[str, object]
    prefix: str = ""

    @property
    def file(self) -> Path:
        """Return the path of the bake file."""
        return self.folder / f"{self.prefix}docker-bake.json"

    @property
    def log(self) -> Path:
        """Return the path of BuildKit's output."""
        return self.folder / f"{self.prefix}{LOG}"

    @property
    def metadata(self) -> Path:
        """Return the path of BuildKit's metadata by target (image digests)."""
        return self.folder / f"{self.prefix}{METADATA}"

    @property
    def script(self) -> Path:
        """Return the path of the script that repeats the run."""
        return self.folder / f"{self.prefix}{SCRIPT}"


def write(job: Job, host: Host) -> None:
    """Write the bake file and a script that repeats the run into the job's folder."""
    job.folder.mkdir(parents=True, exist_ok=True)
    job.file.write_text(json.dumps(job.definition, indent=2) + "\n")
    job.script.write_text(
        _SCRIPT.format(
            variables=", ".join(machine.PASSED_ON),
            pattern="|".join(machine.PASSED_ON),
            settings=shlex.quote(host.own_lines()),
            name=machine.SETTINGS,
            command=shlex.join(command_line(job, "plain", host)),
        )
    )
    job.script.chmod(0o755)


def command_line(job: Job, progress: str, host: Host) -> list[str]:
    """Return the bake command, to be run in the job's folder."""
    # buildx builds on another engine only if that is the context of the command (docker/buildx builder.go).
    context = ["--context", host.builder] if host.builder and host.is_engine else []
    chosen = ["--builder", host.builder] if host.builder else []
    files = ["--file", job.file.name, "--metadata-file", job.metadata.name]
    return ["docker", *context, "buildx", "bake", *chosen, *files, "--progress", progress]


def run(job: Job, host: Host, *, report: Reporter = print) -> None:
    """Run bake; its output goes to the terminal and to the job's log.

    Raises BuildError with the failing compiler's lines and the path of the log, HostError if bake was killed,
    the builder was lost or its cache stays damaged, PublishError if a registry did not take what it pushed.
    """
    progress = _progress(host.progress)
    code = repeated(lambda options: _run(job, host, progress, options, report), job.log, report)
    if not code:
        return
    log = _read(job.log)
    builder = host.builder or builders.ENGINE
    # How the end of a connection is worded depends on the moment, so the builder is asked as well.
    if why := lost.line(log) or builders.silence(builder):
        raise HostError(
            lost.message(builder, why),
            where=str(job.log),
            hint="when it answers again (docker buildx ls), the same command continues from its caches",
        )
    if refused := build_log.refused_push(log):
        raise PublishError(
            f"the builder could not push: {refused}",
            where=str(job.log),
            hint="check that the builder reaches the registry, and your login (docker login)",
        )
    if gone := build_log.damaged_cache(log):
        raise HostError(
            f"a layer of the build cache of builder {builder} is gone: {gone}",
            where=str(job.log),
            hint=f"docker buildx prune --all --builder {builder}, then build again: all is compiled anew",
        )
    lines = "\n    ".join(build_log.failing_lines(log))
    raise BuildError(
        f"the build failed (docker buildx bake ended with code {code})\n    {lines}",
        where=str(job.log),
        hint=f"{job.script} repeats this build; after a fix, a new build starts from the caches",
    )


def repeated(attempt: Callable[[Sequence[str]], int], log: Path, report: Reporter) -> int:
    """Run bake, again after a fault of BuildKit itself, and return the last exit code.

    `attempt` gets further options of bake, leaves the output of its run alone in `log`, and returns its exit
    code. Raises HostError if bake was killed.
    """
    options: list[str] = []
    for left in reversed(range(TRIES)):
        code = attempt(options)
        if not code:
            break
        _require_not_killed(code, log)
        output = _read(log)
        if not left:
            break
        if cause := build_log.own_failure(output):
            report(f"BuildKit itself failed ({cause}): trying again")
        elif not options and (gone := build_log.damaged_cache(output)):
            report(
                f"a layer of the build cache is gone ({gone}): trying again without cached layers; "
                "compiled objects stay"
            )
            options = ["--no-cache"]
        else:
            break
    return code


def _require_not_killed(code: int, log: Path) -> None:
    """Raise HostError for the exit code of a bake that a signal has ended."""
    if code < 0 or code == PLUGIN_KILLED:
        raise HostError(
            f"docker buildx bake {shell.ending(code) if code < 0 else 'was ended by a signal'}",
            where=str(log),
            hint="the kernel's log tells if memory ran out (dmesg); the same command continues",
        )


def _read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


def _run(job: Job, host: Host, progress: str, options: Sequence[str], report: Reporter) -> int:
    job.log.unlink(missing_ok=True)
    argv = [*command_line(job, "plain" if progress == "auto" else progress, host), *options]
    settings = machine.environment(host)
    if progress == "auto":
        with display.shown(job.folder.parent.name, _expected(job), report) as read:
            return shell.stream(argv, log=job.log, cwd=job.folder, env=settings, on_line=read)
    if progress == "tty":
        return shell.stream_terminal(argv, log=job.log, cwd=job.folder, env=settings)
    return shell.stream(argv, log=job.log, cwd=job.folder, env=settings, on_line=report)


def _progress(wanted: str) -> str:
    if wanted not in PROGRESS:
        raise ConfigError(f"progress {wanted!r} is unknown", hint=f"one of {', '.join(PROGRESS)}")
    return wanted


def _expected(job: Job) -> tuple[str, ...]:
    """Return what the job's Dockerfiles do for its targets, in words."""
    found: dict[str, None] = {}
    targets = job.definition["target"]
    assert isinstance(targets, Mapping)
    files = {str(Path(each["context"], each.get("dockerfile", "Dockerfile"))) for each in targets.values()}
    for file in sorted(files):
        with contextlib.suppress(OSError):
            text = (job.folder / file).read_text(encoding="utf-8")
            found |= dict.fromkeys(stages.expected(text, [each["target"] for each in targets.values()]))
    return tuple(found)
