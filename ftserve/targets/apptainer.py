"""Deployments for Apptainer (or Singularity) under Slurm: definition file, scripts to start, ask and submit.

A container there runs as the calling user and shares the host's network and GPUs. So the server gets its
ports as options, and CUDA_VISIBLE_DEVICES chooses the GPUs.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import jinja2

from ftbuild import triton
from ftbuild.errors import BuildError, ConfigError, HostError
from ftbuild.host import files, shell
from ftbuild.host.shell import CommandFailed
from ftbuild.text.reporter import Reporter
from ftserve import health, several_nodes
from ftserve.deployment import Deployment
from ftserve.stored import SCRIPT, Stored

PROGRAM = "apptainer"
DEFINITION, IMAGE, ARCHIVE = "triton.def", "triton.sif", "image.tar"
START, BATCH = "triton_start.sh", "triton.sbatch"
ASK, PROBE = "triton_probe.sh", "probe.py"
LOG = "build.log"
_SCRIPTS = Path(__file__).parent / "scripts"
FETCH, FETCHED = "fetch_models.sh", "models"
# A job whose server ends by itself is queued again so often.
RESTARTS = 20


@dataclass(frozen=True)
class Apptainer:
    """Apptainer under Slurm, as a `Target`; options as those of `render`."""

    archive: bool = False
    stored: Stored | None = None
    name: ClassVar[str] = "sif"

    def files(self, deployment: Deployment) -> Mapping[str, str]:
        """Return definition, scripts, and the programs that these start."""
        return render(deployment, archive=self.archive, stored=self.stored)


def render(
    deployment: Deployment, *, archive: bool = False, stored: Stored | None = None
) -> Mapping[str, str]:
    """Return file name -> text; the image comes from the engine, or with `archive` from a tar.

    For models that are `stored` in object storage there is a script that fetches them into a folder beside.
    """
    return {
        DEFINITION: _definition(deployment, archive),
        START: _start(deployment, fetched=stored is not None),
        **({FETCH: _fetch(stored)} if stored else {}),
        ASK: _ask(deployment),
        PROBE: health.SCRIPT,
        BATCH: _batch(deployment),
        **({several_nodes.SCRIPT_NAME: several_nodes.SCRIPT} if deployment.nodes > 1 else {}),
    }


def write(
    deployment: Deployment,
    folder: Path,
    *,
    archive: bool = False,
    stored: Stored | None = None,
    report: Reporter,
) -> Path | None:
    """Write the files, with `archive` the image's tar as well, and build the .sif if Apptainer is installed.

    Returns the .sif, or None where it must be built elsewhere, from the archive. Raises HostError when
    Apptainer is missing and there is no archive, BuildError with the log when it fails; the other files stay.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in render(deployment, archive=archive, stored=stored).items():
        (folder / name).write_text(text, encoding="utf-8")
    for script in (START, ASK, *([FETCH] if stored else [])):
        (folder / script).chmod(0o755)
    if archive:
        report(f"saving {deployment.image} to {folder / ARCHIVE}")
        _save(deployment.image, folder / ARCHIVE)
    if shutil.which(PROGRAM):
        report(f"building {folder / IMAGE}")
        return _build(folder)
    missing = f"{IMAGE} is not built: {PROGRAM} is not installed here"
    build = f"in the folder: {PROGRAM} build {IMAGE} {DEFINITION}"
    if not archive:
        raise HostError(
            missing,
            where=str(folder),
            hint=f"install it and run {build}; or use --archive, and build on a machine that has it",
        )
    report(f"{missing}. On a machine that has it, {build}")
    return None


def _save(image: str, file: Path) -> None:
    """Write the image's tar (`docker save`)."""
    with files.atomic_file(file) as partial:
        try:
            shell.run(["docker", "image", "save", "--output", str(partial), image])
        except CommandFailed as failed:
            raise HostError(
                f"the image cannot be saved: {failed.what}",
                where=image,
                hint="start the engine (systemctl start docker), and docker pull the image if it is not here",
            ) from failed


def _build(folder: Path) -> Path:
    with files.atomic_file(folder / IMAGE) as partial:
        command = [PROGRAM, "build", "--force", str(partial.relative_to(folder)), DEFINITION]
        code = shell.stream(command, log=folder / LOG, cwd=folder)
        if code:
            last = (folder / LOG).read_text(encoding="utf-8").strip().splitlines()[-3:]
            raise BuildError(
                "\n    ".join([f"{PROGRAM} {shell.ending(code)}", *last]), where=str(folder / LOG)
            )
    return folder / IMAGE


def _definition(deployment: Deployment, archive: bool) -> str:
    source = ("docker-archive", ARCHIVE) if archive else ("docker-daemon", _tagged(deployment.image))
    return f"Bootstrap: {source[0]}\nFrom: {source[1]}\n\n%labels\n    io.ftbuild.image {deployment.image}\n"


def _tagged(image: str) -> str:
    """Return the name with a tag, which Apptainer's docker-daemon source requires."""
    return image if ":" in image.rpartition("/")[2] else f"{image}:latest"


def _fetch(stored: Stored) -> str:
    if stored.image:
        raise ConfigError(
            "a job fetches no models from a registry",
            hint="invoke model-repo.pull fetches them into a folder, for --model-repo",
        )
    values = {"fetch": FETCH, "folder": FETCHED, "variables": stored.environment, "uri": stored.uri}
    return _rendered("fetch", {**values, "script": SCRIPT})


def _start(deployment: Deployment, *, fetched: bool) -> str:
    return _script(
        "start",
        deployment,
        models=str(deployment.models or ""),
        fetched=FETCHED if fetched else "",
        gpus=",".join(map(str, deployment.gpus)),
        environment=deployment.environment,
        inside=triton.MODELS,
        command=shlex.join(deployment.command),
        script=several_nodes.SCRIPT_NAME,
        port=several_nodes.PORT,
    )


def _ask(deployment: Deployment) -> str:
    return _script("ask", deployment, probe=PROBE, seconds=health.READY_SECONDS)


def _batch(deployment: Deployment) -> str:
    return _script(
        "batch",
        deployment,
        name=deployment.name,
        gpu_count=len(deployment.gpus),
        memory=deployment.memory_mebibytes,
        batch=BATCH,
        alive_seconds=health.alive_seconds(deployment),
        period=health.PERIOD_SECONDS,
        alive_period=health.ALIVE_PERIOD_SECONDS,
        most=health.FAILURES,
        restarts=RESTARTS,
    )


def _script(template: str, deployment: Deployment, **values: object) -> str:
    """Return a script about a deployment, with what all of them say."""
    ports = deployment.ports
    shared = {"http": ports.http, "grpc": ports.grpc, "metrics": ports.metrics, "nodes": deployment.nodes}
    files = {"start": START, "ask": ASK, "image": IMAGE, "definition": DEFINITION}
    return _rendered(template, {**shared, **files, **values})


def _rendered(template: str, values: Mapping[str, object]) -> str:
    """Return a script of the folder `scripts`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_SCRIPTS),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters["quoted"] = shlex.quote
    return environment.get_template(f"{template}.sh.j2").render(values)
