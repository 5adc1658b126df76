"""Bake files (`docker-bake.json`) of plans, readable and runnable by hand, and `docker buildx bake`.

Target names have no dot, which bake would read as a nested attribute (docker/buildx docs/bake-reference.md).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftbuild import cmake
from ftbuild.build import compile_order, display, lost, packages, proxies, stages
from ftbuild.engine import builders
from ftbuild.errors import BuildError, ConfigError, HostError, PublishError
from ftbuild.host import shell
from ftbuild.plan import LABELS, PRODUCTS, Plan
from ftbuild.text.reporter import Reporter

# The named contexts with the wheels of each role, in folders of their own, and with the patched sources.
WHEELS = "wheels"
SOURCES = "sources"
# That with what was compiled elsewhere, and the stage with what was used of ccache.
OBJECTS, USED_OBJECTS = "objects", "used-objects"
LOG, METADATA, SCRIPT = "build.log", "metadata.json", "build.sh"
# The variable that hands the machine's settings, passwords among them, to buildx: no file holds them.
SETTINGS = "HOST_SETTINGS"
# A secret changes no cache key.
SECRETS = [f"type=env,id=host,env={SETTINGS}"]
# The file that held the settings in earlier versions.
OLD_SETTINGS = "host.env"
PROGRESS = ("auto", "tty", "plain")
# A compiler cache shared by machines (ccache(1), remote storage backends).
REMOTE_STORAGE = "CCACHE_REMOTE_STORAGE"
ONLINE = f"{REMOTE_STORAGE} is set: compile steps have network access, and the images are labelled so"
# The label of images whose objects may come from other machines: their builds are trusted as well.
CACHE_LABEL = f"{LABELS}.compiler-cache"
REMOTE = "remote"
# The label of images for which objects were brought from a registry: `repository@digest`.
OBJECTS_LABEL = f"{LABELS}.objects"
# Variables of the user's environment that compile steps need, for the compiler cache.
PASSED_ON = ("CCACHE_MAXSIZE", REMOTE_STORAGE)
# The time in an image's configuration and history (moby/buildkit docs/build-repro.md). No Dockerfile declares
# it, so it changes no step; the times of files are those of steps/fixed-times.sh.
EPOCH = "SOURCE_DATE_EPOCH"
# Errors of BuildKit itself, not of the build. A step that two builds share belongs to the session of the
# first, and may fail with it when that one is interrupted; equal steps of several targets may be merged into
# one that is gone already (moby/buildkit issues 2303 and 3635).
_BUILDKIT_ERRORS = ("no active sessions", "inconsistent graph state", "failed to get state for index")
TRIES = 3
# A registry does not take what the builder pushes: by BuildKit, and by an engine, which says so at that step.
_NOT_PUSHED = re.compile(
    r"^ERROR: (?P<buildkit>.*failed to push .*)"
    r"|^#(?P<step>\d+) (?:\[.*\] )?pushing .* with docker\n(?:.*\n)*?#(?P=step) ERROR: (?P<engine>.*)",
    re.M,
)
_ERROR_LINE = re.compile(
    r"(?:^|\s)(?:fatal )?error[:\s]|CMake Error|FAILED:|undefined reference|Killed|ftbuild:", re.I
)
# The shell's and gcc's words for SIGKILL; later versions of ninja and BuildKit print the code, 128 + 9.
_MEMORY = re.compile(
    r"\bKilled\b|signal 9|exit code: 137|code=137|cannot allocate memory|virtual memory exhausted|bad_alloc",
    re.I,
)
_STEP_PREFIX = re.compile(r"^#\d+ (?:\d+\.\d+ )?")


_SCRIPT = """\
#!/bin/sh
# Repeats this build with Docker alone. Taken from the environment: {variables}.
cd "$(dirname "$0")" || exit
export {name}={settings}"$(env | grep -E '^({pattern})=')"
{command} "$@"
"""


@dataclass(frozen=True)
class Host:
    """Settings of the machine, passed to the build as secrets so that they change no cache key.

    `cache` is a repository in a registry for layers. `full`: the builder can fill it, and attest its images,
    which an engine with its own image store cannot (docs.docker.com/build/builders/drivers). `driver` is
    that of `builder`. With `recompile`, no object of before is used.
    """

    jobs: int
    ca: Path | None = None
    builder: str | None = None
    progress: str = "auto"
    cache: str | None = None
    full: bool = False
    driver: str = ""
    recompile: bool = False

    @property
    def is_engine(self) -> bool:
        """Return whether the builder is that of an engine, which is a docker context for buildx."""
        return self.driver == builders.DOCKER

    def lines(self) -> str:
        """Return the `host` secret: KEY=VALUE lines, the environment of steps that compile."""
        return self.own_lines() + _lines({name: os.environ[name] for name in PASSED_ON if name in os.environ})

    def own_lines(self) -> str:
        """Return the lines that hold no variable of the user's."""
        return _lines(
            {
                "JOBS": str(self.jobs),
                "JOB_BYTES": str(cmake.MEMORY_PER_JOB_BYTES),
                "HEAVIEST": compile_order.SOURCES,
                **({"CCACHE_RECACHE": "1"} if self.recompile else {}),
            }
        )


