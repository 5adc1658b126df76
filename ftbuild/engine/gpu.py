"""GPUs of the engine's containers: device requests, identification, machine code that they run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftbuild.engine import container
from ftbuild.errors import FtbuildError, HostError
from ftbuild.host import shell
from ftbuild.sm import Sm

if TYPE_CHECKING:
    import docker
    from docker.models.containers import Container
    from docker.types import DeviceRequest

ANSWER_SECONDS = 10.0
# CUDA's driver API through the library that the driver brings: it is there whenever a GPU is, which
# nvidia-smi is not. Attributes 75 and 76 are the compute capability (cuda.h, CUdevice_attribute).
_QUERY = """\
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        raise SystemExit(f"{name} ended with CUresult {code}")
def number(name, *arguments):
    value = ctypes.c_int()
    call(name, ctypes.byref(value), *arguments)
    return value.value
call("cuInit", 0)
version = number("cuDriverGetVersion")
gpus = []
for device in range(number("cuDeviceGetCount")):
    name, memory = ctypes.create_string_buffer(100), ctypes.c_size_t()
    call("cuDeviceGetName", name, 100, device)
    call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    major, minor = (number("cuDeviceGetAttribute", attribute, device) for attribute in (75, 76))
    gpus.append({"name": name.value.decode(), "major": major, "minor": minor, "memory": memory.value,
                 "cuda": f"{version // 1000}.{version % 1000 // 10}"})
print(json.dumps(gpus))
"""

_NVML = (Path(__file__).parent / "nvml.py").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Gpu:
    """A GPU: compute capability `major`.`minor`, memory in bytes, newest CUDA that its driver runs."""

    name: str
    major: int
    minor: int
    memory: int
    cuda: str

    def __str__(self) -> str:
        return f"{self.name} (compute capability {self.sm.capability})"

    @property
    def sm(self) -> Sm:
        """Its SM."""
        return Sm.of_capability(self.major, self.minor)

    def runs(self, sms: Iterable[Sm]) -> bool:
        """Return whether machine code for one of `sms` runs on it."""
        return any(sm.runs_on(self.sm) for sm in sms)


@dataclass(frozen=True)
class Installed:
    """A GPU of this machine as its driver lists it; `memory` in bytes, None if not reported."""

    name: str
    sm: Sm
    driver: str
    memory: int | None


@dataclass(frozen=True)
class Access:
    """GPUs, and the style of device request that gives them: `cdi`, `gpus` (as `docker run --gpus`)."""

    style: str
    gpus: tuple[Gpu, ...]


STYLES: Mapping[str, Mapping[str, Any]] = {
    "gpus": {"count": -1, "capabilities": [["gpu"]]},
    "cdi": {"driver": "cdi", "device_ids": ["nvidia.com/gpu=all"]},
}


def find(
    client: docker.DockerClient,
    image: str,
    *,
    indices: Sequence[int] | None = None,
) -> Access | None:
    """Return the GPUs that a container of `image` gets by the first style that works; None without any.

    `indices` asks for these alone. `image` needs python3, which every image of Triton has for its Python
    backend.
    """
    from docker.errors import APIError

    for style in STYLES:
        try:
            text = container.run(
                client,
                image,
                f"python3 - <<'PYTHON'\n{_QUERY}PYTHON",
                devices=requests(style, indices),
            )
        except (FtbuildError, APIError):
            continue
        if gpus := tuple(Gpu(**gpu) for gpu in json.loads(text)):
            return Access(style, gpus)
    return None


def installed() -> tuple[Installed, ...]:
    """Return the GPUs of this machine; raise HostError when its driver lists none."""
    query = [
        "nvidia-smi",
        "--query-gpu=name,compute_cap,driver_version,memory.total",
        "--format=csv,noheader",
    ]
    try:
        gpus = listed(shell.run(query, timeout=ANSWER_SECONDS).stdout)
    except FtbuildError:
        gpus = ()
    if not gpus:
        raise HostError("no GPU is known here", where="nvidia-smi", hint="name the SM of the GPU: --sm 86")
    return gpus


def listed(text: str) -> tuple[Installed, ...]:
    """Parse the output of nvidia-smi for that query, one GPU per line; memory is in MiB."""
    rows = ([field.strip() for field in line.rsplit(",", 3)] for line in text.splitlines())
    return tuple(
        Installed(row[0], Sm.parse(row[1]), row[2], _mebibytes(row[3])) for row in rows if len(row) == 4
    )


def _mebibytes(text: str) -> int | None:
    """Return the bytes of `143771 MiB`; None for anything else, such as the `[N/A]` of shared memory."""
    number, _, unit = text.partition(" ")
    return int(number) * 2**20 if unit == "MiB" and number.isdigit() else None


def requests(style: str, indices: Sequence[int] | None = None) -> list[DeviceRequest]:
    """Return the docker SDK's device requests for all GPUs, or those of `indices`.

    `style` is a key of STYLES.
    """
    from docker.types import DeviceRequest

    return [DeviceRequest(**(STYLES[style] if indices is None else selected(style, indices)))]


def selected(style: str, indices: Sequence[int]) -> Mapping[str, Any]:
    """Return the arguments of a device request for GPUs by index, as nvidia-smi counts them."""
    if style == "cdi":
        return {"driver": "cdi", "device_ids": [f"nvidia.com/gpu={index}" for index in indices]}
    return {
        "driver": "nvidia",
        "device_ids": [str(index) for index in indices],
        "capabilities": [["gpu"]],
    }


def memory_used(running: Container, index: int = 0) -> int | None:
    """Return the bytes in use on a GPU of a running container, by any process; None if unknown."""
    return _nvml_answer(running, "all", index)


def own_memory(running: Container, index: int = 0) -> int | None:
    """Return the bytes that a container's own processes have on a GPU; None if its driver does not know.

    Only where the driver `tells_processes`.
    """
    return _nvml_answer(running, "own", index) or None


def busy(running: Container, index: int = 0) -> int | None:
    """Return the percentage of the last moments that a GPU has computed; None if that is not known."""
    return _nvml_answer(running, "busy", index)


def tells_processes(client: docker.DockerClient, image: str, style: str) -> bool:
    """Return whether the driver shows a container the memory of its own processes.

    `style` is a key of STYLES; `image` needs python3.
    """
    from docker.errors import APIError

    script = f"python3 - tells <<'PYTHON'\n{_NVML}PYTHON"
    try:
        return container.run(client, image, script, devices=requests(style)).strip() == "True"
    except (FtbuildError, APIError):
        return False


def _nvml_answer(running: Container, what: str, index: int) -> int | None:
    """Return what NVML reports in a running container (nvml.py); None where it does not."""
    code, text = running.exec_run(["python3", "-c", _NVML, what, str(index)])
    return int(text) if code == 0 and isinstance(text, bytes) else None
