"""A local tritonserver for a measurement: start, readiness, end."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib import request
from urllib.error import URLError

from benchmarks.harness import origin
from benchmarks.harness.origin import Measured
from ftbuild import triton
from ftbuild.errors import ConfigError, SmokeError

MODELS, BACKENDS = "models", "backends"
# The backend's folder, and the library with all of FasterTransformer.
BACKEND, LIBRARY = "fastertransformer", "libtransformer-shared.so"
INSIDE = "/ftbench"
# Options of `docker run` for all GPUs, by the names in ftbuild.engine.gpu; none for a rehearsal.
DEVICES = {"cdi": "--device=nvidia.com/gpu=all", "gpus": "--gpus=all", "none": ""}
# The PATH of our bases (dockerfiles/open-base.Dockerfile), and where an unpacked image gets the driver's
# libraries.
ROOT_PATH = "/opt/tritonserver/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DRIVERS = "usr/local/nvidia/lib64"
DRIVER_FOLDER = Path("/", DRIVERS)
DRIVER = (
    "libcuda.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm.so.4",
    "libnvidia-gpucomp.so",
)
READY_SECONDS = 300.0
# GPUs that a program sees, by number or UUID (CUDA C++ Programming Guide, environment variables).
VISIBLE = "CUDA_VISIBLE_DEVICES"
END_SECONDS = 60.0
POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Place:
    """A folder of this machine that the server sees at the path `inside`."""

    outside: Path
    inside: str


@dataclass(frozen=True)
class Variant:
    """A variant of the server: its own libraries or those in the folder `library`, and `environment`.

    `cpus` are the cores that it may use, as in taskset(1) ("0-7,16"); empty: all. `image` replaces the
    launcher's, if that runs images.
    """

    name: str
    library: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    cpus: str = ""
    image: str = ""


SHIPPED = Variant("shipped")


def seeing(gpus: int) -> dict[str, str]:
    """Return the environment of a program that sees the first `gpus` GPUs of those that this one sees.

    The backend refuses a model for one GPU if it sees more (BE v1.4 libfastertransformer.cc:388-391). Raises
    ConfigError where CUDA_VISIBLE_DEVICES has fewer.
    """
    visible = os.environ.get(VISIBLE)
    known = range(gpus) if visible is None else [each.strip() for each in visible.split(",") if each.strip()]
    if len(known) < gpus:
        raise ConfigError(f"{VISIBLE} is {visible!r}: {gpus} needed", hint="unset it, or name as many GPUs")
    return {VISIBLE: ",".join(map(str, known[:gpus]))}


class Launcher(Protocol):
    """A way to start the server with options and environment variables."""

    @property
    def place(self) -> Place:
        """Return the folder of the model repository."""
        ...

    def argv(self, options: Sequence[str], variant: Variant) -> list[str]:
        """Return the command of a process that lives as long as the server and forwards SIGTERM."""
        ...

    def clean(self) -> None:
        """Remove remains of a killed process."""

    def cell(self, variant: Variant) -> Measured | None:
        """Return the cell that a variant's server is of; None if nothing says so."""
        ...


@dataclass(frozen=True)
class Command:
    """A command in this machine's network, for instance `chroot ROOT mpirun ... tritonserver`."""

    place: Place
    program: Sequence[str]

    def argv(self, options: Sequence[str], variant: Variant) -> list[str]:
        """Return the command, preceded by its environment."""
        bound = ["taskset", "--cpu-list", variant.cpus] if variant.cpus else []
        return ["env", *_assigned(variant), *bound, *self.program, *options]

    def clean(self) -> None:
        """Do nothing: nothing remains."""

    def cell(self, variant: Variant) -> Measured | None:
        """Return None: files do not name their cell."""
        return None