@dataclass(frozen=True)
class Staging:
    """Where a builder pushes the images of a cell, for an engine that it does not load them into.

    `tags` by product are for builders whose pushes need one; without, they push by digest. `serving` and
    `devel` are names of the base's images that the builder can pull.
    """

    repository: str
    serving: str
    devel: str
    tags: Mapping[str, str] | None = None

    def target(self, product: str) -> dict[str, Any]:
        """Return the part of a bake target that decides where its image goes."""
        if self.tags:
            return {"tags": [f"{self.repository}:{self.tags[product]}"], "output": ["type=image,push=true"]}
        by_digest = "push-by-digest=true,name-canonical=true,push=true"
        return {"tags": [], "output": [f"type=image,name={self.repository},{by_digest}"]}


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


def compiles_online() -> bool:
    """Return whether compile steps get network access, which they only do for a remote compiler cache."""
    return bool(os.environ.get(REMOTE_STORAGE))


def cell_definition(
    plan: Plan, host: Host, staging: Staging | None = None, objects: str = ""
) -> dict[str, object]:
    """Return the bake file of a cell, for its staged folder: one target per image kind.

    Two more targets export the figures of both compiles (configure and ninja log, ccache, SASS) to `info/`;
    another one, on request, what they have used of ccache. With `staging`, the builder pushes the images
    instead of loading them into the engine. `objects` names what was brought into the folder, if anything.
    """
    targets = {target_name(plan, product): image_target(plan, product, host, staging) for product in PRODUCTS}
    for target in targets.values():
        target["labels"] |= {OBJECTS_LABEL: objects} if objects else {}
    info = {
        target_name(plan, f"{tree.name}-info"): info_target(plan, tree.name, staging) for tree in plan.trees
    }
    return definition({**targets, **info}, {target_name(plan, USED_OBJECTS): _objects_target(plan, staging)})


def _objects_target(plan: Plan, staging: Staging | None) -> dict[str, Any]:
    output = [f"type=local,dest={USED_OBJECTS}"]
    return {**_common(plan, staging), "target": USED_OBJECTS, "output": output}


def image_target(plan: Plan, product: str, host: Host, staging: Staging | None = None) -> dict[str, Any]:
    """Return the target of an image; its stage in the Dockerfile has the name of the image kind."""
    # Into the engine, also from a remote builder.
    loaded = {"tags": [plan.tag(product)], "output": ["type=docker"]}
    return {
        **_common(plan, staging),
        "target": product,
        **(staging.target(product) if staging else loaded),
        "labels": {**plan.labels(product), **({CACHE_LABEL: REMOTE} if compiles_online() else {})},
        **_attestations(host),
        **_layer_cache(plan, host),
    }


def info_target(plan: Plan, tree: str, staging: Staging | None = None) -> dict[str, Any]:
    """Return the target that exports the figures of a build tree's compile to `info/`."""
    return {**_common(plan, staging), "target": f"{tree}-info", "output": [f"type=local,dest=info/{tree}"]}


def _common(plan: Plan, staging: Staging | None) -> dict[str, Any]:
    base = staging or plan.base
    return {
        "context": "recipe",
        "dockerfile": "Dockerfile",
        "contexts": {
            "base": f"docker-image://{base.serving}",
            "toolchain-base": f"docker-image://{base.devel}",
            SOURCES: SOURCES,
            "recipe": "recipe",
            WHEELS: WHEELS,
            OBJECTS: OBJECTS,
        },
        "args": {EPOCH: str(plan.revision.epoch), **plan.arguments(), **proxies.arguments()},
        "secret": SECRETS,
        "platforms": [plan.base.platform],
    }


def target_name(plan: Plan, target: str) -> str:
    """Return the name of a target in the bake file of a cell."""
    return _without_dots(f"{plan.cell.id}-{target}")


def _attestations(host: Host) -> dict[str, list[str]]:
    """Return BuildKit's own provenance, unless a build argument may be a proxy with a password."""
    return {"attest": ["type=provenance,mode=max"]} if host.full and not proxies.are_set() else {}


def _layer_cache(plan: Plan, host: Host) -> dict[str, list[str]]:
    """Return the layer cache in a registry, for builders without a shared disk; its loss fails no build."""
    if not host.cache:
        return {}
    place = f"type=registry,ref={host.cache}:{plan.cell.id}"
    fill = {"cache-to": [f"{place},mode=max,ignore-error=true"]} if host.full else {}
    return {"cache-from": [place], **fill}


