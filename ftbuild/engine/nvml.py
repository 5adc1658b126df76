"""The memory of GPUs as NVML reports it. Runs alone, inside a container: python3 nvml.py WHAT [GPU].

WHAT is `all`: the bytes in use on a GPU, by any process; `own`: those of this container's processes; `busy`:
the percentage of the last moments that the GPU has computed; `tells`: whether the driver tells a container
the memory of its own processes.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable

# The most processes on one GPU, the most GPUs, and what NVML says where it does not know (nvml.h).
MAX_PROCESSES, MAX_GPUS, UNKNOWN = 1024, 64, 2**64 - 1
# The same list in two versions of the driver, with one layout (nvmlProcessInfo_t).
LISTS = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")


class Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Utilization(ctypes.Structure):
    """nvmlUtilization_t."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


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
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    if code := nvml.nvmlInit_v2():
        raise SystemExit(f"nvmlInit ended with {code}")
    return nvml


def of_all(nvml: ctypes.CDLL, index: int) -> int:
    """Return the bytes in use on a GPU, by any process; SystemExit where NVML does not know."""
    memory = Memory()
    _read(nvml, nvml.nvmlDeviceGetMemoryInfo, index, memory)
    return int(memory.used)


def busy(nvml: ctypes.CDLL, index: int) -> int:
    """Return the percentage of the last moments that a GPU has computed; SystemExit where unknown."""
    rates = Utilization()
    _read(nvml, nvml.nvmlDeviceGetUtilizationRates, index, rates)
    return int(rates.gpu)


def _read(nvml: ctypes.CDLL, call: Callable[..., int], index: int, into: ctypes.Structure) -> None:
    """Let a call of NVML fill in a structure about a GPU; SystemExit where it cannot."""
    device = ctypes.c_void_p()
    code = nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
    if code := code or call(device, ctypes.byref(into)):
        raise SystemExit(f"GPU {index}: NVML ended with {code}")


def of_each(nvml: ctypes.CDLL, index: int) -> dict[int, int]:
    """Return the bytes that each process has on a GPU, where NVML knows them.

    The driver lists those of the caller's PID namespace, each by the thread that first used the GPU, even one
    that has ended (open GPU kernel modules 580 os-interface.c, os_get_pid_info and os_find_ns_pid). Others
    list what runs on the whole machine, or nothing.
    """
    device = ctypes.c_void_p()
    if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)):
        return {}
    for name in LISTS:
        count, processes = ctypes.c_uint(MAX_PROCESSES), (Process * MAX_PROCESSES)()
        call = getattr(nvml, name, None)
        if call and not call(device, ctypes.byref(count), processes):
            return {each.pid: each.used for each in processes[: count.value] if each.used != UNKNOWN}
    return {}


def tells(nvml: ctypes.CDLL, cuda: ctypes.CDLL) -> bool:
    """Return whether a process that uses a GPU is listed by an id of its own, and no other process is.

    As in a server, the thread that first uses the GPU has ended by then.
    """
    own: set[int] = {os.getpid()}
    codes: list[int] = []

    def use() -> None:
        own.add(threading.get_native_id())
        context = ctypes.c_void_p()
        codes.append(cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))

    first = threading.Thread(target=use)
    first.start()
    first.join()
    listed = [pid for index in range(MAX_GPUS) for pid, used in of_each(nvml, index).items() if used]
    return codes == [0] and len(listed) == 1 and listed[0] in own


def main(question: str, index: int = 0) -> None:
    """Print the answer to a question of the module docstring."""
    nvml = library()
    if question == "tells":
        print(tells(nvml, ctypes.CDLL("libcuda.so.1")))
    elif question == "own":
        print(sum(of_each(nvml, index).values()))
    else:
        print({"all": of_all, "busy": busy}[question](nvml, index))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
