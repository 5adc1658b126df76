"""Deployments: how a model repository is served, as one value that all platforms render.

`docker run`, Compose, Kubernetes and Apptainer differ in syntax only. Pure: a deployment that cannot work is
refused before anything starts.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ftbuild import triton
from ftbuild.engine.gpu import Access, Gpu
from ftbuild.errors import ConfigError, HostError
from ftbuild.models import config_pbtxt, left_out
from ftbuild.models.weights import folder_name
from ftbuild.registry import reference
from ftbuild.sm import FIRST, sm_codes
from ftbuild.text import units
from ftbuild.text.units import GIB, MIB
from ftserve import front_options, several_nodes
from ftserve.front.settings import LOOPBACK
from ftserve.front_options import Front, FrontOptions
from ftserve.image_choice import Image
from ftserve.requirements import REQUEST_SECONDS, Needs, Weights

# The servers have no authentication (docs/security.md).
# No machine of these servers has more; a list of indices is no reason to run out of memory.
MAX_GPUS = 1024
NAME = "triton-ft"
# Upstream starts every server with 1g (BE v1.4 docs/gpt_guide.md:164): NCCL's buffers between GPUs do not fit
# into the 64 MiB that an engine gives by default.
MIN_SHARED = 64 * MIB
MIN_SHARED_MULTI_GPU = 1024 * MIB
# The root file system is read-only; Open MPI keeps a folder for its session here.
TMP, TMP_SIZE = "/tmp", 256 * MIB
# A server of one model has a few hundred threads, more on machines with many cores.
PROCESSES = 4096
# Beside the weights, which pass through the memory of the machine: libraries, contexts of the GPUs, requests.
# A ceiling for a server that leaks, no estimate.
MEMORY, MEMORY_OF_GPU = 4 * GIB, 4 * GIB
MIN_MEMORY = 1 * GIB
_SIZE = re.compile(r"([0-9]{1,6})([mg])i?b?", re.IGNORECASE)
# Names that Docker, Compose and Kubernetes all accept; a Service is the strictest (a DNS label of RFC 1035).
_INDEX = re.compile(r"[0-9]{1,4}")
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class Ports:
    """Ports of the three endpoints on the machine that serves, and the address on which it listens.

    `openai` is that of the OpenAI front, None where there is none.
    """

    http: int = triton.HTTP_PORT
    grpc: int = triton.GRPC_PORT
    metrics: int = triton.METRICS_PORT
    listen: str = LOOPBACK
    openai: int | None = None

    def __post_init__(self) -> None:
        try:
            ipaddress.ip_address(self.listen)
        except ValueError:
            raise ConfigError(
                f"--listen {self.listen[:80]!r} is not an IP address",
                hint=f"{LOOPBACK} for this machine alone, 0.0.0.0 for everyone who can reach it",
            ) from None
        ports = [port for _, port, _ in self.published()]
        for port in ports:
            if not 0 < port < 65536:
                raise ConfigError(f"{port} is not a port", hint="1 to 65535")
        if len(set(ports)) < len(ports):
            raise ConfigError(
                f"the endpoints need different ports, not {', '.join(map(str, ports))}",
                hint="--http-port, --grpc-port, --metrics-port, --openai-port",
            )

    @property
    def host(self) -> str:
        """The address to listen on, as it stands in front of `:port`."""
        return f"[{self.listen}]" if ":" in self.listen else self.listen

    @property
    def listens_everywhere(self) -> bool:
        """Whether it listens on all addresses of the machine."""
        return ipaddress.ip_address(self.listen).is_unspecified

    @property
    def listens_here_only(self) -> bool:
        """Whether only programs of the machine itself can connect."""
        return ipaddress.ip_address(self.listen).is_loopback

    def published(self) -> Iterator[tuple[str, int, int]]:
        """Yield name, port on the machine and port in the container of each endpoint, the front's too."""
        yield from self.endpoints()
        if self.openai is not None:
            yield "openai", self.openai, front_options.PORT

    def endpoints(self) -> Iterator[tuple[str, int, int]]:
        """Yield name, port on the machine and port in the container of each endpoint of the server."""
        yield "http", self.http, triton.HTTP_PORT
        yield "grpc", self.grpc, triton.GRPC_PORT
        yield "metrics", self.metrics, triton.METRICS_PORT


