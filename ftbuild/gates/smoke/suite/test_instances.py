"""Instances of a model on several GPUs: each computes its share of the requests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as finished

import pytest

from ftbuild.engine import gpu
from ftbuild.errors import SmokeError
from ftbuild.gates.smoke import job
from ftbuild.gates.smoke.job import Job
from ftbuild.gates.smoke.served import Served, prompts

# For each instance, so that one is always waiting; seconds that they ask, and between two looks at the GPUs.
CLIENTS, SECONDS, LOOK_SECONDS = 4, 8.0, 0.5
# The idlest GPU computes in this share of the busiest one's time at least.
EVEN = 0.5


@pytest.mark.variants(dtypes=("fp32",), extra=(job.FOUR,), **job.INSTANCES[0])
@pytest.mark.variants(dtypes=("fp32",), extra=(job.FOUR,), **job.INSTANCES[1])
def test_instances_use_their_gpus_evenly(served: Served, task: Job) -> None:
    if not served.on_gpu:
        pytest.skip("there is no GPU")
    devices, number = task.devices(served.variant), CLIENTS * served.variant.instances
    end = time.monotonic() + SECONDS
    with ThreadPoolExecutor(number) as pool:
        busy = _busy(served, devices, [pool.submit(_ask, served, end) for _ in range(number)])
    loads = ", ".join(f"GPU {device}: {share:.0f} %" for device, share in zip(devices, busy, strict=True))
    if min(busy) < EVEN * max(busy) or not max(busy):
        raise SmokeError(
            f"{served.variant}: the GPUs compute unevenly: {loads}",
            hint="does each instance get GPUs of its own (BE v1.4 libfastertransformer.cc, "
            "model_instance_device_id_start_), and does Triton wait for one while others are idle?",
        )


def _ask(served: Served, end: float) -> None:
    """Ask one question again and again; each answer must be the reference's."""
    client = served.connect("grpc")
    try:
        while time.monotonic() < end:
            served.check("one", served.ask(prompts("one"), client=client, runtime_top_k=1))
    finally:
        client.close()


def _busy(served: Served, devices: Sequence[int], clients: Sequence[Future[None]]) -> list[float]:
    """Return the percentage of the time that each GPU computes until the clients have ended."""
    container = served.server.container.get_wrapped_container()
    looks: list[list[int]] = []
    while finished(clients, timeout=LOOK_SECONDS).not_done:
        looks.append([gpu.busy(container, device) or 0 for device in devices])
    for client in clients:
        client.result()
    return [sum(seen) / len(looks) for seen in zip(*looks, strict=True)] or [0.0] * len(devices)
