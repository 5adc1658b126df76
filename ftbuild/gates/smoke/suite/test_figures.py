"""Figures for the report, without limits, as machines differ."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from ftbuild.client import golden
from ftbuild.gates.smoke.served import Served, prompts

REPEATS = 5


@pytest.mark.variants
@pytest.mark.over_gpus
def test_figures(served: Served, record_property: Callable[[str, object], None]) -> None:
    start = time.monotonic()
    for _ in range(REPEATS):
        answers = served.ask(prompts("eight"), runtime_top_k=1)
    seconds = time.monotonic() - start
    record_property("ready_seconds", round(served.server.ready_seconds, 2))
    record_property("tokens_per_second", round(REPEATS * len(answers) * golden.LENGTH / seconds))
    if served.on_gpu:
        record_property("gpu_memory_bytes", served.gpu_memory())
