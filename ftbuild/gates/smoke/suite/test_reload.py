"""Unloading and loading a model again: right answers, and no memory that stays."""

from __future__ import annotations

import pytest

from ftbuild.errors import SmokeError
from ftbuild.gates.smoke.served import Numbers, Served, prompts
from ftbuild.models import config_pbtxt

CYCLES = Numbers(on_gpu=10, over_gpus=4, on_cpu=2)
# The driver's own bookkeeping; a model that stays takes hundreds.
SLACK_BYTES = 16 * 2**20


def _cycle(served: Served) -> int:
    """Unload the model, load it, compare its answer; return the GPU memory in use in bytes, 0 if unknown."""
    client = served.clients["http"]
    client.unload(config_pbtxt.MODEL)
    client.load(config_pbtxt.MODEL)
    served.check("one", served.ask(prompts("one"), runtime_top_k=1))
    return served.gpu_memory()


@pytest.mark.variants
@pytest.mark.over_gpus
def test_a_model_that_is_unloaded_and_loaded_leaves_no_memory(served: Served) -> None:
    used = [_cycle(served) for _ in range(CYCLES.at(served))]
    more = used[-1] - used[0]
    if more > SLACK_BYTES:
        raise SmokeError(
            f"{served.variant} has {more >> 20} MiB more after {len(used)} loads than after one: {used}",
            hint="unloading does not free what loading took: patches/backend/0180, patches/ft/0163",
        )