@dataclass(frozen=True)
class Image:
    """A container of `image` in this machine's network with all GPUs (`access`: a key of DEVICES)."""

    place: Place
    image: str
    access: str
    name: str = field(default_factory=lambda: f"ftbuild-bench-{uuid.uuid4().hex[:12]}")

    def argv(self, options: Sequence[str], variant: Variant) -> list[str]:
        """Return `docker run` in the foreground, with the limits of ftbuild's serving."""
        limits = (f"--ulimit={name}={value}:{value}" for name, value in triton.LIMITS.items())
        bound = [f"--cpuset-cpus={variant.cpus}"] if variant.cpus else []
        return [
            *("docker", "run", "--rm", f"--name={self.name}", "--network=host"),
            *filter(None, [DEVICES[self.access]]),
            *(f"--shm-size={triton.SHARED_MEMORY}", *limits, *bound),
            *(f"--env={word}" for word in _assigned(variant)),
            f"--mount=type=bind,source={self.place.outside},target={self.place.inside},readonly",
            *(variant.image or self.image, *triton.COMMAND[:-1], *options),
        ]

    def clean(self) -> None:
        """Remove the container, which outlives a killed `docker run`."""
        subprocess.run(["docker", "rm", "--force", self.name], capture_output=True, check=False)

    def cell(self, variant: Variant) -> Measured | None:
        """Return the cell that the image's labels name."""
        command = ["docker", "image", "inspect", "--format", "{{json .Config.Labels}} {{.Id}}"]
        done = subprocess.run(
            [*command, variant.image or self.image], capture_output=True, text=True, check=False
        )
        labels, _, image = done.stdout.strip().rpartition(" ")
        return origin.labelled(json.loads(labels) or {}, "runtime", image) if labels else None


@dataclass(frozen=True)
class Root:
    """A process in the folder `root` that an image was unpacked into, in this machine's network.

    It needs root's rights, but no engine. In a mount namespace of its own it sees this machine's /dev, /proc
    and /sys, the model's folder and the driver's `libraries`, as a container toolkit would mount them.
    """

    place: Place
    root: Path
    libraries: Sequence[Path] = ()

    @classmethod
    def at(cls, root: Path, place: Place) -> Root:
        """Return the launcher with the driver's libraries of this machine; ConfigError without a server."""
        # A link may lead to where only the server finds its target.
        folders = ROOT_PATH.strip("/").split(":/")
        if not any(os.path.lexists(root / folder / "tritonserver") for folder in folders):
            hint = "docker export of a container of the image, unpacked by tar"
            raise ConfigError(
                "no image is unpacked there: tritonserver is missing", where=str(root), hint=hint
            )
        return cls(place, root, tuple(driver_libraries()))

    def argv(self, options: Sequence[str], variant: Variant) -> list[str]:
        """Return the command: mounts, then the server below chroot, which gets the place of this shell."""
        inside = self.root / self.place.inside.lstrip("/")
        drivers = self.root / DRIVERS
        mounts = [
            f"mount --rbind /{name} {shlex.quote(str(self.root / name))}" for name in ("dev", "proc", "sys")
        ]
        if inside != self.place.outside:
            mounts.append(f"mount --bind {shlex.quote(str(self.place.outside))} {shlex.quote(str(inside))}")
        for library in self.libraries:
            target = drivers / library.name
            mounts.append(f"touch {shlex.quote(str(target))}")
            mounts.append(f"mount --bind {shlex.quote(str(library.resolve()))} {shlex.quote(str(target))}")
        bound = ["taskset", "--cpu-list", variant.cpus] if variant.cpus else []
        searched = {"PATH": ROOT_PATH, "HOME": "/tmp", "LD_LIBRARY_PATH": f"/{DRIVERS}"}
        environment = {**searched, **triton.LAUNCH_TOGETHER}
        server = [
            *("env", "-i", *(f"{name}={value}" for name, value in environment.items())),
            *_assigned(variant),
            *(*triton.COMMAND[:-1], *options),
        ]
        folders = shlex.join(["mkdir", "-p", str(inside), str(drivers)])
        limits = f"ulimit -l unlimited; ulimit -s {triton.LIMITS['stack'] // 1024}"
        script = " && ".join([limits, folders, *mounts, f'exec chroot {shlex.quote(str(self.root))} "$@"'])
        return [
            *("unshare", "--mount", "--propagation", "private", *bound, "sh", "-c", script, "server"),
            *server,
        ]

    def clean(self) -> None:
        """Do nothing: the mounts end with the process."""

    def cell(self, variant: Variant) -> Measured | None:
        """Return None: files do not name their cell."""
        return None


