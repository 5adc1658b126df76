"""A tritonserver that this machine runs for a measurement: how it is started, when it is ready, its end."""

from __future__ import annotations

import contextlib
import os
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

from ftbuild import triton
from ftbuild.errors import SmokeError

MODELS, BACKENDS = "models", "backends"
# The backend's folder, and the library that all of FasterTransformer is in.
BACKEND, LIBRARY = "fastertransformer", "libtransformer-shared.so"
INSIDE = "/ftbench"
# How `docker run` is asked for all GPUs, by ftbuild.gpu's names for it.
DEVICES = {"cdi": "--device=nvidia.com/gpu=all", "gpus": "--gpus=all"}
# The backend refuses a model for one GPU where it sees more (BE v1.4 libfastertransformer.cc:388-391).
ONE_GPU = {"CUDA_VISIBLE_DEVICES": "0"}
READY_SECONDS = 300.0
END_SECONDS = 60.0
POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Place:
    """A folder of this machine that the server sees as well, at the path `inside`."""

    outside: Path
    inside: str


@dataclass(frozen=True)
class Variant:
    """What is measured: the server's own libraries or those in the folder `library`, and `environment`.

    `cpus` are the cores that it may use, as in taskset(1) ("0-7,16"); empty: all.
    """

    name: str
    library: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    cpus: str = ""


SHIPPED = Variant("shipped")


class Launcher(Protocol):
    """A way of starting the program, with `options` of its own and environment variables."""

    @property
    def place(self) -> Place:
        """The folder of the model repository."""
        ...

    def argv(self, options: Sequence[str], environment: Mapping[str, str], cpus: str) -> list[str]:
        """The command of a process that lives as long as the server and hands SIGTERM on to it."""
        ...

    def clean(self) -> None:
        """Remove what a killed process may have left."""


@dataclass(frozen=True)
class Command:
    """A command that runs in this machine's network, for instance `chroot ROOT mpirun ... tritonserver`."""

    place: Place
    program: Sequence[str]

    def argv(self, options: Sequence[str], environment: Mapping[str, str], cpus: str) -> list[str]:
        """The command with the environment set before it."""
        bound = ["taskset", "--cpu-list", cpus] if cpus else []
        return ["env", *_assigned(environment), *bound, *self.program, *options]

    def clean(self) -> None:
        """Nothing is left."""


@dataclass(frozen=True)
class Image:
    """A container of `image` in this machine's network, which gets all GPUs (`access`: a key of DEVICES)."""

    place: Place
    image: str
    access: str
    name: str = field(default_factory=lambda: f"ftbuild-bench-{uuid.uuid4().hex[:12]}")

    def argv(self, options: Sequence[str], environment: Mapping[str, str], cpus: str) -> list[str]:
        """`docker run` in the foreground, with the limits that we serve with."""
        limits = (f"--ulimit={name}={value}:{value}" for name, value in triton.LIMITS.items())
        bound = [f"--cpuset-cpus={cpus}"] if cpus else []
        return [
            *("docker", "run", "--rm", f"--name={self.name}", "--network=host", DEVICES[self.access]),
            *(f"--shm-size={triton.SHARED_MEMORY}", *limits, *bound),
            *(f"--env={word}" for word in _assigned(environment)),
            f"--mount=type=bind,source={self.place.outside},target={self.place.inside},readonly",
            *(self.image, *triton.COMMAND[:-1], *options),
        ]

    def clean(self) -> None:
        """The container outlives a `docker run` that was killed."""
        subprocess.run(["docker", "rm", "--force", self.name], capture_output=True, check=False)


@dataclass(frozen=True)
class Running:
    """A server that is ready: its gRPC endpoint, seconds from its start, and the cores it may use.

    The time to ready counts from the start of the command to the first 200 of /v2/health/ready. `cores` is
    a list as in /proc/<pid>/status, empty where the server's process cannot be seen.
    """

    grpc: str
    ready_seconds: float
    cores: str


def equip(place: Place, variant: Variant) -> None:
    """Put a variant's libraries where the server finds them."""
    if variant.library is None:
        return
    folder = place.outside / BACKENDS / variant.name / BACKEND
    folder.mkdir(parents=True, exist_ok=True)
    for library in sorted(variant.library.glob("*.so")):
        shutil.copy2(library, folder)


@contextlib.contextmanager
def started(launcher: Launcher, variant: Variant, log: Path) -> Iterator[Running]:
    """A server of that variant, which writes into `log`; ended when the block is left.

    Raises SmokeError with the server's own words when it does not get ready, or runs another variant.
    """
    http, grpc, metrics = _free_ports(3)
    options = [
        f"--model-repository={launcher.place.inside}/{MODELS}",
        *(f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}"),
    ]
    if variant.library is not None:
        options.append(f"--backend-directory={launcher.place.inside}/{BACKENDS}/{variant.name}")
    with log.open("wb") as sink:
        start = time.monotonic()
        argv = launcher.argv(options, {**ONE_GPU, **variant.environment}, variant.cpus)
        process = subprocess.Popen(argv, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            _wait(process, f"http://127.0.0.1:{http}{triton.READY}", log)
            ready = time.monotonic() - start
            yield Running(f"127.0.0.1:{grpc}", ready, _checked_cores(variant, log))
        finally:
            _end(process)
            launcher.clean()


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    # Proxies of the environment cannot reach this machine's own ports.
    opener = request.build_opener(request.ProxyHandler({}))
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise _not_ready(f"the server ended with code {process.returncode}", log)
        with contextlib.suppress(URLError, OSError), opener.open(url, timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(POLL_SECONDS)
    raise _not_ready(f"the server was not ready within {READY_SECONDS:g} s", log)


def _not_ready(what: str, log: Path) -> SmokeError:
    excerpt = triton.log_excerpt(log.read_bytes())
    return SmokeError(f"{what}; its log:\n    {excerpt}", where=str(log), hint=triton.DIED_HINT)


def _checked_cores(variant: Variant, log: Path) -> str:
    """The cores of the process that runs the variant; SmokeError when other libraries run in its place."""
    running = dict(_mapped())
    if variant.library is None:
        return next(iter(running.values()), "")
    wanted = f"/{BACKENDS}/{variant.name}/{BACKEND}/{LIBRARY}"
    cores = [found for path, found in running.items() if path.endswith(wanted)]
    if running and not cores:
        raise SmokeError(f"the server does not run {variant.name} but {', '.join(running)}", where=str(log))
    return next(iter(cores), "")


def _mapped() -> Iterator[tuple[str, str]]:
    """Path of FasterTransformer's library -> cores, of every process that has it mapped."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            lines, status = maps.read_text().splitlines(), maps.with_name("status").read_text()
        except OSError:  # ended meanwhile, or somebody else's
            continue
        mapped = [line for line in lines if line.endswith(f"/{BACKEND}/{LIBRARY}")]
        if mapped:
            cores = status.partition("Cpus_allowed_list:")[2].partition("\n")[0].strip()
            yield mapped[0].split(maxsplit=5)[-1], cores


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _assigned(environment: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in environment.items()]


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