def size(text: str) -> int:
    """Return the bytes of `512m`, `1g` or `4GB`; units are powers of two, as in Docker."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ConfigError(f"{text[:80]!r} is not a size", hint="a number with m or g, for instance 1g")
    return int(match[1]) * MIB * (1024 if match[2].lower() == "g" else 1)


@dataclass(frozen=True)
class Options:
    """A user's choices; None and the defaults leave them to the model repository.

    `models` is None where the platform brings the repository. `gpus` are indices as nvidia-smi counts them,
    on each of the `nodes`.
    `shared_memory` and `memory` are in bytes.
    """

    models: Path | None
    gpus: tuple[int, ...] | None = None
    ports: Ports = field(default_factory=Ports)
    shared_memory: int = size(triton.SHARED_MEMORY)
    name: str = NAME
    memory: int | None = None
    front: FrontOptions | None = None
    nodes: int = 1


@dataclass(frozen=True)
class Deployment:
    """A server to start: `image` with the repository `models` on `gpus` (none: on the CPU).

    With several `nodes` it is one process on each, and `gpus` are those of one node.
    `shared_memory` and `memory` are in bytes, `memory` is None where the models are unknown.
    `request_seconds` is how long one request may take, None: without limit. `access` is how containers get
    GPUs (gpu.STYLES). There is no CUDA_VISIBLE_DEVICES in `environment`: a container gets its GPUs and counts
    them from 0; the renderer sets it where there is no such isolation (Apptainer). `front` is the OpenAI
    front beside the server, if there is one. `warnings` are for the user.
    """

    name: str
    image: str
    models: Path | None
    gpus: tuple[int, ...]
    ports: Ports
    shared_memory: int
    memory: int | None = None
    request_seconds: int | None = REQUEST_SECONDS
    access: str = "gpus"
    command: tuple[str, ...] = triton.COMMAND
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    front: Front | None = None
    nodes: int = 1
    warnings: tuple[str, ...] = ()

    @property
    def shared_mebibytes(self) -> int:
        """The shared memory in MiB, a unit of all platforms."""
        return self.shared_memory // MIB

    @property
    def memory_mebibytes(self) -> int | None:
        """The limit of memory in MiB; shared memory and /tmp count."""
        return None if self.memory is None else self.memory // MIB


def gpu_indices(text: str | None) -> tuple[int, ...] | None:
    """Parse `0,1`; ConfigError for anything but different numbers."""
    if not text:
        return None
    parts = [part.strip() for part in text.removeprefix("device=").split(",")]
    if not all(_INDEX.fullmatch(part) for part in parts) or len(set(map(int, parts))) < len(parts):
        raise ConfigError(f"--gpus {text[:80]!r}: not a list of GPU indices", hint="for instance --gpus 0,1")
    return tuple(int(part) for part in parts)


def chosen_gpus(options: Options, needs: Needs, device: str) -> tuple[int, ...]:
    """Return the GPUs of a node to serve on: those of the options, else as many as needed, from 0."""
    if options.nodes > 1:
        several_nodes.require(needs, options.nodes, device)
    if device == "gpu":
        if needs.gpus > MAX_GPUS:
            raise ConfigError(
                f"config.pbtxt asks for {units.gpus(needs.gpus)}, more than {MAX_GPUS}",
                hint="tensor_para_size x pipeline_para_size",
            )
        return options.gpus or tuple(range(needs.gpus // options.nodes))
    if options.gpus:
        raise ConfigError("the backend of this stack computes on the CPU", hint="leave out --gpus")
    return ()


def decide(
    options: Options, needs: Needs, image: Image, device: str, access: Access | None = None
) -> Deployment:
    """Decide how to serve; `access` are the chosen GPUs, None where they are unknown.

    `device` is what the stack's backend computes on (models.yaml). Raises ConfigError where options, weights
    and config.pbtxt disagree, HostError where these GPUs cannot serve the model.
    """
    if not _NAME.fullmatch(options.name):
        raise ConfigError(
            f"--name {options.name[:80]!r}: not a name that every platform takes",
            hint="lower-case letters, digits and dashes, a letter first, at most 63",
        )
    reference.check_image(image.name)
    models = options.models and options.models.resolve()
    if models and not str(models).isprintable():
        raise ConfigError(
            f"{str(models)!r}: not a path that every platform takes",
            hint="rename it without control characters; letters beyond ASCII need a UTF-8 locale",
        )
    gpus = chosen_gpus(options, needs, device)
    if options.nodes > 1:
        several_nodes.require_image(image)
    for weights in needs.weights:
        _refuse_missing(weights, options.models, device)
        _refuse_defects(weights, options.models)
        left_out.require(image.left_out, weights.needed, image.name, weights.model)
        if options.nodes > 1:
            several_nodes.require_gpus(weights, options.nodes, len(gpus))
        elif gpus:
            _refuse_count(weights, len(gpus))
        _refuse_silent_type(weights)
        for shared in access.gpus if access else ():
            _refuse_type(weights, shared)
    if access:
        _refuse_sm(image, access.gpus)
    _refuse_shared_memory(options.shared_memory, len(gpus))
    return Deployment(
        name=options.name,
        image=image.name,
        models=models,
        gpus=gpus,
        ports=options.ports,
        shared_memory=options.shared_memory,
        memory=_memory(options, needs, len(gpus)),
        request_seconds=needs.request_seconds,
        access=access.style if access else "gpus",
        command=triton.command(image.server, options.nodes),
        environment=triton.launching(needs.stages(len(gpus))) if gpus else {},
        limits=triton.LIMITS if gpus else {},
        nodes=options.nodes,
    )


def _refuse_missing(weights: Weights, models: Path | None, device: str) -> None:
    """Raise ConfigError without weights: the backend only warns about missing files, and serves noise."""
    if weights.exists or (device == "cpu" and not weights.split):  # the sample's model needs no weights
        return
    root = models or Path(triton.MODELS)
    where = str(root / weights.folder)
    again = f"invoke convert --gpus {weights.tensor_para}, then invoke model-repo"
    if weights.named:
        there = f", only {_folders(weights.split)}" if weights.split else ""
        raise ConfigError(
            f"{weights.model}: config.pbtxt has {weights.named}, and there is no such folder{there}",
            where=where,
            hint=config_pbtxt.adopt(root / weights.model) if weights.split else again,
        )
    if weights.split:
        raise ConfigError(
            f"{weights.model}: config.pbtxt has tensor_para_size {weights.tensor_para}, "
            f"the weights are split for {', '.join(map(str, weights.split))}",
            where=where,
            hint=f"invoke model-repo --gpus {weights.split[0]}, or for {weights.tensor_para}: {again}",
        )
    raise ConfigError(f"{weights.model}: the weights are missing", where=where, hint=again)


def _folders(split: Sequence[int]) -> str:
    return ", ".join(folder_name(count) for count in split)


def _refuse_defects(weights: Weights, models: Path | None) -> None:
    """Raise ConfigError for files that contradict config.ini, for the same reason."""
    if weights.defects:
        root = models or Path(triton.MODELS)
        raise ConfigError(
            "\n    ".join([f"{weights.model}: config.ini and the weights do not fit:", *weights.defects]),
            where=str(root / weights.folder),
            hint=f"copy or convert the weights again; where another program than invoke convert wrote them: "
            f"{config_pbtxt.adopt(root / weights.model)}",
        )


def _refuse_count(weights: Weights, gpus: int) -> None:
    if weights.fits(gpus):
        return
    split = f"tensor_para_size {weights.tensor_para} x pipeline_para_size {weights.pipeline_para}"
    if gpus < weights.gpus:
        indices = ",".join(map(str, range(weights.gpus)))
        raise ConfigError(
            f"{weights.model}: weights for {units.gpus(weights.gpus)} ({split}) on {gpus}",
            hint=f"--gpus {indices}, or invoke convert --gpus {gpus} and invoke model-repo",
        )
    raise ConfigError(
        f"{weights.model}: {gpus} GPUs for weights that need {weights.gpus} ({split}): the backend uses all "
        f"visible GPUs, and {weights.instances} x {weights.gpus} does not cover them evenly",
        hint=f"choose {weights.gpus} GPUs, and start a second server on the others",
    )


def _refuse_silent_type(weights: Weights) -> None:
    """Raise ConfigError for bf16 that the backend takes for fp32 (BE v1.4 libfastertransformer.cc:283)."""
    if weights.data_type == "bf16" and "bf16" not in weights.data_types:
        raise ConfigError(
            f"{weights.model}: {weights.model_type} has no bf16; the backend would silently compute in fp32",
            hint=f"invoke model-repo with data type {' or '.join(weights.data_types)}",
        )


def _refuse_type(weights: Weights, gpu: Gpu) -> None:
    if weights.data_type == "fp16" and gpu.sm < FIRST["fp16"]:
        raise _no_type("fp16", "6.0 and later", weights, gpu)
    if weights.data_type == "bf16" and gpu.sm < FIRST["bf16"]:
        raise _no_type("bf16", "8.0 and later", weights, gpu)
    if weights.int8 and gpu.sm < FIRST["int8"]:
        raise _no_type("int8_mode", "7.0 and later", weights, gpu)


def _no_type(name: str, where: str, weights: Weights, gpu: Gpu) -> HostError:
    return HostError(
        f"{weights.model}: {name} needs a GPU of compute capability {where}, this is {gpu}",
        hint="invoke model-repo with another data type, or other --gpus",
    )


def _refuse_sm(image: Image, gpus: Sequence[Gpu]) -> None:
    for gpu in gpus:
        if not image.runs_on([gpu]):
            raise HostError(
                f"{image.name} has machine code for {sm_codes(image.sms or ())} only, the GPU is {gpu}",
                hint=f"invoke build --sm {gpu.sm}, or leave --image and --sm out",
            )


def _refuse_shared_memory(shared_memory: int, gpus: int) -> None:
    smallest = MIN_SHARED_MULTI_GPU if gpus > 1 else MIN_SHARED
    if shared_memory < smallest:
        purpose = f"NCCL on {gpus} GPUs" if gpus > 1 else "the server"
        raise ConfigError(
            f"{shared_memory // MIB} MiB of shared memory is too small for {purpose}",
            hint=f"--shm {smallest // MIB}m or more",
        )


def _memory(options: Options, needs: Needs, gpus: int) -> int | None:
    """Return the limit of memory in bytes; ConfigError for one that leaves the server nothing."""
    if options.memory is None:
        if not needs.models:
            return None
        return needs.size // MIB * MIB + options.shared_memory + MEMORY + gpus * MEMORY_OF_GPU
    if options.memory < options.shared_memory + MIN_MEMORY:
        raise ConfigError(
            f"{options.memory // MIB} MiB of memory is too small: {options.shared_memory // MIB} are shared",
            hint=f"--memory {(options.shared_memory + MIN_MEMORY) // MIB}m or more",
        )
    return options.memory