def base_definition(plan: Plan, os_image: str, host: Host) -> dict[str, object]:
    """Return the bake file of a local base: the image to serve from and the one to compile in."""
    assert plan.base.local is not None
    assert plan.base.debian is not None
    arguments = {
        EPOCH: str(int(plan.base.debian.time.timestamp())),
        "OS_IMAGE": os_image,
        **plan.base.local.arguments,
        **proxies.arguments(),
    }
    contexts = [packages.CONTEXT, WHEELS, *([SOURCES] if plan.server_sources else [])]
    targets = {
        _without_dots(f"base-{plan.base.name}-{target}"): {
            "context": ".",
            "contexts": {name: name for name in contexts},
            "dockerfile": "Dockerfile",
            "target": target,
            "args": arguments,
            "labels": {f"{LABELS}.snapshot": plan.base.snapshot},
            "secret": SECRETS,
            "platforms": [plan.base.platform],
            "tags": [tag],
            "output": ["type=docker"],
        }
        for target, tag in (("serving", plan.base.serving), ("devel", plan.base.devel))
    }
    return definition(targets)


def write(job: Job, host: Host) -> None:
    """Write the bake file and a script that repeats the run into the job's folder."""
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / OLD_SETTINGS).unlink(missing_ok=True)
    job.file.write_text(json.dumps(job.definition, indent=2) + "\n")
    job.script.write_text(
        _SCRIPT.format(
            variables=", ".join(PASSED_ON),
            pattern="|".join(PASSED_ON),
            settings=shlex.quote(host.own_lines()),
            name=SETTINGS,
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

    Raises BuildError with the failing compiler's lines and the path of the log, HostError if the builder was
    lost, PublishError if a registry did not take what it pushed.
    """
    progress = _progress(host.progress)
    for left in reversed(range(TRIES)):
        code = _run(job, host, progress, report)
        if not code:
            return
        log = job.log.read_text(encoding="utf-8", errors="replace")
        cause = next((error for error in _BUILDKIT_ERRORS if error in log), None)
        if not left or cause is None:
            break
        report(f"BuildKit itself failed ({cause}): trying again")
    builder = host.builder or builders.ENGINE
    # How the end of a connection is worded depends on the moment, so the builder is asked as well.
    if why := lost.line(log) or builders.silence(builder):
        raise HostError(
            lost.message(builder, why),
            where=str(job.log),
            hint="when it answers again (docker buildx ls), the same command continues from its caches",
        )
    if refused := _NOT_PUSHED.search(log):
        raise PublishError(
            f"the builder could not push: {refused['buildkit'] or refused['engine']}",
            where=str(job.log),
            hint="check that the builder reaches the registry, and your login (docker login)",
        )
    lines = "\n    ".join(failing_lines(log))
    raise BuildError(
        f"the build failed (docker buildx bake ended with code {code})\n    {lines}",
        where=str(job.log),
        hint=f"{job.script} repeats this build; after a fix, a new build starts from the caches",
    )


def _run(job: Job, host: Host, progress: str, report: Reporter) -> int:
    job.log.unlink(missing_ok=True)
    argv = command_line(job, "plain" if progress == "auto" else progress, host)
    if progress == "auto":
        with display.shown(job.folder.parent.name, _expected(job), report) as read:
            return shell.stream(argv, log=job.log, cwd=job.folder, env=_environment(host), on_line=read)
    if progress == "tty":
        return shell.stream_terminal(argv, log=job.log, cwd=job.folder, env=_environment(host))
    return shell.stream(argv, log=job.log, cwd=job.folder, env=_environment(host), on_line=report)


def failing_lines(log: str, limit: int = 6) -> list[str]:
    """Return the first compiler, CMake or BuildKit errors of a BuildKit log, else its last lines."""
    lines = [_STEP_PREFIX.sub("", line).strip() for line in log.splitlines()]
    causes = [line for line in dict.fromkeys(lines) if _ERROR_LINE.search(line) and not _is_echo(line)]
    return causes[:limit] or [line for line in lines if line][-limit:]


def ran_out_of_memory(log: str) -> bool:
    """Return whether a BuildKit log has a process that the OOM killer ended or that got no memory."""
    lines = (_STEP_PREFIX.sub("", line).strip() for line in log.splitlines())
    return any(_MEMORY.search(line) and not _is_echo(line) for line in lines)


def _is_echo(line: str) -> bool:
    """Return whether a line only quotes the Dockerfile, as BuildKit does around a failure."""
    return bool(re.match(r"\d+ \||>>>|(?:> )?\[\w", line))


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


def _environment(host: Host) -> dict[str, str]:
    """Return the settings, and what puts BuildKit's whole provenance into the metadata file (buildx 0.14).

    That holds the build arguments, so there is none if one may be a proxy with a password.
    """
    provenance = "disabled" if proxies.are_set() else "max"
    return {SETTINGS: host.lines(), "BUILDX_METADATA_PROVENANCE": provenance}


def _lines(settings: Mapping[str, str]) -> str:
    for name, value in settings.items():
        if "\n" in value:  # it would be another setting
            raise ConfigError(f"{name} has more than one line", hint=f"correct or unset {name}")
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _without_dots(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)


def definition(
    targets: Mapping[str, object], on_request: Mapping[str, object] | None = None
) -> dict[str, object]:
    """Return a bake file whose default is all of `targets`, and that has others `on_request`."""
    return {"group": {"default": {"targets": list(targets)}}, "target": {**targets, **(on_request or {})}}
