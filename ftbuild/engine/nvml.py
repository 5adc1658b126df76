"""The memory of GPUs as NVML tells it. Runs alone, inside a container: python3 nvml.py WHAT [GPU].

WHAT is `all`: the bytes in use on a GPU, by whomever; `own`: those of this container's processes; `tells`:
whether the driver tells a container the memory of its own processes.
"""

from __future__ import annotations

import ctypes
import os
import sys

# The most processes on one GPU, the most GPUs, and what NVML says where it does not know (nvml.h).
MOST_PROCESSES, MOST_GPUS, UNKNOWN = 1024, 64, 2**64 - 1
# The same list in two versions of the driver, with one layout (nvmlProcessInfo_t).
LISTS = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")


class Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Process(ctypes.Structure):
    """nvmlProcessInfo_t."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


def library() -> ctypes.CDLL:
    """Return NVML, which needs no context of CUDA; SystemExit where it does not work."""
    found = ctypes.CDLL("libnvidia-ml.so.1")
    if code := found.nvmlInit_v2():
        raise SystemExit(f"nvmlInit ended with {code}")
    return found


def of_all(nvml: ctypes.CDLL, index: int) -> int:
    """Return the bytes in use on a GPU, by whomever; SystemExit where NVML does not know."""
    device, memory = ctypes.c_void_p(), Memory()
    code = nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
    code = code or nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))
    if code:
        raise SystemExit(f"the memory of GPU {index}: NVML ended with {code}")
    return int(memory.used)


def of_each(nvml: ctypes.CDLL, index: int) -> dict[int, int]:
    """Return the bytes that each process of this PID namespace has on a GPU, where NVML knows them.

    The driver leaves out those of other namespaces (open GPU kernel modules 580, os_find_ns_pid); older ones
    list them by ids that are none here.
    """
    device = ctypes.c_void_p()
    if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)):
        return {}
    for name in LISTS:
        count, found = ctypes.c_uint(MOST_PROCESSES), (Process * MOST_PROCESSES)()
        call = getattr(nvml, name, None)
        if call and not call(device, ctypes.byref(count), found):
            listed = {each.pid: each.used for each in found[: count.value]}
            return {
                pid: used
                for pid, used in listed.items()
                if used != UNKNOWN and os.path.exists(f"/proc/{pid}")  # noqa: PTH110
            }
    return {}


def tells(nvml: ctypes.CDLL, cuda: ctypes.CDLL) -> bool:
    """Return whether a process that uses a GPU is listed, by the id that it knows itself by."""
    context = ctypes.c_void_p()
    if cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0):
        return False
    return any(of_each(nvml, index).get(os.getpid()) for index in range(MOST_GPUS))


def main(asked: str, index: int = 0) -> None:
    """Print what is asked."""
    nvml = library()
    if asked == "tells":
        print(tells(nvml, ctypes.CDLL("libcuda.so.1")))
    else:
        print(of_all(nvml, index) if asked == "all" else sum(of_each(nvml, index).values()))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
