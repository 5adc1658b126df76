"""Deployments for Apptainer (or Singularity) under Slurm: definition file, scripts to start, ask and submit.

A container there runs as the calling user and shares the host's network and GPUs. So the server gets its
ports as options, and CUDA_VISIBLE_DEVICES chooses the GPUs.
"""

from __future__ import annotations

import shlex
import shutil
import textwrap
from collections.abc import Mapping
from pathlib import Path

from ftbuild import triton
from ftbuild.errors import BuildError, ConfigError, HostError
from ftbuild.host import files, shell
from ftbuild.host.shell import CommandFailed
from ftbuild.text.reporter import Reporter
from ftserve import health, several_nodes
from ftserve.deployment import Deployment
from ftserve.stored import Stored

PROGRAM = "apptainer"
DEFINITION, IMAGE, ARCHIVE = "triton.def", "triton.sif", "image.tar"
START, BATCH = "triton_start.sh", "triton.sbatch"
ASK, PROBE = "triton_probe.sh", "probe.py"
LOG = "build.log"
FETCH, FETCHED = "fetch_models.sh", "models"
# A job whose server ends by itself is queued again so often.
RESTARTS = 20
# `apptainer --cleanenv` keeps out the variables of a batch system: OpenMPI would see SLURM_* and call srun,
# which no image has. Those that the server needs are passed on by name. `--contain` keeps out the host's /tmp
# and /dev/shm; the image's own files are read-only in any case. With `--pid` the server ends with the script
# that started it, also when that is killed: it would keep its ports and GPUs (seen with Apptainer 1.4.5).
_RUNTIME = """\
if [[ ! -f $here/{image} ]]; then
  echo "$here/{image} is not built; cd $here && apptainer build {image} {definition}" >&2
  exit 4
fi
if ! runtime=$(command -v apptainer || command -v singularity); then
  echo "neither apptainer nor singularity is installed; on a cluster: module load apptainer" >&2
  exit 4
fi
contained=(--cleanenv --contain --pid --no-home --no-privs --pwd /tmp)
"""
_START = """\
#!/bin/bash
# Starts Triton in the Apptainer image beside this script:  {start} [MODEL_REPOSITORY]
# GPUs: those of CUDA_VISIBLE_DEVICES (a batch system sets it), else {gpus_shown}.
# Ports: HTTP_PORT, GRPC_PORT, METRICS_PORT.
set -euo pipefail
here=$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)
default={models}
models=${{1:-$default}}
gpus=${{CUDA_VISIBLE_DEVICES-{gpus}}}
if [[ -z $models || ! -d $models ]]; then
  echo "no model repository: ${{models:-none given}}; usage: $0 MODEL_REPOSITORY" >&2
  exit 2
fi
models=$(cd "$models" && pwd)
served=({command}
  --http-port="${{HTTP_PORT:-{http}}}" --grpc-port="${{GRPC_PORT:-{grpc}}}"
  --metrics-port="${{METRICS_PORT:-{metrics}}}")
{runtime}prefix=${{runtime##*/}}
prefix=${{prefix^^}}ENV
export "${{prefix}}_CUDA_VISIBLE_DEVICES=$gpus"
{environment}{nodes}exec "$runtime" exec{nv} "${{contained[@]}}" \\
  --bind "$models:{inside}:ro" "$here/{image}" \\
  "${{served[@]}}"
"""
# What a user sets for the network between the nodes is passed on. The first node leads.
_NODES = """\
for name in "${{!NCCL_@}}" "${{!OMPI_MCA_@}}" NODE_GROUP_KEY; do
  export "${{prefix}}_$name=${{!name-}}"
done
contained+=(--bind "$here/{script}:/{script}:ro")
port=${{NODE_PORT:-{port}}}
if ((${{NODE_RANK:-0}})); then
  served=(python3 /{script} follow "${{NODE_LEADER:?the name of the first node}}" "$port" "$NODE_RANK")
else
  served=(python3 /{script} lead "$port" "${{served[@]}}")
fi
"""
# This machine's Python where it will do, and is no minimal one: to start a container can mean to unpack the
# whole image.
_ASK = """\
#!/bin/bash
# Asks the server on this machine for one token:  {ask} ready|alive [SECONDS]
# Ends with 0 if it answers within that time. Ports: HTTP_PORT, GRPC_PORT, as for {start}.
set -euo pipefail
here=$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)
ask=(python3 "$here/{probe}")
needs='import concurrent.futures, http.client, sys; sys.exit(sys.version_info < (3, 8))'
if ! python3 -c "$needs" 2> /dev/null; then
{runtime}  bound=(--bind "$here/{probe}:/{probe}:ro")
  ask=("$runtime" exec "${{contained[@]}}" "${{bound[@]}}" "$here/{image}" python3 /{probe})
fi
ask+=("${{1:?ready or alive}}" "${{2:-{seconds}}}" "${{HTTP_PORT:-{http}}}" "${{GRPC_PORT:-{grpc}}}")
exec "${{ask[@]}}"
"""
_BATCH = """\
#!/bin/bash
# Serves under Slurm, on {where}; from this folder:  sbatch {batch} [MODEL_REPOSITORY]
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
{limits}#SBATCH --requeue
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
set -uo pipefail
# Slurm runs a copy of this script from its own folder.
cd "${{SLURM_SUBMIT_DIR:?submit it with sbatch}}" || exit
echo "serving on $(hostname), start $((${{SLURM_RESTART_COUNT:-0}} + 1))"
{follow}./{start} "$@" &
server=$!
trap 'stopped=yes; kill -TERM "$server"' TERM INT
{watch}wait "$server"
code=$?
while kill -0 "$server" 2> /dev/null; do # a signal came, and the server has not ended yet
  wait "$server"
  code=$?
done
echo "the server ended with code $code"
{followed}# 86: a GPU is lost, 87: a request took too long, from 128 on: killed by a signal.
if [[ ! ${{stopped-}} ]] && ((code == 86 || code == 87 || code >= 128)); then
  if ((${{SLURM_RESTART_COUNT:-0}} < {restarts})); then
    scontrol requeue "$SLURM_JOB_ID" && sleep 60
  fi
fi
exit "$code"
"""
# The batch script runs on the first node. The others get all that they start from it: no MPI of Slurm's.
_FOLLOW = """\
NODE_LEADER=${{NODE_LEADER:-$(hostname)}}
NODE_GROUP_KEY=$(cat /proc/sys/kernel/random/uuid)
export NODE_LEADER NODE_GROUP_KEY
srun --nodes={others} --ntasks={others} --relative=1 --cpus-per-task="${{SLURM_CPUS_PER_TASK:-8}}" \\
  bash -c 'NODE_RANK=$((SLURM_PROCID + 1)) exec ./{start} "$@"' {start} "$@" &
followers=$!
"""
_FOLLOWED = """\
kill "$followers" 2> /dev/null # without waiting: its node may be gone, and the end of the job ends it
"""
# Kills a server that was ready and has answered nobody for longer than a request may take.
_WATCH = """\
watch() {{
  local failures=0
  until ./{ask} ready > /dev/null 2>&1; do sleep {period}; done
  echo "the server answers"
  while sleep {alive_period}; do
    if ./{ask} alive {seconds} > /dev/null; then
      failures=0
    elif ((++failures == {most})); then
      kill -KILL "$server"
    fi
  done
}}
watch &
watcher=$!
trap 'kill "$watcher" 2> /dev/null' EXIT
"""