def driver_libraries() -> Iterator[Path]:
    """Yield the libraries of this machine's driver that a CUDA program loads; none without a GPU's driver."""
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    libraries = [Path(line.rpartition("=> ")[2]) for line in listed.splitlines() if "x86-64" in line]
    folders = dict.fromkeys([file.parent for file in libraries if file.name == DRIVER[0]] + [DRIVER_FOLDER])
    folder = next((each for each in folders if (each / DRIVER[0]).exists()), None)
    if folder:
        yield from (folder / name for name in DRIVER if (folder / name).exists())


@dataclass(frozen=True)
class Running:
    """A ready server: its gRPC endpoint, seconds since its start, and the cores it may use.

    The time to ready is that from the start of the command to the first 200 of /v2/health/ready. `cores` is a
    list as in /proc/<pid>/status, empty if the server's process is invisible.
    """

    grpc: str
    ready_seconds: float
    cores: str


def equip(place: Place, variant: Variant) -> None:
    """Copy a variant's libraries to where the server finds them."""
    if variant.library is None:
        return
    folder = place.outside / BACKENDS / variant.name / BACKEND
    folder.mkdir(parents=True, exist_ok=True)
    for library in sorted(variant.library.glob("*.so")):
        shutil.copy2(library, folder)


@contextlib.contextmanager
def started(launcher: Launcher, variant: Variant, log: Path) -> Iterator[Running]:
    """Start a server of this variant, which writes to `log`, and end it with the block.

    Raises SmokeError with the server's log if it does not get ready, or runs another variant.
    """
    http, grpc, metrics = free_ports(3)
    options = [
        f"--model-repository={launcher.place.inside}/{MODELS}",
        *(f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}"),
    ]
    if variant.library is not None:
        options.append(f"--backend-directory={launcher.place.inside}/{BACKENDS}/{variant.name}")
    with log.open("wb") as sink:
        start = time.monotonic()
        argv = launcher.argv(options, variant)
        process = subprocess.Popen(argv, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            wait(process, f"http://127.0.0.1:{http}{triton.READY}", log)
            ready = time.monotonic() - start
            yield Running(f"127.0.0.1:{grpc}", ready, _checked_cores(variant, log))
        finally:
            end(process)
            launcher.clean()


def wait(process: subprocess.Popen[bytes], url: str, log: Path, seconds: float = READY_SECONDS) -> None:
    """Wait until `url` answers with 200; SmokeError with the log if the process ends, or it takes longer."""
    # Proxies of the environment cannot reach this machine's own ports.
    opener = request.build_opener(request.ProxyHandler({}))
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise _not_ready(f"the server ended with code {process.returncode}", log)
        with contextlib.suppress(URLError, OSError), opener.open(url, timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(POLL_SECONDS)
    raise _not_ready(f"the server was not ready within {seconds:g} s", log)


def _not_ready(what: str, log: Path) -> SmokeError:
    excerpt = triton.log_excerpt(log.read_bytes())
    return SmokeError(f"{what}; its log:\n    {excerpt}", where=str(log), hint=triton.DIED_HINT)


def _checked_cores(variant: Variant, log: Path) -> str:
    """Return the cores of the variant's process; SmokeError if it runs other libraries."""
    running = dict(_mapped())
    if variant.library is None:
        return next(iter(running.values()), "")
    path_end = f"/{BACKENDS}/{variant.name}/{BACKEND}/{LIBRARY}"
    cores = [mapped for path, mapped in running.items() if path.endswith(path_end)]
    if running and not cores:
        raise SmokeError(f"the server does not run {variant.name} but {', '.join(running)}", where=str(log))
    return next(iter(cores), "")


def _mapped() -> Iterator[tuple[str, str]]:
    """Yield path of FasterTransformer's library and cores of every process that maps it."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            lines, status = maps.read_text().splitlines(), maps.with_name("status").read_text()
        except OSError:  # ended meanwhile, or another user's
            continue
        mapped = [line for line in lines if line.endswith(f"/{BACKEND}/{LIBRARY}")]
        if mapped:
            cores = status.partition("Cpus_allowed_list:")[2].partition("\n")[0].strip()
            yield mapped[0].split(maxsplit=5)[-1], cores


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a session of its own; kill it and what it started if it does not end."""
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _assigned(variant: Variant) -> list[str]:
    return [f"{name}={value}" for name, value in {**seeing(1), **variant.environment}.items()]


def free_ports(count: int) -> list[int]:
    """Return free ports."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