# Credentials are in the environment, or where rclone and the clouds' own programs keep them.
_FETCH = """\
#!/bin/bash
# Fetches the model repository into a folder beside this script, or into another:  {fetch} [FOLDER]
# It needs rclone (on a cluster: module load rclone). What is there already is not fetched again.
set -euo pipefail
here=$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)
{variables}exec {command} "${{1:-$here/{folder}}}"
"""


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
            last = (folder / LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
            raise BuildError(
                "\n    ".join([f"{PROGRAM} ended with code {code}", *last]), where=str(folder / LOG)
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
    variables = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in stored.environment.items())
    command = shlex.join(["rclone", *stored.command[:-1]])
    return _FETCH.format(fetch=FETCH, folder=FETCHED, variables=variables, command=command)


def _start(deployment: Deployment, *, fetched: bool) -> str:
    exports = [
        f'export "${{prefix}}_{name}"={shlex.quote(value)}\n'
        for name, value in deployment.environment.items()
    ]
    gpus = ",".join(map(str, deployment.gpus))
    nodes = _NODES.format(script=several_nodes.SCRIPT_NAME, port=several_nodes.PORT)
    return _START.format(
        start=START,
        models=f"$here/{FETCHED}"
        if fetched and not deployment.models
        else shlex.quote(str(deployment.models or "")),
        gpus=gpus,
        gpus_shown=gpus or "none",
        runtime=_RUNTIME.format(image=IMAGE, definition=DEFINITION),
        image=IMAGE,
        environment="".join(exports),
        nodes=nodes if deployment.nodes > 1 else "",
        nv=" --nv" if deployment.gpus else "",
        inside=triton.MODELS,
        command=shlex.join(deployment.command),
        http=deployment.ports.http,
        grpc=deployment.ports.grpc,
        metrics=deployment.ports.metrics,
    )


def _ask(deployment: Deployment) -> str:
    runtime = _RUNTIME.format(image=IMAGE, definition=DEFINITION)
    return _ASK.format(
        ask=ASK,
        start=START,
        probe=PROBE,
        image=IMAGE,
        runtime=textwrap.indent(runtime, "  "),
        seconds=health.READY_SECONDS,
        http=deployment.ports.http,
        grpc=deployment.ports.grpc,
    )


def _batch(deployment: Deployment) -> str:
    limits = f"#SBATCH --gres=gpu:{len(deployment.gpus)}\n" if deployment.gpus else ""
    if deployment.memory is not None:
        limits += f"#SBATCH --mem={deployment.memory_mebibytes}M\n"
    several = deployment.nodes > 1
    return _BATCH.format(
        name=deployment.name,
        where=f"{deployment.nodes} nodes" if several else "one node",
        nodes=deployment.nodes,
        follow=_FOLLOW.format(others=deployment.nodes - 1, start=START) if several else "",
        followed=_FOLLOWED if several else "",
        limits=limits,
        batch=BATCH,
        start=START,
        watch=_watch(health.alive_seconds(deployment)),
        restarts=RESTARTS,
    )


def _watch(seconds: int | None) -> str:
    if seconds is None:
        return ""
    return _WATCH.format(
        ask=ASK,
        seconds=seconds,
        period=health.PERIOD_SECONDS,
        alive_period=health.ALIVE_PERIOD_SECONDS,
        most=health.FAILURES,
    )
